"""Kinds of work: each with its model, input and task, built on lingpipe, which knows none."""
