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
      activation_bytes: bytes of intermediate values that the backward pass needs when nothing is
        rematerialised. Outputs are among them where what follows may need them, inputs never: they
        are another layer's outputs.
      working_bytes: bytes that come on top, for a moment, where the backward pass needs most:
        gradients of values and of weights. None where that is not known.
      waiting_bytes: bytes of the gradients of which those of weights are made; a processor may
        leave all these for the end of the pass. None where that is not known.
      passed_bytes: bytes of those outputs that are inputs, handed on as they are.
    """

    flops: int
    outputs: Specs
    activation_bytes: int
    working_bytes: int | None = None
    waiting_bytes: int | None = None
    passed_bytes: int = 0


def total_cost(*costs: Cost, outputs: Specs, passed_bytes: int = 0) -> Cost:
    """Cost of layers that run one after another (or side by side) and together give `outputs`.

    One that does not know its working or waiting bytes counts as none: whoever computes declares.
    """
    working = [cost.working_bytes for cost in costs if cost.working_bytes is not None]
    waiting = [cost.waiting_bytes for cost in costs if cost.waiting_bytes is not None]
    return Cost(
        flops=sum(cost.flops for cost in costs),
        outputs=outputs,
        activation_bytes=sum(cost.activation_bytes for cost in costs),
        working_bytes=max(working, default=None),
        waiting_bytes=sum(waiting) if waiting else None,
        passed_bytes=passed_bytes,
    )
