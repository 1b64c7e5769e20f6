"""The test kit is itself tested: a fake that is wrong hides what it was made to find."""

import logging
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest
import trio
import trio.testing

from shipper.plugin import (
    Answer,
    Answers,
    Backpressure,
    Batch,
    Credential,
    Fields,
    Input,
    InputContext,
    Later,
    Outcome,
    Outdated,
    Output,
    OutputContext,
    Part,
    PluginFault,
    Processor,
    Sender,
    Source,
    Stage,
    StageContext,
)
from shipper.plugin.state import Change
from shipper.sdk.aio import Asyncio, open_asyncio
from shipper.sdk.fields import merged
from shipper.testing import (
    BulkDestination,
    RecordingInputContext,
    check_input,
    check_output,
    check_processor,
    check_stage,
    open_destination,
    traces,
)

KEY_1 = Credential({"api_key": "one:first-secret"})
KEY_2 = Credential({"api_key": "two:second-secret"})


def lines(*texts: str) -> Batch:
    return Batch.lines("".join(f"{text}\n" for text in texts).encode(), offset=0, shared={})


# -- the context of an input -------------------------------------------------------------------------------------------


async def test_the_context_records_events_whole_with_ids_and_positions() -> None:
    context = RecordingInputContext(positions={"a": b"1", "b": b"2"})

    await context.emit(lines("x"), lines("y", "z"), positions={"a": None, "c": b"3"})

    assert [event["message"] for event in context.events] == ["x", "y", "z"]
    assert [batch.seq for batch in context.batches] == [1, 2]
    assert await context.positions() == context.stored == {"b": b"2", "c": b"3"}
    assert (await context.positions("b"), await context.position("c"), await context.position("d")) == (
        {"b": b"2"},
        b"3",
        None,
    )
    assert context.count == 3


async def test_an_emit_waits_while_the_context_is_full() -> None:
    context = RecordingInputContext()
    context.full = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(context.emit, lines("x"))
        await trio.testing.wait_all_tasks_blocked()

        assert context.count == 0

        context.full = False

    assert context.count == 1


async def test_an_emit_that_does_not_wait_is_refused_while_the_context_is_full() -> None:
    context = RecordingInputContext()
    context.full = True

    with pytest.raises(Backpressure):
        await context.emit(lines("x"), wait=False)

    assert context.count == 0


async def test_a_cancelled_emit_stored_nothing() -> None:
    context = RecordingInputContext()
    with trio.CancelScope() as scope:
        scope.cancel()
        await context.emit(lines("x"), positions={"a": b"1"})

    assert (context.count, context.stored) == (0, {})


async def test_the_context_keeps_the_last_version_of_each_key() -> None:
    context = RecordingInputContext()

    (first,) = await context.keep([Change("things", "a", b"{}")], {"at": b"1"})
    same, newer = await context.keep([Change("things", "a", b"{}"), Change("things", "a", b'{"b":1}')])
    nothing, gone = await context.keep([Change("things", "b", None), Change("things", "a", None)])

    assert [kept.is_new for kept in (first, same, newer, nothing, gone)] == [True, False, True, False, True]
    assert first.place == same.place < newer.place < gone.place
    assert context.state["", "things", "a"] == (None, gone)
    assert context.stored == {"at": b"1"}


async def test_the_context_fences_what_a_relay_gives() -> None:
    context = RecordingInputContext()
    (first,) = await context.keep([Change("things", "a", b"{}", "berlin", 7)])

    answers = await context.keep(
        [
            Change("things", "a", b"{}", "berlin", 7),
            Change("things", "a", b'{"b":1}', "berlin", 7),
            Change("things", "a", b'{"b":1}', "berlin", 6),
        ]
    )

    assert [(kept.place, kept.is_new, kept.fenced) for kept in (first, *answers)] == [
        (7, True, False),
        (7, False, False),
        (7, False, True),
        (7, False, True),
    ]


async def test_the_context_refuses_a_document_that_is_not_compact() -> None:
    with pytest.raises(PluginFault):
        await RecordingInputContext().keep([Change("things", "a", b'{"b": 1}')])


