"""The life of revisions in rows: the cut, barriers, `drained`, credentials; and a model that tries any order of it."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shipper.protocol.messages import Ack
from shipper.sdk.event import Batch
from shipper.spool import credentials, dead_letters, doubt, drain_orders, forward, queue, requeue, revisions, schema
from shipper.spool.database import with_damage
from shipper.spool.drain_orders import Order
from shipper.spool.figures import Figures
from shipper.spool.forward import NotForwarded
from shipper.spool.lane_settings import LaneSettings
from shipper.spool.queue import Arrival, Entry, NotActive, Packed, Settlement
from shipper.spool.report import Report
from shipper.spool.requeue import Requeue, Room, Wanted
from shipper.spool.revisions import Cut, LaneKey, Text
from shipper.spool.schema import BARRIER, BATCH, REST
from shipper.spool.seal import Damaged, Sealer
from shipper.values import Counts, Revision
from tests.databases import in_memory
from tests.examples import examples

T = TypeVar("T")
ORIGIN = bytes(16)
LIMITS = dead_letters.Limits()
Outputs = dict[str, str | None]


def new_sealer() -> Sealer:
    return Sealer(bytes(16), {}, bytes(32), lambda: (os.urandom(8), os.urandom(32)))


def new_db() -> sqlite3.Connection:
    db = in_memory()
    with_damage(schema.prepare)(db)
    return db


def key(output: str, credential: str | None) -> LaneKey:
    return LaneKey(output, "fake", f"where {output} goes", () if credential is None else (credential,))


def settings_of(output: str, credential: str | None) -> LaneSettings:
    if credential is None:
        return LaneSettings({"of": output})
    return LaneSettings({"of": output, "login": [{"id": credential}]}, (("login", 0, "id"),))


def text(number: int, outputs: Outputs, *, policy: str = "") -> Text:
    ids = sorted({credential for credential in outputs.values() if credential is not None})
    return Text(Revision(0, number), f"sha {number} {policy}", f"meaning {number}", "barrier", ids, policy)


def documents(count: int) -> Batch:
    return Batch.documents([b'{"n":%d}' % n for n in range(count)])


class Spool:
    """Transactions as the store runs them, on a database in memory."""

    def __init__(self) -> None:
        self.db, self.sealer = new_db(), new_sealer()

    def receive(self, number: int, skipped: Iterable[int] = (), **outputs: str | None) -> list[int]:
        """Returns the numbers that it superseded."""
        marks = {credential: b"mark" for credential in outputs.values() if credential is not None}
        old = [text(n, {}) for n in skipped]
        return [known.at.number for known in revisions.receive(self.db, self.sealer, text(number, outputs), marks, old)]

    def cut(self, number: int, **outputs: str | None) -> Cut:
        wanted = [(key(name, id), settings_of(name, id)) for name, id in outputs.items()]
        return revisions.cut(self.db, self.sealer, Revision(0, number), wanted)

    def activate(self, number: int, **outputs: str | None) -> dict[str, int]:
        """Receive and cut; returns the lanes' ids by output."""
        self.receive(number, **outputs)
        return {row.key.output: row.id for row in self.cut(number, **outputs).lanes}

    def enter(self, number: int, lanes: Iterable[int], count: int = 1) -> int:
        packed = [Packed(count, documents(count).pack())]
        arrival = Arrival(Revision(0, number), "in", list(lanes), packed)
        return queue.enter(self.db, self.sealer, ORIGIN, 1.0, arrival)[0].seq

    def entries(self, lane: int) -> list[Entry]:
        return queue.window(self.db, lane, 0, 1000)

    def settle(self, lane: int, seq: int, settlement: Settlement) -> None:
        assert queue.settle(self.db, self.sealer, lane, seq, settlement, LIMITS, 1.0) is not None

    def drained(self, closing: Revision | None = None, still_used: Iterable[str] = ()) -> Ack | None:
        return revisions.drained(self.db, closing, set(still_used))


@pytest.fixture
def spool() -> Spool:
    return Spool()


# -- the cut -----------------------------------------------------------------------------------------------------------


def test_a_lane_of_both_revisions_is_the_same_lane_and_gets_no_barrier(spool: Spool) -> None:
    first = spool.activate(1, main="k1", other=None)
    spool.receive(2, main="k2", other=None)

    cut = spool.cut(2, main="k2", other=None)

    assert [row.id for row in cut.lanes if row.key.output == "other"] == [first["other"]]
    assert cut.retired == {first["main"]}
    assert spool.entries(first["other"]) == []
    assert [entry.kind for entry in spool.entries(first["main"])] == [BARRIER]


def test_every_lane_that_a_cut_leaves_out_gets_a_barrier(spool: Spool) -> None:
    first = spool.activate(1, main="k1", other="k2", third="k3")
    spool.receive(2, main="k9")

    assert spool.cut(2, main="k9").retired == set(first.values())
    assert [[entry.kind for entry in spool.entries(lane)] for lane in first.values()] == [[BARRIER]] * 3


