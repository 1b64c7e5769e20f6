"""The `kafka` output: writes each event as a record, whose value is the event as JSON.

    send(batch) ── rows ──> topics ── chunks ──> record batches ── client ──> answers by batch
                 (thread)             (thread)                    (asyncio)

`kafka.rows` makes the parts of records, `kafka.records` their format, `kafka.connection` connects, `kafka.answers`
interprets a broker's codes, `kafka.client` keeps track of the delivered records. Only the first is imported before an
output is opened, since the library is an extra of the package.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
import trio

from shipper.plugin import (
    BASIC,
    CERTIFICATE,
    Answer,
    Answers,
    BadOption,
    Batch,
    ClientTls,
    Code,
    CredentialId,
    Duration,
    Feeding,
    Held,
    Later,
    NotBegun,
    Outcome,
    Output,
    OutputContext,
    Sender,
    Settings,
    Size,
    StartFailed,
    anew,
    client_context,
    takes,
)
from shipper.plugin.asking import Question, Tell
from shipper_plugins import extras
from shipper_plugins.kafka import asked
from shipper_plugins.kafka.rows import TOPIC, Layout, Rows, rows, topics
from shipper_plugins.loopback import is_loopback

if TYPE_CHECKING:
    from shipper_plugins.kafka.client import Client, Verdict
    from shipper_plugins.kafka.records import Chunk, Places

_MOST_LIMITS = 10_000
_SMALL_BYTES = 64 << 10
"""A topic that refuses a record of this size has a wrong limit."""
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@\[\]]+)):([0-9]{1,5})")

Host = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^{_HOST.pattern}(?!\n)$", max_length=300, description="a host and its port, such as kafka-1:9092"
    ),
]
Topic = Annotated[
    str,
    msgspec.Meta(pattern=TOPIC, description="the name of a topic: up to 249 of the characters a-z A-Z 0-9 . _ -"),
]
Field = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[^.\x00-\x1f\x7f]+(\.[^.\x00-\x1f\x7f]+)*(?!\n)$",
        max_length=512,
        description="the path of a field, such as host.name",
    ),
]
HeaderName = Annotated[str, msgspec.Meta(min_length=1, max_length=255, description="the name of a header")]


class Sasl(Settings, frozen=True, kw_only=True):
    """The login, with a user name and a password."""

    credential: Annotated[CredentialId, takes(BASIC)]
    """The id of the secret {username, password}."""
    mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = "SCRAM-SHA-512"
    """PLAIN sends the password in clear text: only with `tls`."""


class KafkaTls(ClientTls, frozen=True, kw_only=True):
    """How to check the brokers, and the certificate to show them."""

    credential: Annotated[CredentialId, takes(CERTIFICATE)] | None = None
    """The id of the secret {certificate, key} that identifies this client (default: no certificate)."""


class KafkaOutput(Output, frozen=True, kw_only=True):
    """Writes events to topics of Kafka 2.4 or newer, each once; needs `pip install 'shipper[kafka]'`."""

    live: ClassVar[frozenset[str]] = Output.live | {"compression", "request_max_bytes", "timeout"}

    hosts: Annotated[tuple[Host, ...], msgspec.Meta(min_length=1, max_length=64)]
    """Some brokers of one cluster, such as kafka-1:9092; they name the others."""
    tls: KafkaTls | None = None
    """How to check the brokers; without it, connections are not encrypted. `{}` trusts the system's authorities."""
    sasl: Sasl | None = None
    """How to log in; brokers that identify a client by its certificate need none."""
    topic: Topic | None = None
    """Topic of all events, or of those without a `topic_field` (default: the name of their data stream)."""
    topic_field: Field | None = None
    """Field whose text is the topic of an event; an event with an invalid one becomes a dead letter."""
    key: Field | None = None
    """Field whose value is the key of a record (default: the key that an input gave the event). With this, records of
    one key go to one partition, in their order, so each broker gets one request at a time, regardless of `workers`."""
    headers: dict[HeaderName, Field] = msgspec.field(default_factory=dict)
    """Headers of a record, each with the field of its value; a header without a value is omitted."""
    id_header: HeaderName | None = "shipper-id"
    """Header with the id of the event, by which a consumer can recognize a repeated one; null: none."""
    compression: Literal["none", "gzip", "lz4", "snappy", "zstd"] = "gzip"
    """The compression of record batches. Every consumer reads gzip; snappy costs less, zstd compresses more."""
    request_max_bytes: Size = Size(1_000_000)
    """Largest record batch before compression; a larger event becomes a dead letter. If a topic's limit
    (`max.message.bytes`) is lower, batches become smaller."""
    timeout: Duration = Duration(30)
    """How long a request may take, and how long a broker may wait for its replicas."""

    def __post_init__(self) -> None:
        super().__post_init__()
        extras.check("kafka", ("aiokafka", "cramjam"))
        for number, host in enumerate(self.hosts):
            if not 0 < _address(host)[1] < 65536:
                raise BadOption("a host's port is a number from 1 to 65535, as in kafka-1:9092", "hosts", number)
            if host in self.hosts[:number]:
                raise BadOption("a host is named twice", "hosts", number)
        if self.sasl is not None and self.sasl.mechanism == "PLAIN" and self.tls is None and not self._is_here():
            raise BadOption("PLAIN sends the password in clear text: it needs tls", "sasl", "mechanism")
        if not 0 < self.timeout <= 3600:
            raise BadOption(f"must be above 0 and at most 1h, not {self.timeout}", "timeout")
        if not 1024 <= self.request_max_bytes <= 16 << 20:
            raise BadOption(f"must be from 1KiB to 16MiB, not {self.request_max_bytes}", "request_max_bytes")

    def contacts(self) -> Sequence[str]:
        """See `Output.contacts`."""
        return self.hosts

    def feeding(self) -> Feeding:
        """See `Output.feeding`; a request has record batches of any topics."""
        grouping = ("data_stream",) if self.topic is None else ()
        ordered = self.key is not None
        return replace(super().feeding(), client="lane", ordered=ordered, grouping=grouping, mixes=True)

    def load(self) -> None:
        """See `Output.load`: the library, 0.1 s."""
        import shipper_plugins.kafka.client  # noqa: F401

    def targets(self, batch: Batch) -> Sequence[str]:
        """See `Output.targets`: the topics of the events."""
        return topics(batch, self.layout())

    def warnings(self) -> Sequence[str]:
        if self.sasl is None or self.tls is not None or self._is_here():
            return ()
        return ["records go to the brokers unencrypted, though a credential is used; write tls: {}"]

    def layout(self) -> Layout:
        """Returns the fields for the parts of a record."""
        return Layout(
            self.topic,
            _path(self.topic_field),
            _path(self.key),
            {name: tuple(path.split(".")) for name, path in self.headers.items()},
            self.id_header,
        )

    def _is_here(self) -> bool:
        return all(is_loopback(_address(host)[0]) for host in self.hosts)

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        """See `Output.open`."""
        try:
            client = await trio.to_thread.run_sync(partial(_client, self, context))
        except ValueError as error:
            raise StartFailed(f"output {context.name}: {error}", code=Code.CREDENTIAL_INVALID) from None
        try:
            yield _Kafka(self, context, client)
        finally:
            with trio.CancelScope(shield=True):
                await context.aio.call(client.close)

    async def ask(self, context: OutputContext, question: Question, tell: Tell) -> None:
        """See `Output.ask`."""
        brokers = self.hosts[0] if len(self.hosts) == 1 else f"{self.hosts[0]}, …"
        async with self.open(context) as sender:
            assert isinstance(sender, _Kafka)
            await asked.ask(sender.client, context.aio, brokers, question, tell, is_tls=self.tls is not None)


