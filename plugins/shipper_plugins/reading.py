"""Reads bytes of a file by offset; only the file's size shows where it ends.

A read may return fewer bytes than requested although the file is longer: file systems over a network or in user space
do so, and a disk does before an unreadable sector. To take such a read for the end of the file would leave the rest
unread, or cut it off.
"""

from __future__ import annotations

import errno
import os


class Unreadable(OSError):
    """A file has more bytes by its size than the file system returns."""


def read_at(file: int, offset: int, size: int) -> bytes:
    """Returns all `size` bytes from `offset`, or fewer if the file ends before; blocking.

    Raises Unreadable or another OSError if one of them cannot be read.
    """
    found = read_some(file, offset, size)
    while len(found) < size and (more := read_some(file, offset + len(found), size - len(found))):
        found += more
    return found


def read_some(file: int, offset: int, size: int) -> bytes:
    """Returns as many of `size` bytes from `offset` as can be read: none only if the file ends there; blocking.

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
