"""What the edges of a relay have sent: each part is stored once, with the memory of it, and answered.

    request ──> who is it (`Door`) ──> its session (`generations`) ──> what of it is new (`taken`) ──> emit

One transaction stores the new events and the memory of the link by which they came. It expects the memory on which the
decision was based, so no other source of this input, of an older or a newer revision, comes in between. The requests of
one edge are stored one after the other, those of many edges together.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec
import trio

from shipper.plugin import (
    Backpressure,
    Batch,
    Code,
    Confirms,
    Edge,
    InputContext,
    Kept,
    NotOrdered,
    Outdated,
    PluginFault,
    Ranked,
)
from shipper_plugins.inputs.relay_figures import Seen
from shipper_plugins.inputs.relay_forget import FORGOTTEN, begun, forget_keys, forget_memory, not_begun
from shipper_plugins.inputs.relay_settled import Page, Room, Settled, is_of_version
from shipper_plugins.inputs.relay_state import REFUSED, Full, Keys, Sets
from shipper_plugins.relay.digests import Unreadable
from shipper_plugins.relay.frames import (
    Answered,
    Generation,
    Head,
    Hello,
    Outcomes,
    Part,
    Poll,
    Told,
    VersionOutcome,
    digest,
)
from shipper_plugins.relay.generations import Cloned, Sessions, Stale
from shipper_plugins.relay.state import (
    NOTHING,
    Arrived,
    Compare,
    Compared,
    Given,
    Limits,
    Named,
    StateAnswered,
    StateHead,
    Surplus,
    Wanted,
)
from shipper_plugins.relay.taken import Conflict, Crowded, Memory, Taken, fresh, taken, without_foreign

_log = logging.getLogger(__name__)

_NONE = Generation("0" * 32, 0)
_LINEAGE = "lineage"
"""Stands for a link in the name of the position that has the lineage of an edge in this state directory."""
_HIGHEST = "highest"
"""The same for the position that has the highest confirmed place of forgotten links."""
ADOPTED_SECONDS = 2.0
"""Seconds in which keys that are taken from an output end a session of their edge at most once."""
FULL_SECONDS = 10.0
"""Seconds after which a program may ask again whether there is room for another key."""
MOST_TOLD = 64
MOST_TOLD_EVENTS = 1 << 16
"""The most events whose answers one poll gets; a single part may have more."""
MOST_VERSIONS_TOLD = 1000
"""The most versions of one poll."""
MOST_LINKS = 32
"""The most links of one edge; a sender has one for each credential or destination that it still sends with."""


class Refused(Exception):
    """The answer to a request that was not accepted; nothing was stored. `code` is for programs."""

    def __init__(self, status: int, code: str, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.status, self.code, self.reason, self.retry_after = status, code, reason, retry_after


def busy(reason: str) -> Refused:
    return Refused(429, "busy", reason, 1.0)


@dataclass(frozen=True, slots=True)
class Door:
    """The settings of one revision for requests."""

    keys: Mapping[bytes, str]
    """By `fingerprint` of an Authorization header, its edge."""
    names: Mapping[str, str]
    """By name in a certificate, in small letters, its edge."""
    tls: ssl.SSLContext | None
    max_part_bytes: int
    limits: Mapping[str, Limits] = field(default_factory=dict)
    """By edge that may have keyed state, its limits."""

    takes_events: bool = True
    relaying: frozenset[str] = frozenset()
    """The edges that may send events of other shippers."""

    def limits_of(self, edge: str) -> Limits:
        """Returns the limits of an edge for keyed state."""
        return self.limits.get(edge, NOTHING)

    awaits: bool = False
    """Whether events are confirmed when the outputs have answered, not when they are stored."""

    def edge(self, shown: bytes, certified: Sequence[str]) -> str:
        """Returns the edge of this fingerprint (empty: no header) and certificate names. Raises Refused."""
        by_key = self.keys.get(shown)
        by_name = {self.names[name.lower()] for name in certified if name.lower() in self.names}
        if shown and by_key is None:
            raise Refused(401, "unauthorized", "no edge has this credential")
        edges = by_name | ({by_key} if by_key is not None else set())
        if not edges:
            code = ("forbidden", "no edge has this certificate") if certified else ("unauthorized", "who is it?")
            raise Refused(403 if certified else 401, *code)
        if len(edges) > 1:
            raise Refused(403, "forbidden", "the credential and the certificate are not of one edge")
        return edges.pop()


class Begun(NamedTuple):
    """A session that has begun; see `frames.Welcome`."""

    generation: Generation
    lineage: str
    highest: int
    told: int


@dataclass(slots=True)
class _Link:
    """The memory of a link, with its stored bytes."""

    memory: Memory
    stored: bytes | None = None


@dataclass(slots=True)
class _Edge:
    sessions: Sessions
    keys: Keys
    settled: Settled
    """Awaited versions that have all their answers."""
    lock: trio.Lock = field(default_factory=trio.Lock)
    links: dict[int, _Link] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    """By key, awaited parts that have all their answers; they are told in the order of these numbers."""
    told: int = 0
    """The last of these numbers."""
    lineage: str = field(default_factory=lambda: os.urandom(16).hex())
    """The id of what is known of the edge in this state directory; a forgotten edge gets another one."""
    stored_lineage: bytes | None = None
    highest: int = 0
    """The highest place that was confirmed to a forgotten link, which may come back."""
    stored_highest: bytes | None = None
    news: trio.Event = field(default_factory=trio.Event)
    seen: Seen = field(default_factory=Seen)

    def see_lineage(self, stored: bytes | None) -> None:
        """Takes the stored id; an unreadable one becomes another one."""
        self.stored_lineage = stored
        if stored is not None and re.fullmatch(rb"[0-9a-f]{32}", stored):
            self.lineage = stored.decode()

    def see_highest(self, stored: bytes | None) -> None:
        """Takes the stored place; an unreadable one becomes 0."""
        self.stored_highest = stored
        self.highest = int(stored) if stored is not None and re.fullmatch(rb"[0-9]{1,19}", stored) else 0

    def awaited(self) -> list[Taken]:
        return [one for link in self.links.values() for one in link.memory.entries if one.awaited]

    def of(self, batch: Batch) -> list[Taken]:
        """Returns what was taken of the events of a part, by any link."""
        known = [one for link in self.links.values() for one in link.memory.of(batch.origin, batch.seq)]
        return [one for one in known if one.is_of(batch)]

    def tell(self, keys: Iterable[str]) -> None:
        """Tells these next, once more if they were told before."""
        for key in keys:
            self.told += 1
            self.done[key] = self.told
        self.wake()

    def wake(self) -> None:
        """Wakes those who wait for something to be told."""
        self.news.set()
        self.news = trio.Event()

    def has_news(self, poll: Poll) -> bool:
        """Whether something was not told yet."""
        return self.told > poll.after or self.settled.upto > poll.versions_after


class Edges:
    """All edges of a running door; in trio's thread."""

    def __init__(self, context: InputContext) -> None:
        self._context = context
        self._instance = os.urandom(16).hex()
        self._numbers = itertools.count(1)
        """Of sessions: those of two edges have different ones."""
        self._edges: dict[str, _Edge] = {}
        self._sets = Sets(context)
        self._promises = False
        """Whether a handshake may have promised `delivered`."""
        self._adopted: set[str] = set()
        """Edges whose keys were taken from an output since their session began."""
        self._news = trio.Event()
        self._room = Room()
        self._again = context.meters.counter("parts_again", "Parts that had been taken before, and came again.")
        self._conflicts = context.meters.counter("identity_conflicts", "Parts under the identity of another one.")
        self.foreign = context.meters.counter("foreign_origins", "Requests refused, with events of other shippers.")
        """Counted in the asyncio thread."""
        self._clones = context.meters.counter("edges_cloned", "Sessions refused, as another process has the name.")

    @property
    def delivers(self) -> bool:
        """See `InputContext.delivers`."""
        return self._context.delivers

    def promise(self, *, awaits: bool) -> Confirms:
        """Returns what confirmations are worth, for a handshake; from any thread."""
        if not (awaits and self.delivers):
            return "stored"
        self._promises = True
        return "delivered"

    def _check_promise(self) -> None:
        """Ends all sessions that were promised too much, as an output now relays elsewhere. Raises Refused."""
        if self._promises and not self.delivers:
            self._promises = False
            self.renew()
            raise _over()

    async def load(self) -> None:
        """Loads what was taken before."""
        refused: dict[str, dict[str, bytes]] = {}
        for key, stored in (await self._context.positions()).items():
            if key.startswith(FORGOTTEN):
                continue
            if key.startswith(REFUSED):
                refused.setdefault(key.split("/")[1], {})[key] = stored
            else:
                self._put(key, stored)
        for name, positions in refused.items():
            self._edge(name).keys.load(positions)
        for name, edge in self._edges.items():
            await self._look(name, edge)

    async def forget(
        self, name: str, keys: Literal["keep", "delete"], is_connected: Callable[[], bool], *, is_named: bool
    ) -> int:
        """Removes all memory of an edge, and its keys if that is wanted; returns the number of deleted keys.

        Raises NotOrdered while it is connected, unless the policy no longer names it (`is_named`), and for an unknown
        edge.
        """
        if not (is_named or name in self._edges or await self._context.marks(name)):
            raise NotOrdered(f"input {self._context.name} knows no edge {name}", code=Code.NOTHING_TO_ORDER)
        edge = self._edge(name)
        async with edge.lock:
            if is_named and edge.sessions.is_live(time.monotonic(), is_connected=is_connected()):
                text = f"edge {name} is connected: stop it, or take it out of the policy, and order it again"
                raise NotOrdered(text, code="edge_connected")
            stored = [*await self._context.positions(f"{name}/"), *await self._context.positions(edge.keys.prefix)]
            awaited = [one.key(name) for one in edge.awaited()]
            await forget_memory(self._context, name, keys, stored, awaited)
            edge.sessions.end()
            edge.links.clear()
            edge.done.clear()
            edge.settled.clear()
            edge.keys.load({})
            edge.seen = Seen()
            self._sets.forget(name)
            edge.lineage, edge.stored_lineage = os.urandom(16).hex(), None
            edge.see_highest(None)
        _log.info("input %s: edge %s is forgotten", self._context.name, name)
        return await forget_keys(self._context, name, keys)

    def renew(self) -> None:
        """Makes every sender begin another session, since the promise of its handshake no longer holds."""
        for edge in self._edges.values():
            edge.sessions.renew()

    def adopted(self, owners: Iterable[str]) -> None:
        """Keys of these owners were taken from an output; an edge that compared before does not know them yet."""
        self._adopted |= {owner.partition("/")[0] for owner in owners} & self._edges.keys()
        self._news.set()

    async def renew_adopted(self) -> None:
        """Makes such edges begin another session, in which both sides are compared; not for each of many keys."""
        while True:
            await self._news.wait()
            await trio.sleep(ADOPTED_SECONDS)
            adopted, self._adopted, self._news = self._adopted, set(), trio.Event()
            for name in adopted:
                self._edges[name].sessions.renew()

    async def resume(self) -> None:
        """Completes orders to forget an edge that a crash has interrupted."""
        for name, keys in begun(await self._context.positions(FORGOTTEN)).items():
            await forget_keys(self._context, name, keys)

    def _put(self, key: str, stored: bytes) -> None:
        name, _, link = key.rpartition("/")
        if name and link == _LINEAGE:
            self._edge(name).see_lineage(stored)
        elif name and link == _HIGHEST:
            self._edge(name).see_highest(stored)
        if not link.isdecimal():  # as after damage
            return
        try:
            memory = Memory.unpack(stored)
        except ValueError:
            _log.error("input %s: what edge %s has sent before cannot be read", self._context.name, name)
            memory = Memory(_NONE)
        self._edge(name).links[int(link)] = _Link(memory, stored)

    def _edge(self, name: str) -> _Edge:
        if name not in self._edges:
            self._edges[name] = _Edge(Sessions(self._instance, self._numbers), Keys(name), Settled(self._room))
        return self._edges[name]

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def begin(self, name: str, hello: Hello, *, is_connected: bool) -> Begun:
        """Begins a session; from now on no request of an older one of this link is accepted. Raises Refused."""
        edge = self._edge(name)
        async with edge.lock:
            now = time.monotonic()
            was_live = edge.sessions.is_live(now, is_connected=is_connected)
            try:
                generation = edge.sessions.begin(hello.instance, hello.link, now, is_connected=is_connected)
            except Cloned as cloned:
                self._clones.add()
                raise Refused(409, "edge_cloned", str(cloned), cloned.seconds) from None
            edge.seen.began(now, was_live=was_live)
            try:
                return await self._begun(name, edge, hello.link, generation)
            except BaseException:  # a link that is not stored is none of those that are counted
                edge.sessions.forget(hello.link)
                raise

    async def _begun(self, name: str, edge: _Edge, link: int, generation: Generation) -> Begun:
        for _ in range(2):
            try:
                await self._begin(name, edge, link, generation)
            except Outdated:
                await self._load_again(name, edge)
            else:
                await self._look(name, edge)
                highest = edge.links[link].memory.highest
                return Begun(generation, edge.lineage, highest, edge.settled.begin(link, time.monotonic()))
        raise busy("what is stored of this edge changes, or is being forgotten")

    async def _begin(self, name: str, edge: _Edge, link: int, generation: Generation) -> None:
        used = 1 + max((one.memory.used for one in edge.links.values()), default=0)
        before = edge.links.get(link) or _Link(Memory(generation, highest=edge.highest))
        memory = before.memory.begun(generation, used)
        oldest = sorted(edge.links, key=lambda each: edge.links[each].memory.used)
        gone = [each for each in oldest if each != link][: max(0, len(edge.links.keys() | {link}) - MOST_LINKS)]
        awaited = [one.key(name) for each in gone for one in edge.links[each].memory.entries if one.awaited]
        lineage = edge.lineage.encode()
        highest = _packed(max([edge.highest, *(edge.links[each].memory.highest for each in gone)]))
        at_lineage, at_highest = f"{name}/{_LINEAGE}", f"{name}/{_HIGHEST}"
        more = {_key(name, each): None for each in gone} | {at_lineage: lineage, at_highest: highest}
        expect = {at_lineage: edge.stored_lineage, at_highest: edge.stored_highest, **not_begun(name)}
        await self._store(name, link, before, memory, more, expect, forgotten=awaited)
        edge.see_lineage(lineage)
        edge.see_highest(highest)
        edge.links[link] = _Link(memory, memory.pack())
        for each in gone:
            del edge.links[each]
            edge.sessions.forget(each)
            edge.settled.leave(each)

    def heard(self, name: str, head: Head) -> None:
        """Takes a heartbeat; from any thread, as there may be many. Raises Refused."""
        self._heard(name, head.link, head.generation).seen.said(head, time.monotonic())

    def figures(self, names: Iterable[str], is_connected: Callable[[str], bool]) -> list[Edge]:
        """Returns what is known of these edges, from any thread; `is_connected` names those with a connection."""
        now = time.monotonic()
        return [self._figures(name, now, is_connected) for name in names]

    def _figures(self, name: str, now: float, is_connected: Callable[[str], bool]) -> Edge:
        edge = self._edges.get(name)
        if edge is None:
            return Edge(name)
        is_live = edge.sessions.is_live(now, is_connected=is_connected(name))
        return edge.seen.edge(name, edge.sessions.heard, now, is_live=is_live)

    def _heard(self, name: str, link: int, generation: Generation) -> _Edge:
        """Returns the edge of a request, in its newest session. Raises Refused."""
        edge = self._edges.get(name)
        if edge is None:
            raise _over()
        try:
            edge.sessions.hear(link, generation, time.monotonic())
        except Stale:
            raise _over() from None
        return edge

    # -- parts ---------------------------------------------------------------------------------------------------------

    async def take(
        self, name: str, head: Head, parts: Sequence[tuple[Part, Batch]], *, awaits: bool = False, relays: bool = False
    ) -> Answered:
        """Stores what is new of these parts. Raises Refused.

        If it returns, all of them are stored; if it `awaits`, new events are confirmed only by their final answers.
        Unless the edge `relays`, an id that a client gave is not kept if it has the form of those of shippers.
        """
        edge = self._edge(name)
        async with edge.lock:
            for _ in range(2):
                link = self._link(edge, head)
                try:
                    await self._take(name, edge, head.link, link, parts, awaits=awaits, relays=relays)
                except Outdated:
                    await self._load_again(name, edge)
                except Conflict as conflict:
                    self._conflicts.add()
                    raise Refused(409, conflict.code, str(conflict)) from None
                except Crowded:
                    raise busy("too many parts are not confirmed by the sender") from None
                else:
                    answered = _answered(name, edge, parts)
                    done = [batch.count for part, batch in parts if part.place in answered.confirmed]
                    edge.seen.took(head.link, events=sum(done))
                    return answered
        raise busy("what is stored of this edge changes")

    def _link(self, edge: _Edge, head: Head | StateHead) -> _Link:
        """Returns the link of a request of its newest session. Raises Refused."""
        self._check_promise()
        try:
            edge.sessions.check(head.link, head.generation, head.low, time.monotonic())
        except Stale:
            raise _over() from None
        edge.seen.said(head, time.monotonic())
        link = edge.links.get(head.link)
        if link is None or link.memory.generation != head.generation:  # another source has begun a session
            raise _over()
        return link

    async def _take(
        self,
        name: str,
        edge: _Edge,
        number: int,
        link: _Link,
        parts: Sequence[tuple[Part, Batch]],
        *,
        awaits: bool,
        relays: bool,
    ) -> None:
        memory = link.memory.above(edge.sessions.low(number))
        others = [each.memory for at, each in edge.links.items() if at != number]
        batches: list[Batch] = []
        keys: list[str | None] = []
        for part, batch in parts:
            if edge.sessions.is_over(number, part.place):
                raise _over()
            known = [one for each in (memory, *others) for one in each.of(batch.origin, batch.seq)]
            positions = fresh(batch, part.digest, known, digest)
            memory = memory.reaching(part.place)
            if positions:
                mode = known[0].awaited if known else awaits  # of one batch all is confirmed in the same way
                new, entry = _new(part, batch, positions, awaited=mode)
                memory = memory.taking([entry])
                batches.append(new if relays else without_foreign(new))
                keys.append(entry.key(name) if mode else None)
            else:
                self._again.add()
        if batches or memory.highest > link.memory.highest:
            gone = [one.key(name) for one in link.memory.entries if one.awaited and one not in memory.entries]
            await self._store(name, number, link, memory, {}, {}, batches, keys, gone)
            edge.links[number] = _Link(memory, memory.pack())
            for key in gone:
                edge.done.pop(key, None)

    # -- answers -------------------------------------------------------------------------------------------------------

    def answered(self, keys: Iterable[str]) -> None:
        """Parts, or versions, have all their answers."""
        for key in keys:
            edge = self._edges.get(key.partition("/")[0])
            if edge is None:
                continue
            if is_of_version(key):
                edge.settled.note(key)
                edge.wake()
            elif key not in edge.done:
                edge.tell([key])

    async def answers(self, name: str, poll: Poll) -> Told:
        """Returns the answers for awaited parts since the last poll; waits a while for some. Raises Refused."""
        self.heard(name, poll.head)
        edge = self._edges[name]
        with trio.move_on_after(poll.wait):
            while not edge.has_news(poll):
                await edge.news.wait()
        if not edge.has_news(poll):
            async with edge.lock:
                await self._look(name, edge)
        self._check_promise()
        self.heard(name, poll.head)
        page = edge.settled.above(poll.head.link, poll.versions_after, MOST_VERSIONS_TOLD, time.monotonic())
        if page is None:  # in another session it sends again what it waits for
            edge.sessions.forget(poll.head.link)
            raise _over()
        told = await self._told(name, edge, poll.after)
        return msgspec.structs.replace(told, versions=await self._outcomes(page), versions_upto=page.upto)

    async def _outcomes(self, page: Page) -> list[VersionOutcome]:
        """Returns the answers for versions that are still the newest of their keys; older ones are known by the newer
        ones."""
        known = await self._context.answers(page.keys) if page.keys else {}
        found = [(key.split("/"), known.get(key)) for key in page.keys]
        return [VersionOutcome(name, int(place), Ranked(answers[0])) for (_, name, place), answers in found if answers]

    async def _told(self, name: str, edge: _Edge, after: int) -> Told:
        """Returns the first of what is new above a number."""
        taken = {one.key(name): one for one in edge.awaited()}
        upto = edge.told
        news = sorted((number, key) for key, number in edge.done.items() if number > after)[: MOST_TOLD + 1]
        known = await self._context.answers([key for _, key in news[:MOST_TOLD]])
        told: list[Outcomes] = []
        for at, (number, key) in enumerate(news):
            if at == MOST_TOLD or sum(len(one.answers) for one in told) > MOST_TOLD_EVENTS:
                upto = number - 1
                break
            answers, one = known.get(key), taken.get(key)
            if answers is not None and one is not None:
                told.append(Outcomes(one.origin.hex(), one.seq, one.spans, answers))
        return Told(upto, told)

    async def _look(self, name: str, edge: _Edge) -> None:
        """Asks the spool for the answers of awaited parts; with the lock, or before there are sessions.

        Parts whose answers are lost, as by damage, are forgotten, and sessions end: then the sender sends them again.
        """
        awaited = {one.key(name): one for one in edge.awaited()}
        known = await self._context.answers(awaited.keys()) if awaited else {}
        edge.done = {key: number for key, number in edge.done.items() if key in known}
        edge.tell(key for key, answers in known.items() if answers is not None and key not in edge.done)
        lost = [one for key, one in awaited.items() if key not in known]
        if lost:
            _log.warning("input %s: answers for edge %s are lost; its events enter again", self._context.name, name)
            for number, link in edge.links.items():
                link.memory = link.memory.without(lost)
                edge.sessions.forget(number)

    # -- keyed state ---------------------------------------------------------------------------------------------------

    async def keep(
        self, name: str, head: StateHead, versions: Sequence[Arrived], limits: Limits, *, awaits: bool = False
    ) -> StateAnswered:
        """Stores versions of an edge's keys; returns the result of each. Raises Refused.

        If it `awaits`, new ones are confirmed only by their final answers.
        """
        edge = self._edge(name)
        async with edge.lock:
            for _ in range(2):
                link = self._link(edge, head)
                try:
                    expect = {_key(name, head.link): link.stored}
                    answered = await edge.keys.keep(self._context, versions, limits, expect, awaits=awaits)
                    edge.seen.took(head.link, versions=len(versions) - answered.left)
                    return answered
                except Outdated:
                    await self._load_again(name, edge)
                except Full:
                    raise busy("there is no room for more state now") from None
                except PluginFault:
                    raise Refused(422, "part_refused", "a version cannot be stored") from None
        raise busy("what is stored of this edge changes")

    async def compare(self, name: str, asked: Compare, limits: Limits) -> Compared:
        """Answers a question about an edge's keys. Raises Refused."""
        edge = self._heard(name, asked.link, asked.generation)
        try:
            return await self._sets.answer(name, edge.keys, limits, asked.question)
        except Unreadable as error:
            raise Refused(400, "bad_request", str(error)) from None

    async def name(self, name: str, asked: Surplus, limits: Limits) -> Named:
        """Returns the names of keys of an edge. Raises Refused."""
        edge = self._heard(name, asked.link, asked.generation)
        return await self._sets.named(name, edge.keys, limits, asked.points)

    async def give(self, name: str, asked: Wanted) -> Given:
        """Returns documents of keys of an edge. Raises Refused."""
        self._heard(name, asked.link, asked.generation)
        return await self._sets.given(name, asked.keys)

    async def put(self, name: str, collection: str, key: str, document: bytes | None, limits: Limits) -> Kept:
        """Stores the document of a program's key, None to delete it. Raises Refused."""
        try:
            expect = not_begun(name)
            kept = await self._edge(name).keys.put(self._context, collection, key, document, limits, expect)
        except Full:
            raise busy("there is no room for more state now") from None
        except Outdated:
            raise busy("what is stored of this edge is being forgotten") from None
        except PluginFault:
            raise Refused(400, "bad_request", "a key or a collection cannot have this name") from None
        if kept == "collection":
            raise Refused(403, "forbidden", "this edge may not have this collection")
        if kept == "too_large":
            raise Refused(413, "too_large", f"a document has at most {limits.max_document_bytes} bytes")
        if not isinstance(kept, Kept):
            raise Refused(429, "full", "this edge has as many keys, or bytes, as it may have", FULL_SECONDS)
        return kept

    async def _store(
        self,
        name: str,
        link: int,
        before: _Link,
        memory: Memory,
        more: Mapping[str, bytes | None],
        expect: Mapping[str, bytes | None],
        batches: Sequence[Batch] = (),
        awaited: Sequence[str | None] = (),
        forgotten: Sequence[str] = (),
    ) -> None:
        """Stores parts with the memory of them. Raises Outdated, or Refused."""
        key = _key(name, link)
        try:
            await self._context.emit(
                *batches,
                positions={key: memory.pack(), **more},
                expect={key: before.stored, **expect},
                wait=False,
                awaited=awaited if any(awaited) else (),
                forgotten=forgotten,
            )
        except Backpressure:
            raise busy("there is no room for more events now") from None
        except PluginFault:
            raise Refused(422, "part_refused", "a part holds what cannot be stored") from None

    async def _load_again(self, name: str, edge: _Edge) -> None:
        """Loads the memory again, after a cancelled emit, or when another source of this input has stored something.

        Until all is loaded, the old memory counts: requests for answers go on meanwhile.
        """
        stored = await self._context.positions(f"{name}/")
        refused = await self._context.positions(edge.keys.prefix)
        edge.links.clear()
        edge.see_lineage(None)
        edge.see_highest(None)
        for key, position in stored.items():
            self._put(key, position)
        edge.keys.load(refused)


def _new(part: Part, batch: Batch, positions: Sequence[int], *, awaited: bool) -> tuple[Batch, Taken]:
    """Returns what is stored of a part, and what to remember of it."""
    if len(positions) == batch.count:
        return batch, taken(batch, part.place, part.digest, awaited=awaited)
    picked = batch.pick(positions)
    return picked, taken(picked, part.place, digest(picked), awaited=awaited)


def _answered(name: str, edge: _Edge, parts: Sequence[tuple[Part, Batch]]) -> Answered:
    """Returns the answer for stored parts; final answers that are there already are told again."""
    awaited: list[int] = []
    for part, batch in parts:
        if waits := [one.key(name) for one in edge.of(batch) if one.awaited]:
            awaited.append(part.place)
            edge.tell(key for key in waits if key in edge.done)
    return Answered([part.place for part, _ in parts if part.place not in awaited], awaited)


def _over() -> Refused:
    return Refused(409, "session_over", "another session has begun; begin a new one")


def _packed(highest: int) -> bytes | None:
    return str(highest).encode() if highest else None


def _key(name: str, link: int) -> str:
    return f"{name}/{link}"
