"""Until when a sidecar may send, whatever keeps the lease of its member."""

from __future__ import annotations

import pytest

from shipper.membership.leases import Leases
from shipper.membership.steps import Grant

LEASE = 15.0


@pytest.fixture
def leases() -> Leases:
    return Leases(LEASE)


def test_a_lease_is_counted_from_before_the_request_that_has_renewed_the_member(leases: Leases) -> None:
    before = leases.step(100.0, needed=True, proven=True)
    leases.renew(98.0)

    assert before is None
    assert leases.step(100.0, needed=True, proven=True) == Grant(98.0 + LEASE)


def test_only_who_needs_a_lease_and_has_proven_what_runs_gets_one(leases: Leases) -> None:
    leases.renew(98.0)

    assert leases.step(100.0, needed=False, proven=True) is None
    assert leases.step(100.0, needed=True, proven=False) is None


def test_no_lease_is_given_twice_or_after_its_end(leases: Leases) -> None:
    leases.renew(98.0)
    leases.granted(98.0 + LEASE)
    again = leases.step(100.0, needed=True, proven=True)
    leases.renew(99.0)

    assert again is None
    assert leases.step(100.0, needed=True, proven=True) == Grant(99.0 + LEASE)
    assert leases.step(99.0 + LEASE, needed=True, proven=True) is None


def test_a_sidecar_without_a_fence_is_told_once_that_it_needs_no_lease(leases: Leases) -> None:
    leases.renew(98.0)
    leases.granted(98.0 + LEASE)
    leases.loosened()
    told = leases.step(100.0, needed=False, proven=False)
    leases.granted(None)

    assert told == Grant(None)
    assert leases.until is None
    assert leases.step(100.0, needed=False, proven=False) is None