def test_a_batch_of_another_revision_than_the_active_one_is_refused_whole(spool: Spool) -> None:
    lanes = spool.activate(1, main="k1")
    spool.activate(2, main="k1")
    arrival = Arrival(Revision(0, 1), "in", [lanes["main"]], [Packed(1, documents(1).pack())], {"file": b"7"})

    with pytest.raises(NotActive):
        queue.enter(spool.db, spool.sealer, ORIGIN, 1.0, arrival)

    assert queue.positions(spool.db, "in") == {}
    assert spool.entries(lanes["main"]) == []


def test_the_first_revision_drains_at_once(spool: Spool) -> None:
    spool.activate(1, main="k1")

    ack = spool.drained()

    assert ack is not None
    assert (ack.revision, ack.ledger) == (1, Counts())
    assert ack.credentials is not None
    assert (ack.credentials.in_use, ack.credentials.released) == (["k1"], [])
    assert spool.drained() is None


def test_drained_waits_for_every_event_below_the_barrier_and_for_the_barrier_itself(spool: Spool) -> None:
    old = spool.activate(1, main="k1")["main"]
    spool.drained()
    seq = spool.enter(1, [old], count=3)
    new = spool.activate(2, main="k2")["main"]
    spool.enter(2, [new])
    barrier = spool.entries(old)[-1].seq

    assert spool.drained() is None
    spool.settle(old, seq, Settlement(Counts(delivered=2, duplicate=1)))
    assert spool.drained() is None
    assert revisions.settle_barrier(spool.db, old, barrier) == "gone"
    ack = spool.drained()

    assert ack is not None
    assert ack.ledger == Counts(accepted=3, delivered=2, duplicate=1)
    assert ack.credentials is not None
    assert (ack.credentials.in_use, ack.credentials.released) == (["k2"], ["k1"])


def test_of_two_barriers_of_a_lane_each_counts_the_answers_below_it(spool: Spool) -> None:
    lane = spool.activate(1, main="k1")["main"]
    first = spool.enter(1, [lane], count=2)
    spool.activate(2, main="k2")
    spool.activate(3, main="k1")
    second = spool.enter(3, [lane])
    spool.activate(4, main="k4")
    lower, upper = (entry.seq for entry in spool.entries(lane) if entry.is_barrier)

    spool.settle(lane, first, Settlement(Counts(delivered=2)))
    assert revisions.settle_barrier(spool.db, lane, lower) == "settled"
    spool.settle(lane, second, Settlement(Counts(delivered=1)))
    assert revisions.settle_barrier(spool.db, lane, upper) == "gone"


def test_what_an_ack_counted_is_not_counted_by_the_next(spool: Spool) -> None:
    ledgers = []
    lane = spool.activate(1, main="k1")["main"]
    for number, count in ((2, 3), (3, 1)):
        seq = spool.enter(number - 1, [lane], count)
        newer = spool.activate(number, main=f"k{number}")["main"]
        spool.settle(lane, seq, Settlement(Counts(delivered=count)))
        revisions.settle_barrier(spool.db, lane, spool.entries(lane)[0].seq)
        ack = spool.drained()
        assert ack is not None
        ledgers.append(ack.ledger)
        lane = newer

    assert ledgers == [Counts(accepted=3, delivered=3), Counts(accepted=1, delivered=1)]


def test_a_barrier_above_open_events_is_never_settled(spool: Spool) -> None:
    old = spool.activate(1, main="k1")["main"]
    spool.enter(1, [old])
    spool.activate(2, main="k2")

    assert revisions.settle_barrier(spool.db, old, spool.entries(old)[-1].seq) == "waits"
    assert spool.drained() is not None
    assert spool.drained() is None
    assert doubt.lanes(spool.db) == {old}


def test_a_barrier_whose_counts_disagree_is_never_settled(spool: Spool) -> None:
    old = spool.activate(1, main="k1")["main"]
    spool.enter(1, [old])
    spool.activate(2, main="k2")
    spool.db.execute("DELETE FROM todo WHERE lane = ? AND kind = ?", (old, BATCH))
    barrier = spool.entries(old)[-1].seq

    assert revisions.settle_barrier(spool.db, old, barrier, connected=True) == "retired"
    assert [revisions.settle_barrier(spool.db, old, barrier) for _ in range(2)] == ["waits"] * 2
    assert spool.drained() is not None
    assert spool.drained() is None
    assert doubt.lanes(spool.db) == {old}


def test_no_place_is_given_twice_though_the_counter_was_lost(spool: Spool) -> None:
    lane = spool.activate(1, main="k1")["main"]
    last = spool.enter(1, [lane], count=2)
    schema.set_meta(spool.db, "seq", 0)
    Report(lost=Counter(meta=1)).store(spool.db)
    doubt.act(spool.db)

    assert spool.enter(1, [lane]) > last


def test_a_newer_revision_without_barriers_waits_for_an_older_one_with(spool: Spool) -> None:
    old = spool.activate(1, main="k1")["main"]
    spool.enter(1, [old])
    spool.activate(2, main="k2")
    spool.activate(3, main="k2", more=None)
    ack = spool.drained()

    assert ack is not None
    assert ack.revision == 1


