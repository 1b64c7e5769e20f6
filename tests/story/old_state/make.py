"""Makes `state.tar.xz`: a state directory with rows in every table, written by the code of an older commit.

    git worktree add ../old COMMIT; cp tests/story/old_state/make.py ../old; cd ../old
    PYTHONPATH=.:plugins python make.py state.tar.xz

The archive in this folder was written by the code of commit 3ddde0f.
"""

from __future__ import annotations

import base64
import sys
import tarfile
import tempfile
from pathlib import Path

import trio

from tests.story.driver import launched
from tests.story.world import open_world

PORT = 19283
STATE_KEY = {"id": "k1", "key": base64.b64encode(bytes(range(32))).decode()}
DELIVERED, UNDER_A, UNDER_B = 3, 5, 4


async def main(archive: str) -> None:
    directory = Path(tempfile.mkdtemp())
    async with open_world(directory, "a", "b") as world:
        destination = world.destination
        await destination.stop()
        destination._port = PORT
        await destination.start()
        async with launched(world.state) as sidecar:
            await sidecar.hello(state_keys=[STATE_KEY])
            world.write(DELIVERED)
            await world.settled(sidecar, 1, "a")
            await world.delivered()
            await destination.stop()
            world.write(UNDER_A)
            await sidecar.state(lambda m: m["queue"]["events"] == UNDER_A)
            await world.offer(sidecar, 2, "b")
            await sidecar.ack(2, "active")
            world.write(UNDER_B)
            await sidecar.state(lambda m: m["queue"]["events"] == UNDER_A + UNDER_B)
            await sidecar.kill()
        with tarfile.open(archive, "w:xz") as tar:
            tar.add(world.state, "state")


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
