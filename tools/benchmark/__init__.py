"""Measurements that are too long or too dependent on the machine to be tests."""
