"""Batches made ahead of time, by one thread, while the devices train on earlier ones."""

import collections
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")


class Prefetcher(Iterator[Item], Generic[Item]):
    """An iterator that a thread runs a few items ahead of its reader.

        with Prefetcher(input.train_batches(cursor)) as batches:
            for batch in batches: ...

    Items come in their order. An exception of the iterable is raised to the reader, after the items
    before it. Leaving the `with` block ends the thread; it only has to finish the item at hand.
    """

    def __init__(self, items: Iterable[Item], *, size: int = 2) -> None:
        """Starts the thread.

        Args:
            items: what to iterate over; only the thread touches it from now on.
            size: how many finished items may wait.

        Raises:
            ValueError: size is below 1.
        """
        if size < 1:
            raise ValueError(f"size ({size}) must be at least 1.")
        self._items = items
        self._size = size
        self._ready: collections.deque[Item] = collections.deque()
        self._changed = threading.Condition()
        self._ended = False
        self._closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._produce, name="input prefetch", daemon=True)
        self._thread.start()

    def __next__(self) -> Item:
        """The next item; waits for it.

        Raises:
            StopIteration: there is no more, or the prefetcher is closed.
            Exception: whatever the iterable raised.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._ended or self._closed)
            if self._closed:
                raise StopIteration
            if self._ready:
                item = self._ready.popleft()
                self._changed.notify_all()
                return item
            if self._failure is not None:
                failure, self._failure = self._failure, None  # Raised once, like any iterator's.
                raise failure
            raise StopIteration

    def close(self) -> None:
        """Ends the thread and drops what it made; may be called twice."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        """The prefetcher itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes."""
        self.close()

    def _produce(self) -> None:
        iterator: Iterator[Item] = iter(())
        try:
            iterator = iter(self._items)
            for item in iterator:
                if not self._hand_over(item):
                    break
        except BaseException as error:  # The reader's to handle, whatever it is.
            self._failure = error
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:  # A generator lets go of its files here, in its own thread.
                close()
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _hand_over(self, item: Item) -> bool:
        """Waits for room and adds the item; whether to go on."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._ready) < self._size or self._closed)
            if not self._closed:
                self._ready.append(item)
                self._changed.notify_all()
            return not self._closed
