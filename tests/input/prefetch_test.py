"""A prefetcher changes when items are made, and nothing else."""

import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from lingpipe.input.prefetch import Prefetcher


def threads() -> int:
    return sum(thread.name == "input prefetch" for thread in threading.enumerate())


def test_items_come_in_order_and_end() -> None:
    with Prefetcher(range(100), size=3) as items:
        assert list(items) == list(range(100))
        assert list(items) == []


def test_it_runs_ahead_by_its_size_and_no_further() -> None:
    made = []

    def items() -> Iterator[int]:
        for n in itertools.count():
            made.append(n)
            yield n

    with Prefetcher(items(), size=2) as ahead:
        assert next(ahead) == 0
        deadline = time.monotonic() + 5
        while len(made) < 4 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)
        assert made == [0, 1, 2, 3]  # Taken, two waiting, one in hand.


def test_an_error_reaches_the_reader_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("broken")

    with Prefetcher(items()) as ahead:
        assert [next(ahead), next(ahead)] == [1, 2]
        with pytest.raises(KeyError, match="broken"):
            next(ahead)
        with pytest.raises(StopIteration):
            next(ahead)


def test_something_that_cannot_be_iterated() -> None:
    with Prefetcher(5) as ahead, pytest.raises(TypeError):  # type: ignore[arg-type]
        next(ahead)


@pytest.mark.parametrize("taken", [0, 1])
def test_leaving_an_endless_stream_is_prompt_and_closes_it(taken: int) -> None:
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            closed.set()

    start = time.monotonic()
    with Prefetcher(items()) as ahead:
        for _ in range(taken):
            next(ahead)
    assert time.monotonic() - start < 1
    assert closed.is_set()
    assert threads() == 0
    assert list(ahead) == []


def test_leaving_because_of_an_error_is_prompt() -> None:
    with pytest.raises(KeyboardInterrupt), Prefetcher(itertools.count()) as ahead:
        next(ahead)
        raise KeyboardInterrupt
    assert threads() == 0


def test_closing_wakes_a_reader_that_waits() -> None:
    release = threading.Event()

    def items() -> Iterator[int]:
        release.wait(5)
        yield 1

    ahead = Prefetcher(items())
    found: list[list[int]] = []
    reader = threading.Thread(target=lambda: found.append(list(ahead)))
    reader.start()
    closer = threading.Thread(target=ahead.close)
    closer.start()
    reader.join(2)
    assert found == [[]]
    release.set()
    closer.join(2)
    assert threads() == 0


def test_a_size_of_nothing() -> None:
    with pytest.raises(ValueError, match=r"size \(0\) must be at least 1"):
        Prefetcher([], size=0)
