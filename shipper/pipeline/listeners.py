"""Listening sockets belong to the process, not to an input, so a port stays open while inputs take turns on it."""

from __future__ import annotations

import socket

from shipper.sdk.codes import Code, of_os_error
from shipper.sdk.descriptors import in_words
from shipper.sdk.errors import StartFailed
from shipper.sdk.resolve import AddressInfo, resolve

BACKLOG = 1024

Address = tuple[str, int, str]


class Listeners:
    """Sockets by the address that was asked for. Port 0 is one free port for each name."""

    def __init__(self) -> None:
        self._sockets: dict[Address, socket.socket] = {}
        self._users: dict[Address, set[int]] = {}

    async def get(self, user: object, name: str, host: str, port: int) -> socket.socket:
        """The listening socket of an address; `user` holds it until `release`. Raises StartFailed."""
        address = (host, port, name if port == 0 else "")
        if address not in self._sockets:
            found = await _resolved(host, port)
            if address not in self._sockets:
                self._sockets[address] = _listen(host, port, found)
        self._users.setdefault(address, set()).add(id(user))
        return self._sockets[address]

    def release(self, user: object) -> None:
        """The user needs its sockets no longer; one that nobody holds is closed, and peers are refused."""
        for address, users in list(self._users.items()):
            users.discard(id(user))
            if not users:
                del self._users[address]
                self._sockets.pop(address).close()


async def _resolved(host: str, port: int) -> AddressInfo:
    try:
        return (await resolve(host, port))[0]
    except OSError as error:
        text = f"cannot listen on {host}:{port}: {error.strerror or 'unknown host'}"
        raise StartFailed(text, code=Code.ADDRESS_UNAVAILABLE) from None


def _listen(host: str, port: int, found: AddressInfo) -> socket.socket:
    family, kind, protocol, _, address = found
    try:
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _failed(host, port, error) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _failed(host, port, error) from None
    return listener


def _failed(host: str, port: int, error: OSError) -> StartFailed:
    code = of_os_error(error, Code.ADDRESS_UNAVAILABLE)
    return StartFailed(f"cannot listen on {host}:{port}: {in_words(error)}", code=code)
