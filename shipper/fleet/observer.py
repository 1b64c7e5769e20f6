"""Observes a fleet while somebody asks: the newest head, the reports and the leases, kept as a `View`.

    asker ── Observer ──┐
    asker ── Observer ──┴── Watching ── list, watch ──> Store
                               └── Known (`known`)

A listing is taken at the start, every `Store.relist` seconds, after any trouble, and for every question: a question is
judged on nothing that is older than itself. Between listings the watch reports each change. The instant to which the
observer knows of *every* change is the beginning of its last listing: only up to there does time count for a fence,
so that a member which came back behind the observer's back is never fenced.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from shipper.fleet.judge import Asked, Tally, Verdict
from shipper.fleet.known import Known
from shipper.fleet.records import ALIVE, HEAD, MEMBERS, RESTORED, Version
from shipper.fleet.seal import Seals
from shipper.fleet.store import (
    PROMPT,
    Change,
    Compacted,
    Found,
    Listing,
    Store,
    StoreError,
    StoreUnreachable,
)
from shipper.fleet.view import View
from shipper.supervise.answers import Stage

RETRY = 1.0
"""Seconds between a failure and the next attempt."""
PAUSE = 0.1
"""Seconds between two listings that time alone asks for, and after a compaction."""
_ATTEMPTS = 3
"""Attempts to list everything under one head; after that, the watch shows what came later."""


class Watching:
    """Observes one fleet for all who ask: `run` does it."""

    def __init__(self, store: Store, seals: Seals) -> None:
        self._store = store
        self._known = Known(seals)
        self._trouble: StoreError | None = StoreUnreachable("the store was not read yet")
        self._turn = trio.Event()
        self._wanted = trio.Event()
        self._begun = self._ended = 0
        """Listings, by number; those that failed have ended too."""
        self._failed: StoreError | None = None
        """Why the last listing failed that did."""
        self._lock = trio.Lock()
        """Of what is known, for a listing as for the changes of the watch, which come after it."""
        self.turns = 0
        """Counts what may be of interest: changes, listings, troubles and their ends."""
        self.followers: list[set[str]] = []
        """Sets to which the names of changed members are added."""

    def view(self) -> View:
        """Returns what is known, as `Known.view`; raises StoreError while the store is away."""
        if self._trouble is not None:
            raise self._trouble
        return self._known.view()

    async def refresh(self) -> None:
        """Returns after a listing that began after this call; raises StoreError when any listing has failed since."""
        wanted, before = self._begun + 1, self._failed
        self._wanted.set()
        while self._ended < wanted and self._failed is before:
            await self._turn.wait()
        if self._failed is not None and self._failed is not before:
            raise self._failed

    async def begun(self) -> None:
        """Returns after the first listing, even if that failed."""
        while not self._ended:
            await self._turn.wait()

    async def turned(self, since: int) -> None:
        """Returns when `turns` is not `since`."""
        while self.turns == since:
            await self._turn.wait()

    async def run(self) -> None:
        """Observes until it is cancelled; trouble with the store is noted, and over with the next listing."""
        while True:
            error = await self._observe()
            if isinstance(error, Compacted):
                await trio.sleep(PAUSE)
            else:
                self._trouble = error
                self._wake()
                await trio.sleep(RETRY)

    async def _observe(self) -> StoreError:
        """Lists and watches; returns why that ended."""
        failures: list[StoreError] = []

        async def until_failure(work: Callable[[], Awaitable[None]]) -> None:
            try:
                await work()
            except StoreError as error:
                failures.append(error)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            await until_failure(self._list)
            if not failures:
                nursery.start_soon(until_failure, self._watch)
                nursery.start_soon(until_failure, self._relist)
        return failures[0]

    async def _watch(self) -> None:
        async with self._store.watch("", self._known.at) as batches:
            async for batch in batches:
                async with self._lock:
                    self._take(batch)
        raise Compacted("the watch has ended")

    async def _relist(self) -> None:
        """Lists whenever somebody wants it, and every `RELIST` seconds."""
        while True:
            with trio.move_on_after(self._store.relist):
                await self._wanted.wait()
            async with self._lock:
                at = self._known.at
                await self._list()
            if self._known.at < at:
                raise Compacted("the store went back to an older revision")

    async def _list(self) -> None:
        self._begun += 1
        number, self._wanted = self._begun, trio.Event()
        began = trio.current_time()
        try:
            head, listings = await self._read_all()
            self._tell(await self._known.listed(head, listings, began, trio.current_time()))
        except StoreError as error:
            self._failed = error
            self._listed(number, error)
            raise
        self._listed(number, None)

    async def _read_all(self) -> tuple[Found, Mapping[str, Listing]]:
        """Returns the head, the leases, the reports and who takes no part, read in this order.

        Who registers after the reports were listed reads this head or a newer one. So no answer about a version misses
        a joiner that began before it. A head that changes meanwhile is read again, for reports that are ahead of it.
        """
        again = await self._store.read(HEAD, seconds=PROMPT)
        for _ in range(_ATTEMPTS):
            head, listings = again, {kind: await self._store.list(kind) for kind in (ALIVE, MEMBERS, RESTORED)}
            again = await self._store.read(HEAD)
            if again.entry == head.entry:
                break
        return head, listings

    def _listed(self, number: int, error: StoreError | None) -> None:
        self._ended, self._trouble = number, error
        self._wake()

    def _take(self, batch: Sequence[Change]) -> None:
        now = trio.current_time()
        self._tell({name for change in batch if (name := self._known.changed(change, now))})
        self._wake()

    def _tell(self, names: Set[str]) -> None:
        for follower in self.followers:
            follower |= names

    def _wake(self) -> None:
        self.turns += 1
        self._turn.set()
        self._turn = trio.Event()


class Observer:
    """What one asker sees of a fleet."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self._names: set[str] = set()
        self._seen = 0

    def view(self) -> View:
        """Returns a copy of what is known; raises StoreError while the store is away, Unauthentic for a forged head."""
        live, _ = self.news()
        return replace(
            live,
            reports=dict(live.reports),
            alive=dict(live.alive),
            gone=dict(live.gone),
            refused=dict(live.refused),
            apart=dict(live.apart),
            unauthentic=set(live.unauthentic),
        )

    def news(self) -> tuple[View, Set[str]]:
        """Returns what is known, until the next await, and the members that have changed since `view` or `news`.

        Raises as `view`.
        """
        self._seen = self._watching.turns
        view = self._watching.view()
        names = frozenset(self._names)
        self._names.clear()
        return view, names

    async def begun(self) -> None:
        """Returns after a first look at the store, even if that failed."""
        await self._watching.begun()

    async def fresh(self) -> View:
        """Returns what a listing found that began after this call.

        Raises StoreError if the store is away, after `PROMPT` seconds if it answers nothing; Unauthentic for a forged
        head.
        """
        await self._watching.refresh()
        return self.view()

    async def changed(self, deadline: float | None = None) -> None:
        """Returns when there is more to see than the last `view` or `news` have shown, be it only a trouble.

        It returns at the deadline (trio's clock) too, after one more listing, so that time counts up to then.
        """
        seen = self._seen
        with trio.move_on_at(math.inf if deadline is None else deadline):
            await self._watching.turned(seen)
            return
        try:
            await self._watching.refresh()
        except StoreError:
            return

    def __enter__(self) -> Observer:
        self._watching.followers.append(self._names)
        return self

    def __exit__(self, *error: object) -> None:
        self._watching.followers[:] = [each for each in self._watching.followers if each is not self._names]


