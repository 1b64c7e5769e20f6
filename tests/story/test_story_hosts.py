"""Several hosts of one destination: the real process leaves out the one that answers badly."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.raw_http import http, raw_server, read_request
from tests.story.driver import launched
from tests.story.world import open_world, secret


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_host_that_answers_503_gets_one_request_until_a_probe_succeeds(tmp_path: Path, is_first: bool) -> None:
    asked: list[bytes] = []

    async def talk(stream: trio.SocketStream) -> None:
        while True:
            asked.append((await read_request(stream)).partition(b" ")[0])
            await stream.send_all(http(b"", "503 Service Unavailable"))

    async with (
        open_world(tmp_path, "a") as world,
        raw_server(talk) as bad,
        launched(world.state) as sidecar,
    ):
        hosts = [bad, world.destination.url] if is_first else [world.destination.url, bad]
        options = f"hosts: [{', '.join(hosts)}], workers: 1, credential: a, backoff: {{first: 50ms, longest: 100ms}}"
        await sidecar.hello()
        text = world.text("a", outputs=f"  main: {{type: elasticsearch, {options}}}\n")
        await sidecar.policy(1, text, {"a": secret("a")})
        for _ in range(10):
            world.write()
            await world.delivered()
        assert asked.count(b"POST") == 1
        world.check()
