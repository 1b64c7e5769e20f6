"""Many edges whose small parts come together, at a principal that is killed in the middle of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import trio

from shipper.plugin import Batch
from shipper.sdk.aio import Asyncio, open_asyncio
from shipper.sdk.http import open_client
from shipper.sdk.http_answer import NoAnswer, Unreachable
from shipper.sdk.origins import Origin
from shipper_plugins.relay import frames
from shipper_plugins.relay.frames import Generation, Head, Hello, Welcome
from tests.story.driver import Sidecar, policy
from tests.story.test_story_relay import Relay, empty, open_relay, running
from tests.story.world import key, secret

EDGES = [f"edge-{number}" for number in range(12)]
PARTS = 20
"""Of each edge."""


class Crowd:
    """What all edges were answered for, and whether there is a principal."""

    def __init__(self) -> None:
        self.answered: list[int] = []
        self.there = trio.Event()
        self._news = trio.Event()

    def add(self, number: int) -> None:
        self.answered.append(number)
        self._news.set()
        self._news = trio.Event()

    async def until(self, count: int) -> None:
        while len(self.answered) < count:
            await self._news.wait()


class Posting:
    """An edge that posts parts of a line each, one after the other, and sends again what was not answered."""

    def __init__(self, number: int, port: int, crowd: Crowd) -> None:
        self.name, self._port, self._crowd = EDGES[number], port, crowd
        self._first = number * PARTS
        self._origin = Origin(number.to_bytes(32))

    async def run(self, aio: Asyncio) -> None:
        shown = {"Authorization": key(self.name).authorization()}
        async with open_client(aio, shown, False, connections=1, seconds=5) as client:

            async def ask(what: str, body: bytes, kind: str) -> bytes | None:
                """The answer; None if there is none, or a refusal."""
                try:
                    where = f"http://127.0.0.1:{self._port}"
                    said = await client.post(where, f"/v1/relay/{what}", [body], headers={"Content-Type": kind})
                except (NoAnswer, Unreachable):
                    return None
                return bytes(said.body) if said.status == 200 else None

            generation: Generation | None = None
            for place in range(1, PARTS + 1):
                while True:
                    await self._crowd.there.wait()
                    if generation is None:
                        hello = msgspec.json.encode(Hello(frames.PROTOCOL, f"{self._first:032x}", 1))
                        begun = await ask("session", hello, "application/json")
                        generation = None if begun is None else frames.read(begun, Welcome).generation
                    elif await ask("parts", self._part(generation, place), frames.MEDIA_TYPE) is not None:
                        break
                    else:
                        generation = None
                self._crowd.add(self._first + place - 1)

    def _part(self, generation: Generation, place: int) -> bytes:
        line = b"event %d\n" % (self._first + place - 1)
        batch = replace(Batch.lines(line, offset=0, shared={}), origin=self._origin.id, seq=place, place=place)
        part = frames.part_of(batch, self._origin.proof(self.name))
        return b"".join(frames.encode(Head(generation, 1, low=place, parts=1), [part]))


async def offer(relay: Relay, door: Sidecar, revision: int) -> None:
    edges = {name: {"credentials": [name]} for name in EDGES}
    inputs = f'  edges: {{type: relay, address: "127.0.0.1:{relay.ports[0]}", edges: {json.dumps(edges)}}}\n'
    text = policy(url=relay.world.destination.url, credential="backend", inputs=inputs)
    await door.policy(revision, text, {id: secret(id) for id in (*EDGES, "backend")})
    await door.ack(revision, "active")


async def test_what_many_edges_were_answered_for_small_parts_is_there_once_whenever_the_principal_is_killed(
    tmp_path: Path,
) -> None:
    crowd = Crowd()
    async with open_relay(tmp_path) as relay, open_asyncio() as aio, trio.open_nursery() as nursery:
        for number in range(len(EDGES)):
            nursery.start_soon(Posting(number, relay.ports[0], crowd).run, aio)
        for revision in range(1, 3):
            async with running(relay.principal_state) as door:
                await offer(relay, door, revision)
                crowd.there.set()
                await crowd.until(len(crowd.answered) + 40)
                crowd.there = trio.Event()
                await door.kill()
        async with running(relay.principal_state) as door:
            await offer(relay, door, 3)
            crowd.there.set()
            await crowd.until(len(EDGES) * PARTS)
            await empty(door)
            await door.stop()

        assert relay.world.numbers() == sorted(crowd.answered) == list(range(len(EDGES) * PARTS))
