"""What the confirmations of a destination are worth."""

from __future__ import annotations

from shipper.pipeline.destination.confirmed import Confirmations, weakest
from shipper.spool.queue import Settlement
from shipper.values import Confirmed, Counts

UNKNOWN, DELIVERED, STORED = Confirmed


def test_the_weakest_of_the_handshake_and_of_keyed_state_counts() -> None:
    for events, versions, said, worth in [
        (UNKNOWN, UNKNOWN, None, "stored"),
        (UNKNOWN, UNKNOWN, "delivered", "delivered"),
        (DELIVERED, UNKNOWN, None, "delivered"),
        (DELIVERED, UNKNOWN, "stored", "stored"),
        (STORED, UNKNOWN, "delivered", "delivered"),
        (DELIVERED, STORED, "delivered", "stored"),
    ]:
        assert Confirmations(events, versions).weakest(said) == worth


def test_events_and_versions_are_noted_apart_and_an_order_says_nothing() -> None:
    noted = Confirmations()
    noted.note(Settlement(Counts(delivered=1), confirmed=DELIVERED))
    noted.note(Settlement(Counts(delivered=1), place=7, confirmed=STORED))
    noted.note(Settlement(Counts(dropped=1)))
    assert noted == Confirmations(DELIVERED, STORED)


def test_of_several_outputs_the_weakest_counts() -> None:
    assert weakest(["delivered", "stored"]) == "stored"
    assert weakest(["delivered"]) == "delivered"
    assert weakest([]) is None


def test_every_word_has_its_number() -> None:
    assert [Confirmed.of(one.word) for one in Confirmed] == list(Confirmed)
