"""Layers for models of any kind, each written for one device; none of them knows of pipelines.

Every layer is declared by its nested `Params`, built by `params.build(scope)` and called as
`layer(inputs, context)`. Weights are float32 and cast to the context's compute dtype where they are
used; norms, softmax and losses are computed in float32 at least (`precision`). Import each layer
from its module.
"""
