"""Finds where two sets of versions differ, by few bytes. No I/O.

An entry of a set is a point, which is a number of 64 bits that a key gives, and a digest of 16 bytes, of the point and
of what is there. Ranges are the points with a common prefix of half bytes: at each of 16 depths a range has 16 parts.
The sum of a range is that of its entries' digests, as numbers, modulo 2^80; equal sums mean equal entries.

    asker                                            other side, which keeps nothing between two questions
      the sum of all                        ──>
                                            <──      the same; or the sums of 16 parts; or, of few entries, all of them
      which parts of those that differ      ──>
                                            <──      the same of each of these

So equal sets cost one question, and each difference a few hundred bytes more, whatever the sets hold. The empty set is
a set like any other. A question and an answer are bytes; both sides check what they read, and both are bounded.

    question   1 byte 0, 10 bytes: is this your sum of all?   or   1 byte 1, then ranges: depth (1 byte), prefix (8)
    answer     1 byte 0: it is                                or   1 byte 1, then for each range:
                   1 byte 0, 16 sums of 10 bytes              or   1 byte 1, 2 bytes: how many entries, each 24 bytes
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple

Entry = tuple[int, bytes]
"""A point, and the digest of the point and its content."""

FEW: Final = 24
"""Entries of a range up to which it is listed instead of divided: they take about as much as the sums of its parts."""
MOST_LISTED: Final = 4096
"""The most entries of one point, whose keys nobody can tell apart; no honest set has more."""
MOST_RANGES: Final = 256
"""The most ranges of one question."""
MOST_AT_ONCE: Final = 1024
"""Questions that are asked without a pause: for a million entries, all of them others."""
MOST_THEIRS: Final = 1 << 20
"""The most entries that only the other side has; each takes some 200 bytes."""
DEPTHS: Final = 16

_MODULUS: Final = 1 << 80
_SUM: Final = 10
_POINT: Final = 8
_RANGE: Final = struct.Struct(">BQ")
_ENTRY: Final = struct.Struct(">Q16s")
_COUNT: Final = struct.Struct(">H")
_SAME, _OTHER = b"\0", b"\1"
_SUMS, _LISTING = 0, 1


class Unreadable(ValueError):
    """The other side sent an invalid question or answer."""


class Range(NamedTuple):
    """The points whose first `depth` half bytes are those of `first`, the first point of the range."""

    depth: int
    first: int

    @property
    def end(self) -> int:
        """Returns the first point after it."""
        return self.first + (1 << 4 * (DEPTHS - self.depth))

    def parts(self) -> Iterator[Range]:
        """Returns its 16 parts."""
        size = 1 << 4 * (DEPTHS - self.depth - 1)
        return (Range(self.depth + 1, self.first + part * size) for part in range(16))


ALL: Final = Range(0, 0)


class Differences(NamedTuple):
    """What one side has and the other has not; a changed key has an entry in both."""

    ours: frozenset[Entry]
    theirs: frozenset[Entry]


class Digests:
    """One side's set, of distinct entries; it answers the questions of the other side.

    Whether both sets are equal is known without any order of the entries. Later questions put them `in_order`.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        pack = _ENTRY.pack  # a hundred thousand times
        self._entries = [pack(point, digest) for point, digest in entries]
        """Packed: bytes are sorted three times as fast as numbers, in the same order."""
        self._sums = [0, sum(map(int.from_bytes, self._entries))]
        """The sums of the first 0, 1, … entries, once these are in order; modulo 2^80 a packed entry is its digest."""
        self._are_in_order = len(self._entries) <= 1

    def in_order(self) -> None:
        """Puts the entries in order, which takes a while if there are many."""
        if not self._are_in_order:
            self._entries.sort()
            self._sums = list(accumulate(map(int.from_bytes, self._entries), initial=0))
            self._are_in_order = True

    def is_same(self, question: bytes) -> bool:
        """Whether the question is the first one, and the answer is that both sides have the same."""
        return question == _SAME + self.sum(ALL)

    def within(self, range: Range) -> list[Entry]:
        """Returns the entries of a range, in order."""
        begin, end = self._bounds(range)
        return [_unpacked(entry) for entry in self._entries[begin:end]]

    def sum(self, range: Range) -> bytes:
        """Returns the sum of a range."""
        begin, end = (0, -1) if range == ALL else self._bounds(range)
        return ((self._sums[end] - self._sums[begin]) % _MODULUS).to_bytes(_SUM, "big")

    def answer(self, question: bytes) -> bytes:
        """Returns the answer to a question. Raises Unreadable."""
        if question[:1] == _SAME:
            if len(question) != 1 + _SUM:
                raise Unreadable("a question has one sum")
            return _SAME if self.is_same(question) else _OTHER + self._said(ALL)
        return _OTHER + b"".join([self._said(one) for one in _ranges(question)])

    def _said(self, range: Range) -> bytes:
        begin, end = self._bounds(range)
        if end - begin > FEW and range.depth < DEPTHS:
            return bytes([_SUMS]) + b"".join([self.sum(part) for part in range.parts()])
        listed = self._entries[begin:end][:MOST_LISTED]
        return bytes([_LISTING]) + _COUNT.pack(len(listed)) + b"".join(listed)

    def _bounds(self, range: Range) -> tuple[int, int]:
        self.in_order()
        return self._place(range.first), self._place(range.end)

    def _place(self, point: int) -> int:
        """Returns the number of entries below a point."""
        return bisect_left(self._entries, point.to_bytes(_POINT)) if point < 1 << 64 else len(self._entries)


