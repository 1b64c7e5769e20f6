"""Splits the bytes of a connection into frames, one for each message (RFC 6587). No I/O.

    5 <1>ab          octet counting: a number, a space, and that many bytes, which begin with a priority
    <1>ab⏎           a line: up to a line feed or a NUL; a carriage return before it is not part of the frame
    200 OK⏎          a line, too: no priority is behind the number

The start of each frame decides: a number, a space and a priority within that many bytes begin a counted frame, all else
is a line. A number is a count up to `max_bytes`, or `MOST_OCTETS` (rsyslog's limit) if that is more. A counted frame
that the end of the connection cuts, and in which a line with a priority of its own begins, was none: it is read as
lines. So a text that looks like a count never takes messages behind it along. Line ends between frames are skipped,
since some senders count bytes and add a line feed too. The frames do not depend on how the bytes were split on their
way, and take time linear in them.

A longer message than `max_bytes` is cut, and its rest skipped: `Frames` never holds more than that and a few bytes.
"""

from __future__ import annotations

import re
from typing import Final

MOST_OCTETS: Final = 200_000
"""A larger number is the beginning of a line, unless messages may be longer."""

_NEXT_COUNTED = re.compile(rb"[\r\n\0]*+([1-9][0-9]{0,8}) (?=(<[0-9]{1,3}>))")
_COUNTED = re.compile(rb"([1-9][0-9]{0,8}) (?=(<[0-9]{1,3}>))")
_MAY_BE_COUNTED = re.compile(rb"[1-9][0-9]{0,8}(?: (?:<[0-9]{0,3})?)?\Z")
_OTHER = re.compile(rb"[\n\0](?:[1-9][0-9]{0,8} )?<[0-9]{1,3}>")
_BETWEEN = re.compile(rb"[\r\n\0]*")
_END = re.compile(rb"[\n\0]")


class Cut(bytes):
    """A frame that is incomplete: it was too long, or the connection ended within it."""


class Frames:
    """Splits the bytes of one connection."""

    def __init__(self, max_bytes: int) -> None:
        """Frames have at most `max_bytes`, which can be changed at any time."""
        self.max_bytes = max_bytes
        self._held = bytearray()
        self._looked = 0
        """The number of held bytes that were searched for the end of a line."""
        self._skip_octets = 0
        self._skip_line = False

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the frames that these bytes complete, without their framing; none is empty."""
        self._held += data
        frames: list[bytes] = []
        at = self._take_lines(frames)
        while (found := self._next(at := self._take_counted(at, frames))) is not None:
            frame, at = found
            if frame is not None:
                frames.append(frame)
        del self._held[:at]
        return frames

    def _take_lines(self, frames: list[bytes]) -> int:
        """Takes all lines, if each is whole and begins with a priority; returns where the last one ends."""
        if self._skips or not self._held.startswith(b"<"):
            return 0
        end = self._held.rfind(b"\n", self._looked) + 1
        if not end:
            return 0
        block = bytes(memoryview(self._held)[:end])
        lines = block[:-1].split(b"\n")
        if block.count(b"\n<") < len(lines) - 1 or b"\0" in block or max(map(len, lines)) > self.max_bytes:
            return 0
        self._looked = 0
        frames += [line.removesuffix(b"\r") for line in lines] if b"\r" in block else lines
        return end

    def _take_counted(self, at: int, frames: list[bytes]) -> int:
        """Takes the counted frames that are complete and not too long; returns where the last one ends."""
        held = self._held
        while not self._skips and (found := _NEXT_COUNTED.match(held, at)) is not None:
            octets, begin = int(found[1]), found.end()
            if not len(found[2]) <= octets <= self.max_bytes or begin + octets > len(held):
                break
            at = begin + octets
            frames.append(bytes(held[begin:at]))
        return at

    @property
    def _skips(self) -> bool:
        return self._skip_line or self._skip_octets > 0

    def end(self) -> list[bytes]:
        """Returns the incomplete frame at the end of the connection; a last line without its end is complete."""
        rest, self._held = bytes(self._held), bytearray()
        self._looked = 0
        if self._skip_octets or self._skip_line:
            return []
        start = _after_between(rest, 0)
        counted = self._octets(rest, start)
        if counted is None or not counted[0]:
            lines = [rest[start:]]
        elif _OTHER.search(rest, counted[1]):
            lines = _END.split(rest[start:])
        else:
            return [Cut(rest[counted[1] :][: self.max_bytes])]
        return [frame for line in lines if (frame := self._line(line))]

    def _next(self, at: int) -> tuple[bytes | None, int] | None:
        """Returns the frame at `at` of the held bytes, and where the next one begins; None if more bytes are needed."""
        if self._skip_octets:
            skipped = min(self._skip_octets, len(self._held) - at)
            self._skip_octets -= skipped
            return (None, at + skipped) if skipped else None
        if self._skip_line:
            return self._skip(at)
        start = _after_between(self._held, at)
        if start > at:
            return None, start
        if start == len(self._held):
            return None
        counted = self._octets(self._held, start)
        if counted is None:
            return None
        octets, begin = counted
        return self._take(octets, begin) if octets else self._take_line(start)

    def _octets(self, held: bytes | bytearray, start: int) -> tuple[int, int] | None:
        """Returns the length of a counted frame and where it begins; 0 for a line; None if more bytes are needed."""
        counted = _COUNTED.match(held, start)
        if counted is None:
            return None if _MAY_BE_COUNTED.match(held, start) else (0, start)
        octets = int(counted[1])
        return (octets, counted.end()) if len(counted[2]) <= octets <= self._most_octets else (0, start)

    @property
    def _most_octets(self) -> int:
        return max(self.max_bytes, MOST_OCTETS)

    def _take(self, octets: int, begin: int) -> tuple[bytes | None, int] | None:
        kept = min(octets, self.max_bytes)
        if len(self._held) - begin < kept:
            return None
        self._skip_octets = octets - kept
        frame = bytes(self._held[begin : begin + kept])
        return frame if kept == octets else Cut(frame), begin + kept

    def _take_line(self, start: int) -> tuple[bytes | None, int] | None:
        end = _END.search(self._held, start + self._looked)
        if end is not None:
            self._looked = 0
            return self._line(bytes(self._held[start : end.start()])), end.end()
        self._looked = len(self._held) - start
        if self._looked <= self.max_bytes + 1:  # one byte may be the carriage return of its end
            return None
        self._looked = 0
        self._skip_line = True
        return Cut(self._held[start : start + self.max_bytes]), len(self._held)

    def _line(self, body: bytes) -> bytes:
        body = body.removesuffix(b"\r")
        return body if len(body) <= self.max_bytes else Cut(body[: self.max_bytes])

    def _skip(self, at: int) -> tuple[None, int] | None:
        end = _END.search(self._held, at)
        self._skip_line = end is None
        if end is not None:
            return None, end.end()
        return (None, len(self._held)) if at < len(self._held) else None


def _after_between(held: bytes | bytearray, at: int) -> int:
    found = _BETWEEN.match(held, at)
    return found.end() if found else at
