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
