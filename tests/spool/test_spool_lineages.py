"""What the destination of a lane has confirmed is kept by its lineage, as long as there is the lane."""

from __future__ import annotations

import pytest

from shipper.sdk.lineage import Confirmed
from shipper.spool import lineages
from tests.spool.keyed import Shelf, To


def test_what_was_noted_last_of_each_lineage_is_known() -> None:
    shelf = Shelf()
    shelf.activate(up=To())
    lane = shelf.lanes["up"]
    for lineage, confirmed in (
        ("one", Confirmed(5, 0, "a")),
        ("other", Confirmed(0, 7, "b")),
        ("one", Confirmed(3, 2, "c")),
    ):
        lineages.note(shelf.db, lane, lineage, confirmed)

    assert lineages.of_lane(shelf.db, lane) == {"one": Confirmed(3, 2, "c"), "other": Confirmed(0, 7, "b")}
    assert lineages.of_lane(shelf.db, lane + 1) == {}


def test_of_too_many_lineages_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineages, "MOST", 3)
    shelf = Shelf()
    shelf.activate(up=To(), other=To("b"))
    for name in "abcde":
        lineages.note(shelf.db, shelf.lanes["up"], name, Confirmed(1))
        lineages.note(shelf.db, shelf.lanes["other"], "x", Confirmed(1))

    assert list(lineages.of_lane(shelf.db, shelf.lanes["up"])) == ["c", "d", "e"]
    assert list(lineages.of_lane(shelf.db, shelf.lanes["other"])) == ["x"]


def test_what_was_confirmed_to_a_lane_goes_with_it_and_nothing_is_noted_after_that() -> None:
    shelf = Shelf()
    shelf.activate(up=To())
    gone = shelf.lanes["up"]
    lineages.note(shelf.db, gone, "one", Confirmed(5))
    shelf.activate(up=To("elsewhere"))
    shelf.deliver_all(gone)
    lineages.note(shelf.db, gone, "one", Confirmed(6))

    assert lineages.of_lane(shelf.db, gone) == {}
