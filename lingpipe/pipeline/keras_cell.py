"""A Keras layer in the list of cells.

    KerasCell(keras.layers.Dense(512, activation="relu"))

The layer that the user made is a pattern: the pipeline builds a copy of it on the device of its
stage, with the weights of the pattern if that has been built. Random numbers of a Keras layer, such
as those of its Dropout, are keyed by seed, step, cell and the first example of the micro-batch: a
recomputation draws the same ones, but other than for our own Dropout they change with M.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost
from lingpipe.base.initializers import constant
from lingpipe.base.layer import Scope, Weight, join_path
from lingpipe.base.spec import Spec, Specs
from lingpipe.pipeline.errors import CellError
from lingpipe.pipeline.foreign_cells import BuiltCell
from lingpipe.pipeline.traced_cost import traced_cost


@dataclasses.dataclass(frozen=True)
class KerasCell:
    """A `keras.layers.Layer` that is called with the nested inputs.

    Attributes:
      layer: the pattern; it is left as it is.
      inputs: nested specs of what it will be called with, as `build_pipeline` finds them.
    """

    layer: keras.layers.Layer
    inputs: Specs = None

    def batch_keys(self) -> tuple[str, ...]:
        """None: a Keras layer sees its inputs only."""
        return ()

    def all_weights(self, path: str = "") -> dict[str, Weight]:
        """Shapes of the weights by name, after building a copy."""
        return {
            name: Weight(tuple(variable.shape), constant(0.0), variable.trainable)
            for name, variable in _named(self._copy(), path).items()
        }

    def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
        """Read off a trace of a copy; see `traced_cost`."""
        return traced_cost(dataclasses.replace(self, inputs=inputs)._copy(), inputs)

    def build(self, scope: Scope) -> BuiltCell:
        """Builds a copy on the current device.

        Raises:
          CellError: the layer has moving statistics, which a pipeline does not update yet.
        """
        layer = self._copy()
        variables = _named(layer, scope.weights_path)
        moving = [name for name, variable in variables.items() if not variable.trainable]
        if moving and layer.trainable:
            raise CellError(
                f"The Keras layer of cell {scope.path!r} updates {', '.join(moving)} in its "
                "forward pass. Use lingpipe's own layer, or set layer.trainable = False."
            )
        scope.variables.update(variables)
        seeds = _seeds(layer)

        def call(inputs: Any, context: Context) -> Any:
            state = [
                _seed_of(context, scope.path, index)
                if any(variable is seed for seed in seeds)
                else variable.value
                for index, variable in enumerate(layer.non_trainable_variables)
            ]
            weights = [variable.value for variable in layer.trainable_variables]
            training = context.training
            outputs, _ = layer.stateless_call(weights, state, inputs, training=training)
            return outputs

        return BuiltCell(self, call)

    def _copy(self) -> keras.layers.Layer:
        """A layer like the pattern, built for the inputs on the current device."""
        layer = type(self.layer).from_config(self.layer.get_config())
        layer.trainable = self.layer.trainable
        layer(tf.nest.map_structure(_symbolic, self.inputs))
        if self.layer.built and self.layer.weights:
            layer.set_weights(self.layer.get_weights())
        return layer


def _symbolic(spec: Spec) -> keras.KerasTensor:
    """A tensor of any batch size for Keras to build a layer with."""
    return keras.KerasTensor((None, *spec.shape[1:]), dtype=spec.dtype)


def _named(layer: keras.layers.Layer, path: str) -> dict[str, tf.Variable]:
    """The layer's variables by Keras's paths, the name of the layer itself left out.

    That name holds a number that Keras counts up from layer to layer.
    """
    prefix = f"{layer.name}/"
    return {
        join_path(path, variable.path.removeprefix(prefix)): variable.value
        for variable in layer.weights
    }


def _seeds(layer: keras.layers.Layer) -> list[keras.Variable]:
    """The states of the layer's random generators, which Keras does not count as weights."""
    return [
        variable
        for variable in layer.non_trainable_variables
        if all(variable is not weight for weight in layer.weights)
    ]


def _seed_of(context: Context, path: str, index: int) -> tf.Tensor:
    """The state of a generator in this micro-batch: int64 [2]."""
    key = context.random_key(join_path(path, str(index)))
    mixed = tf.random.experimental.stateless_fold_in(
        tf.random.experimental.stateless_fold_in(
            tf.constant([key & 0x7FFFFFFF, (key >> 32) & 0x7FFFFFFF], tf.int64), context.step
        ),
        context.first_example,
    )
    return tf.abs(tf.cast(mixed, tf.int64)) % (2**31 - 1)