def test_a_lane_that_came_back_settles_its_barrier_and_keeps_its_credential(spool: Spool) -> None:
    lane = spool.activate(1, main="k1")["main"]
    seq = spool.enter(1, [lane])
    other = spool.activate(2, main="k2")["main"]
    assert spool.activate(3, main="k1")["main"] == lane
    later = spool.enter(3, [lane])
    spool.settle(lane, seq, Settlement(Counts(delivered=1)))

    assert revisions.settle_barrier(spool.db, lane, spool.entries(lane)[0].seq) == "settled"
    assert revisions.settle_barrier(spool.db, other, spool.entries(other)[0].seq) == "gone"
    ack = spool.drained()

    assert ack is not None
    assert ack.revision == 3
    assert ack.ledger == Counts(accepted=1, delivered=1)
    assert ack.credentials is not None
    assert (ack.credentials.in_use, ack.credentials.released) == (["k1"], ["k2"])
    assert [entry.seq for entry in spool.entries(lane)] == [later]


def test_a_lane_that_nobody_can_open_settles_its_barriers_and_stays_if_it_is_active(spool: Spool) -> None:
    lane = spool.activate(1, main="k1")["main"]
    spool.activate(2, main="k2")
    spool.activate(3, main="k1")
    spool.activate(4, main="k2")
    spool.activate(5, main="k1")
    barriers = [entry.seq for entry in spool.entries(lane)]

    assert revisions.settle_reached(spool.db, lane) is False
    assert len(barriers) == 2
    assert spool.entries(lane) == []
    assert lane in {row.id for row in revisions.lanes(spool.db, spool.sealer)}


def test_a_lane_whose_row_names_another_credential_than_its_settings_has_none_to_use(spool: Spool) -> None:
    """Else who can write the database sends the secret of one destination to another."""
    spool.receive(1, main="k1")
    revisions.cut(spool.db, spool.sealer, Revision(0, 1), [(key("main", "k1"), settings_of("main", "k1"))])
    spool.db.execute("UPDATE lane SET credentials = '[\"k2\"]'")

    assert [row.settings for row in revisions.lanes(spool.db, spool.sealer)] == [None]


def test_a_lane_that_an_order_opens_has_the_settings_of_the_one_it_relieves(spool: Spool) -> None:
    lane = spool.activate(1, main="k1")["main"]
    made = revisions.adopt_rebound(spool.db, spool.sealer, lane, "k1", "k9")

    assert made[1:4] == (key("main", "k9"), settings_of("main", "k9"), False)
    assert made in revisions.lanes(spool.db, spool.sealer)


def test_a_barrier_that_is_settled_counts_once(spool: Spool) -> None:
    lane = spool.activate(1, main="k1")["main"]
    spool.settle(lane, spool.enter(1, [lane]), Settlement(Counts(delivered=1)))
    seq = spool.enter(1, [lane])
    spool.activate(2, main="k2")
    spool.activate(3, main="k1")
    (barrier,) = (entry.seq for entry in spool.entries(lane) if entry.is_barrier)
    spool.settle(lane, seq, Settlement(Counts(delivered=1)))

    assert [revisions.settle_barrier(spool.db, lane, barrier) for _ in range(2)] == ["settled"] * 2
    assert spool.db.execute("SELECT accepted, delivered FROM settled").fetchall() == [(1, 1)]


def test_an_input_that_is_not_closed_holds_back_the_revision_that_replaced_it(spool: Spool) -> None:
    spool.activate(1)
    spool.drained()
    spool.receive(2, listener="k2")
    revisions.cut(spool.db, spool.sealer, Revision(0, 2), [])
    spool.activate(3)

    assert spool.drained(Revision(0, 3), {"k2"}).revision == 2  # type: ignore[union-attr]
    assert spool.drained(Revision(0, 3), {"k2"}) is None
    ack = spool.drained()

    assert ack is not None
    assert ack.credentials is not None
    assert ack.credentials.released == ["k2"]


def test_what_an_ack_released_is_not_released_again(spool: Spool) -> None:
    spool.activate(1, main="k1")
    spool.drained()
    lane = spool.activate(2, main="k2")
    retired = [row.id for row in revisions.lanes(spool.db, spool.sealer) if not row.active]
    revisions.settle_barrier(spool.db, retired[0], spool.entries(retired[0])[0].seq)
    assert credentials.release(spool.db, ()) == ["k1"]
    assert credentials.release(spool.db, ()) == []
    second = spool.drained()
    spool.activate(3, main="k2", more=None)
    third = spool.drained()

    assert lane
    assert second is not None
    assert second.credentials is not None
    assert second.credentials.released == ["k1"]
    assert third is not None
    assert third.credentials is not None
    assert third.credentials.released == []


def test_what_an_ack_listed_that_was_not_written_the_next_process_lists_again_and_no_more_once_it_was(
    spool: Spool,
) -> None:
    listed = []
    for number, before in enumerate(["released", "listed", "released", "reported", "released"], 1):
        spool.activate(number, main=f"k{number}")
        for row in revisions.lanes(spool.db, spool.sealer):
            revisions.settle_reached(spool.db, row.id)
        ack = revisions.drained(spool.db, None, (), before)  # type: ignore[arg-type]
        assert ack is not None
        assert ack.credentials is not None
        listed.append(ack.credentials.released)

    assert listed == [[], ["k1"], ["k1", "k2"], ["k3"], ["k3", "k4"]]


