"""How long the first step takes, and whether that grows with the number of micro-batches.

    python -m tools.benchmark.startup

A graph of the whole step grows with M times depth, and its first run with it: measured 30 to 54 s
at M=32 against 3 to 7 s at M=4. Stage functions are traced once, whatever M is. The rule: the first
step at M=32 takes at most 1.5 times that at M=4, plus the difference of two ordinary steps.

Every measurement has a process of its own; those of the two M take turns. Prints one line of JSON,
then the verdict; exits with 1 if the rule is broken.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

MICRO_BATCHES = (4, 32)
FACTOR = 1.5
ORDINARY_STEPS = 5


def main() -> int:
    """Measures and judges; with `--micro-batches`, measures once in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each M")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, help="measure this M here, once")
    arguments = parser.parse_args()
    if arguments.micro_batches:
        print(json.dumps(measure(arguments.stages, arguments.micro_batches)))
        return 0
    return judge(arguments.stages, arguments.rounds)


def judge(num_stages: int, rounds: int) -> int:
    """Measures every M in turn in fresh processes; returns the exit code."""
    measured: dict[int, list[dict[str, float]]] = {m: [] for m in MICRO_BATCHES}
    for _ in range(rounds):
        for m in MICRO_BATCHES:
            command = [sys.executable, "-m", "tools.benchmark.startup"]
            command += [f"--stages={num_stages}", f"--micro-batches={m}"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            measured[m].append(json.loads(done.stdout))
    few, many = MICRO_BATCHES
    medians = {
        key: {m: statistics.median(run[key] for run in runs) for m, runs in measured.items()}
        for key in ("first_seconds", "step_seconds")
    }
    first, step = medians["first_seconds"], medians["step_seconds"]
    limit = FACTOR * first[few] + step[many] - step[few]
    ok = first[many] <= limit
    print(json.dumps({**medians, "limit_seconds": limit, "ok": ok, "runs": measured}))
    print(
        f"first step: {first[many]:.2f} s at M={many}, {first[few]:.2f} s at M={few}; "
        f"at most {limit:.2f} s allowed: {'ok' if ok else 'TOO SLOW'}"
    )
    return 0 if ok else 1


def measure(num_stages: int, num_micro_batches: int) -> dict[str, float]:
    """Seconds of the first step, and the median of some ordinary ones, of 4 + 4 tiny layers."""
    import numpy as np

    from lingpipe.base.spec import Spec
    from lingpipe.cluster.devices import DeviceType, stage_devices
    from lingpipe.learner.learner import Learner
    from lingpipe.learner.schedules import Constant
    from lingpipe.pipeline.builder import Pipeline
    from tasks.mt.model import TransformerModel

    size, time_steps = 32, 8
    model = TransformerModel.Params(
        vocabulary_size=64,
        model_dim=16,
        ffn_dim=32,
        num_heads=2,
        num_encoder_layers=4,
        num_decoder_layers=4,
        dropout=0.1,
    )
    numbers = np.random.default_rng(0)
    ids = ("source_ids", "target_ids", "target_labels")
    batch: dict[str, Any] = {
        name: numbers.integers(4, 64, (size, time_steps)).astype(np.int32) for name in ids
    }
    batch["target_weights"] = np.ones((size, time_steps), np.float32)
    rows = size // num_micro_batches
    pipeline: Pipeline = Pipeline.Params(
        num_stages=num_stages, num_micro_batches=num_micro_batches
    ).build(
        cells=model.cells(),
        learner=Learner.Params(schedule=Constant.Params(value=1e-3)).build(),
        devices=stage_devices(num_stages, DeviceType.cpu),
        micro_batch={
            name: Spec((rows, time_steps), array.dtype.name) for name, array in batch.items()
        },
    )
    seconds = []
    for _ in range(1 + ORDINARY_STEPS):
        start = time.perf_counter()
        pipeline.train_step(batch)
        seconds.append(time.perf_counter() - start)
    pipeline.close()
    return {"first_seconds": seconds[0], "step_seconds": statistics.median(seconds[1:])}


if __name__ == "__main__":
    sys.exit(main())
