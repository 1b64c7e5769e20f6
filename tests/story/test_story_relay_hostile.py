"""An edge that is hostile or broken, at a real principal: it costs memory that is bounded, and another edge nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import trio

from shipper.plugin import Batch
from shipper.plugin.state import Version, digest_of
from shipper.sdk.origins import Origin
from shipper.sdk.state import place_of
from shipper_plugins.relay import frames, state
from shipper_plugins.relay.frames import Generation, Head, Hello, part_of
from shipper_plugins.relay.state import StateHead
from tests.plugins.relay.pair import entry as queued
from tests.story.driver import Sidecar, policy
from tests.story.test_story_relay import DELIVERED, Relay, empty, open_relay, running
from tests.story.world import key, secret

JSON = "application/json"
MIB = 1 << 20
MOST_GROWTH = 160 * MIB
"""What all bodies may hold together is 128 MiB; the rest is for connections, and for what the allocator keeps."""


NAMES = {"berlin": "k1", "paris": "paris"}
"""The edges, and the credential of each."""
ORIGIN = Origin(b"p" * 32)
"""That of all events that a hostile edge sends; it can prove it for itself."""


def entry(place: int, *numbers: int) -> Batch:
    return queued(place, *numbers, origin=ORIGIN.id)


class Reply(NamedTuple):
    status: int
    said: Any

    @property
    def code(self) -> str:
        return str(self.said["error"]["code"])


class Hostile:
    """Who has the credential of paris, and speaks as it likes."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def ask(self, what: str, body: bytes, kind: str = JSON, *, who: str = "paris") -> Reply:
        """One request on a connection of its own."""
        answer = b""
        async with await self.connected() as stream:
            await stream.send_all(self.head(what, len(body), kind, who=who) + body)
            with trio.fail_after(60):
                async for block in stream:
                    answer += block
        return Reply(int(answer.split()[1]), json.loads(answer.partition(b"\r\n\r\n")[2]))

    async def session(self, *, link: int = 1, instance: str = "1" * 32, who: str = "paris") -> Generation:
        reply = await self.ask("relay/session", msgspec.json.encode(Hello(1, instance, link)), who=who)
        assert reply.status == 200, reply
        return Generation(*reply.said["generation"])

    async def post(self, generation: Generation, *batches: Batch, low: int = 0, who: str = "paris") -> Reply:
        edge = next(name for name, id in NAMES.items() if id == who)
        parts = [part_of(batch, ORIGIN.proof(edge)) for batch in batches]
        body = b"".join(frames.encode(Head(generation, 1, low, parts=len(parts)), parts))
        return await self.ask("relay/parts", body, frames.MEDIA_TYPE, who=who)

    async def keep(self, generation: Generation, versions: Sequence[tuple[Version, bytes]], low: int = 0) -> Reply:
        batch = Batch.documents([document for _, document in versions])
        batch = batch.with_columns(versions=tuple([version for version, _ in versions]))
        body = b"".join(state.encode(StateHead(generation, 1, low), batch, MIB))
        return await self.ask("relay/versions", body, state.MEDIA_TYPE)

    async def connected(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self._port)

    @staticmethod
    def head(what: str, length: int, kind: str = JSON, *, who: str = "paris", more: str = "") -> bytes:
        shown = key(who).authorization()
        return (
            f"POST /v1/{what} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {shown}\r\nContent-Type: {kind}\r\n"
            f"{more}Content-Length: {length}\r\nConnection: close\r\n\r\n"
        ).encode()


class Peers(NamedTuple):
    relay: Relay
    door: Sidecar
    hostile: Hostile

    async def offer(self, revision: int = 1, mode: str = "acknowledge: stored") -> None:
        """A policy for berlin and paris, each with keyed state."""
        edges = {name: {"credentials": [id], "collections": ["things"]} for name, id in NAMES.items()}
        where = f'address: "127.0.0.1:{self.relay.ports[0]}", {mode}'
        inputs = f"  edges: {{type: relay, {where}, edges: {json.dumps(edges)}}}\n"
        text = policy(url=self.relay.world.destination.url, credential="backend", inputs=inputs)
        await self.door.policy(revision, text, {id: secret(id) for id in (*NAMES.values(), "backend")})
        await self.door.ack(revision, "active")