def _path(field: str | None) -> tuple[str, ...] | None:
    return None if field is None else tuple(field.split("."))


def _address(host: str) -> tuple[str, int]:
    match = _HOST.fullmatch(host)
    assert match is not None
    return match[1] or match[2], int(match[3])


def _client(output: KafkaOutput, context: OutputContext) -> Client:
    """Returns a client; raises ValueError for an invalid certificate. Call it in a thread: loading one is slow."""
    from shipper_plugins.kafka.client import Client
    from shipper_plugins.kafka.connection import Access

    certificate = None if output.tls is None else context.credentials.get(output.tls.credential or "")
    access = Access(
        context.aio,
        None if output.tls is None else client_context(output.tls, certificate),
        None if output.tls is None else output.tls.server_name,
        None if output.sasl is None else output.sasl.mechanism,
        None if output.sasl is None else context.credentials[output.sasl.credential],
        float(output.timeout),
        context.begins,
        context.may_begin,
    )
    return Client([_address(host) for host in output.hosts], access)


class _Kafka(Sender):
    """The Sender of an open `kafka` output."""

    def __init__(self, output: KafkaOutput, context: OutputContext, client: Client) -> None:
        self._output = output
        self._layout = output.layout()
        self._aio = context.aio
        self.client = client
        self._limits: dict[str, int] = {}
        """The limits of topics that are lower than that of a request."""
        self._turn = 0
        self._encoder = trio.CapacityLimiter(1)

    async def send(self, batch: Batch) -> Answers:
        """See `Sender.send`; raises only if no broker answered for any event."""
        parts = await trio.to_thread.run_sync(rows, batch, self._layout, limiter=self._encoder)
        sending = _Sending(batch, parts, dict(self._limits), int(self._output.request_max_bytes))
        try:
            await self._recall(sending)
            while sending.open:
                await self._deliver(sending)
        except (Later, Held, NotBegun) as error:
            if not sending.knows_anything:
                raise
            sending.stop(error)
        if len(self._limits) < _MOST_LIMITS:
            self._limits |= sending.learned
        return sending.answers()

    async def _recall(self, sending: _Sending) -> None:
        if self.client.remembers:
            delivered, waiting = await self._aio.call(self.client.recall, sending.batch.id_texts())
            sending.recalled(delivered, waiting)

    async def _deliver(self, sending: _Sending) -> None:
        places, refused = await self._aio.call(self.client.places, sending.topics())
        sending.refuse(refused)
        if not sending.open:
            return
        chunks = await trio.to_thread.run_sync(self._chunks, sending, places, limiter=self._encoder)
        sending.learn(await self._aio.call(self.client.deliver, chunks, sending.ids))

    def _chunks(self, sending: _Sending, places: Mapping[str, Places]) -> list[Chunk]:
        from shipper_plugins.kafka.records import chunks

        limits = {topic: sending.limit(topic) for topic in places}
        compression = self._output.compression
        made = chunks(sending.rows, sending.open, places, limits, compression=compression, turn=self._turn)
        self._turn += len(made)
        return made


