"""What every layer stands on: params, weights, scope, context, cost; and how files are written.

`atomic_file`, `spec`, `cost` and `initializers` are plain data and functions without TensorFlow;
`layer` and `context` need it, so they are imported by name from their modules.
"""
