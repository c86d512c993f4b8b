"""Means over a whole data set, added up from parts of different weight.

A mean of batch means is wrong as soon as batches differ in size, so what travels is always the
sum and its weight; the division comes last.
"""

import math
from dataclasses import dataclass

from lingpipe.metrics.errors import MetricsError


@dataclass(frozen=True)
class WeightedMean:
    """A sum and the weight to divide it by; parts are added with `+`, also by `sum(parts)`.

    Attributes:
      total: Sum of weight x value.
      weight: Sum of the weights, 0 or more; for text the number of tokens that are not padding.

    Raises:
      MetricsError: When the weight is negative.
    """

    total: float = 0.0
    weight: float = 0.0

    def __post_init__(self) -> None:
        """Takes tensors and arrays of one number too; checks the weight."""
        object.__setattr__(self, "total", float(self.total))
        object.__setattr__(self, "weight", float(self.weight))
        if self.weight < 0:
            raise MetricsError(f"weight ({self.weight}) must be 0 or more.")

    def __add__(self, other: "WeightedMean") -> "WeightedMean":
        """Returns the mean over both parts."""
        if not isinstance(other, WeightedMean):
            return NotImplemented
        return WeightedMean(self.total + other.total, self.weight + other.weight)

    def __radd__(self, other: object) -> "WeightedMean":
        """Lets `sum` start from its 0."""
        return self if other == 0 else NotImplemented

    @property
    def value(self) -> float:
        """The mean.

        Raises:
          MetricsError: When the weight is 0.
        """
        if self.weight == 0:
            raise MetricsError(
                "The mean of nothing was asked for (weight 0). Is the data set empty, or all of "
                "it padding?"
            )
        return self.total / self.weight


def mean(total: float, weight: float) -> float:
    """Returns total / weight; NaN where there was no weight, so nothing to take the mean of."""
    return total / weight if weight else math.nan


def perplexity(mean_loss: float) -> float:
    """Returns exp of the mean loss a token, in nats; infinity where that exceeds a float."""
    try:
        return math.exp(mean_loss)
    except OverflowError:
        return math.inf