class _Sending:
    """One batch while it is sent: the answered events, and the `open` ones."""

    def __init__(self, batch: Batch, rows: Rows, limits: dict[str, int], most: int) -> None:
        from shipper_plugins.kafka.records import oversized

        self.batch, self.rows = batch, rows
        self.learned: dict[str, int] = {}
        self.knows_anything = False
        self._limits, self._most = limits, most
        self._others: dict[int, Answer] = {}
        self._retry_after: float | None = None
        self.open: Sequence[int] = range(batch.count)
        nameless = [at for at, topic in enumerate(rows.topics) if not topic]
        self._answer(dict.fromkeys(nameless, _NAMELESS))
        self._answer(dict.fromkeys(oversized(rows, most), Answer(Outcome.REJECTED, f"larger than {most} bytes")))

    def topics(self) -> set[str]:
        """Returns the topics of open events."""
        return {self.rows.topics[at] for at in self.open}

    def limit(self, topic: str) -> int:
        """Returns the limit of a record batch for a topic."""
        return self._limits.get(topic, self._most)

    def ids(self, chunk: Chunk) -> list[str]:
        """Returns the ids of the events of a record batch."""
        ids = self.batch.id_texts()
        return [ids[at] for at in chunk.positions]

    def recalled(self, delivered: set[int], waiting: Mapping[int, Answer]) -> None:
        """Records the outcome of events that were in doubt."""
        self.knows_anything |= bool(delivered)
        self._answer(waiting)
        self.open = [at for at in self.open if at not in delivered]

    def refuse(self, topics: Mapping[str, Answer]) -> None:
        """Records one answer for all open events of each of these topics."""
        self.knows_anything |= bool(topics)
        names = self.rows.topics
        self._answer({at: topics[names[at]] for at in self.open if names[at] in topics})

    def learn(self, verdicts: Sequence[Verdict]) -> None:
        """Records the outcome of sent record batches; raises their error if none of them was answered."""
        if not self.knows_anything and all(verdict.error is not None for verdict in verdicts):
            raise anew(min((verdict.error for verdict in verdicts if verdict.error), key=_weight))
        self.knows_anything = True
        again: list[int] = []
        for verdict in verdicts:
            again += self._left(verdict)
        self.open = sorted(again)

    def _left(self, verdict: Verdict) -> Sequence[int]:
        """Returns the events of a record batch to send again, in other batches."""
        from shipper_plugins.kafka import answers as codes

        chunk = verdict.chunk
        if verdict.is_appended:
            return ()
        if isinstance(verdict.error, Later) and verdict.error.retry_after is not None:
            self._retry_after = max(self._retry_after or 0.0, verdict.error.retry_after)
        cause = verdict.cause
        code = codes.NONE if isinstance(cause, Answer) or cause.error is not None else cause.code
        if code not in (codes.TOO_LARGE, codes.RECORD_LIST_TOO_LARGE, codes.INVALID_RECORD):
            self._answer(dict.fromkeys(chunk.positions, verdict.answer()))
            return ()
        if verdict.after is not None:  # the batch before it is sent again in other batches, and so is this one
            return chunk.positions
        if code == codes.INVALID_RECORD and verdict.bad:
            if not all(0 <= place < len(chunk.positions) for place in verdict.bad):
                self._answer(dict.fromkeys(chunk.positions, _OF_OTHERS))
                return ()
            bad = {chunk.positions[place] for place in verdict.bad}
            self._answer(dict.fromkeys(bad, _invalid(chunk)))
            return [at for at in chunk.positions if at not in bad]
        if len(chunk.positions) > 1:
            if code != codes.INVALID_RECORD:
                self.learned[chunk.topic] = max(1, chunk.size // 2)
            return self._halve(chunk)
        self._answer({chunk.positions[0]: _invalid(chunk) if code == codes.INVALID_RECORD else _too_large(chunk)})
        return ()

    def _halve(self, chunk: Chunk) -> Sequence[int]:
        self._limits[chunk.topic] = max(1, chunk.size // 2)
        return chunk.positions

    def stop(self, error: Later | Held | NotBegun) -> None:
        """Answers the open events with an error."""
        self._answer(dict.fromkeys(self.open, Answer.of(error)))
        self._retry_after = error.retry_after if isinstance(error, Later) else self._retry_after

    def _answer(self, answers: Mapping[int, Answer]) -> None:
        if answers:
            self._others |= answers
            self.open = [at for at in self.open if at not in self._others]

    def answers(self) -> Answers:
        """Returns the answers for all events."""
        return Answers(self.batch.count, self._others, self._retry_after)


def _weight(error: Exception) -> int:
    return 0 if isinstance(error, Held) else 1 if isinstance(error, Later) else 2


_OF_OTHERS = Answer(Outcome.LATER, "the answer names records that were not sent", code=Code.BAD_ANSWER)
_NAMELESS = Answer(Outcome.REJECTED, "the event names no valid topic")


def _invalid(chunk: Chunk) -> Answer:
    return Answer(Outcome.REJECTED, f"topic {chunk.topic}: INVALID_RECORD")


def _too_large(chunk: Chunk) -> Answer:
    """Returns the answer for a record above its topic's limit; a small one is held until the limit is raised."""
    reason = f"topic {chunk.topic}: MESSAGE_TOO_LARGE"
    if chunk.size > _SMALL_BYTES:
        return Answer(Outcome.REJECTED, reason, code=Code.TOO_LARGE)
    more = f"{reason} for one record of {chunk.size} bytes: raise its max.message.bytes"
    return Answer(Outcome.HELD, more, of_target=True, code=Code.TOO_LARGE)
