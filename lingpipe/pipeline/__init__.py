"""The engine: cells are cut into stages, placed on devices and trained with micro-batches.

`schedule`, `partitioner`, `plan` and `simulate` are pure Python on plain data; `stage`, `executor`
and `builder` do the work on devices and need TensorFlow, so they are imported by name.
"""
