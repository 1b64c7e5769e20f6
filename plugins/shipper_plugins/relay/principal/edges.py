"""The edges of a relay's door: what is known of each, and their sessions.

    request ──> who is it (`Door`) ──> its session (`generations`) ──┬──> parts of log events (`parts`)
                                                                     ├──> answers that come later (`answers`)
                                                                     └──> keyed state (`state`)

One transaction stores what is new and the memory of the link by which it came (`taken`). It expects the memory on which
the decision was based, so no other source of this input, of an older or a newer revision, comes in between. The
requests of one edge are stored one after the other.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import trio

from shipper.plugin import Backpressure, Batch, Code, InputContext, Outdated, PluginFault
from shipper.plugin.relay import Confirms, Edge, NotOrdered
from shipper_plugins.relay.frames import Generation, Head, Hello
from shipper_plugins.relay.principal.door import Refused, busy, over
from shipper_plugins.relay.principal.figures import Seen
from shipper_plugins.relay.principal.forget import FORGOTTEN, begun, forget_keys, forget_memory, not_begun
from shipper_plugins.relay.principal.generations import Cloned, Sessions, Stale
from shipper_plugins.relay.principal.keys import REFUSED, Keys
from shipper_plugins.relay.principal.known import HIGHEST, LINEAGE, Known, Link
from shipper_plugins.relay.principal.sets import Sets
from shipper_plugins.relay.principal.settled import Room, Settled, is_of_version
from shipper_plugins.relay.principal.taken import Memory
from shipper_plugins.relay.state import StateHead

_log = logging.getLogger(__name__)

ADOPTED_SECONDS = 2.0
"""Seconds in which keys that are taken from an output end a session of their edge at most once."""
MOST_LINKS = 32
"""The most links of one edge; a sender has one for each credential or destination that it still sends with."""
_NONE = Generation("0" * 32, 0)


class Begun(NamedTuple):
    """A session that has begun; see `frames.Welcome`."""

    generation: Generation
    lineage: str
    highest: int
    told: int


class Edges:
    """All edges of a running door; in trio's thread."""

    def __init__(self, context: InputContext) -> None:
        self.context = context
        self.sets = Sets(context)
        self._instance = os.urandom(16).hex()
        self._numbers = itertools.count(1)
        """Of sessions: those of two edges have different ones."""
        self._edges: dict[str, Known] = {}
        self._promises = False
        """Whether a handshake may have promised `delivered`."""
        self._adopted: set[str] = set()
        """Edges whose keys were taken from an output since their session began."""
        self._news = trio.Event()
        self._room = Room()
        self._clones = context.meters.counter("edges_cloned", "Sessions refused, as another process has the name.")

    def of(self, name: str) -> Known:
        """Returns what is known of an edge."""
        if name not in self._edges:
            self._edges[name] = Known(name, Sessions(self._instance, self._numbers), Keys(name), Settled(self._room))
        return self._edges[name]

    @property
    def delivers(self) -> bool:
        """See `InputContext.delivers`."""
        return self.context.delivers

    def promise(self, *, awaits: bool) -> Confirms:
        """Returns what confirmations are worth, for a handshake; from any thread."""
        if not (awaits and self.delivers):
            return "stored"
        self._promises = True
        return "delivered"

    def check_promise(self) -> None:
        """Ends all sessions that were promised too much, as an output now relays elsewhere. Raises Refused."""
        if self._promises and not self.delivers:
            self._promises = False
            self.renew()
            raise over()

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

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def begin(self, name: str, hello: Hello, *, is_connected: bool) -> Begun:
        """Begins a session; from now on no request of an older one of this link is accepted. Raises Refused."""
        edge = self.of(name)
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
                return await self._begun(edge, hello.link, generation)
            except BaseException:  # a link that is not stored is none of those that are counted
                edge.sessions.forget(hello.link)
                raise

    async def _begun(self, edge: Known, link: int, generation: Generation) -> Begun:
        for _ in range(2):
            try:
                await self._begin(edge, link, generation)
            except Outdated:
                await self.load_again(edge)
            else:
                await self.look(edge)
                highest = edge.links[link].memory.highest
                return Begun(generation, edge.lineage, highest, edge.settled.begin(link, time.monotonic()))
        raise busy("what is stored of this edge changes, or is being forgotten")

    async def _begin(self, edge: Known, link: int, generation: Generation) -> None:
        used = 1 + max((one.memory.used for one in edge.links.values()), default=0)
        before = edge.links.get(link) or Link(Memory(generation, highest=edge.highest))
        memory = before.memory.begun(generation, used)
        oldest = sorted(edge.links, key=lambda each: edge.links[each].memory.used)
        gone = [each for each in oldest if each != link][: max(0, len(edge.links.keys() | {link}) - MOST_LINKS)]
        awaited = [one.key(edge.name) for each in gone for one in edge.links[each].memory.entries if one.awaited]
        lineage = edge.lineage.encode()
        highest = _packed(max([edge.highest, *(edge.links[each].memory.highest for each in gone)]))
        own, at_lineage, at_highest = edge.at(link), edge.at(LINEAGE), edge.at(HIGHEST)
        forgotten = {edge.at(each): None for each in gone}
        await self.store(
            (),
            {own: memory.pack(), **forgotten, at_lineage: lineage, at_highest: highest},
            {
                own: before.stored,
                at_lineage: edge.stored_lineage,
                at_highest: edge.stored_highest,
                **not_begun(edge.name),
            },
            forgotten=awaited,
        )
        edge.see_lineage(lineage)
        edge.see_highest(highest)
        edge.links[link] = Link(memory, memory.pack())
        for each in gone:
            del edge.links[each]
            edge.sessions.forget(each)
            edge.settled.leave(each)

    def heard(self, name: str, head: Head) -> None:
        """Takes a heartbeat; from any thread, as there may be many. Raises Refused."""
        self.hear(name, head.link, head.generation).seen.said(head, time.monotonic())

    def hear(self, name: str, link: int, generation: Generation) -> Known:
        """Returns the edge of a request that stores nothing, in its newest session. Raises Refused."""
        edge = self._edges.get(name)
        if edge is None:
            raise over()
        try:
            edge.sessions.hear(link, generation, time.monotonic())
        except Stale:
            raise over() from None
        return edge

    def link(self, edge: Known, head: Head | StateHead) -> Link:
        """Returns the link of a request that stores something, in its newest session. Raises Refused."""
        self.check_promise()
        try:
            edge.sessions.check(head.link, head.generation, head.low, time.monotonic())
        except Stale:
            raise over() from None
        edge.seen.said(head, time.monotonic())
        link = edge.links.get(head.link)
        if link is None or link.memory.generation != head.generation:  # another source has begun a session
            raise over()
        return link

    # -- what is stored ------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Loads what was taken before."""
        refused: dict[str, dict[str, bytes]] = {}
        for key, stored in (await self.context.positions()).items():
            if key.startswith(FORGOTTEN):
                continue
            if key.startswith(REFUSED):
                refused.setdefault(key.split("/")[1], {})[key] = stored
            else:
                self._put(key, stored)
        for name, positions in refused.items():
            self.of(name).keys.load(positions)
        for edge in self._edges.values():
            await self.look(edge)

    async def load_again(self, edge: Known) -> None:
        """Loads the memory again, after a cancelled emit, or when another source of this input has stored something.

        Until all is loaded, the old memory counts: requests for answers go on meanwhile.
        """
        stored = await self.context.positions(edge.at(""))
        refused = await self.context.positions(edge.keys.prefix)
        edge.links.clear()
        edge.see_lineage(None)
        edge.see_highest(None)
        for key, position in stored.items():
            self._put(key, position)
        edge.keys.load(refused)

    def _put(self, key: str, stored: bytes) -> None:
        name, _, link = key.rpartition("/")
        if name and link == LINEAGE:
            self.of(name).see_lineage(stored)
        elif name and link == HIGHEST:
            self.of(name).see_highest(stored)
        if not link.isdecimal():  # as after damage
            return
        try:
            memory = Memory.unpack(stored)
        except ValueError:
            _log.error("input %s: what edge %s has sent before cannot be read", self.context.name, name)
            memory = Memory(_NONE)
        self.of(name).links[int(link)] = Link(memory, stored)

    async def store(
        self,
        batches: Sequence[Batch],
        positions: Mapping[str, bytes | None],
        expect: Mapping[str, bytes | None],
        awaited: Sequence[str | None] = (),
        forgotten: Sequence[str] = (),
    ) -> None:
        """Stores parts with the memory of them. Raises Outdated, or Refused."""
        try:
            await self.context.emit(
                *batches,
                positions=positions,
                expect=expect,
                wait=False,
                awaited=awaited if any(awaited) else (),
                forgotten=forgotten,
            )
        except Backpressure:
            raise busy("there is no room for more events now") from None
        except PluginFault:
            raise Refused(422, "part_refused", "a part holds what cannot be stored") from None

    async def look(self, edge: Known) -> None:
        """Asks the spool for the answers of awaited parts; with the lock, or before there are sessions.

        Parts whose answers are lost, as by damage, are forgotten, and sessions end: then the sender sends them again.
        """
        awaited = {one.key(edge.name): one for one in edge.awaited()}
        known = await self.context.answers(awaited.keys()) if awaited else {}
        edge.done = {key: number for key, number in edge.done.items() if key in known}
        edge.tell(key for key, answers in known.items() if answers is not None and key not in edge.done)
        lost = [one for key, one in awaited.items() if key not in known]
        if lost:
            _log.warning("input %s: answers for edge %s are lost; its events enter again", self.context.name, edge.name)
            for number, link in edge.links.items():
                link.memory = link.memory.without(lost)
                edge.sessions.forget(number)

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

    # -- forgetting ----------------------------------------------------------------------------------------------------

    async def forget(
        self, name: str, keys: Literal["keep", "delete"], is_connected: Callable[[], bool], *, is_named: bool
    ) -> int:
        """Removes all memory of an edge, and its keys if that is wanted; returns the number of deleted keys.

        Raises NotOrdered while it is connected, unless the policy no longer names it (`is_named`), and for an unknown
        edge.
        """
        if not (is_named or name in self._edges or await self.context.marks(name)):
            raise NotOrdered(f"input {self.context.name} knows no edge {name}", code=Code.NOTHING_TO_ORDER)
        edge = self.of(name)
        async with edge.lock:
            if is_named and edge.sessions.is_live(time.monotonic(), is_connected=is_connected()):
                text = f"edge {name} is connected: stop it, or take it out of the policy, and order it again"
                raise NotOrdered(text, code="edge_connected")
            stored = [*await self.context.positions(edge.at("")), *await self.context.positions(edge.keys.prefix)]
            awaited = [one.key(name) for one in edge.awaited()]
            await forget_memory(self.context, name, keys, stored, awaited)
            edge.sessions.end()
            edge.links.clear()
            edge.done.clear()
            edge.settled.clear()
            edge.keys.load({})
            edge.seen = Seen()
            self.sets.forget(name)
            edge.lineage, edge.stored_lineage = os.urandom(16).hex(), None
            edge.see_highest(None)
        _log.info("input %s: edge %s is forgotten", self.context.name, name)
        return await forget_keys(self.context, name, keys)

    async def resume(self) -> None:
        """Completes orders to forget an edge that a crash has interrupted."""
        for name, keys in begun(await self.context.positions(FORGOTTEN)).items():
            await forget_keys(self.context, name, keys)


def _packed(highest: int) -> bytes | None:
    return str(highest).encode() if highest else None
