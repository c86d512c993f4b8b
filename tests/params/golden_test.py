"""The params and plan of every registered model are those in tests/golden.

After a change that is meant: python -m tools.rewrite_goldens, and review the difference.
"""

import pytest

from lingpipe.registry import registered_names
from tools.rewrite_goldens import GOLDEN, golden_texts

NAMES = sorted(registered_names())


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_what_its_golden_files_say(name: str) -> None:
    for path, text in golden_texts(name).items():
        assert text == (GOLDEN / path).read_text(encoding="utf-8"), (
            f"{path} differs; if the change is meant: python -m tools.rewrite_goldens"
        )


def test_no_golden_file_is_of_a_model_that_is_gone() -> None:
    found = {path.stem for path in GOLDEN.rglob("*.txt")}
    assert found == set(NAMES)
