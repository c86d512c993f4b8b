"""Saves in a loop in a child process, kills it at random moments, and looks at what it left.

Run as `saving_until_killed.py FOLDER KILLS SEED`; prints a list in JSON with what each kill left.
TensorFlow is imported once, and each child is forked from here before any operation has run: a
child is saving after a tenth of a second.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from lingpipe.errors import UserError
from lingpipe.runtime.checkpoint import CheckpointStore

# What a checkpoint of the loop holds; every value is its step. Large enough to be caught half done.
SHAPES = {"weights/w": (100, 1000), "weights/v": (1000,), "slots/w/m": (100, 1000)}


def save_for_ever(folder: Path, ready: int) -> NoReturn:
    """Saves step after step; each is saved twice and given a metric, so all moves are exercised."""
    store = CheckpointStore(folder, keep_last=2)
    step = store.latest() or 0
    while True:
        step += 1
        tensors = {name: np.full(shape, step, np.float32) for name, shape in SHAPES.items()}
        for repeat in range(2):
            store.save(step, tensors, {"step": step, "repeat": repeat})
            os.write(ready, b".")
        store.set_metric(step, float(step % 7))


def kill_one(folder: Path, generator: random.Random) -> None:
    """Forks a child that saves, and kills it some time after its first checkpoint."""
    first_save, ready = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(first_save)
        save_for_ever(folder, ready)
    os.close(ready)
    os.read(first_save, 1)
    time.sleep(generator.uniform(0.0, 0.2))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(first_save)


def look(folder: Path) -> dict[str, Any]:
    """What a new process finds."""
    names = sorted(os.listdir(folder))
    store = CheckpointStore(folder, keep_last=2)
    faults = []
    latest = None
    try:
        latest = store.latest()
        for step in store.steps():
            saved = store.read_state(step)
            reader = tf.train.load_checkpoint(str(saved.bundle))
            for name in SHAPES:
                if not np.all(reader.get_tensor(name) == step):
                    faults.append(f"step {step}: {name} has other values")
    except UserError as error:
        faults.append(str(error))
    if latest is None:
        faults.append("no checkpoint")
    was_saving = any(name.startswith(".") for name in names)
    return {"latest": latest, "faults": faults, "was_saving": was_saving, "names": names}


def main(folder: Path, kills: int, seed: int) -> None:
    """Kills and looks, again and again; what one child left is where the next one begins."""
    generator = random.Random(seed)
    found = []
    for _ in range(kills):
        kill_one(folder, generator)
        found.append(look(folder))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
