"""Any course of keeping, sending, rotating, moving, ordering and restarting: the last word arrives and never goes back.

The model knows of each destination, whichever credential was used, which version of each key has its final answer.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shipper.sdk.state import Change, Quota
from shipper.spool import drain_orders, holdings, keyed, lifting, places, revisions, slots
from shipper.spool.drain_orders import Order
from shipper.spool.figures import Figures
from shipper.spool.queue import Moved, Settlement
from shipper.spool.schema import SLOT
from shipper.values import Counts
from tests.examples import examples
from tests.spool.keyed import INPUT, LIMITS, NOW, Shelf, To

KEYS = ("a", "b", "c")
OWNERS = ("", "berlin")
PLACES = st.sampled_from([To("x", "k1"), To("x", "k2"), To("y", "k1"), To("y", "k3")])
DOCUMENTS = st.one_of(st.none(), st.integers(0, 9).map(lambda n: b'{"n":%d}' % n))
WORDS = st.tuples(st.sampled_from(OWNERS), st.sampled_from(KEYS), DOCUMENTS)
QUOTA, MOST = Quota(1, 1 << 20), 2
"""Of another owner: one key that is not deleted, and as many deletions; all of its keys where no quota is given."""
SELDOM = st.sampled_from([False] * 5 + [True])
Key = tuple[str, str]


class _Known(NamedTuple):
    """A key as it is stored."""

    place: int
    deleted: bool
    waits: bool

    @property
    def is_settled(self) -> bool:
        return bool(self.deleted and not self.waits)


class KeyedState(RuleBasedStateMachine):
    """`answered`: by destination and key, the place of the newest version with a final answer."""

    @initialize()
    def begin(self) -> None:
        self.patches = ExitStack()
        for name, number in (("LEAST_DELETIONS", 1), ("PORTION", 1)):
            self.patches.enter_context(patch.object(holdings, name, number))
        self.shelf = Shelf()
        self.figures = Figures.none()
        self.answered: dict[tuple[str, str], dict[Key, int]] = {}
        self.handed: dict[tuple[int, Key], int] = {}
        self.in_flight: list[tuple[int, int, int, Key]] = []
        self.fronts: dict[int, int] = {}
        self.routed: tuple[str, ...] = ()
        self.current: dict[Key, tuple[int, bytes | None]] = {}
        self.cut(To("x", "k1"), None, False)

    def teardown(self) -> None:
        self.patches.close()

    # -- what may happen -----------------------------------------------------------------------------------------------

    @rule(words=st.lists(WORDS, min_size=1, max_size=6), guess=st.booleans(), is_bounded=st.booleans())
    def keep(self, words: list[tuple[str, str, bytes | None]], guess: bool, is_bounded: bool) -> None:
        """`guess`: the fronts are those of a moment ago, before anything was handed out."""
        if not self.routed:
            return
        fronts = dict.fromkeys(self.shelf.lanes.values(), 0) if guess else self.fronts
        lanes = [self.shelf.lanes[output] for output in self.routed]
        for owner, key, document in words:
            before = self.current.get((owner, key), (0, None))[0]
            change = Change("things", key, document, owner, before + 1 if owner else None)
            quota = QUOTA if is_bounded and owner else None
            arrival = keyed.Arrival(self.shelf.at, INPUT, lanes, [change], fronts=fronts, quota=quota)
            known = self._known()
            admitted = keyed.keep(self.shelf.db, self.shelf.sealer, NOW, arrival)
            self.figures.moved(admitted.moved)
            (kept,) = admitted.kept
            self._check_forgotten(known, change, kept.is_full)
            if kept.is_new:
                assert kept.place > before
                self.current[owner, key] = kept.place, document

    @rule(data=st.data())
    def hand_out(self, data: st.DataObject) -> None:
        """What is above the front, and, as by a pass, perhaps again what is below."""
        lane = self._a_lane(data)
        front = self.fronts.get(lane, 0)
        for entry in self.shelf.entries(lane):
            if entry.is_barrier:
                break
            if entry.seq > front or data.draw(st.booleans()):
                batch = self.shelf.load(lane, entry)
                assert batch.versions is not None
                (version,) = batch.versions
                assert version is not None
                key = (version.owner, version.key)
                assert version.place >= self.handed.get((lane, key), 0), "a version went back"
                self.handed[lane, key] = version.place
                self.fronts[lane] = max(self.fronts.get(lane, 0), entry.seq)
                self.in_flight.append((lane, entry.seq, version.place, key))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), counts=st.sampled_from(["delivered", "delivered", "dead_letter", "duplicate", None]))
    def answer(self, data: st.DataObject, counts: str | None) -> None:
        lane, seq, place, key = self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1)))
        if counts is not None:
            self._settle(lane, seq, place, key, counts)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), further=st.integers(0, 9))
    def answer_by_a_fence(self, data: st.DataObject, further: int) -> None:
        lane, seq, place, key = self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1)))
        shelf = self.shelf
        settlement = Settlement(Counts(superseded=1), place=place, fence=(place + further, b""))
        moved = lifting.reissue(shelf.db, shelf.sealer, NOW, lane, seq, settlement, shelf.epoch)
        self.figures.moved(moved)
        if moved:
            (name, new) = key, self._stored(key)
            assert new is not None
            assert new > place + further
            self.current[name] = new, self.current[name][1]
        self._settle(lane, seq, place, key, "superseded")

    @rule(main=st.none() | PLACES, other=st.none() | PLACES, away=st.booleans(), seldom=SELDOM)
    def cut_seldom(self, main: To | None, other: To | None, away: bool, seldom: bool) -> None:
        if seldom:
            self.cut(main, other, away)

    def cut(self, main: To | None, other: To | None, away: bool) -> None:
        outputs = {name: to for name, to in (("main", main), ("other", other)) if to is not None}
        self.routed = tuple(name for name in outputs if not (away and name == "main"))
        cut = self.shelf.activate({INPUT: self.routed}, **outputs)
        for lane, events, gone in cut.fed:
            self.figures.moved(Moved(lane, entry, None) for entry in gone)
            self.figures.fed(self.shelf.at, lane, events)

    @rule(data=st.data())
    def pass_a_barrier(self, data: st.DataObject) -> None:
        lane = self._a_lane(data)
        first = self.shelf.entries(lane)[:1]
        if first and first[0].is_barrier:
            assert revisions.settle_barrier(self.shelf.db, lane, first[0].seq) in ("settled", "gone")

    @rule(data=st.data(), name=st.sampled_from(["drop", "forward", "rebind"]))
    def order(self, data: st.DataObject, name: Any) -> None:
        lane = self._a_lane(data)
        key = self._lane_key(lane)
        lanes = self.shelf.lanes
        same = {id for id in lanes.values() if id != lane and self._lane_key(id) == key}
        targets = same if name == "rebind" else {lanes[key[0]]} - {lane} if key[0] in lanes else set()
        barriers = [entry.seq for entry in self.shelf.entries(lane) if entry.is_barrier]
        if not barriers or lane in lanes.values() or (name != "drop" and not targets):
            return
        target = min(targets) if name != "drop" else None
        self.in_flight = [one for one in self.in_flight if one[0] not in (lane, target)]
        placed = drain_orders.place(self.shelf.db, Order(name, lane, barriers[-1], target))
        while True:
            step = drain_orders.step(self.shelf.db, self.shelf.sealer, placed, LIMITS, NOW)
            for at, change in step.settled:
                self.figures.settled(at, change)
            for entry, others in step.moved:
                assert target is not None
                self.figures.rebound(entry, others, lane, target)
            if step.done:
                break
        self.handed = {at: place for at, place in self.handed.items() if at[0] not in (lane, target)}
        if name == "drop":
            gone = self.answered.setdefault(key, {})
            gone.update({name: max(gone.get(name, 0), place) for name, (place, _) in self.current.items()})

    @rule(seldom=SELDOM)
    def restart(self, seldom: bool) -> None:
        if not seldom:
            return
        self.in_flight.clear()
        self.fronts.clear()
        self.shelf.epoch = places.begin(self.shelf.db, NOW)

    # -- what holds ----------------------------------------------------------------------------------------------------

    @invariant()
    def there_is_one_slot_for_each_entry(self) -> None:
        entries = self.shelf.db.execute("SELECT lane, seq FROM todo WHERE kind = ? ORDER BY 1, 2", (SLOT,)).fetchall()
        assert entries == self.shelf.db.execute("SELECT lane, seq FROM slot ORDER BY lane, seq").fetchall()
        assert self.shelf.count("keyed") <= len(KEYS) * len(OWNERS)
        assert len(entries) <= self.shelf.count("keyed") * self.shelf.count("lane")

    @invariant()
    def the_last_word_is_answered_or_waits(self) -> None:
        for output in self.routed:
            at = self._lane_key(self.shelf.lanes[output])
            waiting = self._waiting(at)
            for name, (place, document) in self.current.items():
                if document is None and self._stored(name) is None:
                    continue  # it is deleted everywhere that had it
                done = self.answered.get(at, {}).get(name, 0) >= place
                assert done or name in waiting, (at, name, place)
                if name in waiting and not done:
                    assert waiting[name] == document

    @invariant()
    def what_an_owner_has_is_that_of_a_count(self) -> None:
        db = self.shelf.db
        held = "SELECT keys, bytes, known FROM holding WHERE owner = 'berlin'"
        count = "SELECT total(NOT deleted), total(iif(deleted, 0, bytes)), count(*) FROM keyed WHERE owner = 'berlin'"
        assert (db.execute(held).fetchone() or (0, 0, 0)) == db.execute(count).fetchone()
        waits = "EXISTS (SELECT 1 FROM slot WHERE keyed = keyed.id)"
        unmarked = f"SELECT 1 FROM keyed WHERE deleted AND NOT {waits} AND settled IS NULL"
        marked = "SELECT 1 FROM keyed WHERE settled IS NOT NULL AND NOT deleted"
        assert db.execute(f"{unmarked} UNION ALL {marked}").fetchall() == []

    @invariant()
    def the_figures_are_those_of_a_count(self) -> None:
        counted = Figures.of(self.shelf.db, self.shelf.sealer)
        assert (self.figures.events, self.figures.bytes) == (counted.events, counted.bytes)
        assert self.figures.versions == counted.versions
        assert self.figures.total().bytes == 0

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _a_lane(self, data: st.DataObject) -> int:
        rows = self.shelf.db.execute("SELECT id FROM lane ORDER BY id").fetchall()
        return data.draw(st.sampled_from([id for (id,) in rows])) if rows else 0

    def _lane_key(self, lane: int) -> tuple[str, str]:
        row = self.shelf.db.execute("SELECT output, destination FROM lane WHERE id = ?", (lane,)).fetchone()
        return tuple(row) if row else ("", "")

    def _settle(self, lane: int, seq: int, place: int, key: Key, counts: str) -> None:
        at = self._lane_key(lane)
        settled = self.shelf.settle(lane, seq, place, **{counts: 1})
        if settled is not None:
            self.figures.settled(lane, settled)
            if not settled.is_renewed:
                answered = self.answered.setdefault(at, {})
                answered[key] = max(answered.get(key, 0), place)

    def _stored(self, key: Key) -> int | None:
        name = slots.name_of(key[0], "things", key[1])
        row = self.shelf.db.execute("SELECT place FROM keyed WHERE name = ?", (name,)).fetchone()
        return None if row is None else int(row[0])

    def _known(self) -> dict[str, _Known]:
        """What is known of the other owner, by key."""
        names = {slots.name_of("berlin", "things", key): key for key in KEYS}
        waits = "EXISTS (SELECT 1 FROM slot WHERE keyed = keyed.id)"
        rows = self.shelf.db.execute(f"SELECT name, place, deleted, {waits} FROM keyed WHERE owner = 'berlin'")
        return {names[name]: _Known(*rest) for name, *rest in rows.fetchall()}

    def _check_forgotten(self, before: dict[str, _Known], change: Change, is_full: bool) -> None:
        """Only a settled deletion is, to make room for a new key; and where one may be, the new key is not refused."""
        now = self._known()
        gone = before.keys() - now.keys()
        highest = [max([one.place for one in known.values()], default=0) for known in (before, now)]
        assert all(before[key].is_settled for key in gone)
        assert highest[0] <= highest[1]
        assert not gone or (change.key not in before and len(now) == MOST)
        assert not is_full or change.document is not None or (change.key not in before and len(before) >= MOST)
        may_go = [key for key, one in before.items() if one.is_settled][1:]
        assert not is_full or change.document is not None or not may_go or len(before) > MOST

    def _waiting(self, at: tuple[str, str]) -> dict[Key, bytes | None]:
        """The current versions that wait for a destination, on any lane."""
        found = {}
        rows = self.shelf.db.execute("SELECT id FROM lane WHERE output = ? AND destination = ?", at).fetchall()
        for (lane,) in rows:
            for entry in self.shelf.entries(lane):
                if entry.kind == SLOT:
                    batch = self.shelf.load(lane, entry)
                    assert batch.versions is not None
                    (version,) = batch.versions
                    assert version is not None
                    key = (version.owner, version.key)
                    if self.current[key][0] == version.place:
                        found[key] = None if version.deleted else batch.body[:-1]
        return found


TestKeyedState = KeyedState.TestCase
TestKeyedState.settings = settings(
    max_examples=examples(0.6), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
