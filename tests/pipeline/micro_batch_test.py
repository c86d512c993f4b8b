"""Micro-batches hold every example once, in order, whatever the sizes are."""

import numpy as np
import pytest

from lingpipe.errors import UserError
from lingpipe.pipeline.micro_batch import BatchError, micro_batch_sizes, split_batch


@pytest.mark.parametrize(
    ("num_examples", "num_micro_batches", "sizes"),
    [
        (8, 3, [3, 3, 2]),
        (7, 4, [2, 2, 2, 1]),
        (1, 4, [1]),
        (3, 8, [1, 1, 1]),
        (8, 4, [2, 2, 2, 2]),
        (5, 1, [5]),
        (9, 2, [5, 4]),
    ],
)
def test_sizes_differ_by_one_at_most(
    num_examples: int, num_micro_batches: int, sizes: list[int]
) -> None:
    assert micro_batch_sizes(num_examples, num_micro_batches) == sizes


def test_every_example_is_in_one_micro_batch_in_order() -> None:
    for num_examples in range(1, 18):
        for num_micro_batches in (1, 2, 3, 4, 7, 16, 40):
            assert_splits_exactly(num_examples, num_micro_batches)


def assert_splits_exactly(num_examples: int, num_micro_batches: int) -> None:
    ids = np.arange(num_examples * 2, dtype=np.int32).reshape(num_examples, 2)
    mask = ids > 3
    parts = split_batch({"ids": ids, "mask": mask}, num_micro_batches)
    assert len(parts) == min(num_examples, num_micro_batches)
    sizes = [len(part.entries["ids"]) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    np.testing.assert_array_equal(np.concatenate([part.entries["ids"] for part in parts]), ids)
    np.testing.assert_array_equal(np.concatenate([part.entries["mask"] for part in parts]), mask)
    for part in parts:
        assert part.entries["ids"][0, 0] == 2 * part.first_example
        assert part.entries["ids"].dtype == np.int32
        assert part.entries["mask"].dtype == np.bool_


def test_lists_become_arrays() -> None:
    (part,) = split_batch({"ids": [[1, 2], [3, 4]]}, 1)  # type: ignore[dict-item]
    assert part.entries["ids"].shape == (2, 2)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({}, "The batch has no entries; give it name -> array."),
        ({"ids": np.zeros((0, 3))}, "The batch holds no example."),
        ({"a": np.zeros((7, 2)), "b": np.zeros((3, 2))}, "equally many .* {'a': 7, 'b': 3}"),
        ({"a": np.zeros((7, 2)), "rate": np.float32(1)}, r"\['rate'\] are scalars"),
    ],
)
def test_a_batch_that_cannot_be_split_is_refused(batch: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(BatchError, match=words) as refusal:
        split_batch(batch, 2)
    assert isinstance(refusal.value, UserError)
