"""Which leases an observer judges to be over: none too early, whatever it sees, and each at last."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shipper.fleet.kubernetes.lives import DRIFT, SLACK, Lives

LEASE = 10.0
OVER = LEASE * (1 + DRIFT) + SLACK


def test_a_lease_is_overdue_after_its_seconds_and_a_margin() -> None:
    lives = Lives()
    lives.saw_lease("a", "uid", "1", LEASE, 100.0)

    assert lives.next_due() == 100.0 + OVER
    assert lives.overdue(100.0 + LEASE) == []
    assert lives.overdue(100.0 + OVER) == ["a"]


def test_a_new_version_of_its_lease_or_of_a_record_that_names_it_renews_it() -> None:
    lives = Lives()
    lives.saw_lease("a", "uid", "1", LEASE, 0.0)
    lives.saw_record("a", "alive", "2", LEASE, 1.0)
    lives.saw_record("a", "report", "3", None, 2.0)
    lives.saw_record("a", "report", "10", None, 3.0)
    assert lives.next_due() == 3.0 + OVER
    lives.saw_lease("a", "uid", "11", LEASE, 4.0)

    assert lives.next_due() == 4.0 + OVER


def test_what_was_seen_before_or_is_older_renews_nothing() -> None:
    lives = Lives()
    lives.saw_lease("a", "uid", "10", LEASE, 0.0)
    lives.saw_record("a", "report", "12", None, 1.0)
    for version in ("9", "10", "12"):
        lives.saw_record("a", "report", version, None, 5.0)
    lives.saw_lease("a", "uid", "10", LEASE, 5.0)
    lives.saw_lease("a", "uid", "9", LEASE, 5.0)

    assert lives.next_due() == 1.0 + OVER


def test_a_lease_that_was_made_anew_is_another_one() -> None:
    lives = Lives()
    lives.saw_lease("a", "uid", "10", LEASE, 0.0)
    lives.saw_lease("a", "other", "9", LEASE, 5.0)

    assert lives.next_due() == 5.0 + OVER


def test_a_key_whose_lease_is_gone_is_overdue_as_one_that_is_not_renewed() -> None:
    lives = Lives()
    lives.saw_record("a", "alive", "2", LEASE, 0.0)
    lives.saw_record("a", "report", "3", None, 1.0)

    assert lives.overdue(1.0 + OVER) == ["a"]


def test_a_record_that_only_renewed_a_lease_that_is_gone_is_nobodys_business() -> None:
    lives = Lives()
    lives.saw_lease("a", "uid", "1", LEASE, 0.0)
    lives.saw_record("a", "report", "3", None, 1.0)
    lives.lost_lease("a")

    assert lives.next_due() is None
    assert lives.overdue(1e9) == []


def test_a_record_that_names_another_lease_renews_only_that_one() -> None:
    lives = Lives()
    lives.saw_lease("a", "uid", "1", LEASE, 0.0)
    lives.saw_lease("b", "uid", "2", LEASE, 0.0)
    lives.saw_record("a", "alive", "3", LEASE, 1.0)
    lives.saw_record("b", "alive", "4", LEASE, 5.0)

    assert lives.overdue(1.0 + OVER) == ["a"]
    lives.lost_lease("a")
    assert lives["a"] is None
    assert lives["b"] is not None
    assert lives["b"].under == {"alive"}


def test_what_a_list_lacks_is_forgotten() -> None:
    lives = Lives()
    for id in ("a", "b"):
        lives.saw_lease(id, "uid", "1", LEASE, 0.0)
        lives.saw_record(id, f"alive-{id}", "2", LEASE, 0.0)
    lives.lacks({"a"}, {"alive-a"})

    assert lives.overdue(OVER) == ["a"]
    assert lives["b"] is None


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["lease", "report", "alive", "lost"]),
        st.integers(1, 30),
        st.floats(0, 5, allow_nan=False),
    ),
    max_size=30,
)


@given(EVENTS)
def test_no_lease_is_overdue_before_its_seconds_since_the_last_new_version_that_was_seen(events: list) -> None:
    lives, now, last, newest = Lives(), 0.0, 0.0, {"lease": 0, "report": 0, "alive": 0}
    lives.saw_lease("a", "uid", "1", LEASE, now)
    newest["lease"] = 1
    for what, version, pause in events:
        now += pause
        if what == "lost":
            lives.lost_record("report")
            newest["report"] = 0
            continue
        if version > newest[what]:
            newest[what], last = version, now
        if what == "lease":
            lives.saw_lease("a", "uid", str(version), LEASE, now)
        else:
            lives.saw_record("a", what, str(version), LEASE if what == "alive" else None, now)

        assert lives.overdue(last + LEASE) == []
        assert lives.overdue(last + OVER + 1e-6) == ["a"]


def test_the_end_of_what_was_never_seen_changes_nothing() -> None:
    lives = Lives()
    lives.saw_record("a", "alive", "2", LEASE, 0.0)
    before = lives.next_due()
    lives.lost_lease("b")
    lives.lost_record("report")

    assert (lives.next_due(), lives["b"]) == (before, None)
