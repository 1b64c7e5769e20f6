"""A client of one cluster with one credential: metadata, sequence numbers, records in doubt. In the asyncio thread.

*Exactly once.* The client is an idempotent producer. A record batch has a sequence number in its partition, and a
broker appends each number once. A batch without an answer is *in doubt*: it is kept unchanged, no other batch goes to
its partition, and `recall` sends it again under the same number until a broker decides. So its events are delivered
once during the life of the client, over connections, leaders and restarts of brokers. Events that are still in doubt
when a client ends are sent again by the next one: then only their ids identify repetitions.

*No retry and no backoff.* Every answer of a broker is reported; the lane decides when to try again.

The library's own producer is not used: it retries a failed login for ever without reporting it, and writes its buffer
when it is closed. Only the library's formats are used: requests, answers, record batches.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.produce import ProduceRequest_v8
from aiokafka.protocol.transaction import InitProducerIdRequest_v0

from shipper.plugin import Answer, Code, Held, Later, NotBegun, Outcome, anew, forget_frames
from shipper_plugins.bad_answers import reading, unreadable
from shipper_plugins.kafka import answers as codes
from shipper_plugins.kafka.connection import Access, Address, Connection, Lost, connect, where
from shipper_plugins.kafka.records import Chunk, Places

_FRESH_SECONDS = 300.0
MOST_TOPICS = 10_000
"""The limit of topics in memory, since events may name any."""
MOST_BROKERS = 1000
"""The limit of brokers that metadata may name."""
_HOST = re.compile(r"(?:[\w-]{1,63}\.)*[\w-]{1,63}\.?|[0-9a-fA-F]*:[0-9a-fA-F:.]+(?:%[\w.-]+)?", re.ASCII)
MOST_CONNECTING = 8
"""Connections that are made at once: each may wait for a name, and `shipper.sdk.resolve` has 256 questions for all."""
_PATIENCE = 1.0
"""The longest throttling, in seconds, that a request waits for; the lane waits for longer ones."""

Producer = tuple[int, int]
"""The id and the epoch of a producer, which the cluster assigns."""
Refusal = Later | Held | NotBegun


@dataclass(slots=True)
class Topic:
    """The metadata of a topic; `leaders` has the broker of each partition, or None."""

    code: int
    leaders: dict[int, int | None]
    known_at: float

    @property
    def is_stale(self) -> bool:
        return (
            self.code != codes.NONE
            or None in self.leaders.values()
            or time.monotonic() - self.known_at > _FRESH_SECONDS
        )


@dataclass(slots=True, eq=False)
class Partition:
    """The state of one partition; a sender holds the lock."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    producer: Producer | None = None
    sequence: int = 0
    doubt: Doubt | None = None


@dataclass(slots=True, eq=False)
class Doubt:
    """A record batch that may have been appended; `ids` are those of its events."""

    chunk: Chunk
    ids: frozenset[str]
    answer: Answer


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one record batch: a broker's code, or an error."""

    chunk: Chunk
    code: int = codes.NONE
    error: Refusal | None = None
    bad: Sequence[int] = ()
    """Indices, within the batch, of the records that the broker reports as invalid."""
    after: Verdict | Answer | None = None
    """The outcome of an earlier batch of its partition that was not appended, so that this one was not sent."""

    @property
    def is_appended(self) -> bool:
        """Whether the partition has the records."""
        return self.error is None and self.after is None and self.code in (codes.NONE, codes.DUPLICATE_SEQUENCE)

    @property
    def cause(self) -> Verdict | Answer:
        """The outcome that prevented the append: its own, or that of the earlier batch."""
        return self.after or self

    def answer(self) -> Answer:
        """Returns the answer for the events of a batch that was not appended."""
        if isinstance(self.after, Answer):
            return self.after
        if self.after is not None:
            return self.after.answer()
        if self.error is not None:
            return Answer.of(self.error)
        return codes.answer(self.code, self.chunk.topic)


