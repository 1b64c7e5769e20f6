"""A fleet as people see it."""

from __future__ import annotations

from shipper.status import fleet
from tests.status.documents import fleet as document


def test_versions_by_members_say_how_far_each_is():
    found = fleet.of(document(3, 4))
    newest, before, *_ = found.versions
    names = [member.name for member in found.present]

    assert names == ["web-1", "web-0", "web-2"]
    assert newest.cells == ("active", "drained", "drained")
    assert before.cells == ("drained", "drained", "drained")
    assert newest.count("active") == 1


def test_those_that_are_behind_are_named_with_the_reason():
    found = fleet.of(document(200))

    assert [(each.name, each.kind, each.behind) for each in found.behind] == [
        ("web-1", "waiting", 1),
        ("web-17", "absent", 3),
        ("web-42", "refused", 1),
    ]
    assert found.behind[0].why == "its events drain: 401 from es-1:9200, events held"
    assert [version.cells[1] for version in found.versions] == [
        "none",
        "none",
        "active",
        "drained",
        "drained",
        "drained",
    ]


def test_a_member_that_has_left_has_no_column():
    said = document(3)
    said["members"][2]["kind"] = "left"
    found = fleet.of(said)

    assert len(found.versions[0].cells) == 2
    assert len(found.members) == 3


def test_a_long_history_is_cut():
    found = fleet.of(document(3, 40))

    assert len(found.versions) == fleet.MOST_VERSIONS
    assert found.older == 40 - fleet.MOST_VERSIONS


def test_a_fleet_without_a_version_is_shown():
    found = fleet.of({**document(0, 0), "newest": None, "state": "empty", "warnings": ["the fleet has no members"]})

    assert (found.members, found.versions, found.warnings) == ((), (), ("the fleet has no members",))
