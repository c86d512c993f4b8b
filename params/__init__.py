"""Registered models: numbers only. Importing this package imports no TensorFlow."""