class Client:
    """Connections, metadata and sequence numbers."""

    def __init__(self, bootstrap: Sequence[Address], access: Access) -> None:
        self._bootstrap = random.sample(bootstrap, len(bootstrap))
        self._access = access
        self._has_begun = False
        self._connections: dict[Address, Connection] = {}
        self._connecting: dict[Address, asyncio.Lock] = {}
        self._turns = asyncio.Semaphore(MOST_CONNECTING)
        self._opened: list[Connection] = []
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, Topic] = {}
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._asking = asyncio.Lock()
        self._producer: Producer | None = None
        self._delivered: set[str] = set()
        """Ids of events that were in doubt and are delivered, until `recall` returns them."""

    async def close(self) -> None:
        """Aborts every connection; returns when their sockets are closed."""
        for connection in self._opened:
            connection.abort()
        await self._access.closed()

    # -- events in doubt -----------------------------------------------------------------------------------------------

    @property
    def remembers(self) -> bool:
        """Whether events are in doubt, or were and are delivered."""
        return bool(self._delivered) or any(state.doubt is not None for state in self._partitions.values())

    async def recall(self, ids: Sequence[str]) -> tuple[set[int], dict[int, Answer]]:
        """Sends batches in doubt again; returns the delivered events among these, and the answers of doubtful ones.

        Raises Later, Held or NotBegun if no broker answers.
        """
        await self._settle()
        delivered = {at for at, id in enumerate(ids) if id in self._delivered}
        self._delivered.difference_update([ids[at] for at in delivered])
        waiting: dict[int, Answer] = {}
        for state in self._partitions.values():
            if (doubt := state.doubt) is not None:
                waiting |= {at: doubt.answer for at, id in enumerate(ids) if id in doubt.ids}
        return delivered, waiting

    async def _settle(self) -> None:
        places = sorted(place for place, state in self._partitions.items() if state.doubt is not None)
        async with self._locked(places):
            doubts = [doubt for place in places if (doubt := self._partitions[place].doubt) is not None]
            if not doubts:
                return
            await self._look_up({doubt.chunk.topic for doubt in doubts})
            for verdict in await self._produce([doubt.chunk for doubt in doubts]):
                self._learn(verdict)

    def _learn(self, verdict: Verdict) -> None:
        """Records a broker's answer for a batch in doubt.

        A final refusal ends the doubt: its events are sent again, in other batches. If the batch had been appended, the
        answer would be a duplicate, unless the topic's limits have changed since, because brokers check those first:
        then its events are delivered twice, with the same ids. A new producer begins, since the sequence numbers may be
        used: a broker would take other records under used numbers for duplicates.
        """
        state = self._partitions[verdict.chunk.place]
        assert state.doubt is not None
        if verdict.is_appended:
            self._delivered |= state.doubt.ids
            state.doubt = None
        elif verdict.error is None and verdict.code in codes.UNKNOWN_PRODUCER | codes.FINAL:
            state.doubt = None
            self._producer = None
        else:
            state.doubt.answer = verdict.answer()

    # -- metadata ------------------------------------------------------------------------------------------------------

    async def places(self, topics: Iterable[str]) -> tuple[dict[str, Places], dict[str, Answer]]:
        """Returns the partitions of these topics, and the answers for events of unavailable topics.

        Raises Later, Held or NotBegun if no broker answers.
        """
        names = set(topics)
        await self._look_up(names)
        found: dict[str, Places] = {}
        refused: dict[str, Answer] = {}
        for name in names:
            topic = self._topics[name]
            led = [number for number, leader in topic.leaders.items() if leader is not None]
            free = [number for number in led if not self._is_in_doubt(name, number)]
            if topic.code != codes.NONE:
                refused[name] = codes.answer(topic.code, name)
            elif not led:
                refused[name] = codes.answer(codes.LEADER_NOT_AVAILABLE, name)
            else:
                found[name] = Places(len(topic.leaders), free or led)
        return found, refused

    def _is_in_doubt(self, topic: str, number: int) -> bool:
        state = self._partitions.get((topic, number))
        return state is not None and state.doubt is not None

    async def _look_up(self, names: set[str]) -> None:
        async with self._asking:
            self._forget_most(names)
            wanted = [name for name in names if name not in self._topics or self._topics[name].is_stale]
            if not wanted:
                return
            answer = await self._ask_any(MetadataRequest_v5(sorted(wanted), False))
            with reading("metadata"):
                self._brokers, found = _brokers(answer), _topics(answer)
            self._forget_brokers()
            for name in wanted:
                self._topics[name] = found.get(name) or Topic(codes.UNKNOWN_TOPIC, {}, time.monotonic())

    def _forget_brokers(self) -> None:
        """Closes the connections to brokers that the cluster no longer names, after their last answers."""
        known = {*self._bootstrap, *self._brokers.values()}
        for address in [address for address in self._connections if address not in known]:
            self._connections.pop(address).retire()
        self._connecting = {at: lock for at, lock in self._connecting.items() if at in known or lock.locked()}

    def _forget_most(self, names: set[str]) -> None:
        """Bounds the memory; a new producer begins, so forgotten sequence numbers are not needed."""
        states = self._partitions.values()
        if len(self._topics) > MOST_TOPICS and not any(state.lock.locked() for state in states):
            self._topics = {name: topic for name, topic in self._topics.items() if name in names}
            self._partitions = {at: state for at, state in self._partitions.items() if state.doubt is not None}
            self._producer = None

    def _forget(self, topic: str) -> None:
        """Marks the metadata of a topic as out of date."""
        if topic in self._topics:
            self._topics[topic].known_at = -_FRESH_SECONDS

    async def _ask_any(self, request: Any) -> Any:
        """Asks connected brokers first, then the others, one by one; raises the last error, a refusal at once."""
        try:
            async with asyncio.timeout(self._access.seconds):
                return await self._ask_each(request)
        except TimeoutError as error:
            forget_frames(error)
            raise Later(f"no broker answers within {self._access.seconds:g}s", code=Code.TIMED_OUT) from None

    async def _ask_each(self, request: Any) -> Any:
        connected = [address for address, connection in self._connections.items() if not connection.is_closed]
        last = Later("no broker")
        for address in dict.fromkeys([*connected, *self._bootstrap, *self._brokers.values()]):
            if not self._access.admits(address):
                continue
            try:
                connection = await self._connection(address)
                return await connection.request(request)
            except Later as error:
                last = Later(str(error), error.retry_after, code=error.code)
        raise anew(last)

    async def ask_to_write(self, topic: str) -> int:
        """Returns the code of a leader's answer to a request without records, for a topic of `places`.

        The broker checks the privilege and then refuses it: nothing is appended. A leader without an address is not
        available. Raises Later, Held or NotBegun.
        """
        leaders = ((number, leader) for number, leader in self._topics[topic].leaders.items() if leader is not None)
        number, leader = next(leaders)
        address = self._brokers.get(leader)
        if address is None:
            return codes.LEADER_NOT_AVAILABLE
        connection = await self._connection(address)
        request = ProduceRequest_v8(None, -1, int(self._access.seconds * 1000), [(topic, [(number, b"")])])
        answer = await connection.request(request)
        found = [code for _, partitions in answer.topics or () for _, code, *_ in partitions or ()]
        return int(found[0]) if found else codes.INVALID_RECORD

    # -- connections ---------------------------------------------------------------------------------------------------

    async def _connection(self, address: Address) -> Connection:
        async with self._connecting.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is not None and time.monotonic() > connection.expires_at:
                connection.retire()
                connection = None
            if connection is None or connection.is_closed:
                self._opened = [one for one in self._opened if not one.is_closed]
                async with self._turns:
                    connection = await connect(address, self._access)
                self._connections[address] = connection
                self._opened.append(connection)
        throttled = connection.free_at - time.monotonic()
        if throttled > _PATIENCE:
            raise Later(f"{where(address)}: the broker throttles", throttled, code=Code.OVERLOADED)
        if throttled > 0:
            await asyncio.sleep(throttled)
        return connection

    # -- records -------------------------------------------------------------------------------------------------------

    async def deliver(self, chunks: Sequence[Chunk], ids: Callable[[Chunk], Iterable[str]]) -> list[Verdict]:
        """Sends record batches, those of one partition in their order; returns a verdict for each, in any order.

        `ids` returns the ids of the events of a batch that is in doubt.
        """
        verdicts: list[Verdict] = []
        rest = list(chunks)
        stopped: dict[tuple[str, int], Verdict] = {}
        while rest:
            turn = {chunk.place: chunk for chunk in reversed(rest)}
            rest = [chunk for chunk in rest if turn[chunk.place] is not chunk]
            verdicts += [Verdict(turn[place], after=first) for place, first in stopped.items() if place in turn]
            found = await self._deliver([chunk for place, chunk in turn.items() if place not in stopped], ids)
            stopped |= {verdict.chunk.place: verdict for verdict in found if not verdict.is_appended}
            verdicts += found
        return verdicts

    async def _deliver(self, chunks: Sequence[Chunk], ids: Callable[[Chunk], Iterable[str]]) -> list[Verdict]:
        """Sends record batches of different partitions; returns a verdict for each."""
        places = sorted(chunk.place for chunk in chunks)
        async with self._locked(places):
            verdicts = []
            free = []
            for chunk in chunks:
                if (doubt := self._partitions[chunk.place].doubt) is not None:
                    verdicts.append(Verdict(chunk, after=doubt.answer))
                else:
                    free.append(chunk)
            try:
                await self._number(free)
            except (Later, Held, NotBegun) as error:
                return [*verdicts, *(Verdict(chunk, error=anew(error)) for chunk in free)]
            return verdicts + await self._produce_anew(free, ids)

    async def _produce_anew(self, chunks: Sequence[Chunk], ids: Callable[[Chunk], Iterable[str]]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        try:
            verdicts = await self._produce(chunks)
            return verdicts
        finally:  # also after a cancel: then all batches may have been appended
            known = {verdict.chunk.place: verdict for verdict in verdicts}
            for chunk in chunks:
                self._note(chunk, known.get(chunk.place), ids)

    def _note(self, chunk: Chunk, verdict: Verdict | None, ids: Callable[[Chunk], Iterable[str]]) -> None:
        """Advances the sequence of a partition, unless the batch was certainly not appended."""
        state = self._partitions[chunk.place]
        if verdict is not None and verdict.error is None and verdict.code in codes.UNKNOWN_PRODUCER:
            self._producer = None
        if verdict is None or _is_doubtful(verdict):
            answer = Answer(Outcome.LATER, "no answer yet") if verdict is None else verdict.answer()
            state.doubt = Doubt(chunk, frozenset(ids(chunk)), answer)
        elif not verdict.is_appended:
            return
        state.sequence = (state.sequence + len(chunk.positions)) & 0x7FFFFFFF

    async def _number(self, chunks: Sequence[Chunk]) -> None:
        """Numbers record batches; raises Later, Held or NotBegun without a producer's id."""
        if not chunks:
            return
        producer = await self._identified()
        for chunk in chunks:
            state = self._partitions[chunk.place]
            if state.producer != producer:
                state.producer, state.sequence = producer, 0
            chunk.stamp(*producer, state.sequence)

    async def _identified(self) -> Producer:
        async with self._asking:
            if self._producer is None:
                answer = await self._ask_any(InitProducerIdRequest_v0(None, 60_000))
                if answer.error_code != codes.NONE:
                    raise codes.refusal(answer.error_code, "no producer id")
                self._producer = (answer.producer_id, answer.producer_epoch)
            return self._producer

    async def _produce(self, chunks: Sequence[Chunk]) -> list[Verdict]:
        """Sends one request to each leader; returns a verdict for each record batch."""
        by_leader: dict[Address | None, list[Chunk]] = {}
        for chunk in chunks:
            by_leader.setdefault(self._leader(chunk), []).append(chunk)
        homeless = [Verdict(chunk, codes.LEADER_NOT_AVAILABLE) for chunk in by_leader.pop(None, [])]
        asked = [self._ask_leader(leader, part) for leader, part in by_leader.items() if leader is not None]
        verdicts = [verdict for part in await asyncio.gather(*asked) for verdict in part] + homeless
        for verdict in verdicts:
            if verdict.error is not None or verdict.code in codes.MOVED:
                self._forget(verdict.chunk.topic)
        return verdicts

    def _leader(self, chunk: Chunk) -> Address | None:
        topic = self._topics.get(chunk.topic)
        leader = None if topic is None else topic.leaders.get(chunk.partition)
        return None if leader is None else self._brokers.get(leader)

    async def _ask_leader(self, leader: Address, chunks: Sequence[Chunk]) -> list[Verdict]:
        try:
            connection = await self._connection(leader)
            if not self._has_begun:
                await self._access.aio.answer(self._access.begins)
                self._has_begun = True
            answer = await connection.request(self._request(chunks))
        except (Later, Held, NotBegun) as error:
            return [Verdict(chunk, error=anew(error)) for chunk in chunks]
        try:
            return _verdicts(answer, chunks, connection.where)
        except Exception as error:  # on an absurd answer: it is no fault of the events, and these are in doubt
            lost = Lost(f"{connection.where}: {unreadable(error)}", code=Code.BAD_ANSWER)
            return [Verdict(chunk, error=anew(lost)) for chunk in chunks]

    def _request(self, chunks: Sequence[Chunk]) -> ProduceRequest_v8:
        topics: dict[str, list[tuple[int, bytes]]] = {}
        for chunk in chunks:
            topics.setdefault(chunk.topic, []).append((chunk.partition, bytes(chunk.data)))
        return ProduceRequest_v8(None, -1, int(self._access.seconds * 1000), list(topics.items()))

    def _locked(self, places: Sequence[tuple[str, int]]) -> AsyncExitStack:
        """Locks partitions; callers pass them sorted, which prevents deadlocks."""
        return _Locked([self._partitions.setdefault(place, Partition()).lock for place in places])


def _brokers(answer: Any) -> dict[int, Address]:
    """Returns the brokers that metadata name; one with an address that cannot be is omitted, as if it were away."""
    named = answer.brokers or ()
    if len(named) > MOST_BROKERS:
        raise Later(f"the metadata name more than {MOST_BROKERS} brokers", code=Code.BAD_ANSWER)
    return {number: (host, port) for number, host, port, _ in named if _is_address(host, port)}


def _is_address(host: str | None, port: int) -> bool:
    return 0 < port < 65536 and host is not None and len(host) <= 253 and _HOST.fullmatch(host) is not None


def _topics(answer: Any) -> dict[str, Topic]:
    now = time.monotonic()
    return {
        name: Topic(code, {number: leader if leader >= 0 else None for _, number, leader, *_ in partitions or ()}, now)
        for code, name, _, partitions in answer.topics or ()
    }


class _Locked(AsyncExitStack):
    def __init__(self, locks: Sequence[asyncio.Lock]) -> None:
        super().__init__()
        self._locks = locks

    async def __aenter__(self) -> _Locked:
        try:
            for lock in self._locks:
                await self.enter_async_context(lock)
        except BaseException:
            await self.aclose()
            raise
        return self


def _verdicts(answer: Any, chunks: Sequence[Chunk], where: str) -> list[Verdict]:
    answers = {
        (topic, number): (code, [place for place, _ in records or ()])
        for topic, partitions in answer.topics or ()
        for number, code, _, _, _, records, _ in partitions or ()
    }
    silent = Lost(f"{where}: no answer for a partition", code=Code.BAD_ANSWER)
    return [
        Verdict(chunk, code=answers[chunk.place][0], bad=answers[chunk.place][1])
        if chunk.place in answers
        else Verdict(chunk, error=silent)
        for chunk in chunks
    ]


def _is_doubtful(verdict: Verdict) -> bool:
    return isinstance(verdict.error, Lost) or (verdict.error is None and codes.is_in_doubt(verdict.code))
