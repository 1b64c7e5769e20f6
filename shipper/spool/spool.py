"""The interface of the spool: changes are durable when a call returns, and figures of the queue are kept.

All methods are safe to cancel: a transaction that the store has taken commits as a whole or not at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

import trio

from shipper.process.environment import REAL, Environment
from shipper.sdk.event import Batch, Oversized
from shipper.sdk.lineage import Confirmed
from shipper.sdk.origins import SECRET_BYTES, Origin
from shipper.sdk.state import Change, Mark, Quota, Version
from shipper.spool import (
    audit,
    awaited,
    contact,
    credentials,
    dead_letters,
    doubt,
    drain_orders,
    feeding,
    forward,
    holdings,
    keyed,
    lifting,
    lineages,
    origins,
    places,
    queue,
    requeue,
    resync,
    revisions,
    schema,
)
from shipper.spool import limits as kept
from shipper.spool.awaited import Answered
from shipper.spool.credentials import Before, Forgotten
from shipper.spool.disk import Disk
from shipper.spool.figures import Figures
from shipper.spool.keyed import Admitted
from shipper.spool.keys import StateKey
from shipper.spool.lane_settings import LaneSettings
from shipper.spool.limits import SpoolLimits
from shipper.spool.queue import Arrival, Entered, Entry, Settlement, Window
from shipper.spool.resync import Claim
from shipper.spool.revisions import Cut, Known, LaneKey, LaneRow, Stored, Text
from shipper.spool.seal import Damaged
from shipper.spool.store import Store, StoreFailed, open_store
from shipper.values import (
    LARGEST_COUNT,
    DeadLetterFigures,
    DeadLetterReason,
    Receipt,
    Revision,
    Revisions,
    StateFigures,
)

Result = TypeVar("Result")
Item = TypeVar("Item")


class Standing(NamedTuple):
    """The revisions, and the credentials in use, at one moment."""

    stored: Stored
    stages: Revisions
    in_use: list[str]


class Noted(NamedTuple):
    """What came of settling entries: how many old letters were pushed out, the slots that hold another version by now,
    and the lanes that have to do what was given another place."""

    letters_dropped: int
    renewed: frozenset[int] = frozenset()
    lanes: frozenset[int] = frozenset()


class Spool:
    """Made by `open_spool`."""

    def __init__(self, store: Store, figures: Figures, environment: Environment) -> None:
        self.store = store
        self._now = environment.wall
        self.figures = self._counting = figures
        self._drawn = Origin(environment.entropy(SECRET_BYTES))
        self.origin = self._drawn.id
        """The origin of what enters in this process."""
        self._origins = {self.origin: self._drawn}
        self.limits = kept.DEFAULTS
        """Of the active revision."""
        self.was_killed = store.directory.was_killed
        """Whether the process before this one did not close the state directory."""
        self._first_epoch = 0
        """Of the places that this process gives."""
        self._is_repaired = False
        self._on_damage: list[Callable[[], None]] = []
        self._on_answered: list[Callable[[Sequence[Answered]], None]] = []
        self.room = trio.Event()
        """Set, and replaced by a new one, whenever entries leave the spool."""
        self.letters_freed = 0
        """Rises whenever dead letters may have room again."""
        self._on_letters_freed: list[Callable[[], None]] = []

    # -- batches -------------------------------------------------------------------------------------------------------

    async def enter(
        self,
        arrival: Arrival,
        abandoned: Callable[[list[Entered]], object] = lambda entered: None,
        *,
        wait: bool = True,
    ) -> list[Entered]:
        """Stores batches with their input's positions. Raises queue.NotActive and Outdated.

        While the disk is full, waits, or raises Backpressure if `wait` is false.
        `abandoned` is called with the result if it became durable only some seconds after the caller was cancelled.
        """
        now = self._now()

        def count_abandoned(counted: tuple[list[Entered], Figures]) -> None:
            abandoned(_count(arrival, *counted))

        def enter(db: sqlite3.Connection) -> list[Entered]:
            origins.keep(db, self.store.sealer, self._drawn)
            return queue.enter(db, self.store.sealer, self.origin, now, arrival)

        return _count(arrival, *await self.store.append(self._counted(enter), count_abandoned, wait=wait))

    def _counted(
        self, op: Callable[[sqlite3.Connection], Result]
    ) -> Callable[[sqlite3.Connection], tuple[Result, Figures]]:
        """Returns an operation that also returns its figures: a recount replaces them before or after it, not
        between."""
        return lambda db: (op(db), self._counting)

    async def keep(
        self,
        arrival: keyed.Arrival,
        abandoned: Callable[[Admitted], object] = lambda admitted: None,
        *,
        wait: bool = True,
    ) -> Admitted:
        """Stores versions of keyed state with their input's positions. Raises queue.NotActive or Outdated.

        `wait` and `abandoned` are as those of `enter`.
        """
        now, sealer = self._now(), self.store.sealer

        def keep(db: sqlite3.Connection) -> Admitted:
            return keyed.keep(db, sealer, now, arrival)

        def count_abandoned(counted: tuple[Admitted, Figures]) -> None:
            abandoned(_count_admitted(*counted))

        return _count_admitted(*await self.store.append(self._counted(keep), count_abandoned, wait=wait))

    async def state(self) -> StateFigures:
        """Returns how much keyed state is stored."""
        return await self.store.read(keyed.figures)

    async def holdings(self) -> dict[str, Quota]:
        """Returns the keys that are not deleted, and their bytes, by owner; those below an owner are counted for it."""
        return await self.store.read(holdings.load)

    # -- keyed state that is compared with another side ----------------------------------------------------------------

    async def marks_of_lane(self, lane: int) -> list[Mark] | None:
        """Returns the keys of the inputs that are routed to an active lane; None: there is no such input."""
        inputs = await self.store.read(lambda db: resync.inputs_of(db, lane))
        found: list[Mark] = []
        for input in inputs:
            after: int | None = 0
            while after is not None:
                marks, after = await self.store.read(partial(resync.of_input, input=input, after=after))
                found += marks
        return found if inputs else None

    async def marks_of_owner(self, owner: str) -> list[Mark]:
        """Returns the keys of an owner and of those below it."""
        found, after = await self.store.read(partial(resync.of_owner, owner=owner, after=None))
        while after is not None:
            marks, after = await self.store.read(partial(resync.of_owner, owner=owner, after=after))
            found += marks
        return found

    async def versions(self, keys: Sequence[tuple[str, int]]) -> list[Version]:
        """Returns the current versions of keys, by owner and point, that are not deleted; some may be missing."""
        found: list[Version] = []
        for chunk in _chunks(keys):
            found += await self.store.read(lambda db, chunk=chunk: resync.versions(db, self.store.sealer, chunk))  # type: ignore[misc]
        return found

    async def gone_from_lane(self, lane: int, versions: Sequence[Version]) -> list[Version]:
        """Returns those of these versions that are in no slot of a lane."""
        found: list[Version] = []
        for chunk in _chunks(versions):
            found += await self.store.read(partial(resync.gone, lane=lane, versions=chunk))
        return found

    async def send_again(self, lane: int, keys: Sequence[tuple[str, int]]) -> None:
        """Puts the current versions of keys, by owner and point, into slots of a lane."""
        now = self._now()
        for chunk in _chunks(keys):
            await self._move(partial(resync.send_again, now=now, lane=lane, keys=chunk))

    async def decide_surplus(
        self, lane: int, surplus: Sequence[tuple[Version, Claim | None]]
    ) -> tuple[list[Version], bool]:
        """Has keys agree of which the destination of a lane has versions that are not here; see `resync.decide`.

        Returns those that are wanted from there, and whether some wait for an input.
        """
        now, sealer, since = self._now(), self.store.sealer, self._first_epoch
        wanted, waits = list[Version](), False
        for chunk in _chunks(surplus):
            op = partial(resync.decide, sealer=sealer, now=now, lane=lane, surplus=chunk, since=since)
            decision, figures = await self.store.do(self._counted(op))
            figures.moved(decision.moved)
            wanted += decision.wanted
            waits |= decision.waits
        return wanted, waits

    async def adopt(self, lane: int, changes: Sequence[tuple[Change, Claim | None]]) -> frozenset[int]:
        """Takes versions that the destination of a lane has; returns the lanes that have something to do since."""
        now, sealer = self._now(), self.store.sealer
        lanes: set[int] = set()
        for chunk in _chunks(changes):
            lanes |= await self._move(partial(resync.adopt, sealer=sealer, now=now, lane=lane, changes=chunk))
        return frozenset(lanes)

    async def _move(self, op: Callable[[sqlite3.Connection], list[queue.Moved]]) -> set[int]:
        moved, figures = await self.store.do(self._counted(op))
        figures.moved(moved)
        return {each.lane for each in moved}

    async def documents(self, keys: Sequence[tuple[str, int]], most: int) -> tuple[list[tuple[Version, bytes]], int]:
        """Returns current versions with their documents, as `versions` does, and how many of the keys were read.

        The documents have `most` bytes together, unless the first alone has more.
        """
        return await self.store.read(lambda db: resync.documents(db, self.store.sealer, keys, most))

    async def place_above(self, place: int) -> None:
        """Has all places that are given from now on be above this one."""
        await self.store.do(lambda db: places.raise_above(db, place))

    async def positions(self, input: str, prefix: str = "") -> dict[str, bytes]:
        """Returns the stored positions of an input whose keys have this prefix."""
        return await self.store.read(lambda db: queue.positions(db, input, prefix))

    async def position(self, input: str, key: str) -> bytes | None:
        """Returns one stored position of an input."""
        return await self.store.read(lambda db: queue.position(db, input, key))

    async def window(self, lane: int, after: int, limit: int = 64) -> list[Entry]:
        """Returns the next entries of a lane."""
        return await self.store.read(lambda db: queue.window(db, lane, after, limit))

    async def window_of_logs(self, lane: int, after: int, limit: int) -> Window:
        """Returns the next log entries and barriers of a lane."""
        return await self.store.read(lambda db: queue.window_of_logs(db, lane, after, limit))

    async def window_of_state(self, lane: int, after: int, limit: int) -> Window:
        """Returns the next slots of a lane."""
        return await self.store.read(lambda db: queue.window_of_state(db, lane, after, limit))

    async def load(self, lane: int, entry: Entry) -> Batch:
        """Returns the events of an entry, from disk. Raises Damaged."""
        return await self.store.read(lambda db: queue.load(db, self.store.sealer, lane, entry))

    async def load_all(
        self, lane: int, entries: Sequence[Entry], limit: int | None = None
    ) -> tuple[dict[int, Batch], Sequence[Entry]]:
        """Returns the events of several entries, by their places, and the entries from the first that does not fit.

        The returned batches fit into `limit` bytes (`Batch.size`). Damaged entries are missing.
        """

        def load_all(db: sqlite3.Connection) -> tuple[dict[int, Batch], Sequence[Entry]]:
            found: dict[int, Batch] = {}
            free = limit
            for number, entry in enumerate(entries):
                try:
                    batch = found[entry.seq] = queue.load(db, self.store.sealer, lane, entry, free)
                except Oversized:
                    return found, entries[number:]
                except Damaged:
                    continue
                free = None if free is None else free - batch.size
            return found, ()

        return await self.store.read(load_all)

    async def recount(self, lane: int, entry: Entry, events: int) -> Entry:
        """Corrects the count of an entry to the number of events in its sealed batch; returns the corrected entry."""
        _, figures = await self.store.do(self._counted(lambda db: queue.recount(db, lane, entry, events)))
        figures.add(entry.revision, frozenset({lane}), events - entry.events, 0)
        return entry._replace(events=events)

    async def settle(self, lane: int, settlements: Mapping[int, Settlement], *, patient: bool = False) -> Noted:
        """Stores settlements of entries, by their places.

        `patient` if no barrier waits for it: then it may go with the next commit. Raises dead_letters.Full, which names
        the letters that have room, and stores nothing then.
        """
        now, limits, sealer = self._now(), self.limits.dead_letters, self.store.sealer

        def settle_all(db: sqlite3.Connection) -> tuple[list[queue.Settled], list[queue.Moved]]:
            dead_letters.check_room(db, {seq: settlement.letters for seq, settlement in settlements.items()}, limits)
            changes, moved = [], list[queue.Moved]()
            for seq, settlement in settlements.items():
                if settlement.fence is not None:
                    moved += lifting.reissue(db, sealer, now, lane, seq, settlement, self._first_epoch)
                if change := queue.settle(db, sealer, lane, seq, settlement, limits, now):
                    changes.append(change)
            return changes, moved

        (changes, moved), figures = await self.store.do(self._counted(settle_all), patient=patient)
        for change in changes:
            figures.settled(lane, change)
        figures.moved(moved)
        self.made_room()
        self._tell_of_answered(changes)
        renewed = frozenset(change.entry.seq for change in changes if change.is_renewed)
        return Noted(sum(change.letters_dropped for change in changes), renewed, frozenset(each.lane for each in moved))

    async def answers(self, input: str, keys: Collection[str]) -> dict[str, bytes | None]:
        """Returns the answers of awaited batches, by key; None: not all are there. See `awaited.answers`."""
        return await self.store.read(lambda db: awaited.answers(db, input, keys))

    def on_answered(self, callback: Callable[[Sequence[Answered]], None]) -> None:
        """Registers a callback for awaited batches that have all their answers, durably."""
        self._on_answered.append(callback)

    def _tell_of_answered(self, changes: Iterable[queue.Settled]) -> None:
        answered = [change.answered for change in changes if change.answered is not None]
        if answered:
            for callback in self._on_answered:
                callback(answered)

    def made_room(self) -> None:
        """Wakes tasks that wait for room."""
        self.room.set()
        self.room = trio.Event()

    # -- revisions -----------------------------------------------------------------------------------------------------

    async def standing(self, still_used: Collection[str], since: Revision | None = None) -> Standing:
        """Returns the revisions from `since` on, and the credentials in use, `still_used` included."""
        return await self._config(lambda db: _standing(db, still_used, since))

    async def receive(
        self, text: Text, fingerprints: Mapping[str, bytes], skipped: Collection[Text] = ()
    ) -> list[Known]:
        """Stores a valid policy; returns the older ones that it superseded, `skipped` included."""
        return await self._config(lambda db: revisions.receive(db, self.store.sealer, text, fingerprints, skipped))

    async def forget(self, at: Revision) -> None:
        """Deletes a received revision that failed to start."""
        await self._config(lambda db: revisions.forget(db, at))

    async def cut(
        self,
        at: Revision,
        wanted: Sequence[tuple[LaneKey, LaneSettings]],
        limits: SpoolLimits = kept.DEFAULTS,
        contacts: Mapping[str, Sequence[str]] = MappingProxyType({}),
        state: Sequence[feeding.Route] = (),
    ) -> Cut:
        """Makes a revision active, puts the barriers, and stores its limits, in one transaction.

        `contacts` are digests of the hosts of each output that says when it asks them (`forward` has the rule), `state`
        the inputs of keyed state.
        """
        now = self._now()

        def cut(db: sqlite3.Connection) -> Cut:
            kept.store(db, limits)
            return revisions.cut(db, self.store.sealer, at, wanted, contacts, state, now)

        done, figures = await self._config(self._counted(cut))
        figures.moved(done.retracted)
        for lane, events, gone in done.fed:
            figures.moved(queue.Moved(lane, entry, None) for entry in gone)
            figures.fed(at, lane, events)
        self._set_limits(limits)
        return done

    async def take_over(self, limits: SpoolLimits) -> None:
        """Stores limits of the active revision; a spool of an earlier version has none."""
        await self._config(lambda db: kept.store(db, limits))
        self._set_limits(limits)

    def _set_limits(self, limits: SpoolLimits) -> None:
        is_other_store = limits.dead_letters != self.limits.dead_letters
        self.limits = limits
        if is_other_store:
            self._free_letters()

    async def lanes(self) -> list[LaneRow]:
        return await self._config(lambda db: revisions.lanes(db, self.store.sealer))

    async def settle_barrier(
        self, lane: int, seq: int, *, connected: bool
    ) -> Literal["settled", "gone", "waits", "retired"]:
        """Settles a barrier of a lane that has settled everything below; see `revisions.settle_barrier`."""
        return await self._config(lambda db: revisions.settle_barrier(db, lane, seq, connected=connected))

    async def settle_reached(self, lane: int) -> bool:
        """Settles the barriers at the head of a lane that cannot be opened; returns whether the lane is gone."""
        return await self._config(lambda db: revisions.settle_reached(db, lane))

    async def advance(
        self,
        closing: Revision | None,
        still_used: Collection[str],
        before: Before = "listed",
        most_bytes: int = LARGEST_COUNT,
        since: Revision | None = None,
    ) -> tuple[Receipt | None, list[str], Standing]:
        """Stores `drained` for the newest drained revision; returns its receipt, and released credentials that it
        lacks; and what `standing` returns after that.

        The receipt lists at most `most_bytes` of released credentials as JSON.
        """

        def advance(db: sqlite3.Connection) -> tuple[Receipt | None, list[str], Standing]:
            receipt = revisions.drained(db, closing, still_used, before, most_bytes)
            if receipt is None:
                free = credentials.release(db, still_used)
            else:
                free = credentials.unlisted(db, receipt.credentials.in_use)
            return receipt, free, _standing(db, still_used, since)

        return await self._config(advance)

    async def release(self, still_used: Collection[str]) -> list[str]:
        """Marks and returns the credentials to which nothing refers any more."""
        return await self._config(lambda db: credentials.release(db, still_used))

    async def forget_credentials(self, ids: Collection[str], still_used: Collection[str]) -> Forgotten:
        """After a nack, forgets those ids to which nothing refers."""
        return await self._config(lambda db: credentials.forget(db, ids, still_used))

    async def policy_text(self, at: Revision) -> str | None:
        """Returns the stored text of a revision, or None. Raises Damaged."""
        return await self._config(lambda db: revisions.policy_text(db, self.store.sealer, at))

    async def fingerprints(self) -> dict[str, bytes]:
        return await self._config(credentials.fingerprints)

    # -- orders and dead letters ---------------------------------------------------------------------------------------

    async def place_order(self, order: drain_orders.Order) -> drain_orders.Order:
        """Stores an order; call `step_order` until it is done."""
        return await self._config(lambda db: drain_orders.place(db, order))

    async def place_rebind(self, source: int, upto: int, old: str, new: str) -> tuple[drain_orders.Order, LaneRow]:
        """Stores an order to rebind to the lane with the credential `new` in place of `old`, which is made if absent.

        Raises `drain_orders.Gone`, `drain_orders.Released` or `drain_orders.InDoubt`.
        """
        sealer = self.store.sealer
        return await self._config(lambda db: drain_orders.place_rebind(db, sealer, source, upto, old, new))

    async def place_forward(
        self,
        lane: int,
        *,
        upto: int | None = None,
        revision: Revision | None = None,
        closed: Collection[int] = (),
        unasked: bool = False,
    ) -> tuple[drain_orders.Order, list[LaneRow]]:
        """Stores an order to forward to the current lane of the output; returns all lanes too. Raises NotForwarded."""

        def place(db: sqlite3.Connection) -> tuple[drain_orders.Order, list[LaneRow]]:
            order = forward.place_forward(db, lane, upto=upto, revision=revision, closed=closed, unasked=unasked)
            return order, revisions.lanes(db, self.store.sealer)

        return await self._config(place)

    async def never_reached(self) -> list[int]:
        """Returns the lanes to forward without an order."""
        return await self.store.read(forward.never_reached)

    async def note_reached(self, lane: int) -> None:
        """Stores that a request to the hosts of a lane begins; returns when that is durable. Raises StoreFailed."""
        await self.store.do(lambda db: contact.note(db, lane), urgent=True)

    def note_answered(self, lane: int) -> None:
        """Stores that the destination of a lane has answered; durable before later calls are."""
        with suppress(StoreFailed):  # the process ends then, and some callers must not raise
            self.store.post(lambda db: contact.note(db, lane), urgent=True)

    async def load_origins(self) -> None:
        """Loads the origins of stored events; forgets others, if there are many."""
        stored = await self.store.read(partial(origins.load, sealer=self.store.sealer))
        self._origins.update(stored)
        if len(self._origins) > origins.MANY:
            self.store.post(origins.forget_unused)

    def prove(self, origin: bytes, name: str) -> bytes | None:
        """Returns the proof that the events of an origin are those of the edge `name`; None if it is not known."""
        known = self._origins.get(origin)
        return None if known is None else known.proof(name)

    async def lineages(self, lane: int) -> dict[str, Confirmed]:
        """Returns what the destination of a lane has confirmed, by its lineage, with all that was noted before."""
        return await self.store.do(lambda db: lineages.of_lane(db, lane), patient=True)

    def note_confirmed(self, lane: int, lineage: str, confirmed: Confirmed) -> None:
        """Stores what a lineage has confirmed; it goes with the next commit, as do settlements that come after it."""
        with suppress(StoreFailed):
            self.store.post(lambda db: lineages.note(db, lane, lineage, confirmed), patient=True)

    async def standing_orders(self) -> list[drain_orders.Order]:
        return await self._config(drain_orders.standing)

    async def step_order(self, order: drain_orders.Order) -> drain_orders.Step:
        """Carries out one bounded step of an order."""
        now, limits = self._now(), self.limits.dead_letters
        sealer = self.store.sealer
        try:
            step, figures = await self._config(
                self._counted(lambda db: drain_orders.step(db, sealer, order, limits, now))
            )
        except Damaged:
            await self.repair_once()
            step, figures = await self._config(
                self._counted(lambda db: drain_orders.step(db, sealer, order, limits, now, repaired=True))
            )
        for lane, change in step.settled:
            figures.settled(lane, change)
        for entry, others in step.moved:
            assert order.target is not None
            figures.rebound(entry, others, order.lane, order.target)
        self.made_room()
        self._tell_of_answered(change for _, change in step.settled)
        return step

    async def doubts(self) -> set[int]:
        """Returns the lanes whose barriers wait for an order after damage."""
        return await self._config(doubt.lanes)

    async def repair_once(self) -> None:
        """Copies readable rows to a new generation, before rows with a broken seal are deleted.

        Once in a process: a copied database is sound, and only its values can be damaged.
        """
        if not self._is_repaired:
            self._is_repaired = True
            await self.store.repair()

    async def heed_damage(self) -> None:
        """Handles the report of a repair, recounts the figures, and runs the callbacks: entries may have been
        restored."""

        now = self._now()

        def act(db: sqlite3.Connection) -> tuple[Figures, int]:
            audit.audit(db, self.store.sealer)
            doubt.act(db)
            self._counting = Figures.of(db, self.store.sealer)
            return self._counting, places.begin(db, now)

        self.figures, epoch = await self._config(act)
        self._first_epoch = self._first_epoch or epoch
        for callback in self._on_damage:
            callback()

    def on_damage(self, callback: Callable[[], None]) -> None:
        """Registers a callback that runs after damage was handled."""
        self._on_damage.append(callback)

    async def dead_letters(self) -> DeadLetterFigures:
        now = self._now()
        return await self.store.read(lambda db: dead_letters.figures(db, now))

    async def dead_letter_reasons(self) -> list[DeadLetterReason]:
        now = self._now()
        return await self.store.read(lambda db: dead_letters.reasons(db, now))

    async def letters(self, after: int, limit: int) -> list[dict[str, Any]]:
        return await self.store.read(lambda db: dead_letters.page(db, self.store.sealer, after, limit))

    async def delete_letters(self, upto: int) -> int:
        deleted = await self._config(lambda db: dead_letters.delete(db, upto))
        self._free_letters()
        return deleted

    def on_letters_freed(self, callback: Callable[[], None]) -> None:
        """Registers a callback that runs when dead letters may have room: some were deleted, or the limit changed."""
        self._on_letters_freed.append(callback)

    def _free_letters(self) -> None:
        self.letters_freed += 1
        for callback in self._on_letters_freed:
            callback()

    async def find_letters(self, wanted: requeue.Wanted) -> requeue.Found:
        """Counts the wanted dead letters."""
        return await self.store.read(lambda db: requeue.find(db, wanted))

    async def active_outputs(self) -> list[str]:
        """Returns the outputs of the active revision."""
        return list(await self.store.read(requeue.lanes))

    async def place_requeue(self, order: requeue.Requeue) -> requeue.Requeue:
        """Stores an order; call `step_requeue` until it has ended."""
        return await self._config(lambda db: requeue.place(db, order))

    async def standing_requeues(self) -> list[requeue.Requeue]:
        return await self._config(requeue.standing)

    async def step_requeue(self, order: requeue.Requeue, room: requeue.Room) -> requeue.Step:
        """Carries out one bounded step. Raises Backpressure while the disk is full or failing."""
        now, sealer = self._now(), self.store.sealer

        def run(db: sqlite3.Connection) -> requeue.Step:
            origins.keep(db, sealer, self._drawn)
            return requeue.step(db, sealer, self.origin, order, room, now)

        counted = self._counted(run)
        step = _count_requeued(await self.store.append(counted, _count_requeued, wait=False))
        if step.requeued:
            self._free_letters()
        return step

    async def forget_requeue(self, order: requeue.Requeue) -> None:
        """Deletes an order that is not done."""
        await self._config(lambda db: requeue.forget(db, order))

    async def query(self, query: Callable[[sqlite3.Connection], Result]) -> Result:
        """Runs one bounded read."""
        return await self.store.read(query)

    async def _config(self, op: Callable[[sqlite3.Connection], Result]) -> Result:
        """Runs an urgent operation that does not wait for room on the disk."""
        return await self.store.do(op, urgent=True)


def _standing(db: sqlite3.Connection, still_used: Collection[str], since: Revision | None) -> Standing:
    return Standing(revisions.stored(db, since), revisions.stages(db), credentials.in_use(db, still_used))


def _chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[at : at + resync.MOST_KEYS] for at in range(0, len(items), resync.MOST_KEYS))


def _count(arrival: Arrival, entered: list[Entered], figures: Figures) -> list[Entered]:
    for packed, batch in zip(arrival.batches, entered, strict=True):
        figures.add(arrival.revision, frozenset(arrival.lanes_of(packed)), batch.events, batch.size)
    return entered


def _count_admitted(admitted: Admitted, figures: Figures) -> Admitted:
    figures.moved(admitted.moved)
    return admitted


def _count_requeued(counted: tuple[requeue.Step, Figures]) -> requeue.Step:
    step, figures = counted
    for revision, lane, batch in step.entered:
        figures.add(revision, frozenset({lane}), batch.events, batch.size)
    return step


@asynccontextmanager
async def open_spool(
    directory: Path, keys: Sequence[StateKey] | None, *, disk: Disk | None = None, environment: Environment = REAL
) -> AsyncIterator[Spool]:
    """Owns a state directory while the block runs. Raises StateBusy, StateLocked, StartFailed."""
    async with (
        open_store(
            directory, keys, prepare=schema.prepare, sealed=schema.SEALED, disk=disk, environment=environment
        ) as store,
        trio.open_nursery() as nursery,
    ):
        spool = Spool(store, Figures.none(), environment)
        await spool.heed_damage()
        spool.limits = await spool.query(kept.load)
        await spool.load_origins()
        store.on_report(lambda report: nursery.start_soon(spool.heed_damage))
        yield spool
        nursery.cancel_scope.cancel("the spool is closed")
