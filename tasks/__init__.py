"""Kinds of work: the model, input and task of each. They build on lingpipe; it knows none of them."""
