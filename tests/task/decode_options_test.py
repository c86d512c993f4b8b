"""Options that no search can honour are refused when they are written down."""

import pytest

from lingpipe.errors import UserError
from lingpipe.task.decode_options import DecodeOptions


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nbest": 5}, r"nbest \(5\) must be at most beam_size \(4\)"),
        ({"beam_size": 0}, r"beam_size \(0\) must be at least 1"),
        ({"max_rows": -1}, r"max_rows \(-1\) must be at least 1"),
        ({"length_penalty": 10.1}, r"length_penalty \(10.1\) must be in \[-10, 10\]"),
        ({"length_penalty": -1e300}, r"length_penalty \(-1e\+300\) must be in"),
        ({"length_penalty": float("nan")}, r"length_penalty \(nan\) must be in"),
    ],
)
def test_a_number_out_of_range_is_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        DecodeOptions(target_language="de", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("alpha", [-10.0, 0.0, 10.0])
def test_the_ends_of_the_range_are_in_it(alpha: float) -> None:
    assert DecodeOptions(target_language="de", length_penalty=alpha).length_penalty == alpha
