"""Connections of the bulk server, without what is told of them."""

import asyncio
import socket

from aiohttp import web

from shipper_plugins.inputs import bulk_connections
from shipper_plugins.inputs.bulk_connections import Connections


async def unanswered(request):
    raise AssertionError


def test_a_tale_that_outlives_the_cancel_does_not_outlive_the_server(monkeypatch):
    """`Asyncio.answer` keeps an answer that beats a cancel, and the cancel is gone then."""
    monkeypatch.setattr(bulk_connections, "MOST_NEWCOMERS", 1)

    async def main(listener):
        telling = asyncio.Event()

        async def tell(count, text):
            telling.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return

        accepting = asyncio.create_task(Connections(web.Server(unanswered), lambda: None, tell).accept(listener))
        peers = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        await telling.wait()
        accepting.cancel()
        await asyncio.wait({accepting}, timeout=20)
        for peer in peers:
            peer.close()
        return accepting.cancelled()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)

        assert asyncio.run(main(listener))
