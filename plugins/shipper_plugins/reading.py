"""Bytes of a file by offset, where its size decides whether there are more.

A read may give fewer bytes than it was asked for although the file goes on: file systems over a network or in user
space do that, and a disk does before a sector that it cannot read. Whoever takes such a read for the end of the file
leaves the rest of it unread, or cuts it off.
"""

from __future__ import annotations

import errno
import os


class Unreadable(OSError):
    """A file has more bytes by its size than the file system gives."""


def read_at(file: int, offset: int, size: int) -> bytes:
    """All `size` bytes from `offset`, or fewer if the file ends before; blocking.

    Raises Unreadable or another OSError if one of them cannot be read.
    """
    found = read_some(file, offset, size)
    while len(found) < size and (more := read_some(file, offset + len(found), size - len(found))):
        found += more
    return found


def read_some(file: int, offset: int, size: int) -> bytes:
    """As many of `size` bytes from `offset` as can be read: none only if the file ends there; blocking.

    Raises Unreadable or another OSError if not even the first one can be read.
    """
    pieces: list[bytes] = []
    at, end = offset, offset + size
    while at < end:
        try:
            piece = os.pread(file, end - at, at)
        except OSError:
            if pieces:
                break
            raise
        if not piece:
            break
        pieces.append(piece)
        at += len(piece)
    if at == offset < end and (there := os.fstat(file).st_size) > offset:
        if piece := os.pread(file, end - offset, offset):  # it grew between the two calls
            return piece
        raise Unreadable(errno.EIO, f"it has {there} bytes, but cannot be read beyond byte {offset}")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