async def test_the_context_keeps_nothing_where_other_positions_are_stored() -> None:
    context = RecordingInputContext(positions={"at": b"1"})

    with pytest.raises(Outdated):
        await context.keep([Change("things", "a", b"{}")], {"at": b"3"}, {"at": b"2"})

    assert (context.state, context.stored) == ({}, {"at": b"1"})


# -- the destination ---------------------------------------------------------------------------------------------------


def bulk(*ids: str, op: str = "create") -> bytes:
    return b"".join(
        b'{"%s":{"_index":"logs","_id":"%s"}}\n{"n":"%s"}\n' % (op.encode(), i.encode(), i.encode()) for i in ids
    )


class Client:
    def __init__(self, aio: Asyncio, destination: BulkDestination, tls: ssl.SSLContext | None = None) -> None:
        self.aio = aio
        self.destination = destination
        self.tls = tls

    async def post(
        self,
        body: bytes | AsyncIterator[bytes],
        key: Credential | None = KEY_1,
        query: str = "",
        headers: dict[str, str] | None = None,
        path: str = "/_bulk",
    ) -> tuple[int, bytes]:
        sent = {**(headers or {}), **({"Authorization": key.authorization()} if key else {})}

        async def ask() -> tuple[int, bytes]:
            url = f"{self.destination.url}{path}{query}"
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
                session.post(url, data=body, headers=sent, ssl=self.tls or True) as response,
            ):
                return response.status, await response.read()

        return await self.aio.call(ask)

    async def create(self, *ids: str) -> list[int]:
        status, body = await self.post(bulk(*ids))
        assert status == 200
        return [item["create"]["status"] for item in orjson.loads(body)["items"]]


@asynccontextmanager
async def a_destination(**options: object) -> AsyncIterator[tuple[BulkDestination, Client]]:
    with trio.fail_after(60):
        async with open_asyncio() as aio, open_destination(aio, **options) as destination:  # type: ignore[arg-type]
            yield destination, Client(aio, destination)


async def test_documents_are_created_once() -> None:
    async with a_destination() as (destination, client):
        assert await client.create("a", "b") == [201, 201]
        assert await client.create("b", "c") == [409, 201]

        assert destination.total == 3
        assert destination.documents["logs"]["b"] == b'{"n":"b"}'
        assert destination.copies == {"a": 1, "b": 2, "c": 1}
        assert destination.events == [{"n": "a"}, {"n": "b"}, {"n": "c"}]
        assert [(request.items, request.status) for request in destination.log] == [(2, 200), (2, 200)]


def external(op: str, version: int, id: str = "a") -> bytes:
    action = {op: {"_index": "state", "_id": id, "version": version, "version_type": "external"}}
    return orjson.dumps(action) + (b"\n" if op == "delete" else b'\n{"n":%d,"rest":0}\n' % version)


async def test_external_versions_only_rise_and_those_of_deleted_documents_are_remembered_for_a_while() -> None:
    steps = [("index", 5), ("index", 5), ("index", 4), ("index", 6), ("delete", 6), ("delete", 7), ("index", 7)]
    async with a_destination() as (destination, client):
        _, body = await client.post(b"".join(external(*step) for step in steps))
        statuses = [result["status"] for item in orjson.loads(body)["items"] for result in item.values()]
        assert statuses == [201, 409, 409, 200, 409, 200, 409]
        assert b"current version [7] is higher or equal to the one provided [7]" in body
        assert (destination.total, destination.versions) == (0, {("state", "a"): 7})

        await destination.forget_deleted()
        _, body = await client.post(external("delete", 3, "b") + external("index", 1))
        statuses = [result["status"] for item in orjson.loads(body)["items"] for result in item.values()]
        assert (statuses, orjson.loads(body)["errors"]) == ([404, 201], False)


async def test_what_is_no_bulk_body_is_refused_whole() -> None:
    for body in [
        b"",
        b"x\n",
        b'{"create":{}}\n{}',
        b'{"create":{}}\n',
        b'{"delete":{"_id":"1"}}\n{}\n',
        b'{"index":{"_id":"1","version":1}}\n{}\n',
        b'{"index":{"_id":"1","version":-1,"version_type":"external"}}\n{}\n',
        b'{"create":{"_id":"1","version":1,"version_type":"external"}}\n{}\n',
    ]:
        async with a_destination() as (_, client):
            status, _ = await client.post(body)

        assert status == 400


