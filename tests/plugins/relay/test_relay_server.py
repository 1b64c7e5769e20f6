"""What other threads ask of the server of edges."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from aiohttp import web

from shipper_plugins.relay.principal.server import RelayServer


class Lost(web.RequestHandler):
    """A connection that is lost as soon as it was looked at."""

    def __init__(self) -> None:
        self.looks = 0

    def __hash__(self) -> int:
        return id(self)

    @property
    def transport(self) -> object:  # type: ignore[override]
        self.looks += 1
        return SimpleNamespace(is_closing=lambda: False) if self.looks == 1 else None


def test_a_connection_may_be_lost_while_another_thread_asks_for_it() -> None:
    server = cast(RelayServer, SimpleNamespace(_open={"berlin": {Lost()}}))

    assert RelayServer.is_connected(server, "berlin")
    assert not RelayServer.is_connected(server, "berlin")
    assert not RelayServer.is_connected(server, "paris")