class Comparison:
    """The asker's side: it asks until there is no further question; then the differences are known."""

    def __init__(self, ours: Digests) -> None:
        self._ours = ours
        self._asked: list[Range] = []
        self._open: list[Range] = []
        self._is_begun = False
        self._questions = 0
        self._mine: set[Entry] = set()
        self._theirs: set[Entry] = set()

    @property
    def is_long(self) -> bool:
        """Whether there were so many questions that another one waits: sums without end make as many."""
        return self._questions > MOST_AT_ONCE

    def question(self) -> bytes | None:
        """Returns the next question, None if all is known; it must be answered before the next one."""
        self._questions += 1
        if not self._is_begun:
            self._asked = [ALL]
            return _SAME + self._ours.sum(ALL)
        self._asked, self._open = self._open[-MOST_RANGES:], self._open[:-MOST_RANGES]
        if not self._asked:
            return None
        return _OTHER + b"".join([_RANGE.pack(*one) for one in self._asked])

    def take(self, answer: bytes) -> None:
        """Takes the answer to the last question. Raises Unreadable."""
        is_first, self._is_begun = not self._is_begun, True
        asked, self._asked = self._asked, []
        if answer == _SAME and is_first:
            return
        if answer[:1] != _OTHER:
            raise Unreadable("an answer begins with 1")
        at = 1
        for range in asked:
            at = self._take(range, answer, at)
        if at != len(answer):
            raise Unreadable("an answer is too long")

    def differences(self) -> Differences:
        """Returns the differences found so far; complete when there is no further question."""
        return Differences(frozenset(self._mine), frozenset(self._theirs))

    def _take(self, range: Range, answer: bytes, at: int) -> int:
        """Takes what an answer says of one range, from this place on; returns the place after it."""
        if answer[at : at + 1] == bytes([_SUMS]) and range.depth < DEPTHS:
            end = at + 1 + 16 * _SUM
            if end > len(answer):
                raise Unreadable("an answer is too short")
            theirs = [answer[begin : begin + _SUM] for begin in _steps(at + 1, end, _SUM)]
            parts = zip(range.parts(), theirs, strict=True)
            self._open += [part for part, sum in parts if sum != self._ours.sum(part)]
            return end
        if answer[at : at + 1] != bytes([_LISTING]) or at + 1 + _COUNT.size > len(answer):
            raise Unreadable("an answer has neither sums nor entries")
        count: int = _COUNT.unpack_from(answer, at + 1)[0]
        begin = at + 1 + _COUNT.size
        end = begin + count * _ENTRY.size
        if count > MOST_LISTED or end > len(answer):
            raise Unreadable("an answer is too short")
        listed = frozenset(_ENTRY.iter_unpack(answer[begin:end]))
        if not all(range.first <= point < range.end for point, _ in listed):
            raise Unreadable("an answer lists what is not in its range")
        ours = frozenset(self._ours.within(range))
        self._mine |= ours - listed
        self._theirs |= listed - ours
        if len(self._theirs) > MOST_THEIRS:
            raise Unreadable(f"an other side has at most {MOST_THEIRS} entries that are not here")
        return end


def _ranges(question: bytes) -> list[Range]:
    if question[:1] != _OTHER or (len(question) - 1) % _RANGE.size:
        raise Unreadable("a question is a sum or ranges")
    ranges = [Range(*one) for one in _RANGE.iter_unpack(question[1:])]
    if not 0 < len(ranges) <= MOST_RANGES:
        raise Unreadable(f"a question has 1 to {MOST_RANGES} ranges")
    if any(one.depth > DEPTHS or one.first % (one.end - one.first) for one in ranges):
        raise Unreadable("a question has an invalid range")
    return ranges


def _unpacked(entry: bytes) -> Entry:
    point, digest = _ENTRY.unpack(entry)
    return point, digest


def _steps(begin: int, end: int, step: int) -> range:
    return range(begin, end, step)
