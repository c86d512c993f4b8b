"""Checks that the params of several layers share, as (field, message) pairs for `inconsistencies`.

A message says what is wrong, shows the value and says what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lingpipe.hyperparams import Params

# Far beyond what was ever trained, and small enough that a slip of the finger is refused at once: a
# plan takes seconds, and no product of two sizes overflows.
MAX_DIM = 2**20  # Widths, and heads.
MAX_LAYERS = 10_000  # Of an encoder or decoder.
MAX_VOCABULARY = 2**24  # Ids.


def check_positive(params: Params, *fields: str) -> Iterator[tuple[str, str]]:
    """Yields a message for each of `fields`, ints or floats, that is not greater than 0."""
    for field in fields:
        value = getattr(params, field)
        if not value > 0:
            yield field, f"{field} ({value}) must be greater than 0."


def check_size(params: Params, *fields: str, most: int = MAX_DIM) -> Iterator[tuple[str, str]]:
    """Yields a message for each of `fields` that is not in [1, most]; None is left alone."""
    for field in fields:
        value = getattr(params, field)
        if value is not None and value > most:
            yield field, f"{field} ({value}) must be at most {most:_}."
        elif value is not None:
            yield from check_positive(params, field)


def check_rate(params: Params, *fields: str) -> Iterator[tuple[str, str]]:
    """Yields a message for each of `fields` that is not a share from 0 up to, without, 1."""
    for field in fields:
        value = getattr(params, field)
        if not 0.0 <= value < 1.0:
            yield (
                field,
                f"{field} ({value}) must be at least 0 and less than 1.",
            )


def check_heads(model_dim: int, num_heads: int, head_dim: int | None) -> Iterable[tuple[str, str]]:
    """Yields a message if `num_heads` heads cannot share `model_dim` evenly and no width is set.

    A width that is set must be greater than 0, and all heads together at most MAX_DIM wide.
    """
    if head_dim is not None and head_dim < 1:
        yield (
            "head_dim",
            f"head_dim ({head_dim}) must be greater than 0; None takes model_dim / num_heads.",
        )
    elif head_dim is not None and num_heads * head_dim > MAX_DIM:
        yield (
            "head_dim",
            f"num_heads ({num_heads}) times head_dim ({head_dim}) must be at most {MAX_DIM:_}.",
        )
    # Sizes that are out of their bounds are told of by check_size.
    sizes_are_possible = model_dim > 0 and 0 < num_heads <= MAX_DIM
    if head_dim is None and sizes_are_possible and model_dim % num_heads:
        lower = model_dim - model_dim % num_heads
        better = f"{lower} or {lower + num_heads}" if lower else f"{num_heads}"
        yield (
            "num_heads",
            f"model_dim ({model_dim}) must be a multiple of num_heads ({num_heads}) for heads of "
            f"equal width; use model_dim {better}, or set head_dim, the width of one head.",
        )
