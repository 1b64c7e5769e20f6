"""A line of a bulk request while it arrives, and what it would unfold to if it were loaded. No I/O.

A compressed request of 97 KB holds a line of 95 MiB such as `{"a":[{},{},…]}`, and loaded that is 33 million objects,
3 GB. So what counts is not the bytes but what they become, and it is counted while they come, before anything is
loaded: a line that would become more than `MOST_UNFOLDED` is not even kept.

What Python and orjson take at most, on 64 bits: 128 bytes for each of `{ [ , :` outside of strings (a dict of one
member takes 184, a collector's head of 16, its place in a list and three values of orjson's own, and has two of them);
one byte for each byte of the line, and where a character above U+007F may be in it, four for the text and one for the
copy in UTF-8 that orjson leaves in it. No line becomes more than 64 times its bytes (that is `[[[…`), so short lines,
and that is nearly all, are not counted at all.
"""

from __future__ import annotations

MOST_UNFOLDED = 32 << 20
"""Bytes of memory that one document may take."""
WORST = 64
"""So many times its bytes a line takes at most."""

_VALUE_BYTES = 128
_WIDE_BYTES = 5
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"{[,:"))


class Line:
    """The line that is coming; `size` and `weight` are in bytes."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._text = bytearray()
        self._counted = self._values = 0
        self._in_string = self._wide = False
        self.is_too_heavy = False
        """Whether it would unfold to too much; then nothing of it is kept."""

    @property
    def size(self) -> int:
        """How much of it is kept."""
        return len(self._text)

    @property
    def weight(self) -> int:
        """About what it takes if it is loaded; of a short line its size, as that is a matter of a moment."""
        wide = _WIDE_BYTES if self._wide else 1
        return len(self._text) * wide + self._values * _VALUE_BYTES

    def add(self, block: bytes) -> None:
        """It goes on; a block holds no line feed."""
        if self.is_too_heavy:
            return
        self._text += block
        if len(self._text) * WORST > MOST_UNFOLDED:
            self._count()
        if self.weight > MOST_UNFOLDED:
            self._clear()
            self.is_too_heavy = True

    def end(self) -> bytes:
        """What was kept of it; the next one begins."""
        text = bytes(self._text)
        self._clear()
        return text

    def _count(self) -> None:
        """Count what came since the last time; a backslash at its end belongs to what comes next."""
        rest = bytes(memoryview(self._text)[self._counted :])
        rest = rest[: len(rest) - (len(rest) - len(rest.rstrip(b"\\"))) % 2]
        self._counted += len(rest)
        unescaped = rest.replace(b"\\\\", b"")
        self._wide = self._wide or not rest.isascii() or b"\\u" in unescaped
        parts = unescaped.replace(b'\\"', b"").split(b'"')
        self._values += sum(len(part.translate(None, _NOT_STRUCTURE)) for part in parts[self._in_string :: 2])
        self._in_string ^= len(parts) % 2 == 0
