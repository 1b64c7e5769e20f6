"""Decisions that wait for own writes: kopf #844, and what it left (K1 to K6), without any clock but a number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.apiserver.expectations import SECONDS, Expectations, Verdict

GO, WAIT, READ = Verdict.GO, Verdict.WAIT, Verdict.READ


@pytest.fixture
def awaited() -> Iterator[Expectations[str]]:
    return Expectations()


def test_t844_1_an_event_is_decided_on_at_once(awaited):
    awaited.changed("a", "1")

    assert awaited.verdict("a", now=0.0) is GO
    assert list(awaited.due(0.0)) == [("a", GO)]
    assert awaited.deadline() is None, "nothing is timed where nothing is awaited"


def test_an_object_without_an_event_is_not_due(awaited):
    awaited.wrote("a", "3", now=0.0)

    assert awaited.verdict("a", now=99.0) is None
    assert awaited.deadline() is None


def test_a_decision_waits_for_the_event_of_the_own_write(awaited):
    awaited.wrote("a", "3", now=0.0)
    awaited.changed("a", "2")
    assert awaited.verdict("a", now=0.1) is WAIT

    awaited.changed("a", "3")

    assert awaited.verdict("a", now=0.2) is GO


def test_t844_3_a_patch_of_a_third_party_before_the_own_echo_is_decided_on_once(awaited):
    decisions = []
    awaited.changed("a", "1")
    for version, now in (("1", 0.0), ("2", 0.1), ("3", 0.2)):
        if version != "1":
            awaited.changed("a", version)
        if awaited.verdict("a", now) is GO:
            decisions.append(version)
            awaited.decided("a", version)
            if version == "1":
                awaited.wrote("a", "3", now)

    assert decisions == ["1", "3"], "never on 2, which does not have the own write of 3"


def test_t844_4_a_lost_echo_costs_one_read_at_the_end_of_the_time(awaited):
    awaited.wrote("a", "3", now=10.0)
    awaited.changed("a", "2")
    assert awaited.deadline() == 10.0 + SECONDS
    assert awaited.verdict("a", now=9.99 + SECONDS) is WAIT

    assert awaited.verdict("a", now=10.0 + SECONDS) is READ
    assert list(awaited.due(10.0 + SECONDS)) == [("a", READ)]
    assert awaited.overdue == 1
    awaited.read("a", "3", now=10.1 + SECONDS)

    assert awaited.verdict("a", now=10.1 + SECONDS) is GO
    awaited.decided("a", "3")
    assert awaited.verdict("a", now=99.0) is None


def test_t844_5_k1_a_write_that_changed_nothing_holds_nothing_back(awaited):
    awaited.changed("a", "3")
    awaited.decided("a", "3")
    awaited.wrote("a", "3", now=0.0)
    awaited.changed("a", "4")

    assert awaited.verdict("a", now=0.0) is GO


def test_t844_5_k1_also_of_an_object_that_nothing_was_kept_of(awaited):
    awaited.changed("a", "3")
    awaited.decided("a", "3")
    awaited.changed("b", "5")
    awaited.wrote("a", "4", now=0.0)
    awaited.changed("a", "6")

    assert awaited.verdict("a", now=0.0) is GO


def test_t844_5_k2_an_echo_that_a_list_skips_is_seen_with_anything_later(awaited):
    awaited.wrote("a", "3", now=0.0)
    awaited.changed("a", "4")

    assert awaited.verdict("a", now=0.0) is GO


@pytest.mark.parametrize("version", ["3", "10"])
def test_a_bookmark_shows_own_writes_too(awaited, version):
    awaited.wrote("a", "3", now=0.0)
    awaited.changed("a", "2")
    awaited.caught_up(version)

    assert awaited.verdict("a", now=0.0) is GO


def test_events_of_other_objects_of_the_watch_show_own_writes_too(awaited):
    awaited.wrote("a", "3", now=0.0)
    awaited.changed("a", "2")
    awaited.changed("b", "4")

    assert awaited.verdict("a", now=0.0) is GO


def test_t844_5_k3_writes_at_every_event_do_not_move_the_end_of_the_wait(awaited):
    """The watch is always one write behind, for ever."""
    now, version = 0.0, 1
    awaited.wrote("a", "2", now)
    reads = 0
    while now < 3 * SECONDS:
        awaited.changed("a", str(version))
        if awaited.verdict("a", now) is READ:
            reads += 1
            awaited.read("a", str(version + 1), now)
            assert awaited.verdict("a", now) is GO
            awaited.decided("a", str(version + 1))
        now, version = now + 0.5, version + 1
        awaited.wrote("a", str(version + 1), now)

    assert reads >= 2


def test_the_event_of_a_write_may_come_before_its_answer(awaited):
    awaited.changed("a", "3")
    awaited.decided("a", "2")
    awaited.wrote("a", "3", now=0.0)

    assert awaited.verdict("a", now=0.0) is GO


def test_t844_8_a_change_during_a_decision_is_decided_on_after_it(awaited):
    awaited.changed("a", "1")
    assert awaited.verdict("a", now=0.0) is GO
    awaited.changed("a", "2")
    awaited.decided("a", "1")

    assert awaited.verdict("a", now=0.0) is GO, "K6: what was decided is 1, not what is known by now"
    awaited.decided("a", "2")
    assert awaited.verdict("a", now=0.0) is None


def test_t844_10_a_deletion_waits_for_nothing(awaited):
    awaited.wrote("a", "3", now=0.0)
    awaited.changed("a", "2", deleted=True)

    assert awaited.verdict("a", now=0.0) is GO
    assert awaited.deadline() is None


def test_a_write_that_returns_after_the_deletion_is_not_awaited(awaited):
    awaited.changed("a", "4", deleted=True)
    awaited.wrote("a", "9", now=0.0)

    assert awaited.verdict("a", now=0.0) is GO


def test_a_read_that_finds_nothing_is_a_deletion(awaited):
    awaited.wrote("a", "3", now=0.0)
    awaited.changed("a", "2")
    awaited.read("a", None, now=SECONDS)

    assert awaited.verdict("a", now=SECONDS) is GO


def test_a_write_during_a_read_is_awaited_for_a_time_of_its_own(awaited):
    awaited.wrote("a", "3", now=0.0)
    awaited.changed("a", "2")
    assert awaited.verdict("a", now=SECONDS) is READ
    awaited.wrote("a", "5", now=SECONDS)
    awaited.read("a", "3", now=SECONDS + 1)

    assert awaited.verdict("a", now=SECONDS + 1) is WAIT
    assert awaited.verdict("a", now=2 * SECONDS + 1) is READ


def test_k4_a_read_that_waits_is_counted_once(awaited):
    awaited.wrote("a", "3", now=0.0)
    awaited.changed("a", "2")
    for now in (SECONDS, SECONDS + 1, SECONDS + 2):
        assert awaited.verdict("a", now) is READ

    assert awaited.overdue == 1


def test_opaque_versions_are_seen_by_being_equal_and_else_read(awaited):
    awaited.wrote("a", "x3", now=0.0)
    awaited.changed("a", "x2")
    assert awaited.verdict("a", now=0.0) is WAIT
    awaited.changed("a", "x3")
    assert awaited.verdict("a", now=0.0) is GO

    awaited.wrote("a", "x5", now=1.0)
    awaited.changed("a", "x6")
    assert awaited.verdict("a", now=1.0) is WAIT
    assert awaited.verdict("a", now=1.0 + SECONDS) is READ
    awaited.read("a", "x6", now=1.0 + SECONDS)
    assert awaited.verdict("a", now=1.0 + SECONDS) is GO


def test_an_opaque_event_before_the_answer_of_its_write_is_remembered(awaited):
    awaited.changed("a", "x3")
    awaited.changed("a", "x4")
    awaited.wrote("a", "x3", now=0.0)

    assert awaited.verdict("a", now=0.0) is GO


def test_k1_what_was_read_is_known_while_the_watch_is_behind_it(awaited):
    awaited.changed("a", "1")
    awaited.wrote("a", "3", now=0.0)
    assert awaited.verdict("a", now=SECONDS) is READ
    awaited.read("a", "3", now=SECONDS)
    awaited.decided("a", "3")
    awaited.changed("a", "2")
    awaited.wrote("a", "3", now=SECONDS)

    assert awaited.verdict("a", now=SECONDS) is GO


def test_objects_that_were_decided_on_and_are_gone_cost_no_memory(awaited):
    for number in range(1, 1001):
        awaited.changed(f"a{number}", str(number))
        awaited.wrote(f"a{number}", str(number), now=0.0)
        awaited.decided(f"a{number}", str(number))

    assert awaited._states == {}


steps = st.lists(
    st.tuples(st.sampled_from(["event", "write", "noop", "bookmark", "decide"]), st.floats(0, 3)), max_size=60
)


@given(steps)
def test_no_decision_is_made_on_a_state_older_than_an_own_write_and_none_waits_for_ever(history):
    """A store of one object, whose watch is delayed by any amount; each decision is made on what was seen by then."""
    awaited: Expectations[str] = Expectations()
    store, shown, known, own, now = 1, 0, 0, 0, 0.0
    due_since: float | None = None
    for step, passed in history:
        now += passed
        match step:
            case "write":
                store += 1
                own = store
                awaited.wrote("a", str(store), now)
            case "noop":
                awaited.wrote("a", str(store), now)
                own = store
            case "event" if shown < store:
                shown += 1
                known = max(known, shown)
                awaited.changed("a", str(shown))
                due_since = now if due_since is None else due_since
            case "bookmark":
                shown = store if known == store else shown
                if shown == store:
                    awaited.caught_up(str(store))
        verdict = awaited.verdict("a", now)
        if verdict is READ:
            known = store
            awaited.read("a", str(store), now)
            verdict = awaited.verdict("a", now)
            assert verdict is GO
        if verdict is WAIT:
            assert due_since is not None
            assert known < own, "there is something to wait for"
        if verdict is GO and step == "decide":
            assert known >= own
            awaited.decided("a", str(known))
            due_since = None
