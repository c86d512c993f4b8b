"""A Keras layer in the list of cells.

    KerasCell(keras.layers.Dense(512, activation="relu"))

The layer that the user made is a pattern: the pipeline builds a copy of it on the device of its
stage, with the weights of the pattern if that has been built. Random numbers of a Keras layer, such
as those of its Dropout, are keyed by seed, step, cell and the first example of the micro-batch: a
recomputation draws the same ones, but other than for our own Dropout they change with M.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost
from lingpipe.base.initializers import constant, key_of
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
      inputs: nested specs of what it will be called with, as `pipeline_from_cells` finds them.
    """

    layer: keras.layers.Layer
    inputs: Specs = None

    def batch_keys(self) -> tuple[str, ...]:
        """None: a Keras layer sees its inputs only."""
        return ()

    def all_weights(self, path: str = "") -> dict[str, Weight]:
        """Shapes of the weights by name, after building a copy."""
        layer = self._copy(0, path)
        trainable = {id(variable) for variable in layer.trainable_variables}
        return {
            name: Weight(tuple(variable.shape), constant(0.0), id(variable) in trainable)
            for name, variable in _named(layer, path).items()
        }

    def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
        """Read off a trace of a copy; see `traced_cost`.

        Raises:
          CellError: the layer updates weights in its forward pass.
        """
        layer = dataclasses.replace(self, inputs=inputs)._copy(0, "")
        return traced_cost(functools.partial(_call, layer, (), training=True), inputs)

    def build(self, scope: Scope) -> BuiltCell:
        """Builds a copy on the current device.

        Raises:
          CellError: the layer wants what a pipeline does not do: a regulariser, a constraint, a
            mask.
        """
        layer = self._copy(scope.seed, scope.weights_path)
        _refuse_what_is_not_done(layer, scope.path)
        trainable = {id(variable) for variable in layer.trainable_variables}
        frozen = []
        for name, variable in _named(layer, scope.weights_path).items():
            if id(variable) in trainable:
                scope.variables[name] = variable.value
            else:
                # Keras freezes a weight by leaving it out of a list; a variable says so itself.
                scope.variables[name] = tf.Variable(variable.value, trainable=False, name=name)
                frozen.append((variable, scope.variables[name]))
        seeds = _seeds(layer)

        def call(inputs: Any, context: Context) -> Any:
            drawn = [
                (seed, _seed_of(context, scope.path, index)) for index, seed in enumerate(seeds)
            ]
            return _call(layer, [*frozen, *drawn], inputs, training=context.training)

        return BuiltCell(self, call)

    def _copy(self, seed: int, path: str) -> keras.layers.Layer:
        """A layer like the pattern, built for the inputs on the current device.

        Initial values are those of the pattern, or, if it has not been built, a function of the
        seed and the path.

        Raises:
          CellError: Keras cannot copy it.
        """
        kind = type(self.layer).__qualname__
        with _default_seeds(key_of(seed, path)):
            try:
                layer = type(self.layer).from_config(self.layer.get_config())
            except Exception as error:
                raise CellError(
                    f"The Keras layer {kind} cannot be copied to the device of its stage: {error} "
                    "Give a Lambda's function itself; give a layer of your own get_config()."
                ) from error
            layer.trainable = self.layer.trainable
            outputs = layer(tf.nest.map_structure(_symbolic, self.inputs))
        if any(getattr(each, "_keras_mask", None) is not None for each in tf.nest.flatten(outputs)):
            raise CellError(
                f"The Keras layer {kind} hands on a mask, which does not travel from cell to cell. "
                "Send it along as a boolean tensor, in a cell of your own."
            )
        if self.layer.built and self.layer.weights:
            layer.set_weights(self.layer.get_weights())
            for ours, theirs in zip(_sublayers(layer), _sublayers(self.layer), strict=True):
                ours.trainable = theirs.trainable
        return layer


def _call(layer: keras.layers.Layer, state: Any, inputs: Any, *, training: bool) -> Any:
    """Calls the layer with other values for some of its variables, and without updates of any.

    Raises:
      CellError: the layer updates one of its weights.
    """
    given = {id(variable): value for variable, value in state}
    with keras.StatelessScope(state_mapping=list(state)) as scope:
        outputs = layer(inputs, training=training)
    changed = [
        variable.path
        for variable in layer.weights
        if scope.get_current_value(variable) is not given.get(id(variable))
    ]
    if changed:
        raise CellError(
            f"The Keras layer {type(layer).__qualname__} updates {', '.join(changed)} in its "
            "forward pass. Freeze it with layer.trainable = False, or use another one."
        )
    return outputs


@contextlib.contextmanager
def _default_seeds(key: int) -> Iterator[None]:
    """Within it, the seeds that Keras gives to initialisers without one follow from `key`.

    Keras draws them from Python's generator, whose state is put back afterwards.
    """
    state = random.getstate()
    random.seed(key)
    try:
        yield
    finally:
        random.setstate(state)


def _sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layer and all below it."""
    return [each for each in layer._flatten_layers() if isinstance(each, keras.layers.Layer)]


def _refuse_what_is_not_done(layer: keras.layers.Layer, path: str) -> None:
    """Refuses a layer that would train differently than in Keras.

    Raises:
      CellError: naming what it wants.
    """
    wishes = {
        "a regulariser": any(getattr(v, "regularizer", None) for v in layer.weights)
        or any(getattr(each, "activity_regularizer", None) for each in _sublayers(layer)),
        "a constraint": any(getattr(v, "constraint", None) for v in layer.weights),
    }
    for wish, is_there in wishes.items():
        if is_there:
            raise CellError(
                f"The Keras layer of cell {path!r} has {wish}, which a pipeline does not apply. "
                "Put penalties into the loss, limits into the layer."
            )


def _symbolic(spec: Spec) -> keras.KerasTensor:
    """A tensor of any batch size for Keras to build a layer with."""
    return keras.KerasTensor((None, *spec.shape[1:]), dtype=spec.dtype)


def _named(layer: keras.layers.Layer, path: str) -> dict[str, keras.Variable]:
    """The layer's variables by Keras's paths, the name of the layer itself left out.

    That name holds a number that Keras counts up from layer to layer.
    """
    prefix = f"{layer.name}/"
    return {
        join_path(path, variable.path.removeprefix(prefix)): variable for variable in layer.weights
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
