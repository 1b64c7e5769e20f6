"""What a client of Kafka makes of record batches in doubt, against a broker that is scripted."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka.protocol.produce import ProduceResponse_v8

from shipper.plugin import Answers, Asyncio, Batch, Code, Later, Outcome, OutputContext, Sender
from shipper_plugins.kafka import answers as codes
from shipper_plugins.kafka import client
from shipper_plugins.kafka.output import KafkaOutput
from tests.plugins.kafka.broker import PRODUCE, Cluster, open_broker, open_cluster, producers, values

LOST = None
REFUSES_FORM = (codes.TOO_LARGE, codes.RECORD_LIST_TOO_LARGE, codes.INVALID_RECORD)


@asynccontextmanager
async def kafka(aio: Asyncio, *refusals: int | None) -> AsyncIterator[tuple[Sender, list[bytes]]]:
    """An open output, and what its broker has appended; the broker answers the first requests with these codes."""
    async with open_cluster(aio, "shop", refusals=refusals) as (port, appended):
        output = KafkaOutput(hosts=(f"127.0.0.1:{port}",), topic="shop", compression="none")
        async with output.open(OutputContext("main", aio, {})) as sender:
            yield sender, appended


def batch(seq: int, *texts: str) -> Batch:
    events = Batch.events([{"message": text} for text in texts])
    return Batch.unpack(events.pack(), origin=b"o" * 16, seq=seq)


def texts(appended: list[bytes]) -> list[bytes]:
    return [value.partition(b'"message":"')[2].partition(b'"')[0] for text in appended for value in values(text)]


@pytest.mark.parametrize("code", REFUSES_FORM)
async def test_a_batch_in_doubt_whose_form_is_refused_goes_out_in_another_form(aio: Asyncio, code: int) -> None:
    """A new producer sends them: the broker may have appended records under the old one's numbers."""
    async with kafka(aio, 0, LOST, code) as (sender, appended):
        await sender.send(batch(1, "zero"))
        with pytest.raises(Later):
            await sender.send(batch(2, "one", "two"))
        answers = await sender.send(batch(2, "one", "two"))
        other = await sender.send(batch(3, "three"))
    assert (answers.others, other.others) == ({}, {})
    assert texts(appended) == [b"zero", b"one", b"two", b"three"]
    assert [producers(text) for text in appended] == [{7}, {8}, {8}]


async def test_an_event_in_doubt_that_is_refused_alone_has_that_as_its_answer(aio: Asyncio) -> None:
    async with kafka(aio, LOST, codes.INVALID_RECORD, codes.INVALID_RECORD) as (sender, appended):
        with pytest.raises(Later):
            await sender.send(batch(1, "bad"))
        answers = await sender.send(batch(1, "bad"))
        other = await sender.send(batch(2, "good"))
    assert {at: answer.outcome for at, answer in answers.others.items()} == {0: Outcome.REJECTED}
    assert (other.others, texts(appended)) == ({}, [b"good"])


async def test_a_batch_in_doubt_that_is_refused_for_a_while_stays_in_doubt(aio: Asyncio) -> None:
    not_enough_replicas = 19
    async with kafka(aio, LOST, not_enough_replicas) as (sender, appended):
        with pytest.raises(Later):
            await sender.send(batch(1, "one"))
        later = await sender.send(batch(1, "one"))
        answers = await sender.send(batch(1, "one"))
    assert {at: answer.outcome for at, answer in later.others.items()} == {0: Outcome.LATER}
    assert (answers.others, texts(appended)) == ({}, [b"one"])
    assert [producers(text) for text in appended] == [{7}]


async def produced(aio: Asyncio, answer: Callable[[], bytes]) -> tuple[Answers, int]:
    """What becomes of two events, and of how many requests, where each request to produce is answered so."""
    cluster, asked = Cluster("shop"), 0

    async def said(key: int, text: bytes) -> bytes | None:
        nonlocal asked
        if key != PRODUCE:
            return await cluster.answer(key, text)
        asked += 1
        return answer() if asked < 50 else None

    async with open_broker(aio, said) as cluster.port:
        output = KafkaOutput(hosts=(f"127.0.0.1:{cluster.port}",), topic="shop", compression="none")
        async with output.open(OutputContext("main", aio, {})) as sender:
            return await sender.send(batch(1, "one", "two")), asked


@pytest.mark.parametrize("places", [[7], [-1], [0, 2]])
async def test_an_answer_that_names_records_that_were_not_sent_refuses_none_and_is_not_asked_again_at_once(
    aio: Asyncio, places: list[int]
) -> None:
    """It was sent in other batches at once: one event made a thousand requests a second, for ever."""
    records = [(place, None) for place in places]
    said = ProduceResponse_v8([("shop", [(0, codes.INVALID_RECORD, -1, -1, 0, records, None)])], 0).encode()
    answers, asked = await produced(aio, lambda: bytes(said))

    assert asked == 1
    assert {(answer.outcome, answer.code) for answer in answers.others.values()} == {(Outcome.LATER, Code.BAD_ANSWER)}
    assert len(answers.others) == 2


async def test_an_answer_on_which_its_reader_fails_leaves_the_events_in_doubt(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core would take an unknown error for the fault of some event, and make dead letters of sound ones."""

    def fail(*_: object) -> None:
        raise KeyError("a text of the peer")

    monkeypatch.setattr(client, "_verdicts", fail)
    async with kafka(aio) as (sender, _):
        with pytest.raises(Later) as bad:
            await sender.send(batch(1, "one"))

    assert bad.value.code == Code.BAD_ANSWER
    assert "peer" not in str(bad.value)
