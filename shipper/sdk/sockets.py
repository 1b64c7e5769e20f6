"""PUBLIC: sockets to listen on, of every kind, and how many datagrams the kernel dropped.

A socket in the file system takes the place of one whose process has died: nobody answers there, and its file stays. It
never takes the place of a socket that somebody answers on, nor of a file that is no socket.

*Datagrams get lost.* The kernel drops UDP datagrams for which a socket's buffer has no room; on Linux `newly_lost`
counts them. It drops none of a `unixgram` socket: a sender waits for room there, or drops the datagram itself, which
nobody on this side can count.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from shipper.sdk.codes import Code, of_os_error
from shipper.sdk.descriptors import in_words
from shipper.sdk.endpoints import Endpoint
from shipper.sdk.errors import StartFailed

BACKLOG = 1024
MODE = 0o600
"""Of a socket in the file system, where no other is asked for: only the user of this process may send."""

_KINDS = {"udp": socket.SOCK_DGRAM, "unixgram": socket.SOCK_DGRAM}
_SO_MEMINFO = 55
_MEMINFO = struct.Struct("9I")
_DROPS = 8
_lost: WeakKeyDictionary[socket.socket, int] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Bound:
    """A socket to listen on, non-blocking; one in the file system knows which file is its own."""

    socket: socket.socket
    path: str = ""
    file: tuple[int, int] = (0, 0)
    """Device and number of the file."""

    def change(self, *, mode: int | None, receive_buffer: int | None) -> None:
        """Set what is given; raises OSError. Calls the file system where there is a path."""
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if mode is not None and self.path:
            os.chmod(self.path, mode)

    def close(self) -> None:
        """Close the socket: peers are refused."""
        self.socket.close()

    def remove(self) -> None:
        """Remove its file, before the socket is closed; not that of another one. Calls the file system."""
        with suppress(OSError):
            if self.path and _identity(os.lstat(self.path)) == self.file:
                os.unlink(self.path)


def bind(endpoint: Endpoint, family: int, address: object, *, mode: int | None, receive_buffer: int | None) -> Bound:
    """The socket of an endpoint; `family` and `address` are those of its host. Raises StartFailed.

    Calls the file system where the endpoint has a path.
    """
    with as_start_failed(endpoint):
        made = socket.socket(family, _KINDS.get(endpoint.scheme, socket.SOCK_STREAM))
        try:
            made.setblocking(False)
            if receive_buffer is not None:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            bound = _at_path(made, endpoint, MODE if mode is None else mode) if endpoint.path else Bound(made)
            if not endpoint.path:
                _at_address(made, endpoint, address)
            if not endpoint.is_of_datagrams:
                made.listen(BACKLOG)
        except BaseException:
            made.close()
            raise
    return bound


def _at_address(made: socket.socket, endpoint: Endpoint, address: object) -> None:
    if not endpoint.is_of_datagrams:  # a UDP port would be shared with whoever sets it too
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if made.family == socket.AF_INET6 and not endpoint.host:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    made.bind(address)  # type: ignore[arg-type]


def _at_path(made: socket.socket, endpoint: Endpoint, mode: int) -> Bound:
    path = endpoint.path
    _make_way(path, made.type)
    with suppress(OSError):  # so that Linux makes the file with no more than this mode
        os.fchmod(made.fileno(), mode)
    made.bind(path)
    os.chmod(path, mode)
    return Bound(made, path, _identity(os.lstat(path)))


def _make_way(path: str, kind: int) -> None:
    """Remove the socket of a process that has died; raises OSError if anything else is at the path."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise FileExistsError(errno.EEXIST, "there is a file that is not a socket")
    if _is_answered(path, kind):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    os.unlink(path)


def _is_answered(path: str, kind: int) -> bool:
    """Whether a process has this socket open; raises OSError where that cannot be found out."""
    with socket.socket(socket.AF_UNIX, kind) as asking:
        asking.setblocking(False)
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EPROTOTYPE):  # its backlog is full; it is of the other kind
                raise
    return True


def _identity(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino


@contextmanager
def as_start_failed(endpoint: Endpoint) -> Iterator[None]:
    """Raises StartFailed, which names the endpoint, for an OSError of the block."""
    try:
        yield
    except OSError as error:
        raise refused(endpoint, in_words(error), of_os_error(error, Code.ADDRESS_UNAVAILABLE)) from None


def refused(endpoint: Endpoint, cause: str, code: str = Code.ADDRESS_UNAVAILABLE) -> StartFailed:
    """Why nobody can listen there."""
    return StartFailed(f"cannot listen on {endpoint.address}: {cause}", code=code)


def newly_lost(listener: socket.socket) -> int | None:
    """How many datagrams the kernel has dropped of this socket since it was asked last, or since it was made.

    None where the system does not say: elsewhere than on Linux, and of a socket in the file system.
    """
    if not sys.platform.startswith("linux") or listener.family == socket.AF_UNIX:
        return None
    try:
        dropped: int = _MEMINFO.unpack(listener.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))[_DROPS]
    except (OSError, struct.error):  # before Linux 4.12
        return None
    before, _lost[listener] = _lost.get(listener, 0), dropped
    return (dropped - before) % (1 << 32)


def receive_buffer(listener: socket.socket) -> int:
    """How many bytes the socket's buffer has, which may be fewer than were asked for (net.core.rmem_max)."""
    size = listener.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return size // 2 if sys.platform.startswith("linux") else size  # Linux counts what it needs itself