async def test_a_key_is_asked_for_at_each_request() -> None:
    async with a_destination(keys={KEY_1}) as (destination, client):
        assert (await client.post(bulk("a")))[0] == 200

        destination.keys = {KEY_2}

        assert (await client.post(bulk("b")))[0] == 401
        assert (await client.post(bulk("b"), KEY_2))[0] == 200
        assert destination.refused == 1
        assert [request.status for request in destination.requests_with(KEY_1)] == [200, 401]
        assert "first-secret" not in repr(destination.log)


async def test_a_key_revoked_while_the_body_arrives_refuses_the_request() -> None:
    async with a_destination(keys={KEY_1}) as (destination, client):
        headers_seen = trio.Event()

        async def slow_body() -> AsyncIterator[bytes]:
            yield bulk("a")
            await client.aio.answer(headers_seen.wait)

        async def revoke() -> None:
            await destination.wait_until(lambda: destination.under_way == 1)
            destination.keys = set()
            headers_seen.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(revoke)
            status, _ = await client.post(slow_body())

        assert (status, destination.total) == (401, 0)


# -- the checks --------------------------------------------------------------------------------------------------------


class Answering(Output, frozen=True):
    reason: str = ""
    short: int = 0
    leaks: bool = False
    raises: bool = False

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        yield Answerer(self, context)


class Answerer(Sender):
    def __init__(self, settings: Answering, context: OutputContext) -> None:
        self.settings = settings
        self.context = context

    def __repr__(self) -> str:
        return (
            str([secret.fields for secret in self.context.credentials.values()])
            if self.settings.leaks
            else "<Answerer>"
        )

    async def send(self, batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        if self.settings.raises:
            raise Later(f"refused {[secret.fields for secret in self.context.credentials.values()]}")
        return Answers(batch.count - self.settings.short, {0: Answer(Outcome.REJECTED, self.settings.reason)})


EVENT = "the text of an event"


async def test_a_good_output_passes_the_check() -> None:
    async with open_asyncio() as aio:
        (answers,) = await check_output(
            Answering(reason="mapping"), OutputContext("main", aio, {"k": KEY_1}), [lines(EVENT)]
        )

    assert answers.others[0].reason == "mapping"


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        (Answering(short=1), "answers"),
        (Answering(leaks=True), "secret"),
        (Answering(reason="bad: the text of an event"), "text of an event"),
        (Answering(raises=True), "secret"),
    ],
)
async def test_a_bad_output_does_not(output: Output, complaint: str) -> None:
    async with open_asyncio() as aio:
        with pytest.raises(AssertionError, match=complaint):
            await check_output(output, OutputContext("main", aio, {"k": KEY_1}), [lines(EVENT)])


class Shout(Processor, frozen=True):
    broken: str = ""

    def process(self, batch: Batch) -> Batch:
        if self.broken == "changes":
            batch.shared["seen"] = True
        if self.broken == "forgets":
            return Batch.events(batch.whole())
        events: list[Fields] = [merged(event, {"message": event["message"].upper()}) for event in batch.own()]
        return batch.replace(events)


def test_a_good_processor_passes_the_check() -> None:
    assert check_processor(Shout(), lines("a", "b")).whole()[1]["message"] == "B"


@pytest.mark.parametrize("broken", ["changes", "forgets"])
def test_a_bad_processor_does_not(broken: str) -> None:
    batch = Batch.unpack(lines("a", "b").pack(), origin=b"x" * 16, seq=7)

    with pytest.raises(AssertionError):
        check_processor(Shout(broken=broken), batch)


class Gather(Processor, frozen=True):
    """Holds events, and misbehaves."""

    broken: str = ""

    @asynccontextmanager
    async def open(self, context: StageContext) -> AsyncIterator[Stage]:
        yield Gathering(self.broken)


class Gathering(Stage):
    def __init__(self, broken: str) -> None:
        self.broken = broken
        self.held: list[Part] = []

    def process(self, part: Part) -> Sequence[Part]:
        if self.broken == "changes":
            part.batch.shared["seen"] = True
        self.held.append(part)
        if self.broken == "fails too late":
            part.batch.own()
        return []

    def flush(self) -> Sequence[Part]:
        held = self.held
        if self.broken != "keeps":
            self.held = []
        return held

    @property
    def due(self) -> float | None:
        return 1.0 if self.held or self.broken == "always due" else None

    def rollback(self) -> None:
        self.held = []


