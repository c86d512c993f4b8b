"""What every layer stands on: params, weights, scope, context, cost.

`spec`, `cost` and `initializers` are plain data without TensorFlow; `layer` and `context` need it,
so they are imported by name from their modules.
"""
