"""The smallest run that is still a whole one, for tests of the trainer and all that follows it.

Three pairs of 40 lines, in which every word has one translation: English counts, and the others
count in German, French and Chinese. The model has one encoder and one decoder layer of width 16 in
two stages, with dropout: a step takes a fiftieth of a second, after some seconds of tracing.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lingpipe.__main__ import main

HOUSE = Path(__file__).parents[1]
MODEL = "mt.multilingual.Corpus"
PAIRS = ("en-de", "de-en", "en-fr", "fr-en", "en-zh", "zh-en")
WORDS = {
    "en": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
    "de": ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
    "fr": ["zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf"],
    "zh": ["零", "一", "二", "三", "四", "五", "六", "七", "八", "九"],
}
LINES = {"train": 40, "valid": 6, "test": 7}
# Paths of the params that make the model small, and their values.
SMALL = {
    "num_layers": 1,
    "model_dim": 16,
    "ffn_dim": 32,
    "num_heads": 2,
    "dropout": 0.1,
    "vocabulary_size": 330,
    "tokens_per_batch": 512,
    "warmup_steps": 10,
    "peak_learning_rate": 0.02,
    "num_stages": 2,
    "num_micro_batches": 2,
    "input.max_length": 64,
    "input.window_examples": 120,
    "train.log_every_steps": 1,
    "train.evaluate_every_steps": 25,
    "train.checkpoint_every_steps": 50,
    "train.keep_last_checkpoints": 2,
    "max_steps": 200,
}


# A source of every kind of line that programs cut, join or lose; one translation is due for each.
AWKWARD_LINES = (
    b"\xef\xbb\xbfone two\n\n \n\t\none three\r\ntwo\xc2\x85four\nsix\xe2\x80\xa8one\nnine\x0btwo\n"
    b"two\x0ctwo\nthree\x00four\n\xc2\xa0\none\xe3\x80\x80two\n\xe3\x80\x80\nfive\rfour\n"
    b"x<2fr>y one\n" + b"one two three " * 200 + b"\nseven"
)


def trained(folder: Path) -> Path:
    """Trains the run in this process, without a stop; returns the logdir."""
    logdir = folder / "run"
    assert main(train_arguments(write_corpus(folder / "corpus"), logdir)) == 0
    return logdir


def write_corpus(folder: Path) -> Path:
    """Writes the corpus; line n of both sides holds the same numbers."""
    for language in ("de", "fr", "zh"):
        for split, count in LINES.items():
            numbers = random.Random(f"{language} {split}")
            rows = [
                [numbers.randrange(10) for _ in range(numbers.randint(1, 6))] for _ in range(count)
            ]
            for side in ("en", language):
                path = folder / f"en-{language}" / f"{split}.{side}"
                path.parent.mkdir(parents=True, exist_ok=True)
                text = "".join(" ".join(WORDS[side][n] for n in row) + "\n" for row in rows)
                path.write_text(text, encoding="utf-8")
    return folder


def train_arguments(corpus: Path, logdir: Path, **changes: object) -> list[str]:
    """Arguments of `lingpipe train`; `changes` has `__` for the points of a path."""
    values = {**SMALL, "corpus": corpus, **{k.replace("__", "."): v for k, v in changes.items()}}
    sets = [word for path, value in values.items() for word in ("--set", f"{path}={value}")]
    return ["train", f"--model={MODEL}", f"--logdir={logdir}", *sets]


def lingpipe(
    *arguments: object, cwd: Path = HOUSE, stdin: bytes = b"", timeout: float = 240
) -> subprocess.CompletedProcess[bytes]:
    """Runs the command line in a process of its own and waits for it."""
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        timeout=timeout,
        env=environment(),
        check=False,
    )


def command(*arguments: object) -> list[str]:
    """The words of a command line."""
    return [sys.executable, "-m", "lingpipe", *map(str, arguments)]


def environment(**changes: str) -> Mapping[str, str]:
    """Variables of a child process, which can import the house wherever it runs."""
    return {**os.environ, "PYTHONPATH": str(HOUSE), **changes}


def rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
