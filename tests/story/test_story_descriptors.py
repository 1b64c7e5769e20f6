"""The real process with few file descriptors, while strangers open as many connections as possible."""

from __future__ import annotations

import resource
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from shipper_demo.ports import free_port
from tests.story.driver import launched
from tests.story.world import open_world

FEW = 64


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits another process")
async def test_a_process_whose_descriptors_strangers_take_goes_on_and_says_so(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world, launched(world.state) as sidecar:
        resource.prlimit(sidecar.process.pid, resource.RLIMIT_NOFILE, (FEW, FEW))
        await sidecar.hello()
        port = free_port()
        inputs = f'  access: {{type: file, paths: ["{world.log}"]}}\n'
        inputs += f'  strange: {{type: elasticsearch, address: "127.0.0.1:{port}"}}\n'
        await world.settled(sidecar, 1, "a", inputs=inputs)
        async with AsyncExitStack() as strangers:
            for _ in range(2 * FEW):
                await strangers.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
            await sidecar.state(lambda m: "Too many open files: the limit is 64" in m["message"])
            for revision in (2, 3, 4):
                await world.settled(sidecar, revision, f"k{revision}", inputs=inputs)
            world.write(100)
            await world.delivered()
        world.write(100)
        await world.delivered()
        await sidecar.stop()
