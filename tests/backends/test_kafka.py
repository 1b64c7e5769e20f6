"""The `kafka` output against a real broker: what is answered, what the broker then has, and what a close leaves."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from shipper.plugin import (
    Answer,
    Asyncio,
    Batch,
    Code,
    Credential,
    CredentialId,
    Held,
    Later,
    Material,
    NotBegun,
    Outcome,
    OutputContext,
    Sender,
    Size,
)
from shipper.sdk.aio import open_asyncio
from shipper.sdk.units import Duration
from shipper.testing import check_output
from shipper_plugins.kafka.output import KafkaOutput, KafkaTls, Sasl
from tests.backends.kafka_proxy import proxied

pytestmark = pytest.mark.backend

_sequence = count(1)


@pytest.fixture
async def aio() -> AsyncIterator[Asyncio]:
    with trio.fail_after(120):
        async with open_asyncio() as opened:
            yield opened


def batch(*messages: str, **shared: object) -> Batch:
    events = [{"message": message} for message in messages]
    return replace(Batch.events(events, shared=dict(shared)), origin=b"o" * 16, seq=next(_sequence))


def context(aio: Asyncio, credential: tuple[str, str] | None = None, **more: object) -> OutputContext:
    user = None if credential is None else {"username": credential[0], "password": credential[1]}
    return OutputContext("main", aio, {} if user is None else {"ship": Credential.parse(user)}, **more)  # type: ignore[arg-type]


def output(address: str, topic: str | None, **more: object) -> KafkaOutput:
    return KafkaOutput(hosts=(address,), topic=topic, **more)  # type: ignore[arg-type]


def sasl_output(address: str, topic: str, ca: Path | None = None, **more: object) -> KafkaOutput:
    tls = None if ca is None else KafkaTls(ca=Material.read(str(ca)))
    return output(address, topic, sasl=Sasl(credential=CredentialId("ship")), tls=tls, **more)


def values(kafka, topic: str) -> list[dict]:
    return [json.loads(record.value()) for record in kafka.records(topic)]


def messages(kafka, topic: str) -> list[str]:
    return [value["message"] for value in values(kafka, topic)]


async def settled(sender: Sender, events: Batch) -> dict[int, Answer]:
    """The answers to a batch when nothing of it comes later, as a lane sends it; a new topic has no leader at first."""
    final: dict[int, Answer] = {}
    left = list(range(events.count))
    while left:
        try:
            answers = await sender.send(events.pick(left))
        except Later:
            await trio.sleep(0.05)
            continue
        final |= {left[at]: a for at, a in answers.others.items() if a.outcome is not Outcome.LATER}
        left = [left[at] for at, answer in sorted(answers.others.items()) if answer.outcome is Outcome.LATER]
    return final


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - other threads and processes do it
        await trio.sleep(0.01)


# -- what the broker has -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4", "snappy", "zstd"])
async def test_each_event_is_a_record_with_its_id(kafka, aio: Asyncio, compression: str) -> None:
    topic = kafka.create_topic(f"plain-{compression}", 3)
    events = batch(*(f"line {n}" for n in range(5000)), host={"name": "h"})
    async with output(kafka.plain, topic, compression=compression, request_max_bytes=Size(64 << 10)).open(
        context(aio)
    ) as sender:
        assert await settled(sender, events) == {}
    records = kafka.records(topic)
    assert Counter(record.headers()[0][1].decode() for record in records) == Counter(events.id_texts())
    assert {record.headers()[0][0] for record in records} == {"shipper-id"}
    assert sorted(json.loads(r.value())["message"] for r in records) == sorted(f"line {n}" for n in range(5000))
    assert len({record.partition() for record in records}) == 3


async def test_key_headers_and_topic_come_from_fields(kafka, aio: Asyncio) -> None:
    kafka.create_topic("fields-a", 8)
    kafka.create_topic("fields-b", 8)
    events = [{"message": f"{n}", "user": {"id": n % 5}, "to": "fields-a" if n % 2 else "fields-b"} for n in range(100)]
    out = output(
        kafka.plain, None, topic_field="to", key="user.id", headers={"host": "host.name", "no": "x.y"}, id_header=None
    )
    async with out.open(context(aio)) as sender:
        answers = await settled(sender, Batch.events(events, shared={"host": {"name": "web-1"}}))
    records = kafka.records("fields-a") + kafka.records("fields-b")
    assert answers == {}
    assert len(records) == 100
    assert {tuple(record.headers()) for record in records} == {(("host", b"web-1"),)}
    for record in records:
        event = json.loads(record.value())
        assert record.topic() == event["to"]
        assert record.key() == b"%d" % event["user"]["id"]
    assert len({(r.topic(), r.key(), r.partition()) for r in records}) == len({(r.topic(), r.key()) for r in records})


async def test_an_output_keeps_its_contract(kafka, aio: Asyncio) -> None:
    user = kafka.create_user("author", topics="papers")
    topic = kafka.create_topic("papers")
    out = sasl_output(kafka.sasl, topic, kafka.ca)
    async with out.open(context(aio, user)) as sender:
        await settled(sender, batch("a first line"))
    await check_output(out, context(aio, user), [batch("a long line", "another line")])
    assert {"a long line", "another line"} < set(messages(kafka, topic))


async def test_a_certificate_is_a_credential(kafka, aio: Asyncio) -> None:
    topic = kafka.create_topic("by-certificate")
    issued = kafka.authority.issue_cert("client")
    certificate = issued.cert_chain_pems[0].bytes()
    kafka.permit("User:certified", topic)
    pem = {"certificate": certificate.decode(), "key": issued.private_key_pem.bytes().decode()}
    tls = KafkaTls(ca=Material.read(str(kafka.ca)), credential=CredentialId("c"))
    with_it = OutputContext("main", aio, {"c": Credential.parse(pem)})
    async with output(kafka.tls, topic, tls=tls).open(with_it) as sender:
        assert await settled(sender, batch("one")) == {}
    assert messages(kafka, topic) == ["one"]


# -- what is refused ---------------------------------------------------------------------------------------------------


async def test_a_wrong_password_is_held_and_named(kafka, aio: Asyncio) -> None:
    name, _ = kafka.create_user("mistaken", topics="mistaken")
    out = sasl_output(kafka.sasl, kafka.create_topic("mistaken"), kafka.ca)
    async with out.open(context(aio, (name, "canary-secret"))) as sender:
        with pytest.raises(Held, match="SASL_AUTHENTICATION_FAILED") as held:
            await sender.send(batch("one"))
    assert held.value.code == Code.UNAUTHORIZED
    assert "canary-secret" not in str(held.value)


async def test_an_unknown_topic_is_later_until_it_is_there(kafka, aio: Asyncio) -> None:
    async with output(kafka.plain, "late-topic").open(context(aio)) as sender:
        before = await sender.send(batch("one"))
        kafka.create_topic("late-topic")
        after = await settled(sender, batch("one"))
    (answer,) = before.others.values()
    assert (answer.outcome, answer.of_target) == (Outcome.LATER, True)
    assert "UNKNOWN_TOPIC" in answer.reason
    assert after == {}


async def test_a_topic_that_is_not_permitted_holds_its_own_events_only(kafka, aio: Asyncio) -> None:
    user = kafka.create_user("narrow", topics="allowed-")
    kafka.create_topic("allowed-one")
    kafka.create_topic("forbidden-one")
    events = [{"message": name, "to": name} for name in ("allowed-one", "forbidden-one")]
    out = sasl_output(kafka.sasl, None, kafka.ca, topic_field="to")
    async with out.open(context(aio, user)) as sender:
        answers = await settled(sender, Batch.events(events))
    assert {at: (answer.outcome, answer.of_target, answer.code) for at, answer in answers.items()} == {
        1: (Outcome.HELD, True, Code.FORBIDDEN)
    }
    assert messages(kafka, "allowed-one") == ["allowed-one"]


async def test_a_record_too_large_is_rejected_while_others_pass(kafka, aio: Asyncio) -> None:
    topic = kafka.create_topic("small-records", max_message_bytes="100000")
    lines = [f"line {n} " + "x" * 100 for n in range(3000)]
    lines[1500] = "y" * 150_000
    lines[2000] = "z" * 1_500_000
    async with output(kafka.plain, topic, compression="none").open(context(aio)) as sender:
        await settled(sender, batch("first"))
        answers = await sender.send(batch(*lines))
        again = await sender.send(batch("more"))
    assert {at: answer.outcome for at, answer in answers.others.items()} == {
        1500: Outcome.REJECTED,
        2000: Outcome.REJECTED,
    }
    assert again.others == {}
    assert messages(kafka, topic) == ["first", *lines[:1500], *lines[1501:2000], *lines[2001:], "more"]


async def test_records_without_a_key_are_rejected_by_a_compacted_topic(kafka, aio: Asyncio) -> None:
    topic = kafka.create_topic("compacted", cleanup_policy="compact")
    events = [{"message": f"{n}", **({"id": f"k{n}"} if n % 2 else {})} for n in range(10)]
    async with output(kafka.plain, topic, key="id").open(context(aio)) as sender:
        answers = await settled(sender, Batch.events(events))
    assert {at: answer.outcome for at, answer in answers.items()} == dict.fromkeys(range(0, 10, 2), Outcome.REJECTED)
    assert messages(kafka, topic) == ["1", "3", "5", "7", "9"]


async def test_a_name_that_is_no_topic_makes_a_dead_letter(kafka, aio: Asyncio) -> None:
    kafka.create_topic("sound")
    events = [{"message": "one", "to": "sound"}, {"message": "two", "to": "not a topic"}]
    async with output(kafka.plain, None, topic_field="to").open(context(aio)) as sender:
        answers = await settled(sender, Batch.events(events))
    assert {at: answer.outcome for at, answer in answers.items()} == {1: Outcome.REJECTED}
    assert messages(kafka, "sound") == ["one"]


async def test_nobody_there_is_later(aio: Asyncio) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    async with output(address, "t").open(context(aio)) as sender:
        with pytest.raises(Later, match="connection refused") as later:
            await sender.send(batch("one"))
    assert later.value.code == Code.UNREACHABLE


# -- once each ---------------------------------------------------------------------------------------------------------


async def test_a_batch_whose_answer_was_lost_is_sent_again_and_appended_once(kafka, aio: Asyncio) -> None:
    user = kafka.create_user("doubtful", topics="doubtful")
    topic = kafka.create_topic("doubtful")
    first, second = batch("one", "two"), batch("three")
    async with proxied(kafka) as proxy, sasl_output(kafka.front, topic).open(context(aio, user)) as sender:
        await settled(sender, batch("zero"))
        proxy.withholds = lambda received: True
        with pytest.raises(Later):
            await sender.send(first)
        proxy.withholds = lambda received: False
        other = await sender.send(second)
        answers = await sender.send(first)
    assert (other.others, answers.others) == ({}, {})
    assert Counter(messages(kafka, topic)) == Counter(["zero", "one", "two", "three"])


async def test_records_of_a_key_keep_their_order_over_lost_answers(kafka, aio: Asyncio) -> None:
    """What is put off is sent again before anything that came later, as a lane does for an ordered output."""
    user = kafka.create_user("orderly", topics="orderly")
    topic = kafka.create_topic("orderly", 4)
    out = sasl_output(kafka.front, topic, key="user", request_max_bytes=Size(4 << 10))
    assert out.feeding().ordered
    sent = Counter[str]()
    async with proxied(kafka) as proxy, out.open(context(aio, user)) as sender:
        for turn in range(30):
            events = [{"user": f"u{n % 7}", "message": f"{turn * 100 + n}"} for n in range(100)]
            rest = replace(Batch.events(events), origin=b"o" * 16, seq=next(_sequence))
            proxy.withholds = once_beyond(proxy.received + 3000 * (turn % 5))
            while rest.count:
                try:
                    answers = await sender.send(rest)
                except Later:
                    sent["raised"] += 1
                    continue
                assert {answer.outcome for answer in answers.others.values()} <= {Outcome.LATER}
                sent["put off"] += len(answers.others)
                rest = rest.pick(sorted(answers.others))
    by_user: dict[str, list[int]] = {}
    for value in values(kafka, topic):
        by_user.setdefault(value["user"], []).append(int(value["message"]))
    assert sum(map(len, by_user.values())) == 3000
    assert all(numbers == sorted(set(numbers)) for numbers in by_user.values())
    assert sent["raised"]


async def test_a_broker_that_was_killed_and_is_back_has_each_record_once(kafka, aio: Asyncio) -> None:
    topic = kafka.create_topic("killed", 2)
    done = trio.Event()
    delivered = 0

    async def send(number: int) -> None:
        nonlocal delivered
        turn = 0
        while not done.is_set() or turn < 3:
            rest = batch(*(f"{number}/{turn}/{n}" for n in range(500)))
            while rest.count:
                try:
                    answers = await sender.send(rest)
                except Later:
                    await trio.sleep(0.05)
                    continue
                put_off = sorted(answers.others)
                delivered += rest.count - len(put_off)
                rest = rest.pick(put_off)
            turn += 1

    out = output(kafka.plain, topic, timeout=Duration(5))
    async with out.open(context(aio)) as sender, trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(send, number)
        await until(lambda: delivered >= 3000)
        with kafka.away():
            await trio.sleep(0.3)
        before = delivered
        await until(lambda: delivered >= before + 3000)
        done.set()
    found = Counter(messages(kafka, topic))
    assert set(found.values()) == {1}
    assert found.total() == delivered


def once_beyond(limit: int) -> Callable[[int], bool]:
    cuts = iter([True])
    return lambda received: received > limit and next(cuts, False)


async def test_topics_that_were_forgotten_go_on_where_they_were(
    kafka, aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shipper_plugins.kafka import client as kafka_client

    monkeypatch.setattr(kafka_client, "MOST_TOPICS", 1)
    names = [kafka.create_topic(f"forgotten-{n}") for n in range(3)]
    async with output(kafka.plain, None, topic_field="to").open(context(aio)) as sender:
        for turn in range(4):
            for name in names:
                assert await settled(sender, Batch.events([{"to": name, "message": f"{turn}"}])) == {}
    assert [messages(kafka, name) for name in names] == [["0", "1", "2", "3"]] * 3


# -- closing -----------------------------------------------------------------------------------------------------------


async def test_no_byte_comes_after_a_close_and_no_connection_is_left(kafka, aio: Asyncio) -> None:
    user = kafka.create_user("closing", topics="closing")
    topic = kafka.create_topic("closing", 4)
    async with proxied(kafka) as proxy:
        async with sasl_output(kafka.front, topic, compression="none").open(context(aio, user)) as sender:
            await settled(sender, batch("one"))
            began = proxy.received
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(sender.send, batch(*("x" * 1000 for _ in range(2000))))
                while proxy.received < began + 1_000_000:
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        assert not kafka.connections(kafka.front, os.getpid())
        await until(lambda: not proxy.connections)  # what is on its way through the proxy
        received = proxy.received
        assert received < began + 8_000_000
        await trio.sleep(0.5)
        assert proxy.received == received


async def test_a_close_does_not_wait_for_a_peer_that_reads_no_more(kafka, aio: Asyncio) -> None:
    user = kafka.create_user("stalled", topics="stalled")
    topic = kafka.create_topic("stalled", 8)
    much = sasl_output(kafka.front, topic, compression="none", request_max_bytes=Size(4 << 20))
    async with proxied(kafka) as proxy:
        async with much.open(context(aio, user)) as sender:
            await settled(sender, batch("one"))
            proxy.reading = trio.Event()
            with trio.move_on_after(1):  # for buffers to fill
                await sender.send(batch(*("x" * 1000 for _ in range(24_000))))
            before = trio.current_time()
        assert trio.current_time() - before < 15
        assert not kafka.connections(kafka.front, os.getpid())


async def test_nothing_is_sent_when_nothing_may_begin(kafka, aio: Asyncio) -> None:
    user = kafka.create_user("fenced", topics="fenced")
    topic = kafka.create_topic("fenced")
    may = True
    fenced = context(aio, user, may_begin=lambda: may)
    async with proxied(kafka) as proxy, sasl_output(kafka.front, topic).open(fenced) as sender:
        await settled(sender, batch("one"))
        may, received = False, proxy.received
        with pytest.raises(NotBegun):
            await sender.send(batch("two"))
        await trio.sleep(0.2)
        assert proxy.received == received
        may = True
        await sender.send(batch("three"))
    assert messages(kafka, topic) == ["one", "three"]
