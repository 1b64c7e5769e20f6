"""The bytes of a file by offset: plain, or packed where offsets count decompressed bytes.

Where a file ends is decided by its size, never by what a read gave (`shipper_plugins.reading`). All of it blocks, and
runs in the threads of `calls`, but for `at_hand`: of an open file on a local file system the inode is in memory, and a
read that does not wait (RWF_NOWAIT) gives the pages that are, and nothing where a file system cannot tell. A line that
was just written takes 20 µs so, 1 MiB 0.1 ms; a thread's turn takes 0.2 ms, and a few beside others that are busy.

Whether a file is compressed is read from its first bytes, not its name. A compressed file can only be read forwards,
so asking for an earlier offset begins again; one call decompresses at most `STRIDE` bytes to get to its offset, so that
a thread which does it comes back soon.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import Protocol

import msgspec
from isal import isal_zlib

from shipper.sdk.descriptors import is_reserved
from shipper.sdk.inotify import is_local
from shipper_plugins.reading import read_at, read_some
from shipper_plugins.tail import denied
from shipper_plugins.tail.births import born
from shipper_plugins.tail.calls import at
from shipper_plugins.tail.packing import LONGEST_START, Decoder, Packing, packing_of, refuse

HEAD = 1024
"""Bytes at the beginning of a file that make its fingerprint."""
WINDOW = 256
"""Bytes before an offset that tell whether a file still has the content that was read up to there."""
STRIDE = 16 << 20
_INPUT = 16 << 10
_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)


def checksum(piece: bytes | memoryview, before: int = 0) -> int:
    """The CRC-32 of a piece, going on from that of what stands before it."""
    return isal_zlib.crc32(piece, before)


File = tuple[int, int]
"""Device and inode."""


class Moved(OSError):
    """The path does not lead to the file that was expected there."""


class Look(msgspec.Struct, frozen=True):
    """What was seen at an offset."""

    found: bytes
    """What was asked for, as far as it can be read: fewer bytes at the end, or before a byte that cannot be."""
    before: bytes
    """Up to WINDOW bytes before the offset; fewer where the file has become shorter."""
    at_end: bool
    """Whether nothing follows `found` at present."""
    complete: bool
    """Whether nothing can follow: a compressed file whose last member has ended, or a file without a name."""
    size: int
    """Bytes on disk, before anything was read."""
    written: int = 0
    """When it was last written, in nanoseconds, before anything was read; 0: not asked, or a packed file."""


class Content(Protocol):
    """An open file; used by one thread at a time."""

    compressed: bool

    def look(self, offset: int, size: int) -> Look:
        """At most `size` bytes from `offset`; raises OSError."""
        ...

    def at_hand(self, offset: int, size: int) -> Look | None:
        """As `look`, without waiting for anything: None unless all of it is in memory."""
        ...

    def head_at_hand(self) -> bytes | None:
        """As `head`, without waiting for anything."""
        ...

    def head(self) -> bytes:
        """The first HEAD bytes, or as many as there are; raises like `look`."""
        ...

    def end(self) -> tuple[int, bytes] | None:
        """The length and the last WINDOW bytes; None for a compressed file that is not complete."""
        ...

    def size(self) -> int:
        """Bytes on disk."""
        ...

    def written(self) -> int:
        """When it was last written, in nanoseconds."""
        ...

    def born(self) -> int:
        """When the file was made, in nanoseconds; 0 if that is not known."""
        ...

    def close(self) -> None:
        """Cannot fail."""
        ...


def open_content(path: str, file: File, *, is_needed: bool = False) -> Content:
    """Open a regular file; raises Moved if another file (or none) is there, NotRead if it is packed so, or OSError.

    Where descriptors are short it is an OSError (EMFILE) before the last ones are taken; later if it `is_needed`.
    """
    at(path)
    try:
        fd = os.open(path, _FLAGS)
    except FileNotFoundError as error:
        raise Moved(errno.ENOENT, "another file is there") from error
    except PermissionError as error:
        raise PermissionError(error.errno, denied.reason(error)) from None
    try:
        if is_reserved(fd, is_needed=is_needed):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != file or not stat.S_ISREG(status.st_mode):
            raise Moved(errno.ENOENT, "another file is there")
        plain = Plain(fd, path, is_local=is_local(fd))
        return unpacked(plain, plain.read(0, LONGEST_START))
    except BaseException:
        os.close(fd)
        raise


def unpacked(plain: Plain, head: bytes) -> Content:
    """A file with these first bytes as it was before it was packed; raises NotRead."""
    packing = packing_of(head)
    if packing is None:
        return plain
    if packing.decoder is None:
        raise refuse(packing)
    return Unpacked(plain, packing, packing.decoder)


class Plain:
    """A file as it is."""

    compressed = False

    def __init__(self, fd: int, path: str, *, is_local: bool = False) -> None:
        self._fd, self._path, self._is_local = fd, path, is_local

    def look(self, offset: int, size: int) -> Look:
        status = self._status()
        there = min(size, status.st_size - offset)
        found = read_some(self._fd, offset, there) if there > 0 else b""
        # After the chunk: a file that was truncated meanwhile no longer has these bytes.
        before = self.read(max(0, offset - WINDOW), min(offset, WINDOW))
        at_end, is_gone = offset + len(found) >= status.st_size, status.st_nlink == 0
        return Look(found, before, at_end, is_gone, status.st_size, status.st_mtime_ns)

    def at_hand(self, offset: int, size: int) -> Look | None:
        if not self._is_local:
            return None
        status = os.fstat(self._fd)
        found = self._cached(offset, min(size, status.st_size - offset))
        before = self._cached(max(0, offset - WINDOW), min(offset, WINDOW)) if found is not None else None
        if found is None or before is None:
            return None
        at_end = offset + len(found) >= status.st_size
        return Look(found, before, at_end, status.st_nlink == 0, status.st_size, status.st_mtime_ns)

    def head_at_hand(self) -> bytes | None:
        return self._cached(0, min(HEAD, os.fstat(self._fd).st_size)) if self._is_local else None

    def _cached(self, offset: int, size: int) -> bytes | None:
        if _NOWAIT is None or size <= 0:
            return None if size else b""
        room = bytearray(size)
        try:
            count = os.preadv(self._fd, [room], offset, _NOWAIT)
        except OSError:  # EAGAIN: not in the page cache; EOPNOTSUPP: a file system that cannot tell
            return None
        return bytes(room) if count == size else None

    def head(self) -> bytes:
        return self.read(0, min(HEAD, self.size()))

    def end(self) -> tuple[int, bytes] | None:
        size = self.size()
        return size, self.read(max(0, size - WINDOW), min(size, WINDOW))

    def size(self) -> int:
        return self._status().st_size

    def written(self) -> int:
        return self._status().st_mtime_ns

    def born(self) -> int:
        at(self._path)
        return born(self._fd)

    def close(self) -> None:
        at(self._path)
        with contextlib.suppress(OSError):  # closed all the same, and nothing was written
            os.close(self._fd)

    def read(self, offset: int, size: int) -> bytes:
        """These bytes, or fewer if the file ends before; raises OSError."""
        at(self._path)
        return read_at(self._fd, offset, size)

    def _status(self) -> os.stat_result:
        at(self._path)
        return os.fstat(self._fd)


class Unpacked:
    """A compressed file as it was before."""

    compressed = True

    def __init__(self, plain: Plain, packing: Packing, decoder: Callable[[], Decoder]) -> None:
        self._plain, self._packing, self._new_decoder = plain, packing, decoder
        self._decoder: Decoder | None = None
        """Of the member that is read; None between two members, and at the end."""
        self._begin()

    def _begin(self) -> None:
        self._drop()
        self._ended = False
        self._read = 0
        self._rest = b""
        self._start = 0
        self._kept = bytearray()

    def _drop(self) -> None:
        if self._decoder is not None:
            self._decoder.close()
            self._decoder = None

    def look(self, offset: int, size: int) -> Look:
        on_disk = self.size()
        self._reach(offset)
        if self._end() < offset:
            return Look(b"", b"", self._exhausted(), self._complete(), on_disk)
        while self._end() < offset + size and self._more():
            pass
        first = offset - self._start
        found = bytes(self._kept[first : first + size])
        ended = first + len(found) == len(self._kept) and self._exhausted()
        before = bytes(self._kept[max(0, first - WINDOW) : first])
        complete = ended and self._complete()
        self._give_way(ended=ended)
        return Look(found, before, ended, complete, on_disk)

    def at_hand(self, offset: int, size: int) -> Look | None:
        return None

    def head_at_hand(self) -> bytes | None:
        return None

    def head(self) -> bytes:
        found = self.look(0, HEAD).found
        self._give_way(ended=True)  # who asks compares the whole, perhaps, by a decoder of its own
        return found

    def end(self) -> tuple[int, bytes] | None:
        while not self._exhausted():
            self._reach(self._end() + STRIDE)
        found = (self._end(), bytes(self._kept[-WINDOW:])) if self._complete() else None
        self._give_way(ended=True)
        return found

    def size(self) -> int:
        return self._plain.size()

    def written(self) -> int:
        return self._plain.written()

    def born(self) -> int:
        return self._plain.born()

    def close(self) -> None:
        self._drop()
        self._plain.close()

    def _give_way(self, *, ended: bool) -> None:
        """Leave the decoder to others, where there are few, until there is more to read."""
        if ended and self._packing.is_heavy and self._decoder is not None:
            self._begin()

    def _end(self) -> int:
        return self._start + len(self._kept)

    def _exhausted(self) -> bool:
        is_idle = self._decoder is None or self._decoder.needs_input
        return is_idle and not self._rest and self._read >= self.size()

    def _complete(self) -> bool:
        return self._exhausted() and self._ended

    def _reach(self, offset: int) -> None:
        """Go to `offset`, or STRIDE bytes towards it, and forget what is far behind."""
        if self._start > max(0, offset - WINDOW):
            self._begin()
        goal = min(offset, self._end() + STRIDE)
        more = True
        while more:
            more = self._end() < goal and self._more()
            behind = min(self._end(), offset) - WINDOW - self._start
            if behind > 0:
                del self._kept[:behind]
                self._start += behind

    def _more(self) -> bool:
        """Decompress one piece; false when there is none."""
        if self._decoder is not None and not self._decoder.needs_input:
            self._decode(self._decoder, b"")
            return True
        piece, self._rest = self._rest, b""
        if not piece:
            piece = self._plain.read(self._read, min(_INPUT, max(0, self.size() - self._read)))
            self._read += len(piece)
        if self._decoder is not None and piece:
            self._decode(self._decoder, piece)
        elif piece:
            self._member(piece)
        return bool(piece)

    def _member(self, piece: bytes) -> None:
        """Begin the next member; what follows the last one and is none (padding) is ignored, as gzip does."""
        member = piece.lstrip(b"\0")
        if self._packing.begins(member):
            self._decoder, self._ended = self._new_decoder(), False
            self._decode(self._decoder, member)

    def _decode(self, decoder: Decoder, piece: bytes) -> None:
        self._kept += decoder.decompress(piece)
        if decoder.eof:
            self._rest, self._ended = decoder.unused_data, True
            self._drop()
