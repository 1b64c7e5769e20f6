"""Listening sockets belong to the process, not to an input, so a port stays open while inputs take turns on it."""

from __future__ import annotations

import socket

from shipper.errors import StartFailed

BACKLOG = 1024


class Listeners:
    """Sockets by the address that was asked for; port 0 is one free port for each name."""

    def __init__(self) -> None:
        self._sockets: dict[tuple[str, int, str], socket.socket] = {}

    def get(self, name: str, host: str, port: int) -> socket.socket:
        """The listening socket of an address. Raises StartFailed."""
        key = (host, port, name if port == 0 else "")
        if key not in self._sockets:
            self._sockets[key] = _listen(host, port)
        return self._sockets[key]

    def keep(self, ports: set[tuple[str, int]]) -> None:
        """Close the sockets of all other addresses."""
        for key in [key for key in self._sockets if key[:2] not in ports]:
            self._sockets.pop(key).close()

    def close(self) -> None:
        self.keep(set())


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
