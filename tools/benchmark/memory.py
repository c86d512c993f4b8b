"""Peak memory of a stage against what the plan says, and whether it grows as it should.

    python -m tools.benchmark.memory

Every measurement has a process of its own. It builds one stage of a Transformer alone, on a CPU
whose memory TensorFlow's own allocator counts, and walks that stage's row of the schedule with
random inputs and gradients where neighbours would send theirs, then norm and update. The rules:
each peak lies within 15 % of the prediction, and under GPipe with `remat=stage` a micro-batch more
adds no more than its boundary tensors. (The allocator hands out pieces of up to twice what was
asked for: expect the measured to lie some percent above the predicted.)

Prints one line of JSON, then a table; exits with 1 if a rule is broken.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

TOLERANCE = 0.15
SCHEDULES = ("gpipe", "1f1b")
REMATS = ("none", "stage", "layer")
MICRO_BATCHES = (4, 16, 32)
MIDDLE, LAST = 1, 3  # Of the four stages: encoder layers; decoder layers and the softmax.
ROWS, TIME = 8, 64


def main() -> int:
    """Measures and judges; with `--configuration`, measures once in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configuration", help="measure this one here: JSON, as it is printed")
    arguments = parser.parse_args()
    if arguments.configuration:
        print(json.dumps(measure(**json.loads(arguments.configuration))))
        return 0
    return judge()


def configurations() -> list[dict[str, Any]]:
    """Every measurement: the last stage always keeps all, so that one `remat` is enough there."""
    middle = itertools.product(SCHEDULES, [MIDDLE], REMATS, MICRO_BATCHES)
    last = itertools.product(SCHEDULES, [LAST], REMATS[:1], MICRO_BATCHES)
    names = ("schedule", "stage", "remat", "num_micro_batches")
    return [dict(zip(names, values, strict=True)) for values in (*middle, *last)]