@asynccontextmanager
async def peers(directory: Path) -> AsyncIterator[Peers]:
    async with open_relay(directory) as relay, running(relay.principal_state) as door:
        made = Peers(relay, door, Hostile(relay.ports[0]))
        await made.offer()
        yield made


async def honest(made: Peers, edge: Sidecar, lines: int = 300) -> None:
    """Berlin ships as if nothing was."""
    made.relay.world.write(lines)
    await made.relay.delivered()
    await empty(edge)


def memory(sidecar: Sidecar) -> int:
    """The resident memory of its process."""
    fields = Path(f"/proc/{sidecar.process.pid}/statm").read_text().split()
    return int(fields[1]) * 4096


def version(name: str, place: int, document: bytes, owner: str = "") -> tuple[Version, bytes]:
    return Version(owner, "things", name, place, digest_of(document), False), document


# -- memory ------------------------------------------------------------------------------------------------------------


async def half_a_body(made: Peers, who: str = "paris") -> None:
    """Of twelve megabytes, six come."""
    with suppress(OSError, trio.BrokenResourceError):
        async with await made.hostile.connected() as stream:
            await stream.send_all(Hostile.head("relay/parts", 12 * MIB, frames.MEDIA_TYPE, who=who))
            await stream.send_all(bytes(6 * MIB))
            await trio.sleep_forever()


async def half_a_body_of_nobody(made: Peers) -> None:
    await half_a_body(made, "nobody")


async def a_huge_head(made: Peers) -> None:
    with suppress(OSError, trio.BrokenResourceError):
        async with await made.hostile.connected() as stream:
            await stream.send_all(b"POST /v1/relay/parts HTTP/1.1\r\n")
            for number in range(6 * 1024):
                await stream.send_all(b"X-%d: %b\r\n" % (number, b"x" * 1000))
            await trio.sleep_forever()


async def a_slow_reader(made: Peers) -> None:
    """Asks and asks, and reads no answer."""
    with suppress(OSError, trio.BrokenResourceError):
        async with await made.hostile.connected() as stream:
            while True:
                await stream.send_all(Hostile.head("relay/heartbeat", 2).replace(b"Connection: close\r\n", b"") + b"{}")


@pytest.mark.executed
async def test_t117_9_hostile_peers_cost_bounded_memory_and_another_edge_nothing(tmp_path: Path) -> None:
    async with peers(tmp_path) as made, running(made.relay.edge_state) as edge:
        await made.relay.offer_edge(edge, 1, "k1")
        await honest(made, edge)
        before = memory(made.door)
        for attack in (half_a_body, half_a_body_of_nobody, a_huge_head, a_slow_reader):
            async with trio.open_nursery() as nursery:
                for _ in range(60):
                    nursery.start_soon(attack, made)
                for _ in range(3):
                    await honest(made, edge)
                grown = memory(made.door) - before
                nursery.cancel_scope.cancel()
            observed = await made.door.observe()

            assert grown < MOST_GROWTH, attack.__name__
            assert {unit["state"] for unit in observed["units"] if unit["kind"] == "output"} == {"HEALTHY"}


@pytest.mark.executed
async def test_a_flood_of_sessions_ends_no_session_of_another_edge(tmp_path: Path) -> None:
    async with peers(tmp_path) as made, running(made.relay.edge_state) as edge:
        await made.relay.offer_edge(edge, 1, "k1")
        await honest(made, edge)
        before = memory(made.door)
        for number in range(300):
            await made.hostile.session(link=number)
        await honest(made, edge)
        grown = memory(made.door) - before

    assert grown < 32 * MIB


# -- lies --------------------------------------------------------------------------------------------------------------


