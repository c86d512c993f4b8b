"""The contract's base says what is missing, and nothing in the input needs TensorFlow."""

import subprocess
import sys
from pathlib import Path

import pytest

from lingpipe.input.batch import Cursor
from lingpipe.input.input import Input


def test_a_subclass_that_lacks_a_method_is_named() -> None:
    class Empty(Input):
        pass

    made = Empty.Params().build(vocab_dir=Path("vocab"), seed=1)
    for call in (
        lambda: made.train_batches(Cursor()),
        lambda: made.evaluation_batches("dev"),
        lambda: made.describe(10),
    ):
        with pytest.raises(TypeError, match=r"Empty defines no \w+\("):
            call()
    assert made.name_example(3) == "example 3"
    assert made.is_prepared(Path("vocab"))


def test_reading_text_needs_no_tensorflow() -> None:
    code = "import sys, tasks.mt.input, tasks.mt.synthetic; sys.exit('tensorflow' in sys.modules)"
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
