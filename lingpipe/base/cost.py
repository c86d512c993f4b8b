"""What running a layer costs, worked out from its params alone.

The partitioner balances stages by these figures and the planner adds them up, both without building
a single weight. A layer's `Params.cost` answers for its forward pass on given inputs; the backward
pass is taken as twice the forward one (two matrix products for each of the forward's).
"""

from __future__ import annotations

import dataclasses

from lingpipe.base.spec import Specs


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost of one forward pass of a layer on one input structure.

    Attributes:
      flops: floating-point operations; a multiply-add counts as two.
      outputs: nested structure of `Spec` that the layer returns.
      activation_bytes: bytes of intermediate values, the outputs included, that the backward pass
        needs when nothing is rematerialised.
    """

    flops: int
    outputs: Specs
    activation_bytes: int


def total_cost(*costs: Cost, outputs: Specs) -> Cost:
    """Cost of layers that run one after another (or side by side) and together give `outputs`."""
    return Cost(
        flops=sum(cost.flops for cost in costs),
        outputs=outputs,
        activation_bytes=sum(cost.activation_bytes for cost in costs),
    )
