"""Which events a request has is kept until all have their answers, and goes where they go."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from shipper.sdk.event import Batch
from shipper.spool import audit, drain_orders, queue, requests, revisions
from shipper.spool.drain_orders import Order
from shipper.spool.queue import Arrival, Packed, Settlement
from shipper.spool.requests import Part
from shipper.values import Counts
from tests.spool.keyed import INPUT, LIMITS, NOW, Shelf, To

ALL = 1 << 40
ORIGIN = bytes(16)


def entered(shelf: Shelf, events: int = 2) -> int:
    batch = Batch.documents([b'{"n":%d}' % n for n in range(events)])
    arrival = Arrival(shelf.at, INPUT, [shelf.lanes["main"]], [Packed(events, batch.pack())])
    (stored,) = queue.enter(shelf.db, shelf.sealer, ORIGIN, NOW, arrival)
    return stored.seq


def settle(shelf: Shelf, lane: int, seq: int, events: int = 2) -> None:
    queue.settle(shelf.db, shelf.sealer, lane, seq, Settlement(Counts(delivered=events)), LIMITS, NOW)


def names(db: sqlite3.Connection, lane: int) -> dict[str, list[int]]:
    return {one.name: [entry.seq for entry in one.entries] for one in requests.of_lane(db, lane)}


def test_a_request_has_its_entries_until_it_is_answered(shelf: Shelf) -> None:
    lane, seqs = shelf.lanes["main"], [entered(shelf) for _ in range(3)]
    assert requests.compose(shelf.db, lane, "one", [Part(seqs[0], 0, 1), Part(seqs[2], 0, 1)])
    assert requests.compose(shelf.db, lane, "other", [Part(seqs[1], 0, 1)])

    assert names(shelf.db, lane) == {"one": [seqs[0], seqs[2]], "other": [seqs[1]]}
    requests.answered(shelf.db, ["one"])
    assert names(shelf.db, lane) == {"other": [seqs[1]]}


def test_no_event_is_in_two_requests_but_parts_of_an_entry_may_be(shelf: Shelf) -> None:
    lane, seq = shelf.lanes["main"], entered(shelf, 4)
    assert requests.compose(shelf.db, lane, "whole", [Part(seq, 0, 3)])

    assert not requests.compose(shelf.db, lane, "half", [Part(seq, 0, 1)])
    assert requests.compose(shelf.db, lane, "half", [Part(seq, 0, 1)], "whole")
    assert not requests.compose(shelf.db, lane, "middle", [Part(seq, 1, 2)])
    assert requests.compose(shelf.db, lane, "rest", [Part(seq, 2, 3)])
    assert names(shelf.db, lane) == {"half": [seq], "rest": [seq]}


def test_what_leaves_the_queue_otherwise_is_missing_and_the_rest_keeps_the_id(shelf: Shelf) -> None:
    lane, seqs = shelf.lanes["main"], [entered(shelf) for _ in range(2)]
    requests.compose(shelf.db, lane, "one", [Part(seq, 0, 1) for seq in seqs])
    settle(shelf, lane, seqs[0])

    assert names(shelf.db, lane) == {"one": [seqs[1]]}


@pytest.mark.parametrize("beyond", [False, True])
def test_a_request_goes_with_its_entries_if_an_order_moves_them_all(shelf: Shelf, beyond: bool) -> None:
    lane, seqs = shelf.lanes["main"], [entered(shelf) for _ in range(2)]
    requests.compose(shelf.db, lane, "one", [Part(seq, 0, 1) for seq in seqs])
    shelf.activate(main=To("b"))
    target = shelf.lanes["main"]
    order = drain_orders.place(shelf.db, Order("forward", lane, seqs[0] if beyond else ALL, target=target))
    carry_out(shelf, order)

    assert names(shelf.db, lane) == ({"one": [seqs[1]]} if beyond else {})
    assert names(shelf.db, target) == ({} if beyond else {"one": seqs})


def carry_out(shelf: Shelf, order: Order) -> None:
    while not drain_orders.step(shelf.db, shelf.sealer, order, LIMITS, NOW).done:
        pass


def test_an_order_that_ends_all_of_a_request_ends_the_request(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    requests.compose(shelf.db, lane, "one", [Part(entered(shelf), 0, 1)])
    shelf.activate(main=To("b"))
    carry_out(shelf, drain_orders.place(shelf.db, Order("drop", lane, ALL)))

    assert shelf.db.execute("SELECT * FROM request").fetchall() == []


def test_requests_go_with_their_lane(shelf: Shelf) -> None:
    lane, seq = shelf.lanes["main"], entered(shelf)
    requests.compose(shelf.db, lane, "one", [Part(seq, 0, 1)])
    shelf.activate(main=To("b"))
    settle(shelf, lane, seq)
    (barrier,) = shelf.entries(lane)
    assert revisions.settle_barrier(shelf.db, lane, barrier.seq, connected=False) == "gone"

    assert shelf.db.execute("SELECT * FROM request").fetchall() == []


@pytest.mark.parametrize("parts", ["", "[[1,2]]", "[[1,3,2]]", "[[0,0,0]]", "{}", b"\xff"])
def test_a_damaged_row_frees_its_events_and_is_reported(shelf: Shelf, parts: object) -> None:
    lane, seq = shelf.lanes["main"], entered(shelf)
    requests.compose(shelf.db, lane, "one", [Part(seq, 0, 1)])
    shelf.db.execute("UPDATE request SET parts = ?", (parts,))
    audit.audit(shelf.db, shelf.sealer)

    assert names(shelf.db, lane) == {}
    assert requests.compose(shelf.db, lane, "other", [Part(seq, 0, 1)])


class Kept(RuleBasedStateMachine):
    """Requests of one lane, against what was composed."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = Shelf()
        self.shelf.activate(main=To("a"))
        self.lane = self.shelf.lanes["main"]
        self.free: list[int] = []
        self.open: dict[str, list[int]] = {}
        self.number = 0

    @rule(events=st.integers(1, 3))
    def enter(self, events: int) -> None:
        self.free.append(entered(self.shelf, events))

    @precondition(lambda self: self.free)
    @rule(data=st.data())
    def compose(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.free), unique=True, min_size=1))
        self.number += 1
        name = str(self.number)
        assert requests.compose(self.shelf.db, self.lane, name, [Part(seq, 0, 2) for seq in chosen])
        self.open[name] = chosen
        self.free = [seq for seq in self.free if seq not in chosen]

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        for seq in self.open.pop(name):
            self._settle(seq)
        requests.answered(self.shelf.db, [name])

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """An entry leaves on another way, as by damage."""
        name = data.draw(st.sampled_from(sorted(self.open)))
        seq = data.draw(st.sampled_from(self.open[name]))
        self._settle(seq)
        self.open[name].remove(seq)
        if not self.open[name]:
            del self.open[name]

    def _settle(self, seq: int) -> None:
        entry = next(entry for entry in self.shelf.entries(self.lane) if entry.seq == seq)
        settle(self.shelf, self.lane, seq, entry.events)

    @invariant()
    def all_are_as_they_were_composed(self) -> None:
        assert names(self.shelf.db, self.lane) == self.open

    @precondition(lambda self: self.open and self.free)
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        """A request with an event of another one changes nothing."""
        taken = data.draw(st.sampled_from(self.open[data.draw(st.sampled_from(sorted(self.open)))]))
        parts = [Part(self.free[0], 0, 2), Part(taken, 1, 1)]

        assert not requests.compose(self.shelf.db, self.lane, "x", parts)


def test_whatever_happens_requests_are_as_they_were_composed() -> None:
    run_state_machine_as_test(Kept)
