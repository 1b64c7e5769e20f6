"""A line of a bulk request while it arrives, and the memory that it would take if it were loaded. No I/O.

A compressed request of 97 KB can hold a line of 95 MiB such as `{"a":[{},{},…]}`, which is 33 million objects, 3 GB, in
memory. So the limit applies to the objects, not to the bytes, and they are counted on arrival, before anything is
loaded: a line that would take more than `MOST_UNFOLDED` is discarded.

The most that Python and orjson take, on 64 bits: 128 bytes for each of `{ [ , :` outside of strings (a dict of one
member takes 184, a collector's head of 16, its place in a list and three values of orjson's own, and has two of them);
one byte for each byte of the line; and if a character above U+007F may be in it, four for the text and one for its copy
in UTF-8. No line takes more than 64 times its bytes (that is `[[[…`), so short lines, which are nearly all, are not
counted.
"""

from __future__ import annotations

from shipper.sdk.weights import VALUE_BYTES, WIDE, values

MOST_UNFOLDED = 32 << 20
"""Bytes of memory that one document may take."""
WORST = 64
"""The most memory that a line takes, as a multiple of its bytes."""


class Line:
    """The incomplete line; `size` and `weight` are in bytes."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._text = bytearray()
        self._counted = self._values = 0
        self._in_string = self._wide = False
        self.is_too_heavy = False
        """Whether it would take too much memory; then it is discarded."""

    @property
    def size(self) -> int:
        """The number of bytes so far."""
        return len(self._text)

    @property
    def weight(self) -> int:
        """The estimated memory of the loaded line; for a short line its size, since it is loaded only for a moment."""
        wide = WIDE if self._wide else 1
        return len(self._text) * wide + self._values * VALUE_BYTES

    def add(self, block: bytes) -> None:
        """Appends a block without a line feed."""
        if self.is_too_heavy:
            return
        self._text += block
        if len(self._text) * WORST > MOST_UNFOLDED:
            self._count()
        if self.weight > MOST_UNFOLDED:
            self._clear()
            self.is_too_heavy = True

    def end(self) -> bytes:
        """Returns the line, unless it was discarded, and begins the next one."""
        text = bytes(self._text)
        self._clear()
        return text

    def _count(self) -> None:
        """Counts the bytes since the last call; a backslash at their end belongs to the next ones."""
        rest = bytes(memoryview(self._text)[self._counted :])
        rest = rest[: len(rest) - (len(rest) - len(rest.rstrip(b"\\"))) % 2]
        self._counted += len(rest)
        unescaped = rest.replace(b"\\\\", b"")
        self._wide = self._wide or not rest.isascii() or b"\\u" in unescaped
        parts = unescaped.replace(b'\\"', b"").split(b'"')
        self._values += sum(map(values, parts[self._in_string :: 2]))
        self._in_string ^= len(parts) % 2 == 0
