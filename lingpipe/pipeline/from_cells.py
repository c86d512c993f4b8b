"""A pipeline from a plain list: what a user without a task and a trainer needs.

    import keras, tensorflow as tf
    from lingpipe.cluster.devices import stage_devices
    from lingpipe.pipeline.from_cells import pipeline_from_cells

    devices = stage_devices(2)  # Before TensorFlow computes anything.

    def loss(logits, batch):
        losses = keras.losses.sparse_categorical_crossentropy(batch["labels"], logits, True)
        return tf.reduce_sum(losses), tf.size(losses)

    layers = [keras.layers.Dense(512, "relu") for _ in range(6)] + [keras.layers.Dense(10)]
    pipeline = pipeline_from_cells(layers, loss, {"inputs": x, "labels": y}, devices=devices,
                                   num_stages=2, num_micro_batches=4)
    print(pipeline.train_step({"inputs": x, "labels": y}).loss)
    print(pipeline(x))

Cells are numbered, or named by a mapping; their weights lie under those names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lingpipe.base.layer import Layer
from lingpipe.base.spec import Spec
from lingpipe.cluster.devices import stage_devices
from lingpipe.learner.learner import Learner
from lingpipe.learner.schedules import Constant
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.errors import CellError
from lingpipe.pipeline.foreign_cells import FunctionCell, InputCell, ModuleCell
from lingpipe.pipeline.keras_cell import KerasCell

INPUT, LOSS = "inputs", "loss"
_OWN = (Layer.Params, InputCell, FunctionCell, ModuleCell, KerasCell)

# (outputs of the last cell, the batch by name) -> sum of losses over the examples, and its weight.
Loss = Callable[[Any, Mapping[str, tf.Tensor]], tuple[tf.Tensor, tf.Tensor]]


def pipeline_from_cells(
    cells: Sequence[Any] | Mapping[str, Any],
    loss: Loss,
    example: Mapping[str, Any],
    *,
    learner: Learner.Params | None = None,
    devices: Sequence[str] | None = None,
    seed: int = 0,
    compute_dtype: tf.DType = tf.float32,
    **params: Any,
) -> Pipeline:
    """Cuts a list of cells into stages that train and predict with micro-batches in flight.

    Args:
      cells: what the model consists of, in order, perhaps with names: params of our layers, Keras
        layers, functions, `ModuleCell`s. Two cells are put around them: "inputs", which hands on
        the batch entry of that name, and "loss".
      loss: returns sum and weight over the examples of a micro-batch. Gradients are those of all
        sums divided by all weights, so a mean over examples has their number as its weight. All
        floats that it is given are float32 at least, so that it computes no loss in float16.
      example: a batch; its shapes balance the stages. "inputs" is an entry; the loss may read all
        others.
      learner: None for Adam with a learning rate of 1e-3.
      devices: names of the stages' devices. None for `stage_devices`, which must come before
        TensorFlow computes anything, and so before some Keras layers are made.
      seed: seed of initial weights and of dropout.
      compute_dtype: dtype of activations of our own layers, which want inputs of that dtype: such
        a batch, or a cell before them that casts. Keras layers follow their own policy, such as
        `Dense(512, dtype="mixed_float16")`. With float16 the loss is scaled.
      **params: fields of `Pipeline.Params`: num_stages=4, schedule="1f1b", remat="layer", ...

    Raises:
      CellError: something in the list can be no cell, or the loss returns no pair.
      ParamsError: a field that there is not, or of the wrong type.
      PartitionError, DeviceError: more stages than cells or devices.
    """
    pipeline = Pipeline.Params()
    for name, value in params.items():
        pipeline.override(name, value, text=isinstance(value, str))
    pipeline.validate()
    devices = devices or stage_devices(pipeline.num_devices())
    micro_batch = _micro_batch(example, pipeline.num_slices())
    reads = tuple(name for name in micro_batch if name != INPUT)
    own = {INPUT: InputCell((INPUT,)), **_named_cells(cells), LOSS: _loss_cell(loss, reads)}
    constant = Constant.Params(value=1e-3)
    return pipeline.build(
        cells=_with_inputs(own, micro_batch),
        learner=(learner or Learner.Params(schedule=constant)).build(),
        devices=devices,
        micro_batch=micro_batch,
        seed=seed,
        compute_dtype=compute_dtype,
    )


def _micro_batch(example: Mapping[str, Any], num_slices: int) -> dict[str, Spec]:
    """Specs of the entries of one micro-batch.

    Raises:
      CellError: there are no inputs, or something has no examples.
    """
    arrays = {name: np.asarray(value) for name, value in example.items()}
    if INPUT not in arrays:
        raise CellError(
            f"The batch has no entry {INPUT!r}, which the first cell hands on; it has "
            f"{', '.join(map(repr, arrays)) or 'none'}."
        )
    for name, array in arrays.items():
        if not array.ndim:
            raise CellError(f"{name!r} is the scalar {array}; it needs examples along dimension 0.")
    rows = max(1, len(arrays[INPUT]) // num_slices)
    return {
        name: Spec((rows, *array.shape[1:]), array.dtype.name) for name, array in arrays.items()
    }


def as_cell(thing: Any) -> Any:
    """What a pipeline can build from `thing`.

    Raises:
      CellError: it is nothing that can be a cell.
    """
    if isinstance(thing, _OWN):
        return thing
    if isinstance(thing, keras.layers.Layer):
        return KerasCell(thing)
    if isinstance(thing, tf.Module):
        raise CellError(
            f"{type(thing).__qualname__} is a tf.Module that lies on a device already. Give the "
            "pipeline a way to make it where its stage is: ModuleCell(lambda: "
            f"{type(thing).__qualname__}(...))."
        )
    if callable(thing) and not isinstance(thing, type):
        return FunctionCell(thing)
    raise CellError(
        f"{thing!r} can be no cell. A cell is a layer's params, a Keras layer, a function of "
        "tensors, or a ModuleCell."
    )


def _named_cells(cells: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """The cells by name; those of a list are numbered."""
    if not isinstance(cells, Mapping):
        cells = {f"cell_{index}": cell for index, cell in enumerate(cells)}
    if taken := {INPUT, LOSS} & set(cells):
        raise CellError(f"The name {taken.pop()!r} is taken; give the cell another one.")
    return {name: as_cell(cell) for name, cell in cells.items()}


def _with_inputs(cells: Mapping[str, Any], micro_batch: Mapping[str, Spec]) -> dict[str, Any]:
    """The cells, Keras layers told what they will be called with."""
    told: dict[str, Any] = {}
    first: dict[int, str] = {}
    outputs: Any = None
    for name, cell in cells.items():
        if isinstance(cell, KerasCell):
            cell = dataclasses.replace(cell, inputs=outputs)
            earlier = first.setdefault(id(cell.layer), name)
            if earlier != name and cell.all_weights():
                raise CellError(
                    f"Cells {earlier!r} and {name!r} are one Keras layer, whose weights they would "
                    "share; each cell has its own. Put both calls into one cell, or use "
                    "lingpipe's layers with share_weights."
                )
        told[name] = cell
        outputs = cell.cost(outputs, micro_batch).outputs
    return told


def _loss_cell(loss: Loss, reads: tuple[str, ...]) -> FunctionCell:
    """The last cell: sum and weight under the names that a pipeline expects."""

    def sums(outputs: Any, batch: Mapping[str, tf.Tensor] | None = None) -> dict[str, tf.Tensor]:
        pair = loss(_widened(outputs), _widened(batch or {}))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise CellError(
                f"The loss must return a sum and its weight, not {type(pair).__name__}. Such as: "
                "return tf.reduce_sum(losses), tf.size(losses)."
            )
        total, weight = pair
        return {"loss": total, "weight": tf.cast(weight, tf.float32)}

    return FunctionCell(sums, reads)


def _widened(structure: Any) -> Any:
    """A nested structure of tensors, all its floats in float32 at least."""

    def widen(tensor: tf.Tensor) -> tf.Tensor:
        is_short = tensor.dtype.is_floating and tensor.dtype.size < 4
        return tf.cast(tensor, tf.float32) if is_short else tensor

    return tf.nest.map_structure(widen, structure)
