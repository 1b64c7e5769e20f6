"""The frames of HTTP/2 that arrive, before h2 reads them: how many at once, and how many at all. No I/O.

h2 answers and forgets a frame of nine bytes in some 50 µs, so a peer that sends nothing else, such as streams that it
resets, pings, settings or empty data, would keep the process busy for as long as it likes. A frame takes one of an
allowance, which requests pay for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

MOST_AT_ONCE: Final = 32
"""Frames of one piece; others run between two pieces."""
FIRST: Final = 200
"""Frames without a request: `otlp_grpc.MOST_STREAMS` may be under way before the first one is answered."""
PER_SECOND: Final = 50.0
PER_REQUEST: Final = 20.0
"""Frames for a request that was answered."""
PER_BYTE: Final = 1 / 64
"""Frames for a byte of the body of a request that was admitted."""
MOST: Final = 2000.0
MOST_HEADERS: Final = 64 << 10
"""Bytes of the headers of one request, as they are sent; h2 limits them unpacked."""

_PREFACE = 24
_HEAD = 9
_HEADERS, _CONTINUATION = 1, 9


class TooMany(Exception):
    """The peer sends too many frames, or too large headers."""


class Frames:
    """The frames of one connection."""

    def __init__(self, now: float) -> None:
        """`now` is a time of any clock, in seconds."""
        self._allowance, self._since = float(FIRST), now
        self._left = _PREFACE
        """Bytes of the present frame that have not come yet."""
        self._head = b""
        self._headers = 0

    def pieces(self, block: bytes, now: float) -> Iterator[bytes]:
        """Yields what has arrived in pieces in which `MOST_AT_ONCE` frames begin at most. Raises TooMany."""
        self.earn((now - self._since) * PER_SECOND)
        self._since = now
        begin = count = at = 0
        while at < len(block):
            if self._left:
                step = min(self._left, len(block) - at)
                self._left -= step
            else:
                step = min(_HEAD - len(self._head), len(block) - at)
                self._head += block[at : at + step]
                if len(self._head) == _HEAD:
                    self._begin()
                    count += 1
            at += step
            if count == MOST_AT_ONCE:
                yield block[begin:at]
                begin, count = at, 0
        if begin < at:
            yield block[begin:]

    def earn(self, frames: float) -> None:
        """Permits so many frames more."""
        self._allowance = min(MOST, self._allowance + frames)

    def _begin(self) -> None:
        self._left, kind, self._head = int.from_bytes(self._head[:3]), self._head[3], b""
        self._headers = self._left + (self._headers if kind == _CONTINUATION else 0)
        self._allowance -= 1
        if self._allowance < 0 or (kind in (_HEADERS, _CONTINUATION) and self._headers > MOST_HEADERS):
            raise TooMany
