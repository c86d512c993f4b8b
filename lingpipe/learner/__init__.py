"""The learner: optimisers, learning-rate schedules and gradient clipping.

`schedules` and the factor in `clipping` are plain Python on the host; `optimizers` and `learner`
run inside a stage's update function and need TensorFlow, so they are imported by name.
"""
