"""The proof of an origin holds for one name."""

from __future__ import annotations

from shipper.sdk.origins import ORIGIN_BYTES, PROOF_BYTES, SECRET_BYTES, Origin, is_proven

OWN, OTHER = Origin(bytes(SECRET_BYTES)), Origin(b"\1" * SECRET_BYTES)


def test_an_origin_is_proven_to_be_of_the_name_that_was_signed() -> None:
    assert is_proven(OWN.id, "berlin", OWN.proof("berlin"))
    assert is_proven(OWN.id, "paris", OWN.proof("paris"))
    assert (len(OWN.id), len(OWN.proof("berlin"))) == (ORIGIN_BYTES, PROOF_BYTES)


def test_a_proof_that_somebody_else_has_seen_proves_nothing_for_him() -> None:
    assert not is_proven(OWN.id, "paris", OWN.proof("berlin"))
    assert not is_proven(OWN.id, "berlin", OTHER.proof("berlin"))
    assert not is_proven(OWN.id, "paris", OWN.proof("berlin")[:32] + OTHER.proof("paris")[32:])


def test_a_secret_has_one_origin_in_every_process() -> None:
    assert Origin(OWN.secret).id == OWN.id != OTHER.id


def test_what_is_no_proof_proves_nothing() -> None:
    whole = OWN.proof("berlin")
    for proof in (b"", bytes(PROOF_BYTES), b"\xff" * PROOF_BYTES, whole[:-1], whole + b"\0", whole[:-1] + b"\0"):
        assert not is_proven(OWN.id, "berlin", proof)
