"""What a stage will hold at its peak, worked out before a device is touched.

A stage of cells holds three kinds of bytes:

    fixed       float32 weights, their summed gradients and the optimiser's slots
    kept        between the forward and the backward pass of a micro-batch, as many times as the
                schedule lets micro-batches wait
    working     on top while one micro-batch is in its backward pass: what is computed again, and
                gradients; or, when all are over, while weights are updated

With L layers on K stages, a mini-batch of N examples in M micro-batches and `remat=stage` that is
GPipe's O(N + L/K * N/M): boundary tensors of the whole mini-batch, and all activations of one
micro-batch (Huang et al. 2019, section 2.3). What TensorFlow itself takes is not in it, nor what
waits for a stage that is behind: a stage's outputs lie on its own device until the next takes them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lingpipe.base.cost import Cost
from lingpipe.base.spec import specs_bytes
from lingpipe.errors import UserError
from lingpipe.pipeline.keeping import Rematerialisation
from lingpipe.pipeline.schedule import Phase, Schedule
from lingpipe.pipeline.shares import share_weights

_UNITS = {
    "": 1,
    "B": 1,
    **{f"{letter}iB": 2 ** (10 * power) for power, letter in enumerate("KMGTP", 1)},
    **{f"{letter}B": 10 ** (3 * power) for power, letter in enumerate("kMGTP", 1)},
    "KB": 1000,
}


class BytesError(UserError, ValueError):
    """A text that is no number of bytes."""


def parse_bytes(text: str) -> int:
    """The number of bytes that "16GiB", "500 MB" or "1024" says.

    Raises:
      BytesError: the text says none, or less than one.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2] not in _UNITS:
        raise BytesError(f"{text!r} is no number of bytes; write it such as 16GiB, 500MB or 1024.")
    count = int(float(match[1]) * _UNITS[match[2]])
    if count < 1:
        raise BytesError(f"{text!r} is less than a byte.")
    return count


def format_bytes(count: int) -> str:
    """Such as "512 B" or "1.2 GiB"."""
    size, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


@dataclasses.dataclass(frozen=True)
class CellMemory:
    """A cell, as far as memory goes.

    Attributes:
      weights: path -> `Weight`, or whatever has its `size` and `trainable`.
      cost: of its forward pass.
      input_bytes: bytes of what it is given.
    """

    weights: Mapping[str, Any]
    cost: Cost
    input_bytes: int

    @property
    def kept_bytes(self) -> int:
        """Kept for its backward pass if nothing is computed again."""
        return self.cost.activation_bytes

    @property
    def output_bytes(self) -> int:
        """Of what it returns."""
        return specs_bytes(self.cost.outputs)

    @property
    def working_bytes(self) -> int:
        """On top while its backward pass works; where the cell does not know, an estimate."""
        if self.cost.working_bytes is not None:
            return self.cost.working_bytes
        return self.input_bytes + self.output_bytes + self._greatest_gradient

    @property
    def waiting_bytes(self) -> int:
        """Gradients that may wait for the end of the pass; an estimate, likewise."""
        known = self.cost.waiting_bytes
        return self.output_bytes if known is None else known

    @property
    def working_bytes_again(self) -> int:
        """`working_bytes` of a cell that is computed again: no gradient is sparse then."""
        return max(self.working_bytes, self._greatest_gradient)

    @property
    def updating_bytes(self) -> int:
        """At most on top of its weights while two of them are updated."""
        return 2 * self._greatest_gradient

    def of_weights_alone(self) -> CellMemory:
        """The cell as it would be if micro-batches took next to nothing."""
        working = min(self.working_bytes, self._greatest_gradient)
        return CellMemory(self.weights, Cost(0, None, 0, working, 0), min(self.input_bytes, 1))

    @property
    def _greatest_gradient(self) -> int:
        return 4 * max((w.size for w in self.weights.values() if w.trainable), default=0)


