"""Input: lines of text, corpora, the tokenizer, the order of examples, batches. No TensorFlow.

From a file to a batch, one file each: lines.py and indexed_lines.py read text; corpus.py finds the
pairs of a corpus folder; tokenizer.py makes ids of text; permutation.py and mixing.py say which
example stands at which position of the endless training stream; batching.py cuts the stream into
batches; prefetch.py makes them ahead of time. input.py is the contract that a task's input keeps.
"""
