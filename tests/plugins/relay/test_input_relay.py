"""The door of a relay over raw HTTP: who may enter, what is refused and how, and that sessions end for good."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pytest
import trio
import trustme

from shipper.plugin import (
    API_KEY,
    Asyncio,
    BadOption,
    Batch,
    ClientTls,
    Credential,
    CredentialId,
    Held,
    Later,
    Material,
    PluginFault,
)
from shipper.sdk.http import Client, open_client
from shipper.sdk.origins import Origin
from shipper.sdk.units import Size
from shipper.testing import RecordingInputContext
from shipper_plugins.relay import frames
from shipper_plugins.relay.frames import Generation, Head, Hello, Poll, part_of
from shipper_plugins.relay.input import Edge, RelayInput, RelayTls
from shipper_plugins.relay.principal import server
from tests.plugins.relay import pair
from tests.plugins.relay.pair import EDGES, KEYS, Principal, entry, principal, without

INSTANCE = "1" * 32
JSON = "application/json"


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    said: Any

    @property
    def code(self) -> str:
        return str(self.said["error"]["code"])


async def ask(door: Principal, what: str, body: bytes, *, headers: str = "", **how: Any) -> Reply:
    """One request on a connection of its own."""
    answer = b""
    async with await door.connect() as stream:
        await stream.send_all(request(what, body, headers=f"{headers}Connection: close\r\n", **how))
        with trio.fail_after(30):
            while not _is_whole(answer) and (block := await stream.receive_some()):
                answer += bytes(block)
    top, _, rest = answer.partition(b"\r\n\r\n")
    first, *lines = top.decode().split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Reply(int(first.split()[1]), fields, json.loads(rest))


def request(
    what: str,
    body: bytes,
    *,
    key: str | None = "k1",
    kind: str = JSON,
    method: str = "POST",
    headers: str = "",
    declared: int | None = None,
) -> bytes:
    """As it is sent."""
    shown = f"Authorization: {KEYS[CredentialId(key)].authorization()}\r\n" if key else ""
    length = len(body) if declared is None else declared
    path = what if what.startswith("/") else f"/v1/relay/{what}"
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{shown}{headers}Content-Type: {kind}\r\n"
    return f"{head}Content-Length: {length}\r\n\r\n".encode() + body


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *([0-9]+)", head)
    return bool(end) and length is not None and len(body) >= int(length[1])


async def hello(door: Principal, *, link: int = 1, instance: str = INSTANCE, key: str = "k1") -> Generation:
    reply = await ask(door, "session", msgspec.json.encode(Hello(1, instance, link)), key=key)
    assert reply.status == 200, reply
    return Generation(*reply.said["generation"])


def parts(generation: Generation, *batches: Batch, link: int = 1, low: int = 0) -> bytes:
    made = [part_of(batch) for batch in batches]
    return b"".join(frames.encode(Head(generation, link, low, parts=len(made)), made))


async def post(door: Principal, body: bytes, **how: Any) -> Reply:
    return await ask(door, "parts", body, **{"kind": frames.MEDIA_TYPE, **how})


# -- who may enter -----------------------------------------------------------------------------------------------------


async def test_a_refusal_says_what_is_wrong(aio: Asyncio) -> None:
    for what, how, status, code in [
        ("session", {"key": None}, 401, "unauthorized"),
        ("session", {"key": "no"}, 401, "unauthorized"),
        ("parts", {"key": "no"}, 401, "unauthorized"),
        ("elsewhere", {}, 404, "not_found"),
        ("session", {"method": "PUT"}, 405, "method_not_allowed"),
        ("session", {"kind": "text/plain"}, 415, "media_type"),
        ("parts", {"kind": JSON}, 415, "media_type"),
        ("session", {"headers": "Content-Encoding: gzip\r\n"}, 415, "media_type"),
        ("session", {}, 400, "bad_request"),
        ("heartbeat", {}, 400, "bad_request"),
        ("parts", {"kind": frames.MEDIA_TYPE}, 400, "bad_request"),
        ("session", {"declared": 1 << 40}, 413, "too_large"),
    ]:
        async with principal(aio) as door:
            reply = await ask(door, what, b"[]", **how)

            assert (reply.status, reply.code) == (status, code)
            assert door.numbers == []


async def test_another_protocol_is_refused(aio: Asyncio) -> None:
    async with principal(aio) as door:
        reply = await ask(door, "session", msgspec.json.encode(Hello(2, INSTANCE, 1)))

        assert (reply.status, reply.code) == (400, "protocol")


async def test_a_withdrawn_credential_opens_nothing(aio: Asyncio) -> None:
    async with principal(aio, credentials=without("k1")) as door:
        with pytest.raises(AssertionError, match="401"):
            await hello(door)
        await hello(door, key="k2")


async def test_an_edge_has_so_many_connections_and_others_have_theirs(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_OF_ONE", 1)
    async with principal(aio) as door, pair.edge(aio, door.url) as sender:
        await sender.send(entry(1))
        reply = await ask(door, "session", msgspec.json.encode(Hello(1, INSTANCE, 1)))
        await hello(door, key="other")

        assert (reply.status, reply.headers["retry-after"]) == (429, "1")


async def test_a_connection_of_an_edge_counts_whatever_it_asks_for(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_OF_ONE", 1)
    async with principal(aio) as door, await door.connect() as idle:
        await idle.send_all(request("/", b"", method="GET"))
        assert b" 404 " in await idle.receive_some()
        assert (await ask(door, "elsewhere", b"")).status == 429
        assert (await ask(door, "elsewhere", b"", key="other")).status == 404


@pytest.fixture
def little_memory_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_HELD_BY_ONE", 100_000)


@asynccontextmanager
async def full(door: Principal, session: Generation) -> AsyncIterator[Reply]:
    """While an edge holds as much as it may, in a body that does not end; and what it is told of further parts."""
    async with await door.connect() as slow:
        await slow.send_all(request("parts", bytes(99_990), kind=frames.MEDIA_TYPE, declared=100_000))
        with trio.fail_after(30):
            while (busy := await post(door, parts(session, entry(1)))).status != 429:
                await trio.lowlevel.checkpoint()
        yield busy


@pytest.mark.usefixtures("little_memory_for_one")
async def test_what_one_edge_holds_leaves_room_for_the_others(aio: Asyncio) -> None:
    async with principal(aio) as door:
        own, others = await hello(door), await hello(door, key="other")
        async with full(door, own) as busy:
            beside = await post(door, parts(others, entry(2)), key="other")

        assert (busy.code, beside.status, door.numbers[-1]) == ("busy", 200, 2)


@pytest.mark.usefixtures("little_memory_for_one")
async def test_heartbeats_and_questions_for_answers_wait_for_no_memory(aio: Asyncio) -> None:
    async with principal(aio) as door:
        own = await hello(door)
        async with full(door, own):
            replies = [
                await ask(door, "heartbeat", msgspec.json.encode(Head(own, 1, 0))),
                await ask(door, "answers", msgspec.json.encode(Poll(Head(own, 1, 0), 0, 0.0))),
                await ask(door, "session", msgspec.json.encode(Hello(1, INSTANCE, 1))),
            ]

    assert [reply.status for reply in replies] == [200] * 3


# -- sessions ----------------------------------------------------------------------------------------------------------


async def test_t117_9_a_request_of_a_session_that_has_ended_stores_and_confirms_nothing(aio: Asyncio) -> None:
    async with principal(aio) as door:
        old = await hello(door)
        await post(door, parts(old, entry(1)))
        new = await hello(door)
        late = [await post(door, parts(old, entry(place), low=50)) for place in (1, 2)]
        heartbeat = await ask(door, "heartbeat", msgspec.json.encode(Head(old, 1, 50)))
        again = await post(door, parts(new, entry(1)))

        assert [(reply.status, reply.code) for reply in (*late, heartbeat)] == [(409, "session_over")] * 3
        assert (again.said, door.numbers) == ({"confirmed": [1]}, [1])


async def test_an_old_request_that_comes_late_within_its_session_stores_nothing(aio: Asyncio) -> None:
    async with principal(aio) as door:
        session = await hello(door)
        first = parts(session, entry(1), low=1)
        await post(door, first)
        await post(door, parts(session, entry(2), low=2))
        late = await post(door, first)

        assert (late.status, late.code, door.numbers) == (409, "session_over", [1, 2])


async def test_a_session_that_another_source_of_the_input_has_begun_ends_those_here(aio: Asyncio) -> None:
    async with principal(aio) as before:
        old = await hello(before)
        beside = RecordingInputContext(aio=aio)
        beside.stored = before.context.stored
        async with principal(aio, context=beside) as after:
            await hello(after)
            reply = await post(before, parts(old, entry(1)))

        assert (reply.status, reply.code, before.numbers) == (409, "session_over", [])


async def test_the_sessions_of_two_edges_have_different_numbers(aio: Asyncio) -> None:
    async with principal(aio) as door:
        sessions = [await hello(door), await hello(door, key="other"), await hello(door, link=2)]

        assert len(set(sessions)) == 3


# -- whose events they are ---------------------------------------------------------------------------------------------

OWNERS = {"berlin": Edge(credentials=("k1",)), "paris": Edge(credentials=("other",))}
BERLIN = Origin(b"b" * 32)


def shown(generation: Generation, batch: Batch, proof: bytes | None) -> bytes:
    return b"".join(frames.encode(Head(generation, 1, 0, parts=1), [part_of(batch, proof)]))


async def test_an_edge_that_knows_all_of_another_one_can_post_nothing_under_its_origin(aio: Asyncio) -> None:
    async with principal(aio, edges=OWNERS) as door:
        own, liar = await hello(door), await hello(door, key="other")
        for proof in (None, BERLIN.proof("berlin"), Origin(b"p" * 32).proof("paris")):
            reply = await post(door, shown(liar, entry(7, origin=BERLIN.id), proof), key="other")
            assert (reply.status, reply.code, door.numbers) == (403, "foreign_origin", [])
        reply = await post(door, shown(own, entry(7, origin=BERLIN.id), BERLIN.proof("berlin")))

        assert (reply.status, door.numbers) == (200, [7])


async def test_an_edge_that_relays_may_send_what_others_have_accepted(aio: Asyncio) -> None:
    edges = {"berlin": msgspec.structs.replace(OWNERS["berlin"], relays=True)}
    async with principal(aio, edges=edges) as door:
        reply = await post(door, shown(await hello(door), entry(7, origin=BERLIN.id), None))

        assert (reply.status, door.numbers) == (200, [7])


@pytest.mark.parametrize("relays", [False, True])
async def test_a_given_id_in_the_form_of_a_shipper_is_kept_only_of_an_edge_that_relays(
    aio: Asyncio, relays: bool
) -> None:
    other = entry(9, origin=Origin(b"p" * 32).id).id_texts()[0]
    batch = replace(entry(7, 1, 2, 3, origin=BERLIN.id), ids=(other, "order-1", None))
    edges = {"berlin": msgspec.structs.replace(OWNERS["berlin"], relays=relays)}
    own = entry(7, 1, 2, 3, origin=BERLIN.id).id_texts()
    async with principal(aio, edges=edges) as door:
        reply = await post(door, shown(await hello(door), batch, BERLIN.proof("berlin")))

        assert reply.status == 200
        assert door.ids() == [other if relays else own[0], "order-1", own[2]]


async def test_a_second_instance_is_refused_and_told_when_to_come_again(aio: Asyncio) -> None:
    async with principal(aio) as door:
        await hello(door)
        reply = await ask(door, "session", msgspec.json.encode(Hello(1, "2" * 32, 1)))

        assert (reply.status, reply.code) == (409, "edge_cloned")
        assert 1 <= int(reply.headers["retry-after"]) <= 2


class OneConnection:
    """A session of an edge, and a connection for all its requests; each returns the status of its answer."""

    def __init__(self, door: Principal, client: Client, session: Generation) -> None:
        self._door, self._client, self._session = door, client, session

    async def beat(self) -> int:
        """Sends the same heartbeat each time, as an edge does."""
        return await self._post("heartbeat", JSON, msgspec.json.encode(Head(self._session, 1, 0)))

    async def send(self, place: int) -> int:
        """Sends a part with this place, and as many events."""
        return await self._post("parts", frames.MEDIA_TYPE, parts(self._session, entry(place, *range(place))))

    async def _post(self, what: str, kind: str, body: bytes) -> int:
        reply = await self._client.post(self._door.url, f"/v1/relay/{what}", [body], headers={"Content-Type": kind})
        return reply.status


@asynccontextmanager
async def connected(aio: Asyncio, door: Principal, key: str = "k1") -> AsyncIterator[OneConnection]:
    shown = {"Authorization": KEYS[CredentialId(key)].authorization()}
    async with open_client(aio, shown, False, connections=1, seconds=10) as client:
        yield OneConnection(door, client, await hello(door, key=key))


async def test_a_heartbeat_that_repeats_the_last_one_is_heard_and_is_no_request_of_its_own(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = []
    async with principal(aio) as door, connected(aio, door) as edge:
        monkeypatch.setattr(door.source._edges, "heard", lambda name, head: heard.append((name, head.link)))
        before = door.source._server._server.requests_count
        statuses = [await edge.beat() for _ in range(3)]

        assert (statuses, heard) == ([200] * 3, [("berlin", 1)] * 3)
        assert door.source._server._server.requests_count - before == 1


async def test_a_heartbeat_that_repeats_the_last_one_is_refused_once_its_session_has_ended(aio: Asyncio) -> None:
    async with principal(aio) as door, connected(aio, door) as edge:
        before = [await edge.beat(), await edge.beat()]
        await hello(door)

        assert (before, await edge.beat()) == ([200, 200], 409)


async def test_a_heartbeat_that_repeats_the_last_one_is_refused_once_its_credential_is_withdrawn(aio: Asyncio) -> None:
    async with principal(aio) as door, connected(aio, door) as edge:
        before = [await edge.beat(), await edge.beat()]
        door.change(without("k1"))

        assert (before, await edge.beat()) == ([200, 200], 401)


async def test_parts_with_a_head_that_is_known_are_no_requests_of_aiohttp(aio: Asyncio) -> None:
    async with principal(aio) as door, connected(aio, door) as edge:
        before = door.source._server._server.requests_count
        statuses = [await edge.send(place) for place in range(1, 8)]

        assert statuses == [200] * 7
        assert door.context.count == sum(range(1, 8))
        assert door.source._server._server.requests_count - before == 1


async def test_parts_with_a_head_that_is_known_are_refused_once_their_session_has_ended(aio: Asyncio) -> None:
    async with principal(aio) as door, connected(aio, door) as edge:
        before = [await edge.send(1), await edge.send(2)]
        await hello(door)

        assert (before, await edge.send(3)) == ([200, 200], 409)
        assert door.context.count == 3


async def test_parts_with_a_head_that_is_known_are_refused_once_their_credential_is_withdrawn(aio: Asyncio) -> None:
    async with principal(aio) as door, connected(aio, door) as edge:
        before = [await edge.send(1), await edge.send(2)]
        door.change(without("k1"))

        assert (before, await edge.send(3)) == ([200, 200], 401)
        assert door.context.count == 3


async def test_parts_with_a_head_that_is_known_take_memory_as_others_do(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with principal(aio) as door, connected(aio, door) as edge:
        before = [await edge.send(1), await edge.send(2)]
        memory = door.source._server._memory
        assert memory.held == 0
        memory.limit = 1000

        assert (before, await edge.send(3)) == ([200, 200], 429)
        assert memory.held == 0


def part_request(generation: Generation, place: int, key: str = "k1") -> bytes:
    return request("parts", parts(generation, entry(place)), kind=frames.MEDIA_TYPE, key=key)


async def test_a_head_with_another_credential_is_not_the_known_one(aio: Asyncio) -> None:
    async with principal(aio) as door:
        generation = await hello(door)
        async with await door.connect() as stream:
            for place in (1, 2):
                await stream.send_all(part_request(generation, place))
                await _answers(stream, 1)
            await stream.send_all(part_request(generation, 3, key="other"))
            answer = bytes(await stream.receive_some())

        assert answer.startswith(b"HTTP/1.1 409 ")  # the edge of this credential has no session
        assert door.numbers == [1, 2]


async def test_requests_that_come_before_the_answer_are_answered_in_their_order(aio: Asyncio) -> None:
    async with principal(aio) as door:
        generation = await hello(door)
        part = partial(part_request, generation)
        beat = request("heartbeat", msgspec.json.encode(Head(generation, 1, 0)))
        async with await door.connect() as stream:
            said: list[Any] = []
            for number, sent in enumerate([part(1), part(2), part(3) + beat + part(4), part(5)]):
                await stream.send_all(sent)
                if number != 1:  # the third comes while the second is stored, if it is stored slowly enough
                    said += await _answers(stream, 1 if number == 0 else 4 if number == 2 else 1)

        assert said == [[1], [2], [3], [], [4], [5]]


async def _answers(stream: trio.SocketStream, count: int) -> list[Any]:
    """The places that the next answers confirm."""
    read, found = b"", list[Any]()
    with trio.fail_after(30):
        while len(found) < count:
            if _is_whole(read):
                head, _, rest = read.partition(b"\r\n\r\n")
                length = int(re.findall(rb"(?i)content-length: *([0-9]+)", head)[0])
                found.append(json.loads(rest[:length])["confirmed"])
                read = rest[length:]
            else:
                read += await stream.receive_some()
    assert not read
    return found


async def test_a_connection_that_has_shown_a_removed_credential_is_closed_before_it_is_released(aio: Asyncio) -> None:
    """An edge whose host has vanished ends nothing by itself."""
    async with principal(aio) as door, connected(aio, door) as edge, connected(aio, door, key="other") as other:
        assert [await edge.beat(), await edge.beat(), await other.beat()] == [200] * 3
        door.change(without("k1"))
        await door.source.changed()

        assert not door.source._server.is_connected("berlin")
        assert await other.beat() == 200


async def test_a_question_for_answers_does_not_hold_up_the_release_of_its_credential(aio: Asyncio) -> None:
    async with principal(aio) as door:
        body = msgspec.json.encode(Poll(Head(await hello(door), 1, 0), 0, frames.MOST_WAIT))
        open_ones = door.source._server._connections._open_ones
        async with await door.connect() as stream:
            await stream.send_all(request("answers", body))
            with trio.fail_after(frames.MOST_WAIT / 2):
                while not any(one.only_waits for one in [*open_ones]):  # a copy: they are another thread's
                    await trio.lowlevel.checkpoint()
                door.change(without("k1"))
                await door.source.changed()
                assert await stream.receive_some() == b""


async def test_a_connection_is_closed_whose_certificate_is_no_longer_that_of_its_edge(aio: Asyncio) -> None:
    authority, of_edges = trustme.CA(), trustme.CA()
    ca, shown = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode()), tls(authority, of_edges)
    of_edges.issue_cert("berlin.edge.example").configure_cert(ca)
    edges = {"berlin": Edge(san=("berlin.edge.example",), credentials=(CredentialId("k1"),))}
    async with principal(aio, tls=shown, edges=edges) as door:
        stream = await trio.open_ssl_over_tcp_stream("127.0.0.1", door.port, ssl_context=ca, https_compatible=True)
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with trio.fail_after(30):
            assert b" 404 " in await stream.receive_some()
            door.change(edges={"berlin": Edge(credentials=(CredentialId("k1"),))})
            await door.source.changed()

        assert not door.source._server._connections._open_ones
        await trio.aclose_forcefully(stream)


async def test_links_that_were_not_used_for_longest_are_forgotten(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper_plugins.relay.principal.edges.MOST_LINKS", 2)
    async with principal(aio) as door:
        begun = [await hello(door, link=link) for link in (1, 2, 1, 3)]

        assert sorted(door.context.stored) == ["berlin/1", "berlin/3", "berlin/lineage"]
        reply = await ask(door, "heartbeat", msgspec.json.encode(Head(begun[1], 2, 0)))
        assert reply.code == "session_over"


async def test_a_memory_that_cannot_be_read_is_replaced(aio: Asyncio) -> None:
    context = RecordingInputContext(positions={"berlin/1": b"?"}, aio=aio)
    async with principal(aio, context=context) as door:
        session = await hello(door)
        await post(door, parts(session, entry(1)))

        assert door.numbers == [1]


# -- parts -------------------------------------------------------------------------------------------------------------


async def test_a_request_is_stored_whole_or_not_at_all(aio: Asyncio) -> None:
    async with principal(aio) as door:
        session = await hello(door)
        await post(door, parts(session, entry(2, 7)))
        reply = await post(door, parts(session, entry(1), entry(2, 8), entry(3)))

        assert (reply.status, reply.code, door.numbers) == (409, "identity_conflict", [7])


async def test_what_cannot_be_stored_is_refused_for_good(aio: Asyncio) -> None:
    class Strict(RecordingInputContext):
        async def emit(self, *batches: Batch, **how: Any) -> None:
            if any(b"bad" in batch.body for batch in batches):
                raise PluginFault("it cannot be")
            await super().emit(*batches, **how)

    async with principal(aio, context=Strict(aio=aio)) as door:
        session = await hello(door)
        bad = replace(Batch.documents([b'{"bad":1}']), origin=b"o" * 16, seq=1, place=1)
        reply = await post(door, parts(session, bad))
        await post(door, parts(session, entry(2)))

        assert (reply.status, reply.code, door.numbers) == (422, "part_refused", [2])


async def test_a_part_that_unpacks_to_more_than_is_allowed_is_refused(aio: Asyncio) -> None:
    bomb = replace(Batch.documents([b'{"n":"%s"}' % (b"x" * 200_000)]), origin=b"o" * 16, seq=1, place=1)
    async with principal(aio, max_part_bytes=1 << 16) as door:
        reply = await post(door, parts(await hello(door), bomb))

        assert (reply.status, reply.code) == (413, "too_large")


async def test_parts_that_are_too_large_together_are_refused_together(aio: Asyncio) -> None:
    half = [b'{"n":"%s"}' % (b"x" * 40_000)]
    one, other = (replace(Batch.documents(half), origin=b"o" * 16, seq=n, place=n) for n in (1, 2))
    async with principal(aio, max_part_bytes=1 << 16) as door:
        session = await hello(door)
        together = await post(door, parts(session, one, other))
        alone = [await post(door, parts(session, each)) for each in (one, other)]

        assert (together.status, [reply.status for reply in alone]) == (413, [200, 200])


async def test_a_sender_that_confirms_nothing_is_put_off_in_the_end(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper_plugins.relay.principal.taken.MOST_ENTRIES", 3)
    async with principal(aio) as door:
        session = await hello(door)
        replies = [await post(door, parts(session, entry(place))) for place in (1, 2, 3, 4)]
        replies.append(await post(door, parts(session, entry(4), low=2)))

        assert [reply.status for reply in replies] == [200, 200, 200, 429, 200]


async def test_requests_of_one_edge_are_stored_one_after_the_other(aio: Asyncio) -> None:
    async with principal(aio) as door:
        session = await hello(door)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                for place in range(1, 6):
                    nursery.start_soon(post, door, parts(session, entry(place)))

        assert sorted(door.numbers) == [1, 2, 3, 4, 5]


# -- certificates ------------------------------------------------------------------------------------------------------


def tls(authority: trustme.CA, of_edges: trustme.CA) -> RelayTls:
    own = authority.issue_cert("127.0.0.1")
    chain = b"".join(part.bytes() for part in own.cert_chain_pems).decode()
    return RelayTls(
        certificate=Material("c", chain),
        key=Material("k", own.private_key_pem.bytes().decode()),
        client_ca=Material("ca", of_edges.cert_pem.bytes().decode()),
    )


def identity(of_edges: trustme.CA, *names: str) -> Credential:
    leaf = of_edges.issue_cert(*names)
    chain = b"".join(part.bytes() for part in leaf.cert_chain_pems).decode()
    return Credential.parse({"certificate": chain, "key": leaf.private_key_pem.bytes().decode()})


async def test_an_edge_is_who_its_certificate_says(aio: Asyncio, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, of_edges, strange = trustme.CA(), trustme.CA(), trustme.CA()
    edges = {
        "berlin": Edge(san=("berlin.edge.example",), relays=True),
        "paris": Edge(credentials=(CredentialId("other"),), relays=True),
    }
    ca = {"ca": Material("ca", authority.cert_pem.bytes().decode())}
    own = {
        CredentialId("k1"): identity(of_edges, "Berlin.edge.example"),
        CredentialId("unknown"): identity(of_edges, "rome.edge.example"),
        CredentialId("strange"): identity(strange, "berlin.edge.example"),
    }
    monkeypatch.setattr("tests.plugins.relay.pair.KEYS", {**KEYS, **own})
    async with principal(aio, tls=tls(authority, of_edges), edges=edges, credentials=KEYS) as door:
        url = door.url.replace("http:", "https:")
        async with pair.edge(aio, url, tls=ClientTls(**ca)) as sender:
            await sender.send(entry(1))
        async with pair.edge(aio, url, tls=ClientTls(**ca), credential="other", name="paris") as sender:
            await sender.send(entry(2))
        async with pair.edge(aio, url, tls=ClientTls(**ca), credential="unknown") as sender:
            with pytest.raises(Held, match="403"):
                await sender.send(entry(3))
        async with pair.edge(aio, url, tls=ClientTls(**ca), credential="strange") as sender:
            with pytest.raises(Later):
                await sender.send(entry(4))

        assert door.numbers == [1, 2]


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"address": "0.0.0.0:6789"}, "needs tls"),
        ({"max_part_bytes": Size(1)}, "must be from 64KiB to 1GiB, not 1B"),
        ({"edges": {"a": Edge(credentials=("x",)), "b": Edge(credentials=("x",))}}, "known by the same"),
        ({"edges": {"a": Edge(san=("x",))}}, "needs tls.client_ca"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(BadOption, match=text):
        RelayInput(**{"address": "127.0.0.1:0", "edges": EDGES, **settings})


def test_an_edge_that_nobody_can_be_is_refused() -> None:
    with pytest.raises(ValueError, match="credentials, or names"):
        Edge()


def test_two_edges_with_one_secret_have_no_door() -> None:
    secret = Credential.parse({"api_key": "a:b"})
    assert secret.fits(API_KEY)
    with pytest.raises(ValueError, match="same secret"):
        RelayInput(address="127.0.0.1:0", edges=EDGES).door({CredentialId("k1"): secret, CredentialId("other"): secret})


# -- programs ----------------------------------------------------------------------------------------------------------


async def put(door: Principal, path: str, body: bytes = b"{}", **how: Any) -> Reply:
    return await ask(door, f"/v1/state/{path}", body, **{"method": "PUT", **how})


STATEFUL = {"berlin": Edge(credentials=("k1",), collections=("things",), max_keys=2, max_document_bytes=1000)}


async def test_a_program_puts_and_deletes_a_key_and_gets_its_place(aio: Asyncio) -> None:
    async with principal(aio, edges=STATEFUL) as door:
        first = await put(door, "things/a%2Fb/%C3%A9", b'{ "n": 1 }')
        again = await put(door, "things/a%2Fb/%C3%A9", b'{"n":1}')
        gone = await put(door, "things/a%2Fb/%C3%A9", method="DELETE")

        key = ("berlin", "things", "a/b/é")
        assert (first.status, first.said["is_new"], again.said) == (
            200,
            True,
            {"place": first.said["place"], "is_new": False},
        )
        assert gone.said["place"] > first.said["place"]
        assert door.context.state[key][0] is None


async def test_what_a_program_may_not_put_is_refused(aio: Asyncio) -> None:
    for path, body, how, status, code in [
        ("things/a", b"{}", {"key": None}, 401, "unauthorized"),
        ("things/a", b"{}", {"key": "no"}, 401, "unauthorized"),
        ("others/a", b"{}", {}, 403, "forbidden"),
        ("things/a", b'{"n":"%s"}' % (b"x" * 1000), {}, 413, "too_large"),
        ("things/a", b"{}", {"declared": 1 << 30}, 413, "too_large"),
        ("things/a", b"[]", {}, 400, "bad_request"),
        ("things/a", b"{", {}, 400, "bad_request"),
        ("things/%FF", b"{}", {}, 400, "bad_request"),
        ("things/", b"{}", {}, 404, "not_found"),
        ("things", b"{}", {}, 404, "not_found"),
        ("things/a", b"{}", {"kind": "text/plain"}, 415, "media_type"),
        ("things/a", b"{}", {"method": "POST"}, 405, "method_not_allowed"),
    ]:
        async with principal(aio, edges=STATEFUL) as door:
            reply = await put(door, path, body, **how)

            assert (reply.status, reply.code) == (status, code)
            assert door.context.state == {}


async def test_a_program_waits_for_room(aio: Asyncio) -> None:
    async with principal(aio, edges=STATEFUL) as door:
        replies = [await put(door, f"things/{key}") for key in "abc"]
        door.context.full = True
        replies.append(await put(door, "things/a", b'{"n":2}'))

        assert [reply.status for reply in replies] == [200, 200, 429, 429]
        assert [reply.code for reply in replies[2:]] == ["full", "busy"]
        assert all("retry-after" in reply.headers for reply in replies[2:])
