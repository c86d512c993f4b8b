"""The tree of a run: what may be set, and what is refused."""

import pytest
import tensorflow as tf

from lingpipe.hyperparams import ParamsError
from lingpipe.task.experiment import Dtype, TrainParams


def test_dtypes_are_tensorflow_s() -> None:
    assert [dtype.tensorflow for dtype in Dtype] == [tf.float32, tf.bfloat16, tf.float16]


def test_the_last_step_has_to_be_set() -> None:
    assert TrainParams().required_fields() == ["max_steps"]


@pytest.mark.parametrize(
    ("field", "least"),
    [
        ("max_steps", 1),
        ("log_every_steps", 1),
        ("evaluate_every_steps", 0),
        ("checkpoint_every_steps", 1),
        ("keep_last_checkpoints", 1),
    ],
)
def test_every_count_has_a_least_value(field: str, least: int) -> None:
    params = TrainParams(max_steps=10)
    setattr(params, field, least)
    params.validate()
    setattr(params, field, least - 1)
    with pytest.raises(ParamsError, match=rf"{field} \({least - 1}\) must be at least {least}\."):
        params.validate()
