"""Batches that do not fit are refused in words, and new shapes open a dimension once."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.errors import UserError
from lingpipe.pipeline.micro_batch import BatchError
from lingpipe.pipeline.signature import widen_signature
from tests.pipeline.small_models import Batch, dense_batch, dense_cells, make_pipeline

KNOWN = {"ids": tf.TensorSpec([None, 5], tf.int32)}


def test_the_first_batch_gives_the_signature_with_examples_open() -> None:
    entries = {"ids": np.zeros((3, 5), np.int32), "mask": np.ones(3, np.bool_)}
    assert widen_signature({}, entries) == {
        "ids": tf.TensorSpec([None, 5], tf.int32),
        "mask": tf.TensorSpec([None], tf.bool),
    }


def test_a_dimension_that_differs_is_opened_and_stays_open() -> None:
    wider = widen_signature(KNOWN, {"ids": np.zeros((3, 7), np.int32)})
    assert wider == {"ids": tf.TensorSpec([None, None], tf.int32)}
    assert widen_signature(wider, {"ids": np.zeros((3, 5), np.int32)}) == wider


def test_entries_that_a_batch_lacks_stay() -> None:
    assert widen_signature(KNOWN, {}) == KNOWN


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((3, 5), np.int64), "'ids' is int64 with 2 .* or has seen, int32 with 2.*same"),
        (np.zeros((3, 5, 1), np.int32), "'ids' is int32 with 3 dimensions; .* int32 with 2"),
        (np.array([[None]]), "'ids' has the NumPy dtype object, .* convert it to numbers"),
        (np.array(["2026-01-01"], "M8[D]"), r"'ids' has the NumPy dtype datetime64\[D\]"),
    ],
)
def test_other_dtypes_and_ranks_are_refused(array: np.ndarray, words: str) -> None:
    with pytest.raises(BatchError, match=words) as refusal:
        widen_signature(KNOWN, {"ids": array})
    assert isinstance(refusal.value, UserError)


@pytest.mark.parametrize("step", ("train_step", "evaluate_step"))
@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (
            {"x": np.zeros((2, 4), np.float32), "z": np.zeros(2)},
            r"Stage 1 \(cell loss, device /CPU:1\) reads the batch entries 'y', but the batch "
            r"lacks 'y'; it has 'x', 'z'\.",
        ),
        ({}, "The batch has no entries"),
        ({"x": np.zeros((0, 4)), "y": np.zeros((0, 4))}, "The batch holds no example"),
        ({"x": np.zeros((7, 4)), "y": np.zeros((3, 4))}, "{'x': 7, 'y': 3}"),
        ({"x": np.array([["a", object()]]), "y": np.zeros((1, 4))}, "'x' has the NumPy dtype obj"),
    ],
)
def test_a_pipeline_refuses_such_batches_before_it_runs(
    step: str, batch: Batch, words: str
) -> None:
    pipeline = make_pipeline(dense_cells(4), 2, 2)
    with pytest.raises(BatchError, match=words):
        getattr(pipeline, step)(batch)
    assert pipeline.step == 0


def test_entries_that_no_cell_reads_may_be_anything_and_change_nothing() -> None:
    pipeline = make_pipeline(dense_cells(4), 2, 2)
    texts = np.array(["a", None], dtype=object)
    losses = [
        pipeline.train_step({**dense_batch(2), "text": texts, "more": np.zeros((2, 3 + i))}).loss
        for i in range(2)
    ]
    assert losses[0] > losses[1]
    pipeline.close()


def test_nothing_is_traced_again_for_batches_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline(dense_cells(3), 1, 2)
    traces: list[str] = []
    stage = pipeline.stages[0]
    for name in ("trace_training", "trace_inference"):
        method = getattr(stage, name)

        def counted(*args: object, name: str = name, method: object = method) -> object:
            traces.append(name)
            return method(*args)  # type: ignore[operator]

        monkeypatch.setattr(stage, name, counted)
    for size in (4, 3, 1, 4):
        pipeline.train_step(dense_batch(size))
        pipeline.evaluate_step(dense_batch(size + 1))
    assert traces == ["trace_training", "trace_inference"]
    pipeline.close()
