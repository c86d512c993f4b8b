"""The state of a stage's layers: what they report is added up, and applied once a step.

Inside a stage's forward function all statistics are packed into one float32 vector, one more output
of the function. Vectors of the micro-batches are added up in the order in which they ran, which is
the same under every schedule; after the last backward pass one function makes the new state of the
sum. A stage whose layers report nothing has no vector and no such function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.base.layer import Layer
from lingpipe.base.state import stateful_layers, update_state

# Path of a layer's weights -> name -> a sum that it reported.
Statistics = Mapping[str, Mapping[str, tf.Tensor]]


class StageState:
    """Layers with state on one stage, and their statistics in the step that runs.

    Attributes:
      layers: path of its weights -> layer with state.
    """

    def __init__(self, cells: Iterable[Layer]) -> None:
        """Looks for layers with state in `cells`.

        Raises:
          SharedWeightError: layers share state but have different params.
        """
        self.layers = stateful_layers(cells)
        self._specs: dict[str, dict[str, tf.TensorSpec]] = {}
        self._totals: tf.Tensor | None = None
        self._update: Any = None

    def pack(self, reports: Iterable[Statistics]) -> list[tf.Tensor]:
        """One float32 vector of all that was reported in a call; no vector if nothing was.

        Called while the forward pass is traced; the last such call says what vectors hold.

        Raises:
          TypeError: a layer reports that has no state, or a tensor whose shape is not known.
        """
        totals = _added_up(reports)
        for path, sums in totals.items():
            self._check(path, sums)
        self._specs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), totals)
        tensors = tf.nest.flatten(totals)
        return [tf.concat([tf.reshape(t, [-1]) for t in tensors], axis=0)] if tensors else []

    def trace_update(self) -> None:
        """Traces the update from vectors such as `pack` makes; on the current device."""
        self._update = None
        if not self._specs:
            return
        sizes = self._sizes()

        @tf.function(input_signature=[tf.TensorSpec([sum(sizes)])], autograph=False)
        def update(vector: tf.Tensor) -> None:
            for path, totals in self._unpacked(tf.split(vector, sizes)).items():
                update_state(self.layers[path], totals)

        self._update = update.get_concrete_function()

    def add(self, vectors: Sequence[tf.Tensor]) -> None:
        """Adds what one micro-batch reported: what the function that called `pack` returned."""
        for vector in vectors:
            self._totals = vector if self._totals is None else self._totals + vector

    def take(self) -> list[tf.Tensor]:
        """What `add` on the state of another replica's stage takes; forgets the totals."""
        totals = [] if self._totals is None else [self._totals]
        self.clear()
        return totals

    def not_finite(self) -> list[str]:
        """Paths of the layers whose totals are not all finite: those would spoil their state."""
        if self._totals is None or np.isfinite(self._totals).all():
            return []
        unpacked = self._unpacked(tf.split(self._totals, self._sizes()))
        return [
            path
            for path, sums in unpacked.items()
            if not all(np.isfinite(total).all() for total in sums.values())
        ]

    def update(self) -> None:
        """Gives the layers their new state and forgets the totals."""
        if self._totals is not None:
            self._update(self._totals)
        self.clear()

    def clear(self) -> None:
        """Forgets the totals of a step that failed."""
        self._totals = None

    def _sizes(self) -> list[int]:
        return [spec.shape.num_elements() for spec in tf.nest.flatten(self._specs)]

    def _unpacked(self, parts: Sequence[tf.Tensor]) -> dict[str, dict[str, tf.Tensor]]:
        """The statistics whose flattened values are `parts`."""
        specs = tf.nest.flatten(self._specs)
        shaped = [tf.reshape(part, spec.shape) for part, spec in zip(parts, specs, strict=True)]
        return tf.nest.pack_sequence_as(self._specs, shaped)

    def _check(self, path: str, sums: Mapping[str, tf.Tensor]) -> None:
        if path not in self.layers:
            raise TypeError(
                f"{path!r} reports statistics, but no layer with state has its weights there; "
                "derive the layer from StatefulLayer and report under its weights_path."
            )
        for name, total in sums.items():
            if not total.shape.is_fully_defined():
                raise TypeError(
                    f"{path!r} reports {name!r} of shape {total.shape}; a statistic is a sum over "
                    "the examples, whose shape does not depend on their number."
                )


def _added_up(reports: Iterable[Statistics]) -> dict[str, dict[str, tf.Tensor]]:
    """What all of the reports say together: a layer that several cells use is in each of them."""
    totals: dict[str, dict[str, tf.Tensor]] = {}
    for report in reports:
        for path, sums in report.items():
            known = totals.setdefault(path, {})
            for name, value in sums.items():
                known[name] = known[name] + value if name in known else value
    return totals