def judge() -> int:
    """Measures every configuration in a fresh process; returns the exit code."""
    found = []
    for configuration in configurations():
        command = [sys.executable, "-m", "tools.benchmark.memory"]
        command += [f"--configuration={json.dumps(configuration)}"]
        # Read when TensorFlow starts: this allocator keeps exact statistics.
        environment = {**os.environ, "TF_CPU_ALLOCATOR_USE_BFC": "true"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        found.append({**configuration, **json.loads(done.stdout)})
    off = [run for run in found if abs(run["peak"] / run["predicted"] - 1) > TOLERANCE]
    growth = growth_of_gpipe(found)
    ok = not off and growth["measured"] <= growth["boundary"] * (1 + TOLERANCE)
    print(json.dumps({"ok": ok, "growth": growth, "runs": found}))
    print(table(found))
    print(
        f"a micro-batch more under gpipe with remat=stage adds {growth['measured'] / 2**20:.2f} "
        f"MiB; its boundary tensors take {growth['boundary'] / 2**20:.2f} MiB"
    )
    print("ok" if ok else f"OFF BY MORE THAN {TOLERANCE:.0%}: {len(off)} of {len(found)}")
    return 0 if ok else 1


def growth_of_gpipe(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Bytes that a micro-batch adds to the middle stage under GPipe and `remat=stage`."""
    peaks = {
        run["num_micro_batches"]: run
        for run in runs
        if (run["schedule"], run["stage"], run["remat"]) == ("gpipe", MIDDLE, "stage")
    }
    few, many = min(peaks), max(peaks)
    return {
        "measured": (peaks[many]["peak"] - peaks[few]["peak"]) / (many - few),
        "boundary": peaks[few]["boundary"],
    }


def table(runs: list[dict[str, Any]]) -> str:
    """One row a schedule, stage and rematerialisation; measured and predicted MiB at each M."""
    heading = " | ".join(f"M={m}: measured, predicted, ratio" for m in MICRO_BATCHES)
    lines = [f"| schedule | stage | remat | {heading} |", "| --- " * (3 + len(MICRO_BATCHES)) + "|"]
    for key, group in itertools.groupby(
        runs, lambda run: (run["schedule"], run["stage"], run["remat"])
    ):
        cells = [
            f"{run['peak'] / 2**20:.1f}, {run['predicted'] / 2**20:.1f}, "
            f"{run['peak'] / run['predicted']:.2f}"
            for run in group
        ]
        schedule, stage, remat = key
        name = "last" if stage == LAST else "middle"
        lines.append(f"| {schedule} | {name} | {remat} | {' | '.join(cells)} |")
    return "\n".join(lines)


def measure(schedule: str, stage: int, remat: str, num_micro_batches: int) -> dict[str, int]:
    """Measured and predicted peak bytes of one stage of four, and the bytes that it is given."""
    import tensorflow as tf

    from lingpipe.base.spec import Spec
    from lingpipe.learner.learner import Learner
    from lingpipe.learner.schedules import Constant
    from lingpipe.pipeline.keeping import Keeping, Rematerialisation
    from lingpipe.pipeline.memory import WeightBytes
    from lingpipe.pipeline.memory_limits import MemorySettings
    from lingpipe.pipeline.plan import make_plan
    from lingpipe.pipeline.schedules import ScheduleKind
    from lingpipe.pipeline.stage import Stage
    from lingpipe.pipeline.stage_learner import StageLearner

    tf.zeros([])  # What TensorFlow takes for itself is not the stage's.
    before = used(tf)["current"]
    cells = model_cells()
    ids = ("source_ids", "target_ids", "target_labels")
    micro_batch = {name: Spec((ROWS, TIME), "int32") for name in ids}
    micro_batch["target_weights"] = Spec((ROWS, TIME))
    learner = Learner.Params(schedule=Constant.Params(value=1e-3)).build()
    settings = MemorySettings(
        schedule=ScheduleKind(schedule),
        num_micro_batches=num_micro_batches,
        remat=Rematerialisation(remat),
        weights=WeightBytes(len(learner.optimizer.slot_names)),
    )
    plan = make_plan(cells, 4, micro_batch, [3, 4, 3, 4], memory=settings)
    planned = plan.stages[stage]
    built = Stage(
        stage,
        {name: cells[name] for name in planned.cells},
        "/CPU:0",
        seed=1,
        is_last=stage == LAST,
        keeping=Keeping(Rematerialisation(remat)) if stage != LAST else None,
    )
    earlier = [name for part in plan.stages[:stage] for name in part.cells]
    elsewhere = {path for name in earlier for path in cells[name].all_weights(name)}
    owned = {path: v for path, v in built.trainable.items() if path not in elsewhere}
    given = given_to(cells, planned.cells[0], micro_batch)
    walk = Walk(built, StageLearner(built, learner, owned), given, micro_batch)
    row = [
        action for row in settings.make_schedule(4).rows for action in row if action.stage == stage
    ]
    walk.step(row)  # What is made once is not the peak of a step.
    gc.collect()
    working, updating = (peak_of(run) - before for run in (lambda: walk.run(row), walk.update))
    predicted = planned.memory
    assert predicted is not None
    return {
        "peak": max(working, updating),
        "predicted": predicted.peak_bytes,
        "update_peak": updating,
        "boundary": plan.stages[stage - 1].boundary_bytes,
        **dataclasses.asdict(predicted),
    }


def model_cells() -> dict[str, Any]:
    """A Transformer of eleven layers."""
    from tasks.mt.model import TransformerModel

    return TransformerModel.Params(
        vocabulary_size=4096,
        model_dim=256,
        ffn_dim=1024,
        num_heads=4,
        num_encoder_layers=6,
        num_decoder_layers=5,
        dropout=0.1,
        attention_dropout=0.1,
        feed_forward_dropout=0.1,
        label_smoothing=0.1,
    ).cells()


def peak_of(run: Callable[[], None]) -> int:
    """The most bytes in use on the CPU while something runs."""
    import tensorflow as tf

    tf.config.experimental.reset_memory_stats("CPU:0")
    run()
    return used(tf)["peak"]


def used(tf: Any) -> dict[str, int]:
    """Bytes in use on the CPU, now and at most since the last reset."""
    return tf.config.experimental.get_memory_info("CPU:0")


def given_to(cells: Any, cell: str, micro_batch: Any) -> Any:
    """Nested specs of what a cell is given."""
    outputs: Any = None
    for name, params in cells.items():
        if name == cell:
            return outputs
        outputs = params.cost(outputs, micro_batch).outputs
    raise KeyError(cell)


class Walk:
    """One stage on its way through its row, holding what the executor would hold for it."""

    def __init__(self, stage: Any, learner: Any, given: Any, micro_batch: Any) -> None:
        """Traces the stage, open in examples and time."""
        import numpy as np
        import tensorflow as tf

        from lingpipe.pipeline.micro_batch import MicroBatch

        self._tf, self._stage, self._learner = tf, stage, learner
        self._given = given
        entries = {
            name: np.ones(spec.shape, np.int32 if "ids" in name or "labels" in name else np.float32)
            for name, spec in micro_batch.items()
        }
        self._micro_batch = MicroBatch(0, entries)
        opened = {name: tf.TensorSpec([None, None], e.dtype) for name, e in entries.items()}
        inputs: Any = ()
        if given is not None:
            inputs = tf.nest.map_structure(
                lambda spec: tf.TensorSpec([None, None, spec.shape[-1]], spec.dtype), given
            )
        self._outputs = stage.trace_training(inputs, opened)
        self._kept: dict[int, list] = {}

    def step(self, row: Any) -> None:
        """A whole step."""
        self.run(row)
        self.update()

    def run(self, row: Any) -> None:
        """Forward and backward passes, in the order of the row."""
        for action in row:
            if action.phase.value == "F":
                self._forward(action.micro_batch)
            else:
                self._backward(action.micro_batch)

    def update(self) -> None:
        """Norm and update."""
        self._learner.squared_norm()
        self._learner.update(1e-3, 1e-3, 1)

    def _forward(self, m: int) -> None:
        given = [] if self._given is None else self._tf.nest.flatten(self._given)
        reads = self._stage.interfaces[None].leaves.reads
        leaves = [self._arrived(given[position].shape) for position in reads]
        _, self._kept[m] = self._stage.forward(leaves, self._micro_batch, 1)

    def _backward(self, m: int) -> None:
        self._stage.backward(self._kept.pop(m), self._gradients())

    def _gradients(self) -> list:
        if self._stage.is_last:
            return [self._tf.ones([])]
        outputs = self._tf.nest.flatten(self._outputs)
        takes = self._stage.interfaces[None].leaves.takes
        return [self._arrived((ROWS, TIME, outputs[i].shape[-1])) for i in takes]

    def _arrived(self, shape: Any) -> Any:
        """A tensor of random numbers that nobody else holds."""
        return self._tf.random.normal(shape)


if __name__ == "__main__":
    sys.exit(main())
