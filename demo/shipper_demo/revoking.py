"""How a destination hears that `on_release` wants a key to be revoked: a socket for the command `revoke`."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import trio

from shipper_demo import revoke

_LONGEST = 1024


@dataclass(frozen=True, slots=True)
class Wish:
    """That a key be revoked."""

    key: str
    """Its name."""
    token: int = 0
    """The fencing token; 0 of a host that is in no fleet."""
    by: str = ""
    """The member that asks."""

    @classmethod
    def parse(cls, line: str) -> Wish:
        """What the command has sent."""
        key, token, *by = line.split()
        return cls(key, int(token), *by)


@asynccontextmanager
async def heard(asked: Callable[[Wish], Awaitable[bool]]) -> AsyncIterator[Path]:
    """Yields the socket; the command succeeds once `asked` has returned True, and fails if it returned False."""

    async def serve(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):  # its host was killed
            line = bytes(await stream.receive_some(_LONGEST)).decode()
            if line and await asked(Wish.parse(line)):
                await stream.send_all(revoke.DONE)

    with tempfile.TemporaryDirectory(prefix="shipper-") as place:  # its path is short, as that of a socket must be
        listener = trio.socket.socket(trio.socket.AF_UNIX)
        await listener.bind(f"{place}/revoke")
        listener.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, [trio.SocketListener(listener)])
            yield Path(place, "revoke")
            nursery.cancel_scope.cancel("nobody asks any more")
