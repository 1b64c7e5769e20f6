"""Listening sockets belong to the process, not to an input, so a port stays open while inputs take turns on it."""

from __future__ import annotations

import socket

from shipper.errors import StartFailed

BACKLOG = 1024

Address = tuple[str, int, str]


class Listeners:
    """Sockets by the address that was asked for. Port 0 is one free port for each name."""

    def __init__(self) -> None:
        self._sockets: dict[Address, socket.socket] = {}
        self._users: dict[Address, set[int]] = {}

    def get(self, user: object, name: str, host: str, port: int) -> socket.socket:
        """The listening socket of an address; `user` holds it until `release`. Raises StartFailed."""
        address = (host, port, name if port == 0 else "")
        if address not in self._sockets:
            self._sockets[address] = _listen(host, port)
        self._users.setdefault(address, set()).add(id(user))
        return self._sockets[address]

    def release(self, user: object) -> None:
        """The user needs its sockets no longer; one that nobody holds is closed, and peers are refused."""
        for address, users in list(self._users.items()):
            users.discard(id(user))
            if not users:
                del self._users[address]
                self._sockets.pop(address).close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise StartFailed(f"cannot listen on {host}:{port}: {error.strerror or 'unknown host'}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise StartFailed(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return listener