@dataclasses.dataclass(frozen=True)
class StageMemory:
    """What a stage holds, in bytes.

    Attributes:
      fixed_bytes: weights, accumulators, slots.
      live_micro_batches: the most micro-batches that wait for their backward pass at a time.
      kept_bytes: what each of those keeps.
      full_bytes: what each would keep if nothing were computed again.
      working_bytes: on top while one is in its backward pass.
      updating_bytes: on top of `fixed_bytes` while weights are updated.
    """

    fixed_bytes: int
    live_micro_batches: int
    kept_bytes: int
    full_bytes: int
    working_bytes: int
    updating_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """The most that the stage holds at a time."""
        passes = self.live_micro_batches * self.kept_bytes + self.working_bytes
        return self.fixed_bytes + max(passes, self.updating_bytes)

    def kept_limit(self, device_memory: int) -> int:
        """The most that a micro-batch may keep for the peak to be within `device_memory` bytes."""
        room = device_memory - self.fixed_bytes - self.working_bytes
        return max(0, room // self.live_micro_batches)


@dataclasses.dataclass(frozen=True)
class WeightBytes:
    """Bytes for each weight.

    Attributes:
      num_slots: slots of the optimiser for each weight.
      compute_bytes: bytes of a number in the compute dtype. Where it is not float32 every weight
        has a copy in it during a step.
      num_sharing: replicas that share out the slots of a stage among them.
    """

    num_slots: int = 0
    compute_bytes: int = 4
    num_sharing: int = 1

    def fixed(self, weights: Mapping[str, Any], owned_elsewhere: set[str] | frozenset[str]) -> int:
        """Bytes of weights with all that lies beside them; copies of others' have no slots.

        With several replicas those of the one that holds most.
        """
        owned = self._owned(weights, owned_elsewhere)
        shares = share_weights(owned, self.num_sharing)
        held = [0] * self.num_sharing
        for path, replica in shares.items():
            held[replica] += owned[path]
        return self._without_slots(weights) + 4 * self.num_slots * max(held)

    def fixed_at_most(
        self, weights: Mapping[str, Any], owned_elsewhere: set[str] | frozenset[str]
    ) -> int:
        """A bound that adds up: of all the weights of a stage, `fixed` is no more than the sum.

        By the rule of `share_weights` the fullest replica had no more than the average before it
        was given its last weight.
        """
        owned = self._owned(weights, owned_elsewhere)
        total, largest = sum(owned.values()), max(owned.values(), default=0)
        most = -((total + (self.num_sharing - 1) * largest) // -self.num_sharing)
        return self._without_slots(weights) + 4 * self.num_slots * most

    def _without_slots(self, weights: Mapping[str, Any]) -> int:
        cast = 0 if self.compute_bytes == 4 else self.compute_bytes
        return sum(w.size * (8 + cast if w.trainable else 4) for w in weights.values())

    def _owned(
        self, weights: Mapping[str, Any], owned_elsewhere: set[str] | frozenset[str]
    ) -> dict[str, int]:
        """Path -> size of the weights that have slots here, or on another replica of the stage."""
        return {
            path: weight.size
            for path, weight in weights.items()
            if weight.trainable and path not in owned_elsewhere
        }


def stage_memory(
    cells: Sequence[CellMemory],
    fixed_bytes: int,
    live_micro_batches: int,
    remat: Rematerialisation,
    *,
    keeps_all: bool,
    device_memory: int | None = None,
) -> StageMemory:
    """What a stage of `cells` holds.

    Args:
      cells: its cells, in order. One that is given nothing is the first of the model.
      fixed_bytes: what `WeightBytes.fixed` says of its weights.
      live_micro_batches: as in `Schedule.peak_live_of_stages`.
      remat: the rule; `auto` keeps as much as fits `device_memory`, from what `stage` keeps to what
        `none` does.
      keeps_all: True for a last stage that computes nothing again; see `keeping_of_last`.
      device_memory: bytes for this stage; None for no limit.
    """

    def keeping(kept: int, working: int) -> StageMemory:
        boundary = 0 if keeps_all else cells[-1].output_bytes  # Its gradient is given.
        working += boundary
        return StageMemory(fixed_bytes, live_micro_batches, kept, full, working, updating)

    full = _kept_of_all(cells)
    updating = _two_greatest_gradients(cells)
    waiting = sum(cell.waiting_bytes for cell in cells)
    all_kept = keeping(full, max(waiting, *(cell.working_bytes for cell in cells)))
    again = cells[1:] if _is_first(cells) else cells
    if keeps_all or remat is Rematerialisation.none or not again:
        return all_kept
    one_again = max(cell.kept_bytes + max(waiting, cell.working_bytes_again) for cell in again)
    if again is not cells:
        one_again = max(one_again, cells[0].working_bytes)
    if remat is Rematerialisation.layer:
        return keeping(_kept_of_inputs(cells), one_again)
    boundary = _kept_of_boundary(cells)
    if remat is Rematerialisation.stage:
        recomputed = sum(cell.kept_bytes for cell in again)
        working = max(waiting, *(cell.working_bytes_again for cell in again))
        return keeping(boundary, recomputed + working)
    if device_memory is None or all_kept.peak_bytes <= device_memory:
        return all_kept
    least = keeping(min(boundary, full), one_again)
    fits = least.kept_limit(device_memory)
    return dataclasses.replace(least, kept_bytes=min(full, max(least.kept_bytes, fits)))


def device_peaks(schedule: Schedule, stages: Sequence[StageMemory]) -> tuple[int, ...]:
    """The most bytes that each device holds at a time, over all of its stages.

    A device runs one action at a time, so that of its stages' working bytes one counts.
    """
    peaks = []
    for device, row in enumerate(schedule.rows):
        own = [stages[k] for k, home in enumerate(schedule.placement) if home == device]
        fixed = sum(stage.fixed_bytes for stage in own)
        kept = peak = 0
        for action in row:
            stage = stages[action.stage]
            if action.phase is Phase.forward:
                kept += stage.kept_bytes
            peak = max(peak, kept + stage.working_bytes)
            if action.phase in (Phase.backward, Phase.backward_weight):
                kept -= stage.kept_bytes
        peaks.append(fixed + max(peak, *(stage.updating_bytes for stage in own)))
    return tuple(peaks)


def _two_greatest_gradients(cells: Sequence[CellMemory]) -> int:
    """Bytes of the gradients of two weights, the most that an update has beside the weights."""
    weights = {path: weight for cell in cells for path, weight in cell.weights.items()}
    sizes = sorted((weight.size for weight in weights.values() if weight.trainable), reverse=True)
    return 4 * sum(sizes[:2])


def _is_first(cells: Sequence[CellMemory]) -> bool:
    """Whether the model starts here; its first cell is never computed again."""
    return cells[0].input_bytes == 0


def _kept_of_all(cells: Sequence[CellMemory]) -> int:
    """Kept if nothing is computed again; what the first cell hands on is read further down."""
    received = 0 if _is_first(cells) else cells[0].cost.passed_bytes
    return received + sum(cell.kept_bytes for cell in cells)


def _kept_of_boundary(cells: Sequence[CellMemory]) -> int:
    """Kept if the stage is computed again as a whole: its inputs, or what its first cell needs."""
    if _is_first(cells):
        return max(cells[0].kept_bytes, cells[0].output_bytes)
    return cells[0].input_bytes


def _kept_of_inputs(cells: Sequence[CellMemory]) -> int:
    """Kept if cells are computed again one by one: all inputs, those handed on once."""
    start = 2 if _is_first(cells) else 1  # The boundary is the first input.
    return _kept_of_boundary(cells) + sum(
        cell.input_bytes - before.cost.passed_bytes
        for before, cell in zip(cells[start - 1 :], cells[start:], strict=False)
    )
