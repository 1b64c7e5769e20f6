"""Which members are alive, by our own clock."""

from __future__ import annotations

from shipper.kubernetes.summing.liveness import Liveness, margin
from tests.kubernetes.summing.made import lease

END = 40 + margin(40)


def test_a_lease_that_was_just_seen_is_unproven():
    known = Liveness()
    known.saw(lease("a", renewed="r1"), 100)

    assert (known.standing("a"), known.suspects(100)) == ("unproven", [])


def test_a_lease_that_is_renewed_is_alive():
    known = Liveness()
    known.saw(lease("a", renewed="r1"), 100)
    known.saw(lease("a", renewed="r2"), 113)

    assert known.standing("a") == "alive"
    assert known.deadline() == 113 + END


def test_a_lease_unchanged_for_its_seconds_and_a_margin_is_over_after_a_read():
    known = Liveness()
    known.saw(lease("a"), 100)

    assert known.suspects(100 + END - 0.1) == []
    assert known.suspects(100 + END) == ["a"]
    assert known.standing("a") == "unproven"
    known.read(lease("a"), 100 + END)
    assert (known.standing("a"), known.deadline()) == ("absent", None)


def test_a_read_that_shows_a_renewal_saves_a_member_whose_watch_is_late():
    known = Liveness()
    known.saw(lease("a", renewed="r1"), 100)
    known.read(lease("a", renewed="r2"), 300)

    assert known.standing("a") == "alive"


def test_a_read_before_the_end_confirms_nothing():
    known = Liveness()
    known.saw(lease("a"), 100)
    known.read(lease("a"), 110)

    assert known.standing("a") == "unproven"


def test_a_bound_in_the_annotation_is_no_renewal():
    known = Liveness()
    known.saw(lease("a"), 100)
    known.saw(lease("a", version="61", bounds={"s/k": "9"}), 130)

    assert known.suspects(100 + END) == ["a"]
    assert known.lease("a").bounds == {"s/k": "9"}


def test_an_absent_member_that_renews_is_alive():
    known = Liveness()
    known.saw(lease("a"), 100)
    known.read(lease("a"), 200)
    known.saw(lease("a", renewed="r2"), 201)

    assert known.standing("a") == "alive"


def test_a_lease_that_another_one_has_taken_is_renewed():
    known = Liveness()
    known.saw(lease("a"), 100)
    known.saw(lease("a", holder="dir-new/boot/p"), 130)

    assert known.deadline() == 130 + END


def test_a_lease_that_was_released_is_over_at_once():
    known = Liveness()
    known.saw(lease("a"), 100)
    known.saw(lease("a", holder=""), 101)

    assert (known.standing("a"), known.suspects(1000), known.deadline()) == ("absent", [], None)


def test_a_member_without_a_lease_is_absent():
    known = Liveness()
    known.saw(lease("a"), 100)
    known.gone("a")

    assert known.standing("a") == "absent"


def test_each_lease_has_its_own_seconds():
    known = Liveness()
    known.saw(lease("a", seconds=10), 100)
    known.saw(lease("b", seconds=40), 100)

    assert known.suspects(100 + 10 + margin(10)) == ["a"]