def test_an_ack_does_not_list_again_what_a_revision_on_its_way_has_brought_again(spool: Spool) -> None:
    acks = []
    for number, still_used in ((1, ()), (2, ()), (3, ("k1",)), (4, ())):
        spool.activate(number, main=f"k{number}")
        for row in revisions.lanes(spool.db, spool.sealer):
            revisions.settle_reached(spool.db, row.id)
        acks.append(revisions.drained(spool.db, None, still_used, "released"))

    assert [ack.credentials.released for ack in acks if ack is not None and ack.credentials is not None] == [
        [],
        ["k1"],
        ["k2"],
        ["k1", "k2", "k3"],
    ]


def test_an_ack_does_not_list_what_a_newer_revision_has_named_though_that_was_replaced_meanwhile(spool: Spool) -> None:
    """A supervisor must not heed such a list: for all that it knows, the ack has crossed that revision in the pipe."""
    lanes = [spool.activate(number, main=f"k{number}")["main"] for number in (1, 2, 3, 4)]
    revisions.settle_reached(spool.db, lanes[2])
    revisions.settle_reached(spool.db, lanes[0])
    second = spool.drained()
    left = credentials.unlisted(spool.db, ["k2", "k4"])
    revisions.settle_reached(spool.db, lanes[1])
    fourth = spool.drained()

    assert second is not None
    assert second.credentials is not None
    assert (second.revision, second.credentials.released) == (2, ["k1"])
    assert left == ["k3"]
    assert fourth is not None
    assert fourth.credentials is not None
    assert (fourth.revision, set(fourth.credentials.released) - {"k1"}) == (4, {"k2", "k3"})


def test_an_ack_lists_no_more_ids_than_it_has_room_for_and_the_next_one_lists_the_rest(spool: Spool) -> None:
    for number in (1, 2, 3):
        spool.activate(number, main=f"k{number}")
    for row in revisions.lanes(spool.db, spool.sealer):
        revisions.settle_reached(spool.db, row.id)
    first = revisions.drained(spool.db, None, (), "released", len('"k1",'))
    spool.activate(4, main="k3")
    second = revisions.drained(spool.db, None, (), "reported", len('"k1",'))

    assert [ack and ack.credentials.released for ack in (first, second)] == [["k1"], ["k2"]]


def test_nothing_is_released_while_nothing_is_active(spool: Spool) -> None:
    spool.receive(1, main="k1")
    revisions.forget(spool.db, Revision(0, 1))

    assert credentials.release(spool.db, ()) == []


def test_an_acked_revision_keeps_its_exact_ack(spool: Spool) -> None:
    spool.activate(1, main="k1")
    ack = spool.drained()

    assert [known.drained for known in revisions.known(spool.db)] == [ack]


def test_a_superseded_revision_is_spent_and_a_failed_one_is_not(spool: Spool) -> None:
    spool.receive(1, main="k1")
    assert spool.receive(3, skipped=[2], main="k2") == [1, 2]
    stages = [(known.at.number, known.stage) for known in revisions.known(spool.db)]
    assert stages == [(1, "superseded"), (2, "superseded"), (3, "received")]

    revisions.forget(spool.db, Revision(0, 3))

    assert [known.at.number for known in revisions.known(spool.db)] == [1, 2]


def test_a_received_revision_supersedes_older_ones_once_and_never_a_newer_or_active_one(spool: Spool) -> None:
    spool.activate(1, main="k1")
    spool.receive(2, main="k2")
    spool.receive(5, main="k5")

    assert spool.receive(4, skipped=[3], main="k4") == [3]
    assert [known.stage for known in revisions.known(spool.db)] == ["active", *["superseded"] * 2, *["received"] * 2]


def test_forgotten_credentials_are_those_that_nothing_refers_to(spool: Spool) -> None:
    spool.activate(1, main="k1")
    spool.receive(2, main="k1", other="k2", more="k3")
    revisions.forget(spool.db, Revision(0, 2))

    assert credentials.forget(spool.db, ["k1", "k2", "k3"], {"k3"}) == (["k2"], ["k2"])
    assert sorted(credentials.fingerprints(spool.db)) == ["k1", "k3"]


def test_of_a_credential_that_was_ever_active_the_fingerprint_stays_though_a_later_revision_with_it_fails(
    spool: Spool,
) -> None:
    spool.activate(1, main="k1")
    spool.activate(2, main=None)
    (retired,) = [row.id for row in revisions.lanes(spool.db, spool.sealer) if not row.active]
    revisions.settle_barrier(spool.db, retired, spool.entries(retired)[0].seq)
    spool.drained()
    spool.receive(3, main="k1", other="k2")
    revisions.forget(spool.db, Revision(0, 3))

    assert credentials.forget(spool.db, ["k1", "k2"], ()) == (["k1", "k2"], ["k2"])
    assert sorted(credentials.fingerprints(spool.db)) == ["k1"]


