"""What a person sees while a run trains: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TextIO

import tqdm

# Seconds between two lines where there is no terminal, such as in a log file.
_LINE_EVERY_SECONDS = 10.0


class Progress:
    """Progress from `start` to `last` steps, on `stream`."""

    def __init__(self, start: int, last: int, *, stream: TextIO) -> None:
        """Draws nothing yet.

        Args:
          start: steps that an earlier run did.
          last: step at which this one ends.
          stream: where to write; a bar is drawn if it is a terminal.
        """
        self._stream = stream
        self._last = last
        self._next_line = time.monotonic() + _LINE_EVERY_SECONDS
        self._bar = (
            tqdm.tqdm(total=last, initial=start, file=stream, unit="step", dynamic_ncols=True)
            if stream.isatty() and start < last
            else None
        )

    def advance(self, step: int, loss: float) -> None:
        """Tells of a step and its loss."""
        with self._or_silence():
            self._advance(step, loss)

    def _advance(self, step: int, loss: float) -> None:
        if self._bar is not None:
            self._bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            self._bar.update(step - self._bar.n)
        elif time.monotonic() >= self._next_line or step == self._last:
            self._next_line = time.monotonic() + _LINE_EVERY_SECONDS
            self.note(f"step {step} of {self._last}: loss {loss:.4g}")

    def note(self, text: str) -> None:
        """Writes lines without disturbing the bar."""
        with self._or_silence():
            if self._bar is not None:
                self._bar.write(text, file=self._stream)
            else:
                print(text, file=self._stream, flush=True)

    @contextlib.contextmanager
    def _or_silence(self) -> Iterator[None]:
        """A reader that has gone, or a full disk, must not end a run of days: nothing more is told.

        As in `lingpipe train ... 2>&1 | head`.
        """
        try:
            yield
        except OSError:
            self._bar = None
            self._stream = io.StringIO()

    def __enter__(self) -> Progress:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leaves the bar where it stands."""
        with self._or_silence():
            if self._bar is not None:
                self._bar.close()
        self._bar = None
