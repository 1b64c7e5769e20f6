"""What a ledger remembers, as a stage changes its mind."""

from hypothesis import given
from hypothesis import strategies as st

from shipper.sdk.stage import Ledger

changes = st.lists(
    st.one_of(st.tuples(st.integers(0, 4), st.integers(1, 9)), st.sampled_from(["commit", "rollback"])), max_size=40
)


@given(changes, st.integers(1, 6))
def test_a_ledger_is_after_a_rollback_as_after_the_last_commit(changes, most):
    ledger: Ledger[int, int] = Ledger(most)
    kept: dict[int, int] = {}
    now: dict[int, int] = {}
    fresh: dict[int, int] = {}
    for change in changes:
        if change == "commit":
            ledger.commit()
            for key, value in fresh.items():
                kept.pop(key, None)
                kept[key] = value
            kept = dict(list(kept.items())[-most:])
            now, fresh = dict(kept), {}
        elif change == "rollback":
            ledger.rollback()
            now, fresh = dict(kept), {}
        else:
            key, value = change
            ledger.put(key, value)
            now[key] = fresh[key] = value
        assert {key: ledger.get(key) for key in range(5)} == {key: now.get(key) for key in range(5)}
        assert (len(ledger), ledger.full) == (len(now), len(fresh) >= most)


def test_a_commit_forgets_the_oldest_that_are_over():
    ledger: Ledger[str, int] = Ledger(10)
    for key, value in (("a", 1), ("b", 2), ("c", 3)):
        ledger.put(key, value)
    ledger.commit(lambda value: value <= 2)

    assert (len(ledger), ledger.get("c")) == (1, 3)
