"""How far a campaign is: on a terminal a line that is rewritten, else a line every minute."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

EVERY_SECONDS = 60.0
_REWRITE = "\r\x1b[K"


class Progress:
    """Call it whenever there is news; in its block, so that what is printed next has a line of its own."""

    def __init__(self, summary: Callable[[], str], stream: TextIO | None = None) -> None:
        self._summary = summary
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._due = time.monotonic() + EVERY_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._clear()

    def __call__(self) -> None:
        """Tell, if it is time."""
        if self._is_terminal:
            self._write(_REWRITE + self._summary())
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_SECONDS
            self._write(self._summary() + "\n")

    def tell(self, text: str) -> None:
        """Print something that stays."""
        self._clear()
        print(text)

    def _clear(self) -> None:
        if self._is_terminal:
            self._write(_REWRITE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
