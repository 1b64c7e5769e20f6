"""What goes elsewhere without an order: what waits for hosts that nobody has ever asked for anything."""

from __future__ import annotations

import pytest

from shipper.sdk.event import Batch
from shipper.spool import contact, forward, queue, revisions, schema
from shipper.spool.lane_settings import LaneSettings
from shipper.spool.queue import Arrival, Packed
from shipper.spool.revisions import LaneKey, Text
from shipper.values import Revision
from tests.spool.keyed import Shelf


class Rows:
    """Revisions of one output that changes its index or its host, each with an event that enters under it."""

    def __init__(self) -> None:
        shelf = Shelf()
        self.db, self.sealer = shelf.db, shelf.sealer
        self.lanes: list[int] = []

    def revision(self, *hosts: str, index: str = "", credential: str = "k", state: bool = False) -> int:
        at = Revision(0, len(self.lanes) + 1)
        key = LaneKey("main", "es", f"{hosts} {index}", (credential,), state)
        revisions.receive(self.db, self.sealer, Text(at, f"{at}", f"{at}", "barrier", [], ""), {})
        cut = revisions.cut(self.db, self.sealer, at, [(key, LaneSettings({}))], {"main": hosts})
        self.lanes.append(cut.lanes[0].id)
        packed = [Packed(1, Batch.documents([b"{}"]).pack())]
        queue.enter(self.db, self.sealer, bytes(16), 1.0, Arrival(at, "in", self.lanes[-1:], packed))
        return self.lanes[-1]

    def moving(self) -> list[int]:
        return forward.never_reached(self.db)


@pytest.fixture
def rows() -> Rows:
    return Rows()


def test_what_waits_for_hosts_that_were_never_asked_moves(rows: Rows) -> None:
    wrong = rows.revision("typo:1", "typo:2")
    rows.revision("right:1")

    assert rows.moving() == [wrong]


@pytest.mark.parametrize("who", ["itself", "a lane before it", "a lane that is gone"])
def test_it_stays_once_one_of_its_hosts_was_asked_by_any_lane(rows: Rows, who: str) -> None:
    before = rows.revision("es:1", index="one")
    if who != "itself":
        contact.note(rows.db, before)
    wrong = rows.revision("es:1", "es:2", index="two")
    if who == "itself":
        contact.note(rows.db, wrong)
    if who == "a lane that is gone":
        rows.db.execute("DELETE FROM lane WHERE id = ?", (before,))
    rows.revision("es:3")

    assert wrong not in rows.moving()


def test_it_stays_once_a_request_of_its_own_has_begun_though_its_successor_is_there(rows: Rows) -> None:
    slow = rows.revision("es:1")
    rows.revision("es:2")
    contact.note(rows.db, slow)

    assert rows.moving() == []


def test_what_waited_for_want_of_an_authority_moves_though_its_successor_was_faster(rows: Rows) -> None:
    """The host is the same: the successor's first request to it begins before the order to move is placed."""
    distrusting = rows.revision("es:1", index="one")
    contact.note(rows.db, rows.revision("es:1", index="two"))

    assert rows.moving() == [distrusting]


def test_it_stays_where_the_credential_is_another_one(rows: Rows) -> None:
    rows.revision("typo:1", credential="old")
    rows.revision("right:1", credential="new")

    assert rows.moving() == []


def test_an_output_that_does_not_say_when_it_asks_may_have_asked(rows: Rows) -> None:
    rows.revision()
    rows.revision("right:1")

    assert rows.moving() == []


@pytest.mark.parametrize(("state", "kind"), [(False, "log events"), (True, "keyed state")])
def test_nothing_moves_to_an_output_that_takes_this_kind_no_more(rows: Rows, state: bool, kind: str) -> None:
    before = rows.revision("es:1", state=state)
    rows.revision("es:2", state=not state)

    with pytest.raises(forward.NotForwarded, match=f"output main takes no {kind} any more"):
        forward.target(rows.db, before)


def test_nothing_moves_while_no_revision_is_active(rows: Rows) -> None:
    wrong = rows.revision("typo:1")
    rows.revision("right:1")
    schema.set_meta(rows.db, "active", None)

    with pytest.raises(forward.NotForwarded, match="no revision is active"):
        forward.target(rows.db, wrong)