def test_epochs_come_before_numbers(spool: Spool) -> None:
    for at in (Revision(0, 9), Revision(1, 0)):
        revisions.receive(spool.db, spool.sealer, Text(at, "s", "m", "live", [], ""), {})
        revisions.cut(spool.db, spool.sealer, at, [])

    assert revisions.stages(spool.db).received == Revision(1, 0)
    assert spool.drained().epoch == 1  # type: ignore[union-attr]


def test_texts_and_settings_are_not_on_disk_in_the_clear(spool: Spool) -> None:
    revisions.receive(spool.db, spool.sealer, text(1, {}, policy="a telling text"), {})
    revisions.cut(
        spool.db, spool.sealer, Revision(0, 1), [(key("main", None), LaneSettings({"hosts": "a telling host"}))]
    )

    assert b"telling" not in b"".join(row[0] for row in spool.db.execute("SELECT policy FROM revision"))
    assert b"telling" not in b"".join(row[0] for row in spool.db.execute("SELECT settings FROM lane"))
    assert revisions.policy_text(spool.db, spool.sealer, Revision(0, 1)) == "a telling text"


# -- the model ---------------------------------------------------------------------------------------------------------

Pair = tuple[int, int, str]
"""An event on its way to an output: seq, item, output."""

OUTPUTS = ("a", "b", "c")
CREDENTIALS = ("k1", "k2", "k3", None)
policies = st.fixed_dictionaries({}, optional={output: st.sampled_from(CREDENTIALS) for output in OUTPUTS})
CRASH = st.sampled_from([False, False, False, True])


