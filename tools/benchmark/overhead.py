"""What an action costs beside its computation: dispatch, hand-over, book-keeping.

    python -m tools.benchmark.overhead

A chain of tiny layers, whose computation takes next to nothing, on one, two and four stages of this
process. A step of M micro-batches has 2 K M actions. What one of them costs is the difference of
two steps of different M by the difference of their actions, so that what a step costs once does not
count. Threads of one process take turns at the interpreter, so that this is time of the whole step,
not of one device. The rule: at most 0.3 ms an action. Prints a table and one line of JSON; exits
with 1 if it is broken.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

FEW, MANY = 8, 40
STAGES = (1, 2, 4)
LIMIT_SECONDS = 0.3e-3
DIM, ROWS, LAYERS = 8, 2, 8


def main() -> int:
    """Measures and judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="steps of each kind that count")
    arguments = parser.parse_args()
    rows = measure(arguments.rounds)
    print("stages  micro-batches  step s (median)  an action ms")
    for row in rows:
        print(
            f"{row['stages']:6d}  {FEW:6d}, {MANY:5d}  "
            f"{row['few_seconds']:7.4f}, {row['many_seconds']:6.4f}  "
            f"{1e3 * row['action_seconds']:12.3f}"
        )
    ok = all(row["action_seconds"] <= LIMIT_SECONDS for row in rows)
    print(json.dumps({"rows": rows, "limit_seconds": LIMIT_SECONDS, "ok": ok}))
    return 0 if ok else 1


def measure(rounds: int) -> list[dict[str, Any]]:
    """One row for each number of stages; all pipelines take turns."""
    import numpy as np

    numbers = np.random.default_rng(0)
    pipelines = {(k, m): make_pipeline(k, m) for k in STAGES for m in (FEW, MANY)}
    batches = {
        m: {
            name: numbers.normal(size=(ROWS * m, DIM)).astype(np.float32)
            for name in ("inputs", "targets")
        }
        for m in (FEW, MANY)
    }
    seconds: dict[tuple[int, int], list[float]] = {key: [] for key in pipelines}
    for turn in range(rounds + 2):
        for (k, m), pipeline in pipelines.items():
            start = time.perf_counter()
            pipeline.train_step(batches[m])
            if turn >= 2:
                seconds[k, m].append(time.perf_counter() - start)
    for pipeline in pipelines.values():
        pipeline.close()
    rows = []
    for k in STAGES:
        few, many = (statistics.median(seconds[k, m]) for m in (FEW, MANY))
        rows.append(
            {
                "stages": k,
                "few_seconds": few,
                "many_seconds": many,
                "action_seconds": (many - few) / (2 * k * (MANY - FEW)),
            }
        )
    return rows


def make_pipeline(num_stages: int, num_micro_batches: int) -> Any:
    """A chain of tiny dense layers with a squared distance at its end."""
    import tensorflow as tf

    from lingpipe.base.spec import Spec
    from lingpipe.cluster.devices import DeviceType, stage_devices
    from lingpipe.learner.learner import Learner
    from lingpipe.learner.optimizers import Momentum
    from lingpipe.learner.schedules import Constant
    from lingpipe.pipeline.builder import Pipeline
    from lingpipe.pipeline.foreign_cells import FunctionCell, InputCell, ModuleCell

    class Dense(tf.Module):
        """x -> tanh(x @ kernel)."""

        def __init__(self) -> None:
            super().__init__()
            self.kernel = tf.Variable(tf.eye(DIM), name="kernel")

        def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
            return tf.tanh(inputs @ self.kernel)

    def loss(outputs: tf.Tensor, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {
            "loss": tf.reduce_sum((outputs - batch["targets"]) ** 2),
            "weight": tf.cast(tf.shape(outputs)[0], tf.float32),
        }

    return Pipeline.Params(num_stages=num_stages, num_micro_batches=num_micro_batches).build(
        cells={
            "inputs": InputCell(),
            **{f"dense_{i}": ModuleCell(Dense) for i in range(LAYERS)},
            "loss": FunctionCell(loss, reads=("targets",)),
        },
        learner=Learner.Params(
            optimizer=Momentum.Params(), schedule=Constant.Params(value=1e-3)
        ).build(),
        devices=stage_devices(max(STAGES), DeviceType.cpu),
        micro_batch={name: Spec((ROWS, DIM)) for name in ("inputs", "targets")},
    )


if __name__ == "__main__":
    sys.exit(main())
