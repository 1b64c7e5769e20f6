"""PUBLIC: sockets to listen on, of every kind, and counts of datagrams that the kernel dropped.

A socket in the file system replaces one whose process has died, which leaves its file behind. It never replaces the
socket of a living process, nor a file of another kind.

*Lost datagrams.* The kernel drops UDP datagrams that do not fit into a socket's buffer; on Linux `newly_lost` counts
them. It drops none of a `unixgram` socket: there the sender waits for room, or drops the datagram itself, which cannot
be counted here.
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
"""The default mode of a socket in the file system: only the user of this process may send."""

_KINDS = {"udp": socket.SOCK_DGRAM, "unixgram": socket.SOCK_DGRAM}
_SO_RCVBUFFORCE, _SO_MEMINFO = 33, 55
_MEMINFO = struct.Struct("9I")
_DROPS = 8
_lost: WeakKeyDictionary[socket.socket, int] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Bound:
    """A non-blocking socket to listen on; one in the file system has the identity of its file."""

    socket: socket.socket
    path: str = ""
    file: tuple[int, int] = (0, 0)
    """Device and number of the file."""

    def change(self, *, mode: int | None, receive_buffer: int | None) -> None:
        """Sets the given options; raises OSError. Calls the file system where there is a path."""
        if receive_buffer is not None:
            _set_receive_buffer(self.socket, receive_buffer)
        if mode is not None and self.path:
            os.chmod(self.path, mode)

    def close(self) -> None:
        """Close the socket: peers are refused."""
        self.socket.close()

    def remove(self) -> None:
        """Removes its own file, before the socket is closed. Calls the file system."""
        with suppress(OSError):
            if self.path and _identity(os.lstat(self.path)) == self.file:
                os.unlink(self.path)


def bind(endpoint: Endpoint, family: int, address: object, *, mode: int | None, receive_buffer: int | None) -> Bound:
    """Returns the socket of an endpoint; `family` and `address` are those of its host. Raises StartFailed.

    Calls the file system where the endpoint has a path.
    """
    with as_start_failed(endpoint):
        made = socket.socket(family, _KINDS.get(endpoint.scheme, socket.SOCK_STREAM))
        try:
            made.setblocking(False)
            if receive_buffer is not None:
                _set_receive_buffer(made, receive_buffer)
            bound = _at_path(made, endpoint, MODE if mode is None else mode) if endpoint.path else Bound(made)
            if not endpoint.path:
                _at_address(made, endpoint, address)
            if not endpoint.is_of_datagrams:
                made.listen(BACKLOG)
        except BaseException:
            made.close()
            raise
    return bound


def _set_receive_buffer(made: socket.socket, size: int) -> None:
    """Sets the size of the buffer; above net.core.rmem_max where this process may (CAP_NET_ADMIN)."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    if sys.platform.startswith("linux") and receive_buffer(made) < size:
        with suppress(OSError):
            made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size)


def _at_address(made: socket.socket, endpoint: Endpoint, address: object) -> None:
    if not endpoint.is_of_datagrams:  # a UDP port would be shared with other processes that set it
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
    """Removes the socket of a process that has died; raises OSError if anything else is at the path."""
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
    """Whether a process has this socket open; raises OSError where that cannot be determined."""
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
    """Turns an OSError of the block into StartFailed, which names the endpoint."""
    try:
        yield
    except OSError as error:
        raise refused(endpoint, in_words(error), of_os_error(error, Code.ADDRESS_UNAVAILABLE)) from None


def refused(endpoint: Endpoint, cause: str, code: str = Code.ADDRESS_UNAVAILABLE) -> StartFailed:
    """Returns the error for an endpoint that cannot be listened on."""
    return StartFailed(f"cannot listen on {endpoint.address}: {cause}", code=code)


def newly_lost(listener: socket.socket) -> int | None:
    """Returns how many datagrams of this socket the kernel has dropped since the last call, or since it was made.

    None where that is unknown: on other systems than Linux, and for a socket in the file system.
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
    """Returns the size of the socket's buffer, which may be less than requested (net.core.rmem_max)."""
    size = listener.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return size // 2 if sys.platform.startswith("linux") else size  # Linux includes its own overhead