class Machine(RuleBasedStateMachine):
    """The rows, beside a ledger of every (event, output) pair that needs no barriers to know what must hold."""

    interleaved = False
    """Whether other steps come between those of an order."""

    @initialize(outputs=policies)
    def begin(self, outputs: Outputs) -> None:
        self.spool = Spool()
        self.db = self.spool.db
        self.figures = Figures.of(self.db, self.spool.sealer)
        self.number = 0
        self.outputs: Outputs = {}
        self.active = 0
        self.lanes: dict[str, int] = {}
        self.pending: tuple[int, Outputs] | None = None
        self.open: dict[Pair, int] = {}
        """Pairs without a final answer, and the revision under which they entered."""
        self.waits: dict[int, set[Pair]] = {}
        """By revision: the pairs that were open on the lanes it retired."""
        self.accepted: dict[int, set[Pair]] = {}
        """The same, without those that an older barrier counts."""
        self.final: dict[Pair, str] = {}
        self.last = 0
        self.reported: set[str] = set()
        self.standing: list[Order] = []
        self.receive(outputs, False)
        self.cut(False)

    def do(self, crash: bool, operation: Callable[[sqlite3.Connection], T]) -> T:
        """A transaction; with a crash, it is rolled back once, and done again."""
        if crash:
            self.db.execute("BEGIN")
            operation(self.db)
            self.db.execute("ROLLBACK")
        self.db.execute("BEGIN")
        result = operation(self.db)
        self.db.execute("COMMIT")
        return result

    # -- policies ------------------------------------------------------------------------------------------------------

    @rule(outputs=policies, crash=CRASH)
    def receive(self, outputs: Outputs, crash: bool) -> None:
        self.number += 1
        marks = {id: b"mark" for id in outputs.values() if id is not None}
        self.do(crash, lambda db: revisions.receive(db, self.spool.sealer, text(self.number, outputs), marks))
        self.pending = (self.number, outputs)
        self.reported.difference_update(marks)

    @precondition(lambda self: self.pending is not None and self.active > 0)
    @rule()
    def fail(self) -> None:
        assert self.pending is not None
        number, outputs = self.pending
        self.pending = None
        ids = [id for id in outputs.values() if id is not None]
        self.do(False, lambda db: revisions.forget(db, Revision(0, number)))
        released = self.do(False, lambda db: credentials.forget(db, ids, ())).released
        self.must_be_free(released)

    @precondition(lambda self: self.pending is not None)
    @rule(crash=CRASH)
    def cut(self, crash: bool) -> None:
        assert self.pending is not None
        number, outputs = self.pending
        wanted = [(key(name, id), settings_of(name, id)) for name, id in outputs.items()]
        before = {pair: self.holder(pair) for pair in self.open}
        cut = self.do(crash, lambda db: revisions.cut(db, self.spool.sealer, Revision(0, number), wanted))
        retired = {output for output, lane in self.lanes.items() if lane in cut.retired}
        assert retired == {name for name, id in self.outputs.items() if outputs.get(name, "gone") != id}
        below = {pair for pair, lane in before.items() if lane in cut.retired}
        counted = set().union(*self.waits.values()) if self.waits else set()
        self.waits[number], self.accepted[number] = below, below - counted
        self.outputs, self.active, self.pending = outputs, number, None
        self.lanes = {row.key.output: row.id for row in cut.lanes}

    def holder(self, pair: Pair) -> int:
        """The lane that has this pair to do."""
        rows = self.db.execute(
            "SELECT lane FROM todo JOIN lane ON lane.id = todo.lane WHERE seq = ? AND output = ? AND kind != ?",
            (pair[0], pair[2], BARRIER),
        ).fetchall()
        assert len(rows) == 1, f"{pair} is in {len(rows)} lanes"
        return int(rows[0][0])

    # -- events --------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.lanes)
    @rule(data=st.data(), count=st.integers(1, 4), crash=CRASH)
    def enter(self, data: st.DataObject, count: int, crash: bool) -> None:
        outputs = data.draw(st.sets(st.sampled_from(sorted(self.lanes)), min_size=1))
        lanes = [self.lanes[output] for output in outputs]
        arrival = Arrival(Revision(0, self.active), "in", lanes, [Packed(count, documents(count).pack())])
        (entered,) = self.do(crash, lambda db: queue.enter(db, self.spool.sealer, ORIGIN, 1.0, arrival))
        self.figures.add(arrival.revision, frozenset(lanes), entered.events, entered.size)
        self.open |= {(entered.seq, item, output): self.active for item in range(count) for output in outputs}

    def entries(self) -> list[tuple[int, Entry]]:
        lanes = [row[0] for row in self.db.execute("SELECT DISTINCT lane FROM todo ORDER BY lane").fetchall()]
        return [(lane, entry) for lane in lanes for entry in self.spool.entries(lane) if not entry.is_barrier]

    @precondition(lambda self: self.open)
    @rule(data=st.data(), crash=CRASH)
    def settle(self, data: st.DataObject, crash: bool) -> None:
        lane, entry = data.draw(st.sampled_from(self.entries()))
        batch = queue.load(self.db, self.spool.sealer, lane, entry)
        answer = st.sampled_from(["delivered", "duplicate", "dead_letter", "open"])
        answers = data.draw(st.lists(answer, min_size=batch.count, max_size=batch.count))
        if set(answers) == {"open"}:
            return
        tally = Counter(answers)
        rest = [at for at, answer in enumerate(answers) if answer == "open"]
        rejected = {at: "why" for at, answer in enumerate(answers) if answer == "dead_letter"}
        output = self.output_of(lane)
        settlement = Settlement(
            Counts(delivered=tally["delivered"], duplicate=tally["duplicate"], dead_letter=tally["dead_letter"]),
            drain_orders.letters_of(batch, rejected, output),
            batch.pick(rest) if rest else None,
        )
        change = self.do(
            crash, lambda db: queue.settle(db, self.spool.sealer, lane, entry.seq, settlement, LIMITS, 1.0)
        )
        assert change is not None
        self.figures.settled(lane, change)
        items = range(batch.count) if batch.items is None else batch.items
        for item, outcome in zip(items, answers, strict=True):
            if outcome != "open":
                self.answer((entry.seq, item, output), outcome)

    def answer(self, pair: Pair, outcome: str) -> None:
        del self.open[pair]
        self.final[pair] = outcome

    def output_of(self, lane: int) -> str:
        row = self.db.execute("SELECT output FROM lane WHERE id = ?", (lane,)).fetchone()
        return "" if row is None else str(row[0])

    @rule(crash=CRASH)
    def settle_barriers(self, crash: bool) -> None:
        """What the lanes do when they come to a barrier."""
        for (lane,) in self.db.execute("SELECT DISTINCT lane FROM barrier ORDER BY lane").fetchall():
            first = self.spool.entries(lane)[0]
            if first.is_barrier:
                self.do(crash, lambda db, lane=lane, seq=first.seq: revisions.settle_barrier(db, lane, seq))

    # -- drained, released ---------------------------------------------------------------------------------------------

    @rule(crash=CRASH)
    def drained(self, crash: bool) -> None:
        ack = self.do(crash, lambda db: revisions.drained(db, None, self.still_used()))
        if ack is None:
            return
        upto = [number for number in self.accepted if number <= ack.revision]
        assert not [pair for number in upto for pair in self.waits[number] if pair in self.open]
        counted = set().union(*(self.accepted.pop(number) for number in upto))
        tally = Counter(self.final[pair] for pair in counted)
        assert self.last < ack.revision <= self.active
        assert ack.ledger == Counts(accepted=len(counted), **tally)
        assert ack.credentials is not None
        self.must_be_free(ack.credentials.released)
        assert not self.reported.intersection(ack.credentials.released)
        self.reported.update(ack.credentials.released)
        self.last = ack.revision

    @rule()
    def release(self) -> None:
        self.must_be_free(self.do(False, lambda db: credentials.release(db, self.still_used())))

    def still_used(self) -> set[str]:
        return set()

    def must_be_free(self, released: Iterable[str]) -> None:
        policies = [self.outputs, self.pending[1] if self.pending else {}]
        used = {id for outputs in policies for id in outputs.values()}
        rows = self.db.execute("SELECT value FROM lane JOIN todo ON lane = lane.id, json_each(credentials)").fetchall()
        used |= {row[0] for row in rows}
        assert not used.intersection(released)

    @precondition(lambda self: not self.standing)
    @rule()
    def all_that_is_answered_drains(self) -> None:
        """Once nothing older is open, `drained` comes for the active revision."""
        for _ in self.db.execute("SELECT seq FROM barrier").fetchall():  # a lane may have several, one behind the other
            self.settle_barriers(False)
        self.drained(False)
        if not any(pair in self.open for waits in self.waits.values() for pair in waits):
            assert self.last == self.active

    # -- orders --------------------------------------------------------------------------------------------------------

    def barriers(self) -> dict[int, int]:
        return dict(self.db.execute("SELECT lane, max(seq) FROM barrier GROUP BY lane").fetchall())

    @precondition(lambda self: self.barriers())
    @rule(data=st.data(), name=st.sampled_from(["drop", "dead_letter"]), crash=CRASH)
    def end(self, data: st.DataObject, name: drain_orders.Name, crash: bool) -> None:
        lane, upto = data.draw(st.sampled_from(sorted(self.barriers().items())))
        below = [entry.revision for entry in self.spool.entries(lane) if entry.seq < upto and not entry.is_barrier]
        revision = data.draw(st.sampled_from([None, *below]))
        order = Order(name, lane, upto, revision=revision)
        self.carry_out(self.do(crash, lambda db: drain_orders.place(db, order)), crash)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), name=st.sampled_from(["drop", "dead_letter"]), crash=CRASH)
    def end_batch(self, data: st.DataObject, name: drain_orders.Name, crash: bool) -> None:
        seq, _, output = data.draw(st.sampled_from(sorted(self.open)))
        lanes = drain_orders.holders(self.db, output, seq)
        assert lanes
        for lane in lanes:
            self.carry_out(self.do(crash, lambda db: drain_orders.place(db, Order(name, lane, seq, first=seq))), crash)  # noqa: B023
        assert self.interleaved or not any((seq, output) == (pair[0], pair[2]) for pair in self.open)

    @precondition(lambda self: self.barriers())
    @rule(data=st.data(), crash=CRASH)
    def rebind(self, data: st.DataObject, crash: bool) -> None:
        lane, upto = data.draw(st.sampled_from(sorted(self.barriers().items())))
        if any(order.lane == lane or order.target == lane for order in self.standing):
            return
        row = next(row for row in revisions.lanes(self.db, self.spool.sealer) if row.id == lane)
        if not row.key.credentials:
            return
        (old,) = row.key.credentials
        new = data.draw(st.sampled_from([id for id in CREDENTIALS if id not in (old, None)]))
        self.do(False, lambda db: db.execute("INSERT OR REPLACE INTO credential VALUES (?, x'00', 'used')", (new,)))
        self.reported.discard(new)
        place = self.do(crash, lambda db: drain_orders.place_rebind(db, self.spool.sealer, lane, upto, old, new))
        self.carry_out(place[0], crash)

    @precondition(lambda self: self.barriers())
    @rule(data=st.data(), crash=CRASH)
    def move_on(self, data: st.DataObject, crash: bool) -> None:
        """To where the output goes now, which may be retired before the order is done."""
        lane, last = data.draw(st.sampled_from(sorted(self.barriers().items())))
        entries = self.spool.entries(lane)
        upto = data.draw(st.sampled_from([None, *(entry.seq for entry in entries if entry.is_barrier)]))
        below = [entry.revision for entry in entries if entry.seq < (upto or last) and not entry.is_barrier]
        revision = data.draw(st.sampled_from([None, *below]))
        try:
            forward.target(self.db, lane)
        except NotForwarded:
            return
        order = self.do(crash, lambda db: forward.place_forward(db, lane, upto=upto, revision=revision))
        assert order.target == self.lanes[self.output_of(lane)] != lane
        self.carry_out(order, crash)

    def carry_out(self, order: Order, crash: bool) -> None:
        self.standing.append(order)
        assert drain_orders.standing(self.db) == self.standing
        if not self.interleaved:
            while self.standing:
                self.step(crash)

    @precondition(lambda self: self.interleaved and self.standing)
    @rule(crash=CRASH)
    def step(self, crash: bool) -> None:
        order = self.standing[0]
        output = self.output_of(order.lane)
        held = {
            entry.seq: queue.load(self.db, self.spool.sealer, lane, entry)
            for lane, entry in self.entries()
            if lane == order.lane
        }
        step = self.do(crash, lambda db: drain_orders.step(db, self.spool.sealer, order, LIMITS, 1.0))
        if step.done:
            self.standing.pop(0)
        for lane, change in step.settled:
            self.figures.settled(lane, change)
            batch = held[change.entry.seq]
            for item in range(batch.count) if batch.items is None else batch.items:
                self.answer((change.entry.seq, item, output), "dropped" if order.name == "drop" else "dead_letter")
        for entry, others in step.moved:
            assert order.target is not None
            self.figures.rebound(entry, others, order.lane, order.target)

    # -- dead letters --------------------------------------------------------------------------------------------------

    def stored(self) -> Counter[tuple[str, str]]:
        """The dead letters, as outputs and ids of events."""
        page = dead_letters.page(self.db, self.spool.sealer, 0, 10_000)
        return Counter((letter["output"], letter["event_id"]) for letter in page)

    @precondition(lambda self: self.stored())
    @rule(output=st.sampled_from([None, None, *OUTPUTS]), room=st.sampled_from([0, 300, 1 << 20, 1 << 20]), crash=CRASH)
    def requeue(self, output: str | None, room: int, crash: bool) -> None:
        wanted = Wanted(output, upto=requeue.find(self.db, Wanted(output)).upto)
        order = self.do(crash, lambda db: requeue.place(db, Requeue(wanted, 1 << 30)))
        end = None
        while end is None:
            assert requeue.standing(self.db) == [order]
            order, end = self.step_requeue(order, Room(room, not self.open), crash)
        assert requeue.standing(self.db) == []
        left = requeue.find(self.db, wanted).outputs
        assert (end == "done") == (not left)
        assert end != "gone" or not set(left) <= set(self.lanes)

    def step_requeue(self, order: Requeue, room: Room, crash: bool) -> tuple[Requeue, requeue.End | None]:
        before = self.stored()
        step = self.do(crash, lambda db: requeue.step(db, self.spool.sealer, ORIGIN, order, room, 1.0))
        entered = Counter[tuple[str, str]]()
        for at, lane, batch in step.entered:
            output = self.output_of(lane)
            assert (at, lane) == (Revision(0, self.active), self.lanes[output])
            self.figures.add(at, frozenset({lane}), batch.events, batch.size)
            self.open |= {(batch.seq, item, output): self.active for item in range(batch.events)}
            entry = next(entry for entry in self.spool.entries(lane) if entry.seq == batch.seq)
            entered.update((output, id) for id in queue.load(self.db, self.spool.sealer, lane, entry).id_texts())
        assert self.stored() == before - entered
        assert step.requeued == entered.total() == before.total() - self.stored().total()
        return step.order, step.end

    # -- a restart -----------------------------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        """All that is in memory comes from the rows."""
        self.figures = Figures.of(self.db, self.spool.sealer)
        assert revisions.stages(self.db).active == Revision(0, self.active)
        assert revisions.stages(self.db).drained == (Revision(0, self.last) if self.last else None)

    # -- what always holds ---------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost_and_nothing_comes_twice(self) -> None:
        if not hasattr(self, "spool"):
            return
        held: Counter[tuple[int, str]] = Counter()
        rows = self.db.execute("SELECT seq, output, count FROM todo JOIN lane ON lane = id WHERE kind != ?", (BARRIER,))
        for seq, output, count in rows.fetchall():
            held[seq, output] += count
        assert held == Counter((seq, output) for seq, _, output in self.open)

    @invariant()
    def figures_are_those_of_the_rows(self) -> None:
        if hasattr(self, "spool"):
            fresh = Figures.of(self.db, self.spool.sealer)
            assert self.figures == fresh
            assert self.figures.total().events == len({(seq, item) for seq, item, _ in self.open})

    @invariant()
    def bodies_stand_exactly_where_they_are_needed(self) -> None:
        if hasattr(self, "spool"):
            batches = {row[0] for row in self.db.execute("SELECT seq FROM batch").fetchall()}
            whole = {row[0] for row in self.db.execute("SELECT seq FROM todo WHERE kind = ?", (BATCH,)).fetchall()}
            rests = set(self.db.execute("SELECT lane, seq FROM rest").fetchall())
            parts = set(self.db.execute("SELECT lane, seq FROM todo WHERE kind = ?", (REST,)).fetchall())
            assert batches == whole
            assert rests == parts

    @invariant()
    def a_retired_lane_has_something_to_do(self) -> None:
        if hasattr(self, "spool"):
            idle = self.db.execute("SELECT id FROM lane WHERE NOT active AND id NOT IN (SELECT lane FROM todo)")
            assert idle.fetchall() == []


