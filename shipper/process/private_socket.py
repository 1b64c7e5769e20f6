"""A unix socket in a state directory, for the user of the process and for root.

It has mode 0600, and a peer of another user is not heard, whatever the mode of the directory. The last descriptors are
kept for the process: a peer beyond that is disconnected.

The directory may lie on a disk that does not answer. Each call to it is made in a thread that is abandoned if the
process does not wait for it any more; a socket that is made too late closes itself.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import trio

from shipper.process.environment import REAL, InThread
from shipper.sdk.descriptors import in_words, is_reserved, is_short, shortage

OF_SHIPPER = "shipper.sock"
"""The socket of `shipper run` in its state directory."""
_PAUSE_SECONDS = 0.5
_LEAVING_SECONDS = 1.0
_LONGEST_ADDRESS = 107

Converse: TypeAlias = Callable[[trio.SocketStream], Awaitable[None]]
Tell: TypeAlias = Callable[[str | None], object]
"""Called with the reason while peers are not heard, in words, and with None at its end."""


async def serve(
    directory: Path,
    name: str,
    converse: Converse,
    tell: Tell,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    in_thread: InThread = REAL.in_thread,
) -> None:
    """Calls `converse` with the stream of each peer, which it closes afterwards, until cancelled.

    The caller owns the directory, so a socket in it is left from an earlier process. Has started when the socket
    listens. Raises OSError if it cannot be made. A disk that does not answer holds up neither other tasks nor the end,
    which comes within a second.
    """
    binding = _Binding(directory, name)
    try:
        listener = await in_thread(binding.run, abandon_on_cancel=True)
    except BaseException:
        binding.give_up()
        raise
    try:
        with trio.socket.from_stdlib_socket(listener) as listening:
            task_status.started()
            await _accept(listening, converse, tell)
    finally:
        with trio.move_on_after(_LEAVING_SECONDS, shield=True):
            await in_thread(_remove, binding.path, abandon_on_cancel=True)


class _Binding:
    """The making of a socket, which may be given up while a thread does it."""

    def __init__(self, directory: Path, name: str) -> None:
        self.path = directory.absolute() / name
        self._lock = threading.Lock()
        self._is_over = False
        self._listener: socket.socket | None = None

    def run(self) -> socket.socket:
        """Returns the listening socket, in place of an older one; it is closed if nobody wants it any more. Raises
        OSError."""
        _remove(self.path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with address(self.path.parent, self.path.name) as path:
                listener.bind(path)
                os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
            listener.listen(16)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        with self._lock:
            self._listener = listener
            if self._is_over:
                self._close()
        return listener

    def give_up(self) -> None:
        """Has the socket closed, now or when it is made."""
        with self._lock:
            self._is_over = True
            self._close()

    def _close(self) -> None:
        """A file that stays behind is that of nobody: the next process removes it."""
        if self._listener is not None:
            self._listener.close()


@contextmanager
def address(directory: Path, name: str) -> Iterator[str]:
    """Yields the socket's path, or a shorter alias where it would be longer than an address may be."""
    path = directory.absolute() / name
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield str(path)
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    with suppress(OSError):  # `bind` says what is wrong
        os.unlink(path)


async def _accept(listener: trio.socket.SocketType, converse: Converse, tell: Tell) -> None:
    async with trio.open_nursery() as nursery:
        while True:
            try:
                peer, _ = await listener.accept()
            except OSError as error:  # no descriptors left, or the peer has disconnected
                if is_short(error):
                    tell(in_words(error))
                await trio.sleep(_PAUSE_SECONDS)
                continue
            if is_reserved(peer.fileno()):
                peer.close()
                tell(shortage())
            else:
                tell(None)
                nursery.start_soon(_hear, trio.SocketStream(peer), converse)


async def _hear(stream: trio.SocketStream, converse: Converse) -> None:
    async with stream:
        if _is_allowed(stream):
            await converse(stream)


def _is_allowed(stream: trio.SocketStream) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    raw = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, _gid = struct.unpack("3i", raw)
    return uid in (0, os.geteuid())