async def test_a_good_stage_passes_the_check() -> None:
    assert await check_stage(Gather(), [lines("a"), lines("b")]) == [Part(lines("a")), Part(lines("b"))]


@pytest.mark.parametrize("broken", ["changes", "keeps", "always due", "fails too late"])
async def test_a_bad_stage_does_not(broken: str) -> None:
    with pytest.raises(AssertionError):
        await check_stage(Gather(broken), [lines("a"), lines("b")])


class Counts(Processor, frozen=True):
    """Numbers its parts, and does not take back."""

    @asynccontextmanager
    async def open(self, context: StageContext) -> AsyncIterator[Stage]:
        yield Numbering()


class Numbering(Stage):
    count = 0

    def process(self, part: Part) -> Sequence[Part]:
        self.count += 1
        return [part._replace(batch=part.batch.share({"n": self.count}))]


async def test_a_stage_that_cannot_take_back_fails_the_check() -> None:
    with pytest.raises(AssertionError, match="left a trace"):
        await check_stage(Counts(), [lines("a")])


LEFT: list[int] = []


class Reading(Input, frozen=True):
    """Emits numbers up to 5, and misbehaves."""

    fault: str = ""

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        if self.fault == "reads early":
            await context.emit(Batch.events([{"message": "0"}]))
        yield Reader(self.fault, context)


class Reader(Source):
    def __init__(self, fault: str, context: InputContext) -> None:
        self.fault, self.context = fault, context

    def __repr__(self) -> str:
        return str(self.context.credentials["key"].fields) if self.fault == "leaks" else "<Reader>"

    async def run(self) -> None:
        number = int((await self.context.positions()).get("n", b"0"))
        if self.fault == "tells":
            self.context.report(f"refused {self.context.credentials['key'].fields}")
        if self.fault == "logs":
            logging.getLogger("reader").warning("%s", self.context.credentials["key"].fields)
        if self.fault == "leaves a descriptor":
            LEFT.append(os.dup(2))
        for n in range(number, 5):
            await self.step(n)

    async def step(self, n: int) -> None:
        batch, positions = Batch.events([{"message": f"number {n}"}]), {"n": b"%d" % (n + 1)}
        if self.fault == "commits first":
            await self.context.emit(positions=positions)
            await self.context.emit(batch)
        elif self.fault == "commits late":
            await self.context.emit(batch)
            await self.context.emit(positions=positions)
        elif self.fault == "ignores a cancel":
            try:
                await self.context.emit(batch, positions=positions)
            except trio.Cancelled:
                with trio.CancelScope(shield=True):
                    await trio.sleep(1)
        else:
            await self.context.emit(batch, positions=positions)

    def change(self, settings: Any, credentials: Mapping[str, Credential]) -> None:
        """Nothing can be changed."""


def with_key(stored: Mapping[str, bytes]) -> RecordingInputContext:
    return RecordingInputContext(positions=stored, credentials={"key": KEY_1})


async def test_a_good_input_passes_the_check() -> None:
    events = await check_input(Reading(), 5, context=with_key)

    assert [event["message"] for event in events] == [f"number {n}" for n in range(5)]


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("reads early", "before `run`"),
        ("leaks", "secret"),
        ("tells", "secret"),
        ("logs", "secret"),
        ("commits first", "has lost events"),
        ("commits late", "goes on elsewhere"),
        ("ignores a cancel", "does not end"),
        ("leaves a descriptor", "descriptors"),
    ],
)
async def test_a_bad_input_does_not(fault: str, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "ignores a cancel":
        monkeypatch.setattr(traces, "in_time", lambda: trio.fail_after(0.3))
    if fault == "leaves a descriptor":
        monkeypatch.setattr(traces, "for_a_while", lambda: trio.move_on_after(0.1))
    with pytest.raises(AssertionError, match=complaint):
        await check_input(Reading(fault=fault), 5, context=with_key)
    while LEFT:
        os.close(LEFT.pop())
