"""`overview`: the whole fleet at a glance."""

import msgspec
from hypothesis import given

from shipper.fleet.overview import overview
from shipper.fleet.records import Head, Lost, Undelivered
from shipper.values import Counts
from tests.fleet.test_fleet_judge import refusing, report, v, view, views


def test_the_overview_shows_who_is_behind_first_and_why():
    holding = report("c", v(5), undelivered=Undelivered(9))
    fleet = overview(view(report("a", v(7)), report("b", v(6)), holding, refusing("invalid", v(7)), away={"b": 0.0}))

    assert [(each.name, each.behind, each.kind) for each in fleet.members] == [
        ("c", 2, "waiting"),
        ("a", 1, "refused"),
        ("b", 1, "absent"),
    ]
    assert fleet.state == "refused"
    assert fleet.undelivered == {"waiting": Undelivered(9)}


def test_the_overview_counts_for_each_version_how_many_members_have_reached_it():
    fleet = overview(view(report("a", v(7)), report("b", v(6)), report("c", stages={"received": v(7)})))

    assert [(row.version, row.reached) for row in fleet.versions] == [
        ("7", {"received": 2, "active": 1, "drained": 1}),
        ("6", {"received": 3, "active": 2, "drained": 2}),
        ("5", {"received": 3, "active": 2, "drained": 2}),
    ]


def test_a_lost_directory_is_counted_with_what_it_had_reached():
    lost = Lost("old", 3.0, {"drained": v(6)}, Undelivered(8))
    fleet = overview(view(report("a", v(7), lost=[lost])))

    assert sum(fleet.counts.values()) == 2
    assert [(row.version, row.reached["drained"]) for row in fleet.versions] == [("7", 1), ("6", 2), ("5", 2)]


def test_the_overview_sums_the_ledgers_of_each_version_where_they_are_known():
    known = report("a", v(7), ledger=Counts(9, 7, 1, 1), local="drained 12"), report("b", v(7), ledger=Counts(4, 4))
    fleet = overview(view(*known, report("c", v(7)), report("d", v(6), ledger=Counts(1, dropped=1))))

    assert [(row.ledger, row.counted) for row in fleet.versions] == [
        (Counts(13, 11, 1, 1), 2),
        (Counts(1, dropped=1), 1),
        (Counts(), 0),
    ]
    assert {each.name: (each.ledger, each.local) for each in fleet.members}["a"] == (Counts(9, 7, 1, 1), "drained 12")
    assert {each.name: each.ledger for each in fleet.members}["c"] is None


def test_the_overview_says_how_the_fleet_is():
    for seen, state in [
        (view(report("a", v(7))), "consistent"),
        (view(report("a", v(6))), "behind"),
        (view(), "empty"),
        (view(report("a"), head=Head(fleet="prod")), "empty"),
        (view(report("a", v(7)), restored=True), "store_restored"),
    ]:
        assert overview(seen).state == state


@given(views())
def test_an_overview_can_be_made_of_anything_and_written_as_json(seen):
    fleet = overview(seen)

    assert msgspec.json.decode(msgspec.json.encode(fleet), type=type(fleet)) == fleet
