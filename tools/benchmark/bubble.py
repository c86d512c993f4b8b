"""Whether a step takes as long as the simulator says, for M from 1 to 32 micro-batches.

    python -m tools.benchmark.bubble

A Transformer on two stages, on two devices of one thread each. What an action takes is measured on
the stages alone, one call after another, in the same minutes as the steps; the simulator plays the
schedule with these costs. The rule: the median of the steps is within 10 % of that, for every M.

Two cores share caches and memory, so that a stage is slower while the other one works. This is
measured too, with both stages at work, and the prediction weighs the two by the share of the step
in which both are busy; `--uncorrected` leaves that out. Prints a table and one line of JSON; exits
with 1 if the rule is broken.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
TOLERANCE = 0.10
ROWS, TIME, DIM, LAYERS, VOCABULARY = 4, 64, 256, 3, 1000


def main() -> int:
    """Measures and judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="steps of each M that count")
    parser.add_argument("--schedule", default="gpipe", choices=("gpipe", "1f1b"))
    parser.add_argument("--uncorrected", action="store_true", help="take stages as independent")
    arguments = parser.parse_args()
    os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
    rows = measure(arguments.schedule, arguments.rounds, arguments.uncorrected)
    print(" M  bubble  predicted s  measured s  measured/predicted")
    for row in rows:
        print(
            f"{row['micro_batches']:2d}  {row['bubble']:5.1%}  {row['predicted']:11.4f}  "
            f"{row['measured']:10.4f}  {row['ratio']:8.3f}"
        )
    ok = all(abs(row["ratio"] - 1) <= TOLERANCE for row in rows)
    print(json.dumps({"schedule": arguments.schedule, "rows": rows, "ok": ok}))
    return 0 if ok else 1


def measure(schedule_name: str, rounds: int, uncorrected: bool) -> list[dict[str, Any]]:
    """One row for each M."""
    from lingpipe.pipeline.schedules import ScheduleKind, make_schedule
    from lingpipe.pipeline.simulate import simulate

    kind = ScheduleKind(schedule_name)
    pipelines = {m: make_pipeline(kind, m) for m in MICRO_BATCHES}
    batches = {m: make_batch(m) for m in MICRO_BATCHES}
    for m, pipeline in pipelines.items():
        pipeline.train_step(batches[m])
    alone: list[list[Costs]] = []
    together: list[list[Costs]] = []
    updates: list[float] = []
    steps: dict[int, list[float]] = {m: [] for m in MICRO_BATCHES}
    stages = StageRuns(pipelines[1], batches[1])
    for _ in range(rounds):
        alone.append(stages.alone())
        together.append(stages.together())
        updates.append(stages.update())
        for m, pipeline in pipelines.items():
            start = time.perf_counter()
            pipeline.train_step(batches[m])
            steps[m].append(time.perf_counter() - start)
    for pipeline in pipelines.values():
        pipeline.close()
    update_seconds = statistics.median(updates)
    slow, fast = (stage_costs(rounds, update_seconds) for rounds in (together, alone))
    rows = []
    for m in MICRO_BATCHES:
        schedule = make_schedule(kind, 2, m)
        prediction = simulate(schedule, fast)
        if not uncorrected:
            prediction = simulate(schedule, between(fast, slow, prediction))
        measured = statistics.median(steps[m])
        rows.append(
            {
                "micro_batches": m,
                "bubble": prediction.bubble_share,
                "predicted": prediction.step_seconds,
                "measured": measured,
                "ratio": measured / prediction.step_seconds,
            }
        )
    return rows


def between(fast: Sequence[Any], slow: Sequence[Any], prediction: Any) -> list[Any]:
    """Costs of stages that work side by side for a part of their time.

    Args:
      fast: `StageCost` of each stage while the other one idles.
      slow: the same while the other one works.
      prediction: `Simulation` with `fast`. Of two devices one is always busy in a step, so that
        both are for as long as their busy times exceed it.
    """
    both = max(0.0, sum(prediction.busy_seconds) - prediction.step_seconds)
    mixed = []
    for one, other, busy in zip(fast, slow, prediction.busy_seconds, strict=True):
        share = min(1.0, both / busy)
        values = {
            field.name: (1 - share) * getattr(one, field.name) + share * getattr(other, field.name)
            for field in dataclasses.fields(one)
            if getattr(one, field.name) is not None
        }
        mixed.append(dataclasses.replace(one, **values))
    return mixed


# Seconds of forward and backward of one stage.
Costs = tuple[float, float]


