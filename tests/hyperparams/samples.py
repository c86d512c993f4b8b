"""Params that the tests of this room share: a small model with a field of every kind."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from lingpipe.hyperparams import REQUIRED, Parameterized


class Schedule(enum.Enum):
    """Written by its values, one of which is no identifier."""

    gpipe = "gpipe"
    one_f_one_b = "1f1b"
    none = "none"


class Level(enum.IntEnum):
    """Written by its names; the first member is falsy."""

    low = 0
    high = 1


class Attention(Parameterized):
    class Params(Parameterized.Params):
        model_dim: int = REQUIRED  # Width; the parent sets it.
        num_heads: int = 4
        dropout: float = 0.0

        def inconsistencies(self) -> Iterator[tuple[str, str]]:
            if self.model_dim % self.num_heads:
                yield (
                    "num_heads",
                    f"model_dim ({self.model_dim}) must be a multiple of num_heads "
                    f"({self.num_heads}).",
                )
            if not 0 <= self.dropout < 1:
                yield "dropout", f"dropout ({self.dropout}) must be in [0, 1)."

    def __init__(self, params: Params, scope: str = "") -> None:
        self.params = params
        self.scope = scope


class LocalAttention(Attention):
    class Params(Attention.Params):
        window: int = 128


class PlainAttention(Attention):
    """Has no params of its own: gets them derived."""


class FeedForward(Parameterized):
    class Params(Parameterized.Params):
        hidden_dim: int = 16


class Model(Parameterized):
    class Rounding(enum.Enum):
        up = 1
        down = 2

    class Params(Parameterized.Params):
        model_dim: int = 8
        num_layers: int = 2
        rate: float = 0.1
        is_causal: bool = True
        name: str = "model"
        schedule: Schedule = Schedule.gpipe
        level: Level = Level.low
        rounding: Model.Rounding = REQUIRED
        limit: float | None = None
        note: str | None = None
        count_or_share: int | float = 1
        sizes: list[int] = [1, 2]
        names: list[str] = []
        betas: tuple[float, float] = (0.9, 0.98)
        words: tuple[str, ...] = ()
        schedules: list[Schedule] = [Schedule.gpipe]
        weights: dict[str, float] = {}
        tables: dict[str, list[int]] = {}
        attention: Attention.Params = Attention.Params()
        extra: Attention.Params | None = None
        layers: list[Attention.Params] = []
        cells: list[Attention.Params | FeedForward.Params] = []
        pair: tuple[FeedForward.Params, int] = (FeedForward.Params(), 1)
        towers: dict[str, Attention.Params] = {}
        inner: Model.Params | None = None

    def __init__(self, params: Params) -> None:
        self.params = params
