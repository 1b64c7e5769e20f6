"""Orders of a supervisor, and of `drain.on_deadline`, that end a drain which cannot end by itself, or a single batch.

An order applies to lanes with an unsettled barrier, or with the batch. For each it first ends the requests that are
under way, then runs in bounded steps; it is durable before it runs, so it resumes after a crash. Letters that are
dropped for it are counted like those dropped for a rejected event; if none may be dropped, it ends with StoreFull, and
the rest waits as before.

Requests of a lane end before its events are forwarded, so that answers until then count. The receiving lane is
suspended too: the events enter below its front, and its next session begins there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import trio

from shipper.pipeline.delivery.delivery import Delivery
from shipper.pipeline.keyring import Keyring
from shipper.policy.uses import uses
from shipper.process import log
from shipper.sdk.codes import Code
from shipper.sdk.errors import ShipperError
from shipper.sdk.units import events_in_words
from shipper.spool import forward
from shipper.spool.drain_orders import Gone, InDoubt, Name, Order, Released, first_batches, holders
from shipper.spool.forward import Ended, NotForwarded
from shipper.spool.parts.drains import Drains
from shipper.spool.revisions import LaneRow
from shipper.values import Revision

_log = log.get(__name__)

FULL = (
    "the dead-letter store is full; some events are written, the rest still waits:"
    " delete letters, or raise dead_letters.max_bytes, and order it again"
)

MOST_LISTED = 64
"""Batches that the message of NothingToOrder lists."""
_OUTCOMES: dict[Name, str] = {"dead_letter": "dead_letter", "drop": "dropped"}
"""The final answer that an order gives, as the counters of outputs name it."""


class NothingToOrder(ShipperError):
    """The order matches nothing; the text lists possible ones."""

    code = Code.NOTHING_TO_ORDER


class StoreFull(ShipperError):
    """An order ended early, since the dead-letter store may drop nothing (`hold`) and has no room."""

    code = Code.DEAD_LETTERS_FULL


class Forwarded(NamedTuple):
    """The number of forwarded events, and the credentials that they were bound to."""

    events: int
    credentials: frozenset[str]


class _Barrier(NamedTuple):
    """A barrier: events of older revisions are below it."""

    seq: int
    revision: Revision


class _Done(NamedTuple):
    """The number of events that an order ended, and whether the dead-letter store was full before the last."""

    ended: int
    is_full: bool


class Orders:
    """Carries out orders, one at a time. `settled` is called when barriers may have become settled."""

    def __init__(self, *, drains: Drains, delivery: Delivery, keyring: Keyring, settled: Callable[[], None]) -> None:
        self._drains, self._delivery, self._keyring, self._settled = drains, delivery, keyring, settled
        self._one = trio.Lock()

    async def resume(self) -> None:
        """Resumes orders that a crash interrupted."""
        for order in await self._drains.standing():
            try:
                await self._carry_out(order)
            except StoreFull as error:
                _log.warning("an order ended early", output=self._output(order.lane), error=str(error))

    async def end(self, name: Name, revision: Revision, output: str | None) -> None:
        """Dead-letters or drops the events of a revision that still wait below a barrier.

        Raises NothingToOrder or StoreFull.
        """
        for lane, last in (await self._draining(revision, output)).items():
            await self._place(Order(name, lane, last.seq, revision=revision))

    async def end_batch(self, name: Name, output: str, batch: int) -> int:
        """Dead-letters or drops the waiting events of one batch of an output; returns their number.

        Raises NothingToOrder or StoreFull.
        """
        lanes = await self._drains.store.read(lambda db: holders(db, output, batch))
        ended = sum([await self._place(Order(name, lane, batch, first=batch)) for lane in lanes])
        if not ended:
            first = await self._drains.store.read(first_batches)
            there = ", ".join(f"batch {seq} of output {holder}" for holder, seq in first[:MOST_LISTED]) or "nothing"
            raise NothingToOrder(f"nothing waits of batch {batch} of output {output}; waiting first: {there}")
        return ended

    async def end_lane(self, name: Name, lane: int, upto: int) -> None:
        """Dead-letters or drops all events below a barrier of one lane. Raises StoreFull."""
        await self._place(Order(name, lane, upto))

    async def forward(self, revision: Revision, output: str) -> Forwarded:
        """Forwards the draining events of a revision to the current destination of their output.

        Returns when they are queued for it. Raises NothingToOrder.
        """
        lasts = await self._draining(revision, output)
        problems = {lane: await self._obstacle(lane) for lane in lasts}
        lanes = [lane for lane, problem in problems.items() if problem is None]
        if not lanes:
            raise _not_forwarded([problem for problem in problems.values() if problem is not None])
        events, credentials = 0, set[str]()
        for lane in lanes:
            try:
                source, moved = await self._forward(lane, upto=lasts[lane].seq, revision=revision)
            except Ended:
                continue
            except NotForwarded as error:
                raise _not_forwarded([error]) from None
            await self._ended(lane)
            events += moved
            credentials.update(source.key.credentials)
        return Forwarded(events, frozenset(credentials))

    async def _obstacle(self, lane: int) -> NotForwarded | None:
        """Returns why the events of a lane cannot be forwarded, or None."""
        closed = self._delivery.closed
        try:
            await self._drains.store.read(lambda db: forward.target(db, lane, closed))
        except NotForwarded as error:
            return error
        return None

    async def forward_lane(self, lane: int, *, upto: int | None = None, unasked: bool = False) -> str | None:
        """Forwards all events below a barrier of one lane, by default its last; returns why it cannot, or None.

        `unasked`: only events that wait for a destination that was never reached.
        """
        problem = await self._obstacle(lane)
        if problem is None:  # otherwise each try would abort requests for nothing
            try:
                await self._forward(lane, upto=upto, unasked=unasked)
            except NotForwarded as error:
                problem = error
        return None if problem is None or isinstance(problem, Ended) else str(problem)

    async def _forward(
        self, lane: int, *, upto: int | None = None, revision: Revision | None = None, unasked: bool = False
    ) -> tuple[LaneRow, int]:
        """Forwards; returns the former lane, and how many events left it. Raises NotForwarded."""
        async with self._one, self._quiet(lane):
            order, rows = await self._drains.place_forward(
                lane, upto=upto, revision=revision, closed=self._delivery.closed, unasked=unasked
            )
            source, target = (next(row for row in rows if row.id == id) for id in (order.lane, order.target))
            events = self._held(lane, revision)
            _log.info(
                f"{events_in_words(events)} of a drain are forwarded to the current destination of their output"
                + (", since their former one never answered" if unasked else ""),
                output=source.key.output,
                events=events,
                hosts=_hosts(source),
                to=_hosts(target),
            )
            await self._delivery.restore([row for row in [target] if row.id not in self._delivery.lanes])
            async with self._quiet(target.id):
                await self._run(order)
        await self._look_again(order)
        return source, events

    def _held(self, lane: int, revision: Revision | None) -> int:
        figures = self._drains.ground.figures
        return (figures.of_lanes([lane]) if revision is None else figures.of_pair(revision, lane)).events

    async def _ended(self, lane: int) -> None:
        """Waits until an empty lane is gone, and its credential free, or until the lane is active again."""
        if lane in self._delivery.lanes and not self._drains.ground.figures.of_lanes([lane]).events:
            await self._delivery.lanes[lane].ended_or_active()

    async def rebind(self, source: str, target: str) -> None:
        """Binds events that wait for one credential to another, at the same destination. Raises NothingToOrder.

        Doubtful events after damage are not moved: their barriers would wait in the other lane.
        """
        lasts = await self._barriers()
        draining = [lane for lane in self._delivery.lanes.values() if lane.id in lasts]
        lanes = [lane for lane in draining if source in lane.key.credentials]
        if source == target:
            raise NothingToOrder(f"`{source}` is bound to itself already: name another credential as the target")
        if not lanes:
            known = sorted({id for lane in draining for id in lane.key.credentials})
            raise NothingToOrder(
                f"no drain is bound to `{source}`; credentials of drains: {', '.join(known) or 'none'}"
            )
        credential = self._keyring.get(target)
        if credential is None:
            raise NothingToOrder(
                f"credential `{target}` is not held: no active policy and no queued event refers to it",
                code=Code.CREDENTIAL_MISSING,
            )
        for lane in lanes:
            if not all(credential.fits(*use.shapes) for use in uses(lane.link.output) if use.id == source):
                text = f"output {lane.key.output} takes no credential of this shape in place of `{source}`"
                raise NothingToOrder(text, code=Code.CREDENTIAL_INVALID)
            try:
                order, row = await self._drains.place_rebind(lane.id, lasts[lane.id].seq, source, target)
            except Gone:
                continue
            except Released:
                text = f"credential `{target}` was released meanwhile, and may be revoked"
                raise NothingToOrder(text, code=Code.CREDENTIAL_RELEASED) from None
            except InDoubt:
                where = f"output {lane.key.output} is damaged where it is bound to `{source}` or to `{target}`"
                text = f"{where}: end the drain there with `drop` or `dead_letter` first"
                raise NothingToOrder(text, code=Code.DAMAGED) from None
            if row.id not in self._delivery.lanes:
                await self._delivery.restore([row])
            await self._carry_out(order)
            await lane.ended_or_active()

    async def _place(self, order: Order) -> int:
        return await self._carry_out(await self._drains.place(order))

    async def _carry_out(self, order: Order) -> int:
        """Runs a durable order while its lanes are suspended; returns how many events it ended."""
        async with self._one, self._quiet(order.lane), self._quiet(order.target):
            done = await self._run(order)
        await self._look_again(order)
        if done.is_full:
            raise StoreFull(FULL)
        return done.ended

    @asynccontextmanager
    async def _quiet(self, id: int | None) -> AsyncIterator[None]:
        """Suspends a lane within the block, if it is open."""
        lane = None if id is None else self._delivery.lanes.get(id)
        if lane is None:
            yield
        else:
            async with lane.suspended():
                yield

    async def _look_again(self, order: Order) -> None:
        """Resumes the lanes of an order."""
        if order.lane not in self._delivery.lanes:
            await self._delivery.settle_unopened(order.lane)
        if order.lane in self._delivery.lanes:  # perhaps only since the order began
            self._delivery.lanes[order.lane].look()
        if order.target in self._delivery.lanes:
            self._delivery.lanes[order.target].look()
        self._settled()

    async def _run(self, order: Order) -> _Done:
        ended = dropped = 0
        while True:
            step = await self._drains.step(order)
            ended += step.ended
            dropped += step.letters_dropped
            self._delivery.count(order.lane, "letters_dropped", step.letters_dropped)
            if order.name in _OUTCOMES:
                self._delivery.count(order.lane, _OUTCOMES[order.name], step.ended - step.damaged)
                self._delivery.count(order.lane, "damaged", step.damaged)
            if step.done:
                if dropped:
                    _log.warning("old dead letters were dropped to make room for an order", letters=dropped)
                return _Done(ended, step.full)

    async def _draining(self, revision: Revision, output: str | None) -> dict[int, _Barrier]:
        """Returns the lanes with draining events of a revision, and their last barriers.

        Raises NothingToOrder if there is none.
        """
        lasts = await self._barriers()
        pairs = self._drains.ground.figures.pairs(lasts)
        waiting = [(at, lane, self._output(lane)) for at, lane in pairs if at < lasts[lane].revision]
        waiting += [(revision, lane, self._output(lane)) for lane in await self._drains.doubts() if lane in lasts]
        lanes = sorted({lane for at, lane, holder in waiting if at == revision and output in (None, holder)})
        if not lanes:
            raise NothingToOrder(f"nothing drains there; draining: {_listed(waiting)}")
        return {lane: lasts[lane] for lane in lanes}

    async def _barriers(self) -> dict[int, _Barrier]:
        """Returns the last unsettled barrier of each lane."""

        def last(db: sqlite3.Connection) -> dict[int, _Barrier]:
            rows = db.execute("SELECT lane, max(seq), epoch, revision FROM barrier GROUP BY lane").fetchall()
            return {lane: _Barrier(place, Revision(epoch, number)) for lane, place, epoch, number in rows}

        return await self._drains.store.read(last)

    def _output(self, lane: int) -> str:
        return self._delivery.output_of(lane)


def _not_forwarded(problems: Iterable[NotForwarded]) -> NothingToOrder:
    """Returns one error for several, with each reason once and the code of the first."""
    by_text = {str(problem): problem.code for problem in problems}
    first = min(by_text)
    return NothingToOrder("; ".join(sorted(by_text)), code=by_text[first])


def _hosts(lane: LaneRow) -> list[str]:
    """Returns the hosts in a lane's settings, without other parts of the URLs; a plugin's hosts may be no URLs."""
    named = () if lane.settings is None else lane.settings.values.get("hosts", ())
    return [_host(url) for url in named if isinstance(url, str)] if isinstance(named, list) else []


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return ""


def _listed(waiting: Iterable[tuple[Revision, int, str]]) -> str:
    return ", ".join(f"revision {revision} of output {output}" for revision, _, output in waiting) or "nothing"
