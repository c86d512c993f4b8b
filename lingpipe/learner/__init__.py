"""The learner: optimisers, learning-rate schedules, gradient clipping and the loss scale.

`schedules`, `loss_scale` and the factor in `clipping` are plain Python on the host; `optimizers`
and `learner` run inside a stage's update function and need TensorFlow, so they are imported by
name.
"""
