"""Layers with state: variables that follow the data, and not the gradient.

BatchNorm's moving moments are the example. In training such a layer assigns nothing. It reports
sums over the examples that it sees, as values, and says how the sums over a whole mini-batch make
new values of its variables:

    micro-batch 0:  context.report_statistics(path, {"count": 2, "sums": [...]})
    micro-batch 1:  context.report_statistics(path, {"count": 1, "sums": [...]})
    end of step:    new_state({"count": 3, "sums": [...]}) -> {"moving_mean": [...]}

Whoever runs the step adds the sums up and calls `update_state` once, if the step succeeds. How the
mini-batch is split therefore changes neither how often the state moves nor what it follows, and a
forward pass that is computed again moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tensorflow as tf

from lingpipe.base.layer import Layer, SharedWeightError


class StatefulLayer(Layer):
    """A layer some of whose non-trainable weights are its state.

    In training its `__call__` reports sums by `context.report_statistics(self.weights_path, ...)`;
    outside training it reads its state and reports nothing.
    """

    def new_state(self, totals: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """New values of the state, by the attribute's name; a function of old values and totals.

        Args:
          totals: what the layer reported, float32, added up over the mini-batch.
        """
        raise TypeError(f"{type(self).__qualname__} defines no new_state(totals).")


def update_state(layer: StatefulLayer, totals: Mapping[str, tf.Tensor]) -> None:
    """Assigns `layer.new_state(totals)`.

    Raises:
      TypeError: it names a weight that the learner moves.
    """
    values = layer.new_state(totals)  # All of them, before the first is assigned.
    for name, value in values.items():
        variable = getattr(layer, name)
        if variable.trainable:
            raise TypeError(
                f"{type(layer).__qualname__} has {name!r} in its state, but the learner moves it "
                "too; declare its Weight with trainable=False."
            )
        variable.assign(value)


def stateful_layers(layers: Iterable[Layer]) -> dict[str, StatefulLayer]:
    """Path of its weights -> layer, for each one with state among `layers` and their children.

    Layers that share their weights share their state: the first of them stands for all.

    Raises:
      SharedWeightError: layers share state but have different params.
    """
    found: dict[str, StatefulLayer] = {}
    for layer in layers:
        for part in (layer, *layer.submodules):
            if isinstance(part, StatefulLayer):
                first = found.setdefault(part.weights_path, part)
                _check_equal_params(first, part)
    return found


def _check_equal_params(first: StatefulLayer, second: StatefulLayer) -> None:
    """Refuses layers whose one state would be updated in two ways."""
    if first.params != second.params:
        raise SharedWeightError(
            f"{first.path!r} and {second.path!r} share the state at {first.weights_path!r} but "
            "have different params, so that it is unclear how to update it. Give them equal params "
            "or another share_weights."
        )
