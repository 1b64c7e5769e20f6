"""The head as a member knows it."""

from __future__ import annotations

from shipper.fleet.member.head import KnownHead
from shipper.fleet.records import Version


def test_a_store_without_a_head_lacks_the_version_that_a_member_has_seen() -> None:
    known = KnownHead(Version(0, 3, "sha"), (0, 3))
    known.take(None, 7)

    assert known.is_behind
    assert known.newest == Version(0, 3, "sha")
    assert not KnownHead(None).is_behind
