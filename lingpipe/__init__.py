"""lingpipe trains networks too large for one accelerator by pipelining them over several.

A model is a list of cells declared by hierarchical params; `lingpipe.pipeline` cuts the list into
stages, places each on its own device and trains with micro-batches so that the result is the one
that a single, infinitely large device would give. The package knows no task and no named model:
those live in `tasks/` and `params/`. Importing it imports no TensorFlow.
"""

__version__ = "0.1.0"
