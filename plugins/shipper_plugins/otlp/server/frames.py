"""The frames of HTTP/2 that arrive, before h2 reads them: how many at once, how many at all, and whole calls. No I/O.

h2 answers and forgets a frame of nine bytes in some 50 µs, so a peer that sends nothing else, such as streams that it
resets, pings, settings or empty data, would keep the process busy for as long as it likes. A frame takes one of an
allowance, which requests pay for.

A small call of gRPC comes as two frames in one block: its headers, and its one piece of data. Such calls are handed out
apart from what h2 is to read (`calls`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

MOST_AT_ONCE: Final = 32
"""Frames of one piece; others run between two pieces."""
FIRST: Final = 200
"""Frames without a request: `grpc.MOST_STREAMS` may be under way before the first one is answered."""
PER_SECOND: Final = 50.0
PER_REQUEST: Final = 20.0
"""Frames for a request that was answered."""
PER_BYTE: Final = 1 / 64
"""Frames for a byte of the body of a request that was admitted."""
MOST: Final = 2000.0
MOST_HEADERS: Final = 64 << 10
"""Bytes of the headers of one request, as they are sent; h2 limits them unpacked."""
LARGEST_FRAME: Final = 16 << 10
"""Bytes of a frame, as the settings of this side have it."""

_PREFACE = 24
_HEAD = 9
_DATA, _HEADERS, _RESET, _PUSH_PROMISE, _CONTINUATION = 0, 1, 3, 5, 9
_OF_HEADERS = (_HEADERS, _PUSH_PROMISE, _CONTINUATION)
_END_STREAM, _END_HEADERS = 1, 4
_CALL_HEADERS, _CALL_DATA = bytes([_HEADERS, _END_HEADERS]), bytes([_DATA, _END_STREAM])
_RESET_HEAD = bytes([0, 0, 4, _RESET])


class TooMany(Exception):
    """The peer sends too many frames, or too large headers."""


class Call(NamedTuple):
    """A request that came whole, in one frame of headers and one of data."""

    stream: int
    headers: bytes
    """As HPACK has them."""
    body: bytes
    raw: bytes
    """Both frames."""


class Reset(NamedTuple):
    """A whole frame that ends a stream."""

    stream: int
    raw: bytes


Part = bytes | Call | Reset


class Frames:
    """The frames of one connection."""

    def __init__(self, now: float) -> None:
        """`now` is a time of any clock, in seconds."""
        self._allowance, self._since = float(FIRST), now
        self._left = _PREFACE
        """Bytes of the present frame that have not come yet."""
        self._head = b""
        self._headers = 0
        self._is_whole = True
        """Whether the last headers are, and no continuation of them is to come."""

    def parts(self, block: bytes, now: float) -> Iterator[Part]:
        """Yields what has arrived, in its order: calls, resets, and the rest in pieces in which `MOST_AT_ONCE` frames
        begin at most. Raises TooMany."""
        self.earn((now - self._since) * PER_SECOND)
        self._since = now
        begin = count = at = 0
        while at < len(block):
            if (part := self._part(block, at)) is not None:
                if begin < at:
                    yield block[begin:at]
                yield part
                at += len(part.raw)
                begin, count = at, 0
                continue
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

    def _part(self, block: bytes, at: int) -> Call | Reset | None:
        """Returns the call or the reset that begins here, whose frames are paid for."""
        if self._left or self._head or not self._is_whole:
            return None
        if (call := call_at(block, at)) is not None:
            self._pay(2)
            return call
        if (reset := reset_at(block, at)) is not None:
            self._pay(1)
        return reset

    def _begin(self) -> None:
        head, self._head = self._head, b""
        self._left, kind = int.from_bytes(head[:3]), head[3]
        if kind in _OF_HEADERS:
            self._is_whole = bool(head[4] & _END_HEADERS)
        self._headers = self._left + (self._headers if kind == _CONTINUATION else 0)
        self._pay(1)
        if kind in (_HEADERS, _CONTINUATION) and self._headers > MOST_HEADERS:
            raise TooMany

    def _pay(self, frames: int) -> None:
        self._allowance -= frames
        if self._allowance < 0:
            raise TooMany


def call_at(block: bytes, at: int) -> Call | None:
    """Returns the call whose first frame begins here; None unless it is whole, in frames that h2 would take too."""
    headers = at + _HEAD
    data = headers + int.from_bytes(block[at : at + 3])
    body = data + _HEAD
    end = body + int.from_bytes(block[data : data + 3])
    if block[at + 3 : at + 5] != _CALL_HEADERS or block[data + 3 : data + 5] != _CALL_DATA:
        return None
    if end > len(block) or data - headers > LARGEST_FRAME or end - body > LARGEST_FRAME:
        return None
    if (stream := block[at + 5 : headers]) != block[data + 5 : body]:
        return None
    return Call(int.from_bytes(stream), block[headers:data], block[body:end], block[at:end])


def reset_at(block: bytes, at: int) -> Reset | None:
    """Returns the whole reset that begins here."""
    end = at + _HEAD + 4
    if block[at : at + 4] != _RESET_HEAD or end > len(block):
        return None
    return Reset(int.from_bytes(block[at + 5 : at + _HEAD]), block[at:end])
