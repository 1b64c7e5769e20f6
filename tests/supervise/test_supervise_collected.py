"""When a credential that several members share is revoked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shipper.supervise.collected import Holding, collected

IDS = ["es-1", "es-2", "es-3"]
SECRETS = ["k1", "k2"]
HOLDINGS = st.builds(
    Holding,
    held=st.frozensets(st.sampled_from(SECRETS)),
    released=st.dictionaries(st.sampled_from(IDS), st.sampled_from(SECRETS)),
)
MEMBERS = st.lists(HOLDINGS, max_size=5)


def test_what_one_member_still_holds_is_not_collected() -> None:
    one, other = Holding(frozenset(), {"es-1": "k1"}), Holding(frozenset({"k1"}))

    assert collected([one, other]) == set()
    assert collected([one, Holding()]) == {"es-1"}


def test_one_secret_under_two_ids_is_collected_under_both_at_once() -> None:
    """Revoking it under the one id would kill the other."""
    one = Holding(frozenset(), {"es-1": "k1"})

    assert collected([one, Holding(frozenset({"k1"}), {"es-2": "k1"})]) == set()
    assert collected([one, Holding(frozenset(), {"es-2": "k1"})]) == {"es-1", "es-2"}


@given(HOLDINGS)
def test_a_member_of_its_own_waits_for_nobody(member: Holding) -> None:
    assert collected([member]) == set(member.released)


@given(MEMBERS.filter(lambda members: len(members) > 1))
def test_what_is_collected_was_released_and_is_held_by_nobody(members: list[Holding]) -> None:
    for id in collected(members):
        secrets = {member.released[id] for member in members if id in member.released}
        assert secrets
        assert any(all(secret not in member.held for member in members) for secret in secrets)


@given(MEMBERS.filter(lambda members: len(members) > 1), HOLDINGS)
def test_a_further_member_frees_nothing_that_others_released_and_the_order_does_not_matter(
    members: list[Holding], joins: Holding
) -> None:
    assert collected([*members, Holding(joins.held)]) <= collected(members)
    assert collected(members[::-1]) == collected(members)


@given(MEMBERS)
def test_what_nobody_holds_any_more_is_collected_in_the_end(members: list[Holding]) -> None:
    at_last = [Holding(frozenset(), member.released) for member in members]

    assert collected(at_last) == {id for member in members for id in member.released}


def test_nothing_shows_a_secret() -> None:
    assert "k1" not in repr(Holding(frozenset({"k1"}), {"es-1": "k1"}))
