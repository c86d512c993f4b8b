"""What every task has, and how it says what it lacks."""

import math
from typing import Any, cast

import pytest

from lingpipe.input.input import Input
from lingpipe.task.decode_options import DecodeOptions
from lingpipe.task.task import Run, Task


@pytest.fixture
def task() -> Task:
    return cast(Task, Task.Params().build(input_params=Input.Params()))


def test_a_task_without_metrics_of_its_own_reports_the_loss_a_unit_of_weight(task: Task) -> None:
    assert task.metrics({"loss": 6.0, "weight": 4.0}) == {"loss": 1.5}
    assert math.isnan(task.metrics({"loss": 0.0, "weight": 0.0})["loss"])


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("cells", ()),
        ("micro_batch", (2,)),
        ("signature", ()),
        ("evaluate", (cast(Run, None), "dev")),
        ("decode", (cast(Run, None), [], DecodeOptions(target_language="de"))),
    ],
)
def test_what_a_task_has_to_define_is_named(
    task: Task, method: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(TypeError, match=rf"^Task defines no {method}\("):
        getattr(task, method)(*arguments)
