"""The parts that edges send: each is stored once, with the memory of it, and answered.

    request ──> its link ──> what of it is new (`taken`) ──> emit

The requests of many edges that come together are one transaction (`take_together`), in which each edge has its own
memory; a request that this cannot answer is taken alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from shipper.plugin import Batch, Outdated
from shipper_plugins.relay.frames import Answered, FrameError, Head, Part, digest
from shipper_plugins.relay.principal.door import Refused, busy, over
from shipper_plugins.relay.principal.edges import Edges
from shipper_plugins.relay.principal.known import Known, Link
from shipper_plugins.relay.principal.taken import Conflict, Crowded, Taken, fresh, taken, without_foreign


class Sent(NamedTuple):
    """A request with parts. If it `awaits`, new events are confirmed only by their final answers.

    Unless the edge `relays`, an id that a client gave is not kept if it has the form of those of shippers.
    """

    edge: str
    head: Head
    parts: Sequence[tuple[Part, Batch]]
    awaits: bool = False
    relays: bool = False


class _Step(NamedTuple):
    """What a request changes: the memory of its link, and the parts that are new."""

    key: str
    before: Link
    after: Link
    batches: Sequence[Batch]
    awaited: Sequence[str | None]
    forgotten: Sequence[str]
    again: int
    """Parts that were taken before."""

    @property
    def is_none(self) -> bool:
        return not self.batches and self.after.memory.highest <= self.before.memory.highest


class Parts:
    """What the edges of a door send."""

    def __init__(self, edges: Edges) -> None:
        self._edges = edges
        meters = edges.context.meters
        self._again = meters.counter("parts_again", "Parts that had been taken before, and came again.")
        self._conflicts = meters.counter("identity_conflicts", "Parts under the identity of another one.")
        self.foreign = meters.counter("foreign_origins", "Requests refused, with events of other shippers.")
        """Counted in the asyncio thread."""

    async def take(self, sent: Sent) -> Answered:
        """Stores what is new of its parts. Raises Refused. If it returns, all of them are stored."""
        edge = self._edges.of(sent.edge)
        async with edge.lock:
            for _ in range(2):
                try:
                    step = self._step(edge, sent)
                    await self._store([step])
                except Outdated:
                    await self._edges.load_again(edge)
                except Conflict as conflict:
                    self._conflicts.add()
                    raise Refused(409, conflict.code, str(conflict)) from None
                except Crowded:
                    raise busy("too many parts are not confirmed by the sender") from None
                else:
                    return self._taken(edge, sent, step)
        raise busy("what is stored of this edge changes")

    async def take_together(self, requests: Sequence[Sent]) -> list[Answered | Refused | None]:
        """Stores what is new of the parts of many edges in one transaction, and returns the answer to each request.

        None: nothing of it is stored, and `take` decides: something is wrong with it, or with one beside it, or its
        edge stores something already. Nobody waits for that here.
        """
        steps: dict[int, tuple[Known, _Step]] = {}
        try:
            for at, sent in enumerate(requests):
                edge = self._edges.of(sent.edge)
                if not edge.lock.locked():
                    with suppress(Refused, FrameError, Crowded):
                        step = self._step(edge, sent)
                        edge.lock.acquire_nowait()
                        steps[at] = edge, step
            await self._store([step for _, step in steps.values()])
            done = {at: self._taken(edge, requests[at], step) for at, (edge, step) in steps.items()}
        except Outdated:
            done = {}
        except Refused as refused:
            is_busy = refused.status == 429
            return [busy(str(refused)) if is_busy and at in steps else None for at in range(len(requests))]
        finally:
            for edge, _ in steps.values():
                edge.lock.release()
        return [done.get(at) for at in range(len(requests))]

    def _step(self, edge: Known, sent: Sent) -> _Step:
        """Decides what a request changes. Raises Refused, Crowded, or FrameError, such as Conflict."""
        number = sent.head.link
        link = self._edges.link(edge, sent.head)
        memory = link.memory.above(edge.sessions.low(number))
        others = [each.memory for at, each in edge.links.items() if at != number]
        batches: list[Batch] = []
        keys: list[str | None] = []
        for part, batch in sent.parts:
            if edge.sessions.is_over(number, part.place):
                raise over()
            known = [one for each in (memory, *others) for one in each.of(batch.origin, batch.seq)]
            positions = fresh(batch, part.digest, known, digest)
            memory = memory.reaching(part.place)
            if positions:
                mode = known[0].awaited if known else sent.awaits  # of one batch all is confirmed in the same way
                new, entry = _new(part, batch, positions, awaited=mode)
                memory = memory.taking([entry])
                batches.append(new if sent.relays else without_foreign(new))
                keys.append(entry.key(sent.edge) if mode else None)
        gone = [one.key(sent.edge) for one in link.memory.entries if one.awaited and one not in memory.entries]
        again = len(sent.parts) - len(batches)
        return _Step(edge.at(number), link, Link(memory, memory.pack()), batches, keys, gone, again)

    async def _store(self, steps: Sequence[_Step]) -> None:
        """Stores what requests change, all of it or nothing. Raises Outdated, or Refused."""
        steps = [step for step in steps if not step.is_none]
        if steps:
            await self._edges.store(
                [batch for step in steps for batch in step.batches],
                {step.key: step.after.stored for step in steps},
                {step.key: step.before.stored for step in steps},
                [key for step in steps for key in step.awaited],
                [key for step in steps for key in step.forgotten],
            )

    def _taken(self, edge: Known, sent: Sent, step: _Step) -> Answered:
        """Takes note of what was stored, and returns the answer."""
        self._again.add(step.again)
        if not step.is_none:
            edge.links[sent.head.link] = step.after
            for key in step.forgotten:
                edge.done.pop(key, None)
        answered = _answered(edge, sent.parts)
        events = sum(batch.count for part, batch in sent.parts if part.place in answered.confirmed)
        edge.seen.took(sent.head.link, events=events)
        return answered


def _new(part: Part, batch: Batch, positions: Sequence[int], *, awaited: bool) -> tuple[Batch, Taken]:
    """Returns what is stored of a part, and what to remember of it."""
    if len(positions) == batch.count:
        return batch, taken(batch, part.place, part.digest, awaited=awaited)
    picked = batch.pick(positions)
    return picked, taken(picked, part.place, digest(picked), awaited=awaited)


def _answered(edge: Known, parts: Sequence[tuple[Part, Batch]]) -> Answered:
    """Returns the answer for stored parts; final answers that are there already are told again."""
    awaited: list[int] = []
    for part, batch in parts:
        if waits := [one.key(edge.name) for one in edge.awaited_of(batch)]:
            awaited.append(part.place)
            edge.tell(key for key in waits if key in edge.done)
    return Answered([part.place for part, _ in parts if part.place not in awaited], awaited)
