"""Awaited batches: each event has the worst answer of all lanes, whoever settles in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.sdk.answers import Outcome, Ranked
from shipper.sdk.event import Batch
from shipper.spool import audit, awaited, doubt, drain_orders, queue, schema
from shipper.spool.awaited import Answered, Awaited
from shipper.spool.database import with_damage
from shipper.spool.drain_orders import Order
from shipper.spool.queue import Arrival, Packed, Settlement
from shipper.spool.report import Report
from shipper.values import Counts
from tests.spool.test_spool_queue import AT, LIMITS, ORIGIN, Rows

FINAL = (
    Outcome.DELIVERED,
    Outcome.DUPLICATE,
    Outcome.REJECTED,
    Outcome.DEAD_LETTER,
    Outcome.DROPPED,
    Outcome.DAMAGED,
)
RELAYED = Batch.documents([b'{"n":%d}' % n for n in range(4)]).identified(b"o" * 16, 9)


@pytest.fixture
def rows() -> Rows:
    made = Rows()
    with_damage(schema.prepare)(made.db)
    return made


def enter(rows: Rows, batch: Batch, *packed: Packed, key: str = "k", input: str = "in") -> list[int]:
    one = Awaited(key, batch.count, batch.items)
    arrival = Arrival(AT, input, (1, 2), packed or [pack(batch)], awaited=[one])
    return [entered.seq for entered in queue.enter(rows.db, rows.sealer, ORIGIN, 5.0, arrival)]


def pack(batch: Batch, lanes: tuple[int, ...] | None = None, *, is_anew: bool = False) -> Packed:
    return Packed(batch.count, batch.pack(), lanes, is_anew=is_anew)


def settlement(batch: Batch, answers: Mapping[int, Outcome | None]) -> Settlement:
    """By position; None: none yet."""
    items = range(batch.count) if batch.items is None else batch.items
    final = [outcome for outcome in answers.values() if outcome is not None]
    ranks = [Ranked.of(outcome) for outcome in final]
    counts = Counts(**{rank.name.lower(): ranks.count(rank) for rank in set(ranks)})
    left = [at for at, outcome in answers.items() if outcome is None]
    others = {items[at]: one for at, one in answers.items() if one not in (None, Outcome.DELIVERED)}
    return Settlement(counts, rest=batch.pick(left) if left else None, answers=others)  # type: ignore[arg-type]


def said(rows: Rows, key: str = "k", input: str = "in") -> list[int] | None:
    found = awaited.answers(rows.db, input, [key])[key]
    return None if found is None else list(found)


def test_items_that_count_from_0_take_no_room(rows: Rows) -> None:
    for key, items in (("whole", [0, 1, 2, 3]), ("rest", [1, 2, 3, 4])):
        enter(rows, replace(RELAYED, items=items), key=key)
    kept = dict(rows.db.execute("SELECT key, items FROM awaited"))

    assert kept["whole"] is None
    assert kept["rest"] is not None


def test_a_batch_is_answered_when_its_last_lane_has_settled_it(rows: Rows) -> None:
    (seq,) = enter(rows, RELAYED)
    first = rows.settle(1, seq, settlement(RELAYED, dict.fromkeys(range(4), Outcome.DELIVERED)))
    before = said(rows)
    last = rows.settle(2, seq, settlement(RELAYED, {0: Outcome.REJECTED, 1: Outcome.DELIVERED} | {2: None, 3: None}))
    part = said(rows)
    end = rows.settle(2, seq, Settlement(Counts(duplicate=2)))

    assert (before, part, said(rows)) == (None, None, [Ranked.DEAD_LETTER, 0, Ranked.DUPLICATE, Ranked.DUPLICATE])
    assert [change and change.answered for change in (first, last, end)] == [None, None, Answered("in", "k")]


def test_what_no_input_awaits_makes_no_row(rows: Rows) -> None:
    (entered,) = rows.enter(2, lanes=(1,))
    change = rows.settle(1, entered.seq, Settlement(Counts(dropped=2)))

    assert change is not None
    assert change.answered is None
    assert rows.db.execute("SELECT count(*) FROM awaited").fetchone() == (0,)


def test_what_processors_dropped_is_delivered(rows: Rows) -> None:
    (seq,) = enter(rows, RELAYED, pack(RELAYED.pick([1, 3]), (1,)))
    rows.settle(1, seq, Settlement(Counts(dropped=2)))

    assert said(rows) == [0, Ranked.DROPPED, 0, Ranked.DROPPED]


def test_a_batch_of_which_nothing_is_left_is_answered_at_once(rows: Rows) -> None:
    arrival = Arrival(AT, "in", (1, 2), [], awaited=[Awaited("k", 2)])
    queue.enter(rows.db, rows.sealer, ORIGIN, 5.0, arrival)

    assert said(rows) == [0, 0]


def test_events_with_new_identities_have_the_worst_answer_of_all(rows: Rows) -> None:
    made = Batch.documents([b'{"a":1}', b'{"b":2}'])
    (seq,) = enter(rows, RELAYED, pack(made, (1,), is_anew=True))
    rows.settle(1, seq, settlement(made, {0: Outcome.DELIVERED, 1: Outcome.REJECTED}))

    assert said(rows) == [Ranked.DEAD_LETTER] * 4


def test_a_key_belongs_to_its_input_and_is_forgotten_with_it(rows: Rows) -> None:
    enter(rows, RELAYED)
    enter(rows, RELAYED, input="other")
    queue.enter(rows.db, rows.sealer, ORIGIN, 5.0, Arrival(AT, "in", (1, 2), [], forgotten=["k", "none"]))

    assert awaited.answers(rows.db, "in", ["k"]) == {}
    assert awaited.answers(rows.db, "other", ["k", "z"]) == {"k": None}


def test_the_answer_for_a_row_that_was_forgotten_is_of_no_use(rows: Rows) -> None:
    (seq,) = enter(rows, RELAYED)
    queue.enter(rows.db, rows.sealer, ORIGIN, 5.0, Arrival(AT, "in", (1, 2), [], forgotten=["k"]))
    (again,) = enter(rows, RELAYED)
    for lane in (1, 2):
        change = rows.settle(lane, seq, Settlement(Counts(dropped=4)))
        assert change is not None
        assert change.answered is None
    for lane in (1, 2):
        rows.settle(lane, again, Settlement(Counts(delivered=4)))

    assert said(rows) == [0] * 4


def test_events_that_cannot_be_read_any_more_count_for_all(rows: Rows) -> None:
    (seq,) = enter(rows, RELAYED, pack(RELAYED.pick([1, 3]), (1,)))
    rows.db.execute("UPDATE batch SET body = zeroblob(90)")
    rows.settle(1, seq, Settlement(Counts(damaged=2)))

    assert said(rows) == [Ranked.DAMAGED] * 4


def test_a_row_whose_entries_were_lost_is_unknown_and_others_stay(rows: Rows) -> None:
    (lost,) = enter(rows, RELAYED, key="lost")
    enter(rows, RELAYED, key="kept")
    rows.db.execute("DELETE FROM todo WHERE seq = ? AND lane = 1", (lost,))
    audit.audit(rows.db, rows.sealer)

    assert awaited.answers(rows.db, "in", ["lost", "kept"]) == {"kept": None}


def test_a_row_that_claims_to_be_complete_and_is_not_is_unknown(rows: Rows) -> None:
    enter(rows, RELAYED)
    rows.db.execute("UPDATE awaited SET open = 0")
    audit.audit(rows.db, rows.sealer)

    assert awaited.answers(rows.db, "in", ["k"]) == {}


def test_an_entry_that_is_restored_after_damage_answers_nothing_twice(rows: Rows) -> None:
    (seq,) = enter(rows, RELAYED)
    rows.settle(1, seq, Settlement(Counts(delivered=4)))
    Report(lost={"todo": 1}).store(rows.db)  # type: ignore[arg-type]
    doubt.act(rows.db)
    again = rows.settle(1, seq, Settlement(Counts(dropped=4)))
    rows.settle(2, seq, Settlement(Counts(delivered=4)))

    assert again is not None
    assert again.answered is None
    assert said(rows) == [0] * 4


@dataclass
class Model:
    """What each event of an awaited batch has heard from each lane."""

    items: list[int]
    worst: dict[int, Ranked] = field(default_factory=dict)
    open: set[int] = field(default_factory=lambda: {1, 2, 3})

    def note(self, item: int, outcome: Outcome) -> None:
        self.worst[item] = max(self.worst.get(item, Ranked.DELIVERED), Ranked.of(outcome))

    @property
    def answers(self) -> list[int] | None:
        return None if self.open else [self.worst.get(item, 0) for item in self.items]


@given(st.data())
def test_each_event_has_the_worst_answer_of_all_lanes_however_they_settle(data: st.DataObject) -> None:
    rows = Rows()
    rows.db.execute("INSERT INTO lane VALUES (3, 'third', 't', 'd', '[]', x'', 1, 1, 0, 0, '[]', 0)")
    batch = RELAYED.pick(data.draw(st.lists(st.integers(0, 3), unique=True, min_size=1).map(sorted)))
    assert batch.items is not None
    model = Model(list(batch.items))
    arrival = Arrival(AT, "in", (1, 2, 3), [pack(batch)], awaited=[Awaited("k", batch.count, batch.items)])
    queue.enter(rows.db, rows.sealer, ORIGIN, 5.0, arrival)
    completed = []
    while model.open:
        lane = data.draw(st.sampled_from(sorted(model.open)))
        entry, left = rows.first(lane)
        how = data.draw(st.sampled_from(["send", "send", "drop", "dead_letter", "forward"]))
        if how == "forward" and lane == 1 and not {1, 4} <= model.open:
            rows.db.execute("INSERT OR IGNORE INTO lane VALUES (4, 'main', 't', 'e', '[]', x'', 1, 1, 0, 0, '[]', 0)")
            order = drain_orders.place(rows.db, Order("forward", 1, entry.seq, target=4, first=entry.seq))
            drain_orders.step(rows.db, rows.sealer, order, LIMITS, 6.0)
            model.open = model.open - {1} | {4}
        elif how in ("drop", "dead_letter"):
            order = drain_orders.place(rows.db, Order(how, lane, entry.seq, first=entry.seq))  # type: ignore[arg-type]
            step = drain_orders.step(rows.db, rows.sealer, order, LIMITS, 6.0)
            completed += [change.answered for _, change in step.settled]
            for item in left.items or ():
                model.note(item, Outcome.DROPPED if how == "drop" else Outcome.DEAD_LETTER)
            model.open.remove(lane)
        else:
            drawn = data.draw(st.lists(st.sampled_from((*FINAL, None)), min_size=left.count, max_size=left.count))
            if all(outcome is None for outcome in drawn):
                continue
            change = rows.settle(lane, entry.seq, settlement(left, dict(enumerate(drawn))))
            assert change is not None
            completed.append(change.answered)
            for item, outcome in zip(left.items or (), drawn, strict=True):
                if outcome is not None:
                    model.note(item, outcome)
            if None not in drawn:
                model.open.remove(lane)
        assert awaited.reconcile(rows.db) == 0
        assert said(rows) == model.answers
    assert [one for one in completed if one is not None] == [Answered("in", "k")]
