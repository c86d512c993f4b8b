"""From a model's next-token logits to sentences: greedy search, beam search, batches of lines.

The searches know no model: they call a step function (`lingpipe.decode.step` says what it must
do). `batching` feeds a long text to any search in bounded memory and needs no TensorFlow, so
nothing is imported here; import each name from its module.
"""
