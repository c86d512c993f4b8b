"""How long the first step takes: by the number of micro-batches and of layers.

    python -m tools.benchmark.startup

A graph of the whole step grows with M times depth, and its first run with it: measured 30 to 54 s
at M=32 against 3 to 7 s at M=4. Stage functions are traced once, whatever M is. The rules: at M=32
the first step takes at most 1.5 times that at M=4, plus the difference of two ordinary steps; with
depth it grows by less than 0.5 s a layer, and no faster between 16 and 32 layers than linearly.

Every measurement has a process of its own, and all kinds take turns. Prints a table and one line of
JSON; exits with 1 if a rule is broken.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from typing import Any

MICRO_BATCHES = (4, 32)
DEPTHS = (8, 16, 32)
FACTOR = 1.5
LAYER_SECONDS = 0.5
# How much more a layer may take between 16 and 32 than between 8 and 16 and still be called linear.
CURVATURE = 1.25
ORDINARY_STEPS = 5

# First step and ordinary step in seconds, by (layers, micro-batches).
Medians = dict[tuple[int, int], tuple[float, float]]


def main() -> int:
    """Measures and judges; with `--micro-batches`, measures once in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each kind")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, help="measure this M here, once")
    parser.add_argument("--layers", type=int, default=DEPTHS[0], help="layers, with it")
    arguments = parser.parse_args()
    if arguments.micro_batches:
        measured = measure(arguments.stages, arguments.micro_batches, arguments.layers)
        print(json.dumps(measured))
        return 0
    medians = measure_all(arguments.stages, arguments.rounds)
    print("layers  M   first step s  ordinary step s")
    for (layers, m), (first, step) in medians.items():
        print(f"{layers:6d}  {m:2d}  {first:12.2f}  {step:15.3f}")
    faults = broken_rules(medians)
    rows = [[layers, m, *seconds] for (layers, m), seconds in medians.items()]
    print(json.dumps({"rows": rows, "ok": not faults}))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


def measure_all(num_stages: int, rounds: int) -> Medians:
    """Measures every kind in turn in fresh processes."""
    runs: dict[tuple[int, int], list[dict[str, float]]] = {
        (layers, m): [] for layers in DEPTHS for m in MICRO_BATCHES
    }
    for _ in range(rounds):
        for layers, m in runs:
            command = [sys.executable, "-m", "tools.benchmark.startup", f"--stages={num_stages}"]
            command += [f"--micro-batches={m}", f"--layers={layers}"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            runs[layers, m].append(json.loads(done.stdout))
    return {
        kind: (
            statistics.median(run["first_seconds"] for run in found),
            statistics.median(run["step_seconds"] for run in found),
        )
        for kind, found in runs.items()
    }


def broken_rules(medians: Medians) -> list[str]:
    """What is broken, in words."""
    few, many = MICRO_BATCHES
    faults = []
    for layers in DEPTHS:
        (first_few, step_few), (first_many, step_many) = (
            medians[layers, few],
            medians[layers, many],
        )
        limit = FACTOR * first_few + step_many - step_few
        if first_many > limit:
            faults.append(
                f"{layers} layers: first step {first_many:.2f} s at M={many}, allowed {limit:.2f} s"
            )
    for m in MICRO_BATCHES:
        slopes = [
            (medians[deep, m][0] - medians[shallow, m][0]) / (deep - shallow)
            for shallow, deep in itertools.pairwise(DEPTHS)
        ]
        if max(slopes) > LAYER_SECONDS or slopes[-1] > CURVATURE * max(slopes[0], 0.0):
            words = ", ".join(f"{slope:.3f}" for slope in slopes)
            faults.append(f"M={m}: a layer more takes {words} s between depths {DEPTHS}")
    return faults


def measure(num_stages: int, num_micro_batches: int, num_layers: int) -> dict[str, float]:
    """Seconds of the first step, and the median of some ordinary ones, of tiny encoder layers."""
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
        num_encoder_layers=num_layers,
        num_decoder_layers=1,
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
