"""Why a lane may send nothing."""

from __future__ import annotations

import hashlib

from shipper.pipeline.destination.hold import hold
from shipper.pipeline.destination.lease import Lease
from shipper.pipeline.keyring import Keyring
from tests.fakes import secret


def keyring(*held: str) -> Keyring:
    made = Keyring(lambda text: hashlib.sha256(text).digest(), {})
    made.keep({id: secret(id) for id in held})
    return made


def test_who_has_its_secret_and_needs_no_lease_may_send() -> None:
    assert hold(["k1"], keyring("k1"), Lease()) is None
    assert hold([], keyring(), Lease()) is None


def test_the_causes_can_be_told_apart() -> None:
    withdrawn = keyring("k1")
    withdrawn.withdraw({"k1"})

    assert hold(["k1"], withdrawn, Lease()) == ("credential k1 was withdrawn, events held", "credential_withdrawn")
    assert hold(["k1"], keyring(), Lease()) == ("credential k1 is missing, events held", "credential_missing")
    assert hold(["k1"], keyring("k1"), Lease(is_needed=True)) == ("lease lapsed, events held", "lease_lapsed")


def test_a_secret_is_told_first() -> None:
    held = hold(["k1"], keyring(), Lease(is_needed=True))

    assert held is not None
    assert held.code == "credential_missing"


def test_each_of_several_secrets_is_needed() -> None:
    withdrawn = keyring("k1", "k2")
    withdrawn.withdraw({"k2"})
    held = [hold(["k1", "k2"], ring, Lease()) for ring in (keyring("k1", "k2"), keyring("k1"), withdrawn)]

    assert [one and one.problem for one in held] == [
        None,
        "credential k2 is missing, events held",
        "credential k2 was withdrawn, events held",
    ]
