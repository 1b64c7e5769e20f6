"""A supervisor that revokes credentials as soon as it may, over processes that die."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import trio

from tests.story.driver import Message, Sidecar, launched
from tests.story.world import World, secret

Die = Callable[[Sidecar], Awaitable[None]]


class Revoker:
    """A supervisor by the protocol's rules: it revokes released credentials to which no later policy refers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.revoked: set[str] = set()
        self.wanted = ""

    def listen(self, sidecar: Sidecar) -> None:
        sidecar.on_message = self.heed

    def heed(self, message: Message) -> None:
        released = message.get("credentials", {}).get("released", ()) if message["type"] == "ack" else ()
        if message["type"] == "released":
            released = message["credentials"]
        for id in released:
            assert id != self.wanted, f"the credential of the newest policy was released: {message}"
            self.world.revoke(id)
            self.revoked.add(id)


async def keep_writing(world: World) -> None:
    """Appends to a log without a pause."""
    while True:
        world.write(random.randrange(1, 40))
        await trio.sleep(0.02)


async def greet(sidecar: Sidecar, revoker: Revoker, held: dict[str, dict[str, str]]) -> None:
    """Sends `hello`, checks that no revoked credential is in use, and supplies the wanted ones."""
    ready = await sidecar.hello()
    assert not revoker.revoked & {*ready["credentials_in_use"], *ready["credentials_wanted"]}
    wanted = {id: held[id] for id in ready["credentials_wanted"]}
    await sidecar.send({"type": "credentials", "credentials": wanted})


async def live_shortly(
    world: World, lives: int, draw: random.Random, die: Callable[[Sidecar], Awaitable[None]]
) -> None:
    """Processes that ship a log that grows, and rotate its key, until each dies; in the end all must be delivered.

    What a process had said when it died holds: no key that was released is asked for or used again.
    """
    revoker = Revoker(world)
    held: dict[str, dict[str, str]] = {}
    revision = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_writing, world)
        for _ in range(lives):
            async with launched(world.state) as sidecar:
                revoker.listen(sidecar)
                await greet(sidecar, revoker, held)
                with trio.move_on_after(draw.uniform(0.05, 0.6)):
                    while True:
                        revision += 1
                        id = revoker.wanted = f"k{revision}"
                        held[id] = secret(id)
                        world.grant(id)
                        await world.offer(sidecar, revision, id)
                        if draw.random() < 0.7:
                            await sidecar.ack(revision, "drained", since=max(0, len(sidecar.said) - 50))
                await die(sidecar)
        nursery.cancel_scope.cancel()
    async with launched(world.state) as sidecar:
        revoker.listen(sidecar)
        await greet(sidecar, revoker, held)
        revoker.wanted = "last"
        await world.settled(sidecar, revision + 1, "last")
        await world.delivered()
        await sidecar.stop()
    assert world.destination.refused == 0
