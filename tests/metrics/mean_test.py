"""Means of parts of different weight."""

import math

import numpy as np
import pytest

from lingpipe.metrics.errors import MetricsError
from lingpipe.metrics.mean import WeightedMean, mean, perplexity


def test_parts_count_by_their_weight() -> None:
    parts = [WeightedMean(10.0, 2.0), WeightedMean(2.0, 8.0), WeightedMean()]
    assert (parts[0] + parts[1]).value == 1.2
    assert sum(parts) == WeightedMean(12.0, 10.0)


def test_the_order_of_parts_does_not_matter() -> None:
    parts = [WeightedMean(float(number), number % 3) for number in range(20)]
    assert sum(parts) == sum(reversed(parts))


def test_adding_leaves_the_parts_as_they_are() -> None:
    first, second = WeightedMean(1.0, 1.0), WeightedMean(2.0, 3.0)
    assert first + second == WeightedMean(3.0, 4.0)
    assert first == WeightedMean(1.0, 1.0)
    with pytest.raises(AttributeError):
        first.total = 5.0  # type: ignore[misc]


def test_arrays_of_one_number_become_floats() -> None:
    mean = WeightedMean(np.float32(1.5), np.array(3))  # type: ignore[arg-type]
    assert (type(mean.total), type(mean.weight)) == (float, float)


def test_a_number_cannot_be_added() -> None:
    with pytest.raises(TypeError):
        WeightedMean(1.0, 1.0) + 2.0  # type: ignore[operator]
    with pytest.raises(TypeError):
        2.0 + WeightedMean(1.0, 1.0)


def test_the_mean_of_nothing_is_refused() -> None:
    with pytest.raises(MetricsError, match=r"mean of nothing.*weight 0.*padding"):
        _ = WeightedMean().value


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(MetricsError, match=r"weight \(-1.0\) must be 0 or more"):
        WeightedMean(1.0, -1.0)


def test_perplexity_of_a_uniform_guess_is_the_number_of_choices() -> None:
    assert perplexity(math.log(64_000)) == pytest.approx(64_000)
    assert perplexity(0.0) == 1.0


def test_perplexity_of_an_absurd_loss_is_infinite() -> None:
    assert perplexity(1e6) == math.inf
    assert perplexity(math.inf) == math.inf
    assert math.isnan(perplexity(math.nan))


def test_the_mean_of_nothing_is_no_number() -> None:
    assert mean(3.0, 2.0) == 1.5
    assert math.isnan(mean(0.0, 0.0))
