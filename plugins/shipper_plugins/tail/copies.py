"""Is a file a copy of a stream, made to rotate it? Then it is read from where the stream was read to.

A copy is a beginning of its original, byte for byte. While the original can be read, its copy waits: the lines reach us
by the original, and only what that loses by a truncation or removal is left to the copy. Of an original that is gone,
the copy has all the bytes that were read, by their checksum.

A file that merely has the same content, such as a job's log that is the same each day, is no copy: to take it for one
would lose its lines, and to read a copy again is the lesser evil. So a plain copy must have been written before its
original was found to be gone; a compressed one may take its time.

Not covered: a plain copy of a file that was truncated, packed and removed during the first look at the copy. The packed
one takes over what the original had, and the open one has no path by which it could be compared: it is read as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from enum import Enum

import msgspec

from shipper.sdk.descriptors import is_short
from shipper_plugins.tail.content import WINDOW, Content, File, Moved, checksum, open_content
from shipper_plugins.tail.identity import Remembered
from shipper_plugins.tail.place import BEGINNING, Place, fingerprint

_PIECE = 1 << 20


class Verdict(Enum):
    """What a comparison found."""

    OWN = "no copy"
    WAITS = "a copy of something that is still read, or is not complete yet"
    COVERED = "a copy that was read up to `offset`"
    STALE = "the original has other content than it had: look at that first"


class Compared(msgspec.Struct, frozen=True):
    """A verdict; `place` is where the copy can go on."""

    verdict: Verdict
    place: Place = BEGINNING


def compare(path: str, file: File, original: Remembered, known: Place | None = None) -> Compared:
    """Compare a file with a stream; blocking, and long for a large one. Raises OSError if either cannot be read; but an
    original of which nothing was ever read, and that cannot be opened, is none.

    `known` is what the file's own stream is known to have in common with the original: what follows is compared.
    """
    with closing(open_content(path, file)) as copy:
        if original.identity.file is None:
            return with_memory(copy, original, known)
        try:
            source = open_content(original.identity.path, original.identity.file)
        except Moved:
            return Compared(Verdict.STALE)
        except OSError as error:
            if original.identity.head_length or is_short(error):
                raise
            return Compared(Verdict.OWN)  # nothing was ever read of it
        with closing(source):
            return with_file(copy, source, original, known)


def with_memory(copy: Content, original: Remembered, known: Place | None = None) -> Compared:
    """The original is gone; its fingerprints and its checksum are left."""
    it = original.identity
    is_unknown = not it.head_length and not original.place.offset
    if is_unknown or (it.left and not copy.compressed and copy.written() > it.left):
        return Compared(Verdict.OWN)
    if not it.begins(copy.head()):
        return Compared(Verdict.OWN)
    if _has_read(copy, original.place, known):
        return Compared(Verdict.COVERED, original.place)
    if copy.end() is None:
        return Compared(Verdict.WAITS)
    # It may have come to its end since those bytes were missing.
    is_whole = copy.compressed and _has_read(copy, original.place, known)
    return Compared(Verdict.COVERED, original.place) if is_whole else Compared(Verdict.OWN)


def _has_read(copy: Content, read: Place, known: Place | None) -> bool:
    """Whether a copy has the bytes that were read of its original."""
    at, crc = read.since, 0
    if known is not None and _goes_on(known, at, read.offset, copy):
        at, crc = known.offset, known.crc
    for piece in _pieces(copy, at, read.offset):
        crc = checksum(piece, crc)
    return crc == read.crc and _tail(copy, read.offset) == read.tail


def with_file(copy: Content, source: Content, original: Remembered, known: Place | None = None) -> Compared:
    """The original can be read."""
    read, begins = original.place, copy.head()
    head = source.head()  # after that of the copy: the original may be longer by then, and never shorter
    if not original.identity.begins(head) or _tail(source, read.offset) != read.tail:
        return Compared(Verdict.STALE)
    if not head.startswith(begins):
        return _differs(source, read)
    end = copy.end()
    if end is None:
        return Compared(Verdict.WAITS)
    if _tail(source, end[0]) != fingerprint(end[1]):
        return _differs(source, read)
    if read.offset < end[0]:
        return Compared(Verdict.WAITS)
    since = min(read.since, end[0])
    begun = (known.offset, known.crc) if known is not None and _goes_on(known, since, end[0], copy, source) else (0, 0)
    crc = _equal(copy, source, since, end[0], *begun)
    if crc is None:
        return _differs(source, read)
    return Compared(Verdict.COVERED, Place(end[0], fingerprint(end[1]), crc, since))


def _differs(source: Content, read: Place) -> Compared:
    """The original has other bytes; perhaps since it was truncated while they were compared."""
    return Compared(Verdict.OWN if _tail(source, read.offset) == read.tail else Verdict.STALE)


def _goes_on(known: Place, since: int, end: int, *contents: Content) -> bool:
    """Whether a copy has grown since it was compared; from its beginning each time takes quadratic time."""
    if known.since != since or not since <= known.offset <= end:
        return False
    return all(_tail(content, known.offset) == known.tail for content in contents)


def _equal(copy: Content, source: Content, since: int, end: int, at: int, crc: int) -> int | None:
    """The checksum of the bytes from `since` to `end`, `crc` being that of those before `at`; None unless both have
    the same bytes from `at` on."""
    for ours in _pieces(copy, at, end):
        if b"".join(_pieces(source, at, at + len(ours))) != ours:
            return None
        crc = checksum(ours[max(0, since - at) :], crc)
        at += len(ours)
    return crc


def _pieces(content: Content, start: int, end: int) -> Iterator[bytes]:
    """The bytes from `start` to `end`, or to the end of the content."""
    while start < end:
        look = content.look(start, min(_PIECE, end - start))
        if look.at_end and not look.found:
            return
        start += len(look.found)
        yield look.found


def _tail(content: Content, offset: int) -> str | None:
    """The fingerprint of the bytes before `offset`; None if the content is shorter."""
    while True:
        look = content.look(offset, 1)
        if len(look.before) == min(offset, WINDOW):
            return fingerprint(look.before)
        if look.at_end:
            return None
