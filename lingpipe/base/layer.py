"""The base of every layer: declared by params, built under a scope, called with a context.

A layer declares its weights and children as data, in its params; `Layer.__init__` makes the
variables and the child layers from that declaration and sets them as attributes:

    class Scale(Layer):
        class Params(Layer.Params):
            dim: int = REQUIRED

            def weights(self) -> dict[str, Weight]:
                return {"gain": Weight((self.dim,), constant(1.0))}

            def cost(self, inputs: Spec, batch: Mapping[str, Spec] | None = None) -> Cost:
                return Cost(inputs.elements, inputs, inputs.bytes)

        gain: tf.Variable

        def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
            return inputs * context.cast(self.gain)

    layer = Scale.Params(dim=8).build(Scope(seed=1))

One declaration thus serves the builder, the planner (which counts weights without building them)
and the checkpoint (whose names are the paths).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost
from lingpipe.base.initializers import Initializer, initial_value
from lingpipe.base.spec import Spec, Specs
from lingpipe.errors import UserError
from lingpipe.hyperparams import Parameterized

# Attributes of every layer.
_TAKEN = ("params", "path", "weights_path")


class SharedWeightError(UserError, ValueError):
    """Layers that share a weight but declare it differently."""


@dataclasses.dataclass(frozen=True)
class Weight:
    """One weight: its shape, its start and whether the learner moves it. Always float32."""

    shape: tuple[int, ...]
    initializer: Initializer
    trainable: bool = True

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Scope:
    """Where a layer is being built: its path, and the variables made so far under one roof.

    Two layers that declare the same `share_weights` find the same variables in `variables`. One
    scope tree serves one device; the pipeline gives each stage its own.

    Attributes:
      seed: the run's seed, half of the key of every initial value.
      path: path of the layer in the model, such as "encoder_3/attention".
      weights_path: path under which its weights live; differs from `path` only below a layer with
        `share_weights`.
      variables: path of the weight -> variable, shared by the whole tree of scopes.
    """

    seed: int = 0
    path: str = ""
    weights_path: str = ""
    variables: dict[str, tf.Variable] = dataclasses.field(default_factory=dict)

    def child(self, name: str) -> Scope:
        """The scope of a child layer called `name`."""
        return dataclasses.replace(
            self,
            path=join_path(self.path, name),
            weights_path=join_path(self.weights_path, name),
        )

    def variable(self, name: str, weight: Weight) -> tf.Variable:
        """The variable of `weight`, made on first use.

        Raises:
          SharedWeightError: the path is already taken by a weight of another shape or kind.
        """
        path = join_path(self.weights_path, name)
        known = self.variables.get(path)
        if known is None:
            value = initial_value(weight.initializer, weight.shape, self.seed, path)
            known = tf.Variable(value, trainable=weight.trainable, name=path)
            self.variables[path] = known
        check_equal_declarations(path, known, weight)
        return known


def check_equal_declarations(
    path: str, first: tf.Variable | Weight, second: tf.Variable | Weight
) -> None:
    """Refuses two declarations of one shared weight that differ in shape or in `trainable`.

    Raises:
      SharedWeightError: with both declarations.
    """
    declared = [(tuple(weight.shape), weight.trainable) for weight in (first, second)]
    if declared[0] != declared[1]:
        texts = [f"shape {shape}, trainable={trainable}" for shape, trainable in declared]
        raise SharedWeightError(
            f"Two layers share the weight {path!r} but declare it differently: {texts[0]} against "
            f"{texts[1]}. Give them equal params or another share_weights."
        )


def join_path(parent: str, name: str) -> str:
    """`parent/name`, or `name` below the root."""
    return f"{parent}/{name}" if parent else name


class Layer(tf.Module, Parameterized):
    """A function with weights: `outputs = layer(inputs, context)`.

    Inputs and outputs are any nested structure of tensors; what a layer does not change it may
    pass on.
    """

    class Params(Parameterized.Params):
        """Fields and declarations common to all layers."""

        # Whether the floats that the layer returns are of the context's compute dtype, also where
        # `cost` knows only of ids and says float32. A subclass that returns others says False.
        returns_compute_dtype: ClassVar[bool] = True

        # Path under which the weights live; layers that name the same path share them, also
        # across stages. None: the layer's own path.
        share_weights: str | None = None

        def weights(self) -> dict[str, Weight]:
            """The layer's own weights by attribute name; those of children are not among them."""
            return {}

        def children(self) -> dict[str, Layer.Params]:
            """Params of the child layers by attribute name, dimensions handed down."""
            return {}

        def batch_keys(self) -> tuple[str, ...]:
            """Entries of the batch that a cell reads from `context.batch`; children included."""
            keys = [key for child in self.children().values() for key in child.batch_keys()]
            return tuple(dict.fromkeys(keys))

        def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
            """Cost of one forward call, without building anything.

            Args:
              inputs: nested structure of `Spec`; None for the first cell of a list.
              batch: specs of the entries that `batch_keys` names; only cells read them.

            Raises:
              TypeError: the layer declares no cost.
            """
            raise TypeError(
                f"{type(self).__qualname__} declares no cost; define "
                "cost(self, inputs, batch=None) -> Cost beside its weights."
            )

        def all_weights(self, path: str = "") -> dict[str, Weight]:
            """Every weight of the layer and its children by full path; shared ones once."""
            path = self.share_weights or path
            found = {join_path(path, name): weight for name, weight in self.weights().items()}
            for name, child in self.children().items():
                found.update(child.all_weights(join_path(path, name)))
            return found

    def __init__(self, params: Layer.Params, scope: Scope) -> None:
        """Makes the variables and children that `params` declares, as attributes.

        Args:
          params: frozen params; `params.build(scope)` is the usual way here.
          scope: where the layer is built; its device is the current `tf.device`.

        Raises:
          ValueError: two of them have one name, or one that every layer uses.
        """
        super().__init__()
        weights, children = params.weights(), params.children()
        for name in (*weights, *children):
            is_twice = name in weights and name in children
            if is_twice or name in _TAKEN or hasattr(type(self), name):
                raise ValueError(
                    f"{name!r} cannot be the name of a weight or child of "
                    f"{type(self).__qualname__}: it is taken. Choose another name."
                )
        self.params = params
        if params.share_weights:
            scope = dataclasses.replace(scope, weights_path=params.share_weights)
        self.path = scope.path
        self.weights_path = scope.weights_path
        for name, weight in weights.items():
            setattr(self, name, scope.variable(name, weight))
        for name, child in children.items():
            setattr(self, name, child.build(scope.child(name)))

    def __call__(self, inputs: Any, context: Context) -> Any:
        """Applies the layer; subclasses define it."""
        raise TypeError(f"{type(self).__qualname__} defines no __call__(inputs, context).")
