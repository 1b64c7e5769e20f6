"""What `shipper status` shows: asked for over a unix socket in the state directory, `DIR/supervise.sock`.

One JSON object for each connection, then its end. The socket has mode 0600, and the peer must be this user or root.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import trio

from shipper.errors import ShipperError

NAME = "supervise.sock"
_LARGEST = 16 << 20
_SECONDS = 5.0

Status: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]


class NotRunning(ShipperError):
    """No supervisor answers for this state directory."""


async def serve(directory: Path, status: Status) -> None:
    """Answer until cancelled; the caller owns the directory, so what lies there is left from an earlier process."""
    with _address(directory) as path, trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        _remove(path)
        await listener.bind(path)
        os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
        listener.listen(16)
        try:
            await _accept(listener, status)
        finally:
            _remove(path)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


async def _accept(listener: trio.socket.SocketType, status: Status) -> None:
    async with trio.open_nursery() as nursery:
        while True:
            peer, _ = await listener.accept()
            nursery.start_soon(_answer, trio.SocketStream(peer), status)


async def _answer(stream: trio.SocketStream, status: Status) -> None:
    with trio.move_on_after(_SECONDS):
        async with stream:
            if _allowed(stream):
                try:
                    await stream.send_all(msgspec.json.encode(await status()))
                except trio.BrokenResourceError:
                    return


def _allowed(stream: trio.SocketStream) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    raw = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, _gid = struct.unpack("3i", raw)
    return uid in (0, os.geteuid())


def ask(directory: Path) -> dict[str, Any]:
    """What the supervisor of this directory says; raises NotRunning, and PermissionError for another user's."""
    try:
        with _address(directory) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(_SECONDS)
            peer.connect(path)
            raw = _all(peer)
    except (FileNotFoundError, ConnectionError):
        raise NotRunning(f"no `shipper supervise` runs with the state directory {directory}") from None
    except TimeoutError:
        raise NotRunning(f"the supervisor of {directory} does not answer") from None
    if not raw:
        raise NotRunning(f"the supervisor of {directory} belongs to another user")
    answer: dict[str, Any] = msgspec.json.decode(raw)
    return answer


def _all(peer: socket.socket) -> bytes:
    raw = bytearray()
    while (chunk := peer.recv(65536)) and len(raw) < _LARGEST:
        raw += chunk
    return bytes(raw)


@contextmanager
def _address(directory: Path) -> Iterator[str]:
    """The socket's path, by a detour where it would be longer than the 107 bytes that an address holds."""
    path = directory.absolute() / NAME
    if len(os.fsencode(path)) <= 107:
        yield str(path)
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)
