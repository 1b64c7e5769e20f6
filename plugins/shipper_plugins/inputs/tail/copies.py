"""Is a file a copy of a stream, made to rotate it? Then it is read from where the stream was read to.

A copy is a beginning of its original, byte for byte, as far as fingerprints see: same head, and the same last bytes at
its end (while the original is there) or at the original's offset (when it is not). While the original can be read, its
copy waits: the lines reach us by the original, and only what that loses by a truncation or removal is left to the copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from shipper_plugins.inputs.tail.content import WINDOW, Content, File, Moved, open_content
from shipper_plugins.inputs.tail.stream import Stream, fingerprint


class Verdict(Enum):
    """What a comparison found."""

    OWN = "no copy"
    WAITS = "a copy of something that is still read, or is not complete yet"
    COVERED = "a copy that was read up to `offset`"
    STALE = "the original has other content than it had: look at that first"


@dataclass(frozen=True, slots=True)
class Compared:
    """A verdict; `offset` and `tail` are those that the copy can go on from."""

    verdict: Verdict
    offset: int = 0
    tail: str = ""


def compare(path: str, file: File, original: Stream) -> Compared:
    """Compare a file with a stream; blocking, and long for a large compressed file. Raises OSError for `path` only."""
    with _opened(path, file) as copy:
        if original.file is None:
            return _with_memory(copy, original)
        try:
            with _opened(original.path, original.file) as source:
                return _with_file(copy, source, original)
        except Moved:
            return Compared(Verdict.STALE)


def _with_memory(copy: Content, original: Stream) -> Compared:
    """The original is gone; its fingerprints are left."""
    same = fingerprint(copy.head(wait=True)[: original.head_length]) == original.head
    if same and _tail(copy, original.offset) == original.tail:
        return Compared(Verdict.COVERED, original.offset, original.tail)
    growing = same and copy.end() is None
    return Compared(Verdict.WAITS if growing else Verdict.OWN)


def _with_file(copy: Content, source: Content, original: Stream) -> Compared:
    offset, tail = original.offset, original.tail
    head = source.head(wait=True)
    if fingerprint(head[: original.head_length]) != original.head or _tail(source, offset) != tail:
        return Compared(Verdict.STALE)
    beginning = copy.head(wait=True)
    if not head.startswith(beginning):
        return Compared(Verdict.OWN)
    end = copy.end()
    if end is None:
        return Compared(Verdict.WAITS)
    if _tail(source, end[0]) != fingerprint(end[1]):
        return Compared(Verdict.OWN)
    return Compared(Verdict.COVERED, end[0], fingerprint(end[1])) if offset >= end[0] else Compared(Verdict.WAITS)


def _tail(content: Content, offset: int) -> str | None:
    """The fingerprint of the bytes before `offset`; None if the content is shorter."""
    while True:
        look = content.look(offset, 1, wait=True)
        if len(look.before) == min(offset, WINDOW):
            return fingerprint(look.before)
        if look.at_end:
            return None


@contextmanager
def _opened(path: str, file: File) -> Iterator[Content]:
    content = open_content(path, file)
    try:
        yield content
    finally:
        content.close()
