"""What a kubelet is answered, with a sidecar and without one."""

from __future__ import annotations

import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
import trio

from shipper.kubernetes.probes import answering
from shipper.sdk.errors import OptionError
from tests.status.documents import SERVED

PATIENCE = 60.0


async def got(address: str, path: str, host: str = "") -> tuple[int, Any]:
    status, body = await read(address, path, host)
    return status, json.loads(body)


async def read(address: str, path: str, host: str = "") -> tuple[int, bytes]:
    def ask() -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection(address, timeout=PATIENCE)) as connection:
            connection.request("GET", path, headers={"Host": host or address})
            answer = connection.getresponse()
            return answer.status, answer.read()

    return await trio.to_thread.run_sync(ask)


@asynccontextmanager
async def sidecar(body: bytes) -> AsyncIterator[str]:
    """A server that gives one answer to everything."""

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            await stream.send_all(head.encode() + body)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, answer, 0)
        address, port = listeners[0].socket.getsockname()[:2]
        yield f"127.0.0.1:{port}" if address == "0.0.0.0" else f"[::1]:{port}"
        nursery.cancel_scope.cancel()


async def test_a_supervisor_without_a_sidecar_lives_and_is_not_ready() -> None:
    """A kubelet must not restart the Pod because no policy selects it yet."""
    async with answering("127.0.0.1:0", lambda: None) as address:
        assert address is not None
        alive, ready = await got(address, "/livez"), await got(address, "/readyz")

    assert alive == (200, {"alive": True, "reason": ""})
    assert ready[0] == 503
    assert "no policy selects this member yet" in ready[1]["reason"]


async def test_figures_need_a_sidecar() -> None:
    async with answering("127.0.0.1:0", lambda: None) as address:
        assert address is not None
        status, body = await got(address, "/status")

    assert (status, body["code"]) == (503, "sidecar_unreachable")


async def test_a_sidecar_answers_for_itself() -> None:
    async with sidecar(b'{"from": "sidecar"}') as own, answering("127.0.0.1:0", lambda: own) as address:
        assert address is not None
        answers = [await got(address, path) for path in ("/livez", "/readyz", "/metrics", "/status")]

    assert answers == [(200, {"from": "sidecar"})] * 4


async def test_a_kubelet_asks_by_the_address_of_the_pod() -> None:
    """Which is an IP address; another name could be that of a page in somebody's browser."""
    async with answering("0.0.0.0:0", lambda: None) as address:
        assert address is not None
        here = address.replace("0.0.0.0", "127.0.0.1")

        assert (await got(here, "/livez", "10.1.2.3:6780"))[0] == 200
        assert (await got(here, "/livez", "evil.example.com"))[0] == 421


async def test_an_unknown_path_is_said() -> None:
    async with answering("127.0.0.1:0", lambda: None) as address:
        assert address is not None
        status, body = await got(address, "/other")

    assert (status, body["code"]) == (404, "not_found")


async def test_a_member_has_a_page_of_its_sidecar_and_one_without_it() -> None:
    async with (
        sidecar(json.dumps(SERVED).encode()) as served,
        answering("127.0.0.1:0", lambda: served) as address,
        answering("127.0.0.1:0", lambda: None) as alone,
    ):
        assert address is not None
        assert alone is not None
        found, without, style = await read(address, "/"), await read(alone, "/"), await read(alone, "/page.css")

    assert (found[0], without[0], style[0]) == (200, 200, 200)
    assert b"drained: waits for 812 events" in found[1]
    assert b"nothing is known of the sidecar" in without[1]


async def test_nothing_is_listened_on_without_an_address() -> None:
    async with answering(None, lambda: None) as address:
        assert address is None


async def test_an_address_in_use_is_none_and_a_wrong_one_is_an_error() -> None:
    async with answering("127.0.0.1:0", lambda: None) as address, answering(address, lambda: None) as second:
        assert second is None
    with pytest.raises(OptionError):
        async with answering("localhost", lambda: None):
            raise AssertionError


async def test_an_answer_without_a_sidecar_leaves_the_connection_open() -> None:
    async with answering("127.0.0.1:0", lambda: None) as address:
        assert address is not None

        def twice() -> list[int]:
            found = []
            with closing(http.client.HTTPConnection(address, timeout=PATIENCE)) as connection:
                for path in ("/livez", "/readyz"):
                    connection.request("GET", path)
                    answer = connection.getresponse()
                    answer.read()
                    found.append(answer.status)
            return found

        assert await trio.to_thread.run_sync(twice) == [200, 503]