async def test_a_digest_of_other_events_and_the_identity_of_others_are_refused_and_change_nothing(
    tmp_path: Path,
) -> None:
    async with peers(tmp_path) as made:
        session = await made.hostile.session()
        good = part_of(entry(1, 1, 2, 3), ORIGIN.proof("paris"))
        bad = good._replace(digest=bytes(32))
        body = b"".join(frames.encode(Head(session, 1, 0, parts=1), [bad]))
        refused = await made.hostile.ask("relay/parts", body, frames.MEDIA_TYPE)
        taken = await made.hostile.post(session, entry(1, 1, 2, 3))
        conflict = await made.hostile.post(session, entry(1, 4, 5, 6))
        await made.relay.world.destination.wait_for(3)
        numbers = sorted(event["n"] for event in made.relay.world.destination.events)

    assert (refused.status, refused.code) == (400, "bad_request")
    assert (taken.status, taken.said) == (200, {"confirmed": [1]})
    assert (conflict.status, conflict.code) == (409, "identity_conflict")
    assert numbers == [1, 2, 3]


async def test_an_edge_under_the_credential_of_another_is_that_other_one_and_sessions_are_its_own(
    tmp_path: Path,
) -> None:
    async with peers(tmp_path) as made:
        berlin = await made.hostile.session(who="k1")
        stolen = await made.hostile.post(berlin, entry(1, 1))
        own = await made.hostile.session()
        kept = await made.hostile.keep(own, [version("a", place_of(5, 1), b'{"n":1}', owner="../berlin")])
        below = await made.hostile.keep(own, [version("b", place_of(5, 1), b'{"n":1}')])
        await made.relay.world.destination.wait_for(2)
        found = {event["shipper"]["owner"] for event in made.relay.world.destination.events}

    assert (stolen.status, stolen.code) == (409, "session_over")
    assert (kept.status, below.status) == (200, 200)
    assert all(owner == "paris" or owner.startswith("paris/") for owner in found)


async def test_a_lie_about_the_low_water_mark_hurts_the_liar_alone(tmp_path: Path) -> None:
    async with peers(tmp_path) as made, running(made.relay.edge_state) as edge:
        await made.offer(2, DELIVERED)
        made.relay.world.revoke("backend")
        await made.relay.offer_edge(edge, 1, "k1")
        made.relay.world.write(100)
        await made.door.holds(100)
        session = await made.hostile.session()
        first = await made.hostile.post(session, entry(1, 1))
        lied = await made.hostile.post(session, entry(2**63 - 1, 2), low=2**63 - 1)
        below = await made.hostile.post(session, entry(2, 2), low=0)
        head = {"generation": [session.instance, session.counter], "link": 1, "low": -1}
        negative = await made.hostile.ask("relay/heartbeat", json.dumps(head).encode())
        made.relay.world.grant("backend")
        await made.relay.world.destination.wait_for(102)
        await empty(edge)
        numbers = [event["message"] for event in made.relay.world.destination.events if "message" in event]

    assert (first.status, lied.status) == (200, 200)
    assert (below.status, below.code) == (409, "session_over")
    assert negative.status == 400
    assert len(set(numbers)) == len(numbers) == 100


async def test_a_place_near_the_largest_leaves_places_for_all_others(tmp_path: Path) -> None:
    highest = state.HIGHEST_PLACE - 1
    async with peers(tmp_path) as made:
        session = await made.hostile.session()
        too_high = await made.hostile.keep(session, [version("a", highest + 1, b'{"n":1}')])
        kept = await made.hostile.keep(session, [version("a", highest, b'{"n":1}')])
        await made.door.stop()
    async with running(made.relay.principal_state) as door:
        made = Peers(made.relay, door, made.hostile)
        async with open_relay(tmp_path) as other:  # its backend is a new one
            made.relay.world = other.world
            await made.offer(2)
            puts = [await put(made, "a", n) for n in range(3)]

    assert (too_high.status, too_high.code) == (400, "bad_request")
    assert (kept.status, kept.said) == (200, {"others": []})
    assert [status for status, _ in puts] == [200] * 3
    assert highest < puts[0][1] < puts[1][1] < puts[2][1] < 2**63


async def put(made: Peers, name: str, n: int) -> tuple[int, int]:
    body = b'{"n":%d}' % n
    head = Hostile.head(f"state/things/{name}", len(body)).replace(b"POST", b"PUT", 1)
    answer = b""
    async with await made.hostile.connected() as stream:
        await stream.send_all(head + body)
        async for block in stream:
            answer += block
    return int(answer.split()[1]), json.loads(answer.partition(b"\r\n\r\n")[2])["place"]
