"""PUBLIC: Linux inotify for trio: a file's change is seen in about 0.2 ms, without a thread and without polling.

It uses ctypes, since the C library has all of it and a dependency would add a thread (watchfiles took 2 ms at best).
Where there is no inotify (another system, a seccomp filter, no instances left) `Inotify()` raises OSError, and the
caller polls instead.

Events are hints: read the files again after an event, and all of them after `Mask.OVERFLOW` (watch descriptor -1),
which means that events were lost. A watch on a directory names its entries, also for a file that does not exist yet or
is replaced by a rename; a watch on a file follows the inode, not the name.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from enum import IntFlag
from functools import cache
from typing import Any

import trio

_EVENT = struct.Struct("iIII")
_ROOM = 256 * 1024


class Mask(IntFlag):
    """Kinds of events; the values of <sys/inotify.h>."""

    MODIFY = 0x2
    ATTRIB = 0x4
    CLOSE_WRITE = 0x8
    MOVED_FROM = 0x40
    MOVED_TO = 0x80
    CREATE = 0x100
    DELETE = 0x200
    DELETE_SELF = 0x400
    MOVE_SELF = 0x800
    UNMOUNT = 0x2000
    OVERFLOW = 0x4000
    IGNORED = 0x8000
    ONLYDIR = 0x0100_0000


Event = tuple[int, int, str]
"""The watch descriptor, the kind of event (bits of `Mask`), and the name within a watched directory (empty for the
watched path itself)."""

# NFS, SMB (three times), FUSE, 9p, Ceph, AFS, Lustre
_REMOTE = {0x6969, 0x517B, 0xFF534D42, 0xFE534D42, 0x65735546, 0x01021997, 0x00C36400, 0x5346414F, 0x0BD00BD0}


class Inotify:
    """One inotify instance; a context manager, which closes it and wakes a waiting `receive`."""

    def __init__(self) -> None:
        """Raises OSError where inotify is not available."""
        self._descriptor = -1
        self._libc = _libc()
        self._descriptor = _checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, path: str | os.PathLike[str], mask: int) -> int:
        """Watches `path`, or changes the mask of its watch; returns the watch descriptor, raises OSError."""
        return _checked(self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), int(mask)), path)

    def remove(self, watch: int) -> None:
        """Ends a watch; ignores one that the kernel has ended because its path is gone."""
        self._libc.inotify_rm_watch(self._descriptor, watch)

    def hears_all(self, path: str | os.PathLike[str]) -> bool:
        """Whether every change below `path` causes events; on network file systems changes by other hosts do not."""
        status = (ctypes.c_long * 32)()
        return not (self._libc.statfs(os.fsencode(path), status) == 0 and _is_remote(status))

    def receive_nowait(self) -> list[Event]:
        """Returns the events since the last call, if any, and each of them once."""
        try:
            return _events(os.read(self._descriptor, _ROOM))
        except BlockingIOError:
            return []

    async def wait(self) -> None:
        """Waits until there is an event to receive; raises trio.ClosedResourceError after `close`."""
        if self._descriptor < 0:
            raise trio.ClosedResourceError("inotify is closed")
        await trio.lowlevel.wait_readable(self._descriptor)

    async def receive(self) -> list[Event]:
        """Waits for at least one event, and returns those since the last call; raises trio.ClosedResourceError after
        `close`.

        A cancel loses no events. Events of a watch that was just removed may still arrive.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._descriptor < 0 or not (events := self.receive_nowait()):
            await self.wait()
        await trio.lowlevel.cancel_shielded_checkpoint()
        return events

    def close(self) -> None:
        """Ends all watches; may be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(RuntimeError):  # outside of trio no task can be waiting
                trio.lowlevel.notify_closing(descriptor)
            os.close(descriptor)

    def __enter__(self) -> Inotify:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_local(descriptor: int) -> bool:
    """Whether an open file is on this host: what is in memory of it is at hand without asking anybody. Blocking."""
    status = (ctypes.c_long * 32)()
    try:
        return _libc().fstatfs(descriptor, status) == 0 and not _is_remote(status)
    except OSError:
        return False


def _is_remote(status: ctypes.Array[ctypes.c_long]) -> bool:
    return status[0] & 0xFFFFFFFF in _REMOTE


def _events(raw: bytes) -> list[Event]:
    """Returns each event once: a file that is written often fills the kernel's queue with one."""
    return [_event(record) for record in dict.fromkeys(_records(raw))]


def _records(raw: bytes) -> Iterator[bytes]:
    offset = 0
    while offset < len(raw):
        end = offset + _EVENT.size + _EVENT.unpack_from(raw, offset)[3]
        yield raw[offset:end]
        offset = end


def _event(record: bytes) -> Event:
    watch, mask, _cookie, _length = _EVENT.unpack_from(record)
    return watch, mask, os.fsdecode(record[_EVENT.size :].rstrip(b"\0"))


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        raise OSError(errno.ENOSYS, "this system has no inotify")
    return libc


def _checked(result: int, path: str | os.PathLike[str] | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), None if path is None else os.fspath(path))
    return result
