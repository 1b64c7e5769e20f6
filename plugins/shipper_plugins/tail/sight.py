"""What a thread sees of the files of streams whose turn it is: all that a turn needs from the file system, at once.

The event loop says what it knows of a stream, a thread opens the file and looks, and the event loop decides: while the
thread looks, the stream may be moved, or lost. Many small files are looked at in one go, for a thread and back takes as
long as five looks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from shipper.plugin import forget_frames
from shipper_plugins.tail.content import HEAD, Content, File, Look
from shipper_plugins.tail.open_files import OpenFiles
from shipper_plugins.tail.stream import Stream

SLOW = 0.5
"""Seconds after which the file of a stream is looked at without others that would have to wait for it."""


class Wish(msgspec.Struct, frozen=True):
    """A stream to look at, as it was known when its turn began."""

    stream: Stream
    path: str
    file: File
    offset: int
    is_settled: bool
    compressed: bool
    done: int | None
    wants_head: bool

    @classmethod
    def of(cls, stream: Stream) -> Wish | None:
        """None for a stream whose file is gone."""
        if stream.file is None:
            return None
        it, is_settled = stream.identity, stream.kinship.settled
        wants_head = not is_settled or stream.assembly.charset is None or it.head_length < HEAD
        return cls(
            stream, it.path, stream.file, stream.offset, is_settled, it.compressed, stream.place.done, wants_head
        )

    @property
    def is_current(self) -> bool:
        """Whether the stream still is what it was."""
        return (self.stream.path, self.stream.file, self.stream.offset) == (self.path, self.file, self.offset)


class Sight(msgspec.Struct, frozen=True):
    """A file that was looked at."""

    wish: Wish
    compressed: bool
    size: int
    """Bytes on disk, before anything else was looked at."""
    written: int
    """When it was last written, in nanoseconds; 0 for a plain file of which some is read, and that was open."""
    was_open: bool
    head: bytes | None
    """Its first bytes, if they were wanted, or it had to be opened."""
    look: Look | None
    """What is at the offset; None where that cannot be said yet, or was read to its end."""
    born: int = 0
    """When the file was made, in nanoseconds; 0 if it was open already, or that is not known."""


def at_hand(wishes: Sequence[Wish], open_files: OpenFiles, chunk_bytes: int) -> list[Sight]:
    """As `see`, without blocking: up to the first file that is not open, or of which not all is in memory."""
    seen: list[Sight] = []
    size = 0
    for wish in wishes:
        sight = _at_hand(wish, open_files, chunk_bytes)
        if sight is None:
            break
        seen.append(sight)
        size += _length(sight)
        if size >= chunk_bytes:
            break
    return seen


def _at_hand(wish: Wish, open_files: OpenFiles, chunk_bytes: int) -> Sight | None:
    if wish.done is not None or wish.stream.turn.slow or (content := open_files.at_hand(wish.stream)) is None:
        return None
    look = content.at_hand(wish.offset, chunk_bytes)
    if look is None:
        return None
    head = None
    if wish.wants_head and (head := content.head_at_hand() if wish.offset else look.found[:HEAD]) is None:
        return None
    written = 0 if wish.offset else look.written
    return Sight(wish, content.compressed, look.size, written, True, head, look)


def see(wishes: Sequence[Wish], open_files: OpenFiles, chunk_bytes: int) -> tuple[list[Sight | OSError], bool]:
    """Look at files, in this order, until a chunk is full: at the first one at least; blocking.

    Returns also whether the file system of the last one was slow: then no other one is looked at after it.
    """
    seen: list[Sight | OSError] = []
    size, slow = 0, False
    for wish in wishes:
        began = time.monotonic()
        try:
            with open_files.use(wish.stream, wish.path, wish.file) as (content, was_open):
                seen.append(sight_of(wish, content, chunk_bytes, was_open=was_open))
        except OSError as error:
            forget_frames(error)  # this one has what was seen of the others
            seen.append(error)
        slow = time.monotonic() - began > SLOW
        size += _length(seen[-1])
        if size >= chunk_bytes or slow:
            break
    return seen, slow


def _length(seen: Sight | OSError) -> int:
    return len(seen.look.found) if isinstance(seen, Sight) and seen.look is not None else 0


def sight_of(wish: Wish, content: Content, chunk_bytes: int, *, was_open: bool) -> Sight:
    """What is seen of an open file; raises OSError."""
    size = content.size()
    compressed = content.compressed
    written = content.written() if compressed or not wish.offset or not was_open else 0
    born = 0 if was_open else content.born()
    if (compressed != wish.compressed and wish.is_settled) or (wish.done is not None and wish.done == size):
        return Sight(wish, compressed, size, written, was_open, None, None, born)
    head = look = None
    wants_head = wish.wants_head or not was_open
    if compressed and wants_head:  # before the look, as a compressed file is read forwards
        head = content.head()
    if wish.is_settled or not compressed:
        look = content.look(wish.offset, chunk_bytes)
    if not compressed and wants_head:
        assert look is not None
        head = content.head() if wish.offset else look.found[:HEAD]
    return Sight(wish, compressed, size, written, was_open, head, look, born)
