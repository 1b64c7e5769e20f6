"""The finalizer of a policy that wants to be drained before it goes."""

from __future__ import annotations

import pytest

from shipper.kubernetes.kinds import DRAIN, OnDelete
from shipper.kubernetes.summing.finalizing import DEADLINE, Step, deadline, explained, finalize
from tests.kubernetes.summing.made import NOW, condition, entry, judged, member, policy

AT = 1767225600.0  # NOW
WANTED = OnDelete(drain=True, deadline="10m")
OTHER = "example.org/other"


def going(*members, finalizers=(DRAIN,), wall=AT + 1, **more):
    of = policy(8, deleted_at=NOW, finalizers=finalizers, on_delete=WANTED, **more)
    return finalize(of, judged(of, *members), wall)


def test_a_policy_that_wants_it_gets_the_finalizer_beside_those_of_others():
    found = finalize(policy(on_delete=WANTED, finalizers=(OTHER,)), judged(policy()), AT)

    assert found == Step((OTHER, DRAIN))


def test_a_policy_that_does_not_ask_for_it_gets_none():
    assert finalize(policy(), judged(policy()), AT) == Step()


def test_a_policy_that_wants_it_no_longer_loses_it():
    assert finalize(policy(finalizers=(DRAIN, OTHER)), judged(policy()), AT) == Step((OTHER,))


def test_a_policy_that_is_being_deleted_never_gets_it():
    assert going(finalizers=(OTHER,)) == Step()


def test_a_deletion_waits_while_a_member_has_events():
    assert going(member("a", entry(7, "active", removed=True))) == Step(look_again=AT + 600)


def test_a_deletion_waits_while_a_member_has_not_heeded_it():
    assert going(member("a", entry(7))) == Step(look_again=AT + 600)


def test_a_deletion_goes_on_when_all_have_drained():
    assert going(member("a", entry(7, "drained", removed=True)), finalizers=(DRAIN, OTHER)) == Step((OTHER,))


def test_a_deletion_goes_on_if_no_member_has_anything():
    assert going(member("a")) == Step(())


def test_a_deletion_goes_on_at_its_deadline_and_says_so():
    found = going(member("a", entry(7, "active", removed=True)), wall=AT + 600)

    assert found.finalizers == ()
    assert "have not drained: a" in found.said


def test_a_status_of_an_older_generation_ends_no_deletion():
    before = judged(policy(7), member("a", entry(7)))
    of = policy(8, before, deleted_at=NOW, finalizers=(DRAIN,), on_delete=WANTED)

    assert finalize(of, before, AT + 1).finalizers is None


def test_the_status_says_how_long_a_deletion_waits():
    of = policy(8, deleted_at=NOW, finalizers=(DRAIN,), on_delete=WANTED)
    found = explained(judged(of, member("a", entry(7))), AT + 600)

    assert condition(found, "Drained").message.endswith("the deletion waits until 2026-01-01T00:10:00Z")


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("1h", 3600), ("soon", DEADLINE)])
def test_a_deadline_has_a_unit(text, expected):
    assert deadline(OnDelete(drain=True, deadline=text)) == expected


def test_a_time_of_deletion_that_cannot_be_read_counts_as_now():
    of = policy(8, deleted_at="soon", finalizers=(DRAIN,), on_delete=WANTED)

    assert finalize(of, judged(of, member("a", entry(7))), AT) == Step(look_again=AT + 600)