class Observers:
    """Shares one `Watching` between all askers of a process: it begins with the first, and ends with the last."""

    def __init__(self, store: Store, seals: Seals, nursery: trio.Nursery) -> None:
        """The watching runs in `nursery`, which must outlive all askers."""
        self._store, self._seals, self._nursery = store, seals, nursery
        self._watching: Watching | None = None
        self._scope = trio.CancelScope()
        self._askers = 0

    @asynccontextmanager
    async def observing(self) -> AsyncIterator[Observer]:
        """Gives an observer for as long as the block runs; it has seen nothing yet, if nobody else observes."""
        if self._watching is None:
            self._watching, self._scope = Watching(self._store, self._seals), trio.CancelScope()
            self._nursery.start_soon(self._run, self._watching, self._scope)
        self._askers += 1
        try:
            with Observer(self._watching) as observer:
                yield observer
        finally:
            self._askers -= 1
            if not self._askers:
                self._scope.cancel()
                self._watching = None

    @staticmethod
    async def _run(watching: Watching, scope: trio.CancelScope) -> None:
        with scope:
            await watching.run()


@asynccontextmanager
async def observing(store: Store, seals: Seals) -> AsyncIterator[Observer]:
    """Gives an observer that nobody else shares, after the first look at the store, even if that failed."""
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            async with Observers(store, seals, nursery).observing() as observer:
                await observer.begun()
                yield observer
        except Exception as error:
            failure = error
    if failure is not None:
        raise failure


async def wait(
    observer: Observer, number: int | Asked | Version, stage: Stage, seconds: float, nack_grace: float
) -> Verdict:
    """Returns the answer when it is no longer closed, or when the seconds are over; never one older than the call.

    A store that is away does not end it: it raises StoreError only if the store is away when the seconds are over, or
    if the store refuses this client. The first look is not cut short, but ends within the store's own bounds.
    """
    deadline = trio.current_time() + seconds
    tally = Tally(number, stage, nack_grace)
    while (view := await _look(observer, deadline)) is None:
        pass
    tally.again(view)
    while tally.state(view) == "closed" and trio.current_time() < deadline:
        await _turned(observer, view, tally.due(), deadline)
        try:
            view, names = observer.news()
        except StoreUnreachable:
            if trio.current_time() >= deadline:
                raise
        else:
            tally.changed(view, names)
    return tally.verdict(view)


async def _look(observer: Observer, deadline: float) -> View | None:
    """Returns a fresh view; None if the store is away and there is time for another attempt."""
    try:
        return await observer.fresh()
    except StoreUnreachable:
        if trio.current_time() >= deadline:
            raise
        return None


async def _turned(observer: Observer, view: View, due: float | None, deadline: float) -> None:
    """Returns after a change, when time alone may change the answer, or at the deadline."""
    with trio.move_on_at(deadline):
        await observer.changed(None if due is None else max(due, view.now + PAUSE))
