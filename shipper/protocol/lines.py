"""The framing of the control protocol: splits a stream of bytes into lines, in bounded memory. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Line(NamedTuple):
    """One line, counted from 1; `text` is None where it was longer than allowed and was skipped."""

    number: int
    text: bytes | None


class LineSplitter:
    """Splits fed bytes into lines; skips a line longer than `limit` bytes without keeping it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._number = 0

    def feed(self, data: bytes) -> Iterator[Line]:
        """Yields the lines that `data` completes."""
        *ended, rest = data.split(b"\n")
        for end in ended:
            self._keep(end)
            self._number += 1
            text = None if self._size > self._limit else b"".join(self._parts)
            self._parts, self._size = [], 0
            yield Line(self._number, text)
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            self._parts.clear()
        elif part:
            self._parts.append(part)