class InterleavedMachine(Machine):
    interleaved = True


_SETTINGS = settings(
    max_examples=examples(1.2),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking takes minutes; ask for it by hand
    report_multiple_bugs=False,
)
TestRevisions = Machine.TestCase
TestRevisions.settings = _SETTINGS
TestRevisionsWhileOrdersRun = InterleavedMachine.TestCase
TestRevisionsWhileOrdersRun.settings = _SETTINGS


def test_a_text_whose_bytes_were_changed_says_so(spool: Spool) -> None:
    revisions.receive(spool.db, spool.sealer, text(1, {}, policy="text"), {})
    spool.db.execute("UPDATE revision SET policy = zeroblob(60)")

    with pytest.raises(Damaged):
        revisions.policy_text(spool.db, spool.sealer, Revision(0, 1))


def test_a_lane_that_an_order_opens_has_no_settings_where_the_one_it_relieves_has_none(spool: Spool) -> None:
    lane = spool.activate(1, main="k1")["main"]
    spool.db.execute("UPDATE lane SET settings = x'00'")

    assert revisions.adopt_rebound(spool.db, spool.sealer, lane, "k1", "k9").settings is None


def test_a_drain_that_has_ended_is_not_forwarded(spool: Spool) -> None:
    lane = spool.activate(1, main="k1")["main"]
    spool.activate(2, main="k2")
    spool.db.execute("DELETE FROM barrier")

    for gone in (lane, 99):
        with pytest.raises(forward.Ended):
            forward.place_forward(spool.db, gone)
