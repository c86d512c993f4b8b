"""What a stage keeps from its forward to its backward passes, and what it computes again."""

from __future__ import annotations

import dataclasses
import enum
import math


class Rematerialisation(enum.Enum):
    """How much of a stage's activations is kept from the forward to the backward pass."""

    none = "none"  # All that the backward pass needs.
    layer = "layer"  # The inputs of every cell; cells are computed again one by one.
    stage = "stage"  # What crosses the boundary; the stage is computed again as a whole.
    auto = "auto"  # The least recomputation that fits pipeline.device_memory.


@dataclasses.dataclass(frozen=True)
class Keeping:
    """What a stage keeps between the passes.

    Attributes:
      remat: the rule.
      limit: bytes that one micro-batch may keep, for `Rematerialisation.auto`.
      forgets_last_cell: True where the last cell is computed again under every rule: a last stage
        that holds several micro-batches shall not hold the logits of several.
      verify: True to compare what is computed again with what it was; for debugging.
    """

    remat: Rematerialisation = Rematerialisation.none
    limit: float = math.inf
    forgets_last_cell: bool = False
    verify: bool = False