def stage_costs(rounds: Sequence[Sequence[Costs]], update_seconds: float) -> list[Any]:
    """The median over the rounds, for each stage; an update takes as long on both."""
    from lingpipe.pipeline.simulate import StageCost

    stages = []
    for of_stage in zip(*rounds, strict=True):
        forward, backward = map(statistics.median, zip(*of_stage, strict=True))
        stages.append(StageCost(forward, backward, update_seconds=update_seconds))
    return stages


class StageRuns:
    """Both stages of a pipeline, run outside of it."""

    REPEATS = 10

    def __init__(self, pipeline: Any, batch: dict[str, Any]) -> None:
        """Takes the pipeline's stages; it must have trained, so that they are traced."""
        import tensorflow as tf

        from lingpipe.pipeline.micro_batch import MicroBatch
        from lingpipe.pipeline.shared_weights import SharedWeights
        from lingpipe.pipeline.stage_learner import StageLearner

        self._stages = pipeline.stages
        shared = SharedWeights(pipeline.replicas, pipeline.params.num_sharing())
        self._learners = [
            StageLearner(stage, make_learner(), shared.owned_by(stage)) for stage in self._stages
        ]
        self._micro_batch = MicroBatch(0, batch)
        first = pipeline.stages[0]
        for stage in pipeline.stages:
            stage.start_step()
        made, _ = first.forward([], self._micro_batch, 1)
        leaves = first.interfaces[None].leaves
        self._ends = [
            [tf.ones_like(made[leaves.makes.index(i)]) for i in leaves.takes],
            [tf.constant(1.0)],
        ]
        self._inputs: list[Any] = [[], made]

    def alone(self) -> list[Costs]:
        """What each stage takes while the other one idles."""
        return [self._run(0), self._run(1)]

    def together(self) -> list[Costs]:
        """What each takes while both work."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return list(pool.map(self._run, range(2)))

    def update(self) -> float:
        """Seconds of norms and updates, which always run side by side."""
        start = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda learner: learner.squared_norm(), self._learners))
            list(pool.map(lambda learner: learner.update(0.0, 0.0, 1), self._learners))
        return time.perf_counter() - start

    def _run(self, number: int) -> Costs:
        stage = self._stages[number]
        forwards, backwards = [], []
        for _ in range(self.REPEATS):
            start = time.perf_counter()
            _, kept = stage.forward(self._inputs[number], self._micro_batch, 1)
            middle = time.perf_counter()
            stage.backward(kept, self._ends[number])
            forwards.append(middle - start)
            backwards.append(time.perf_counter() - middle)
        return statistics.median(forwards), statistics.median(backwards)


def make_learner() -> Any:
    """Gradient descent."""
    from lingpipe.learner.learner import Learner
    from lingpipe.learner.optimizers import Momentum
    from lingpipe.learner.schedules import Constant

    return Learner.Params(optimizer=Momentum.Params(), schedule=Constant.Params(value=1e-3)).build()


def make_pipeline(kind: Any, num_micro_batches: int) -> Any:
    """A Transformer of as many encoder as decoder layers on two stages."""
    from lingpipe.base.spec import Spec
    from lingpipe.cluster.devices import DeviceType, stage_devices
    from lingpipe.pipeline.builder import Pipeline
    from tasks.mt.model import SharedTables, TransformerModel

    model = TransformerModel.Params(
        vocabulary_size=VOCABULARY,
        model_dim=DIM,
        ffn_dim=4 * DIM,
        num_heads=4,
        num_encoder_layers=LAYERS,
        num_decoder_layers=LAYERS,
        shared_tables=SharedTables.none,
    )
    return Pipeline.Params(num_stages=2, num_micro_batches=num_micro_batches, schedule=kind).build(
        cells=model.cells(),
        learner=make_learner(),
        devices=stage_devices(2, DeviceType.cpu),
        micro_batch={
            name: Spec((ROWS, TIME), array.dtype.name) for name, array in make_batch(1).items()
        },
    )


def make_batch(num_micro_batches: int) -> dict[str, Any]:
    """A mini-batch of so many micro-batches of `ROWS` examples."""
    import numpy as np

    numbers = np.random.default_rng(0)
    shape = (ROWS * num_micro_batches, TIME)
    ids = ("source_ids", "target_ids", "target_labels")
    batch = {name: numbers.integers(4, VOCABULARY, shape).astype(np.int32) for name in ids}
    return {**batch, "target_weights": np.ones(shape, np.float32)}


if __name__ == "__main__":
    sys.exit(main())
