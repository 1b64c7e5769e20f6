"""What of a Secret is released: each rule in a sentence, and bounds that never go back."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shipper.kubernetes.kinds import SecretStatus
from shipper.kubernetes.summing.parts import Standings
from shipper.kubernetes.summing.records import Lease, Member
from shipper.kubernetes.summing.release import (
    MOST_BLOCKING,
    MOST_GONE,
    MOST_HISTORY,
    Decision,
    Secret,
    View,
    registering,
    release,
)
from tests.kubernetes.summing.made import LATER, NOW, lease, lost, member, using

ES = Secret("es", "30", "s")
NAMED = frozenset({"api_key"})


def released(
    secret: Secret,
    *members: Member,
    before: SecretStatus | None = None,
    leases: tuple[Lease, ...] = (),
    now: str = NOW,
    named: frozenset[str] = NAMED,
    **standings: Any,
) -> Decision:
    known = Standings(**{key: frozenset(value) for key, value in standings.items()})
    view = View(members, {one.member: one for one in leases}, known)
    return release(secret, view, before or SecretStatus(), now, named)


def bound(found: Decision | SecretStatus, uid: str = "s", key: str = "api_key") -> str:
    status = found.status if isinstance(found, Decision) else found
    return next(one.released_before for one in status.credentials if (one.uid, one.key) == (uid, key))


def blocking(found: Decision) -> list[tuple[str, str, str]]:
    return [(one.member, one.resource_version, one.reason) for one in found.status.blocked_by]


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_what_nobody_uses_is_released_up_to_the_version_that_was_read():
    assert bound(released(ES, member("a"))) == "30"


def test_a_member_with_the_current_content_delays_nothing():
    found = released(ES, member("a", using=(using("30"),)))

    assert (bound(found), blocking(found)) == ("30", [])


def test_the_oldest_content_in_use_is_the_bound():
    """Nobody uses what is older than it, though it is not the newest."""
    found = released(ES, member("a", using=(using("30"),)), member("b", using=(using("9"), using("30"))))

    assert (bound(found), blocking(found)) == ("9", [("b", "9", "Using")])


def test_a_change_of_labels_is_waited_for():
    """Nobody but the member can say that its content is still the current one."""
    before = released(ES, member("a", using=(using("30"),))).status
    relabelled = dataclasses.replace(ES, version="40")

    assert bound(released(relabelled, member("a", using=(using("30"),)), before=before)) == "30"
    assert bound(released(relabelled, member("a", using=(using("40"),)), before=before)) == "40"


def test_each_key_has_a_bound_of_its_own():
    found = released(ES, member("a", using=(using("12"), using("30", key="other"))))

    assert (bound(found), bound(found, key="other")) == ("12", "30")


def test_other_secrets_delay_nothing():
    assert bound(released(ES, member("a", using=(using("1", secret="other", uid="o"),)))) == "30"


def test_versions_without_an_order_release_nothing():
    assert bound(released(ES, member("a", using=(using("opaque"),)))) == ""


# -- another life ------------------------------------------------------------------------------------------------------


def test_a_deleted_secret_is_released_when_nobody_uses_it():
    gone = Secret("es", "50")
    waiting = released(gone, member("a", using=(using("30"),)))
    over = released(gone, member("a"), before=waiting.status)

    assert (bound(waiting), bound(over)) == ("30", "50")
    assert over.status.credentials[0].deleted


def test_a_secret_that_was_made_anew_begins_anew():
    before = released(ES, member("a")).status
    found = released(Secret("es", "50", "s2"), member("a", using=(using("30"), using("50", uid="s2"))), before=before)

    assert (bound(found), bound(found, "s2")) == ("30", "50")
    assert [(one.uid, one.deleted) for one in found.status.credentials] == [("s", True), ("s2", False)]


def test_deleted_secrets_are_forgotten_when_they_are_many():
    status = SecretStatus()
    for number in range(1, 2 * MOST_GONE):
        status = released(Secret("es", f"{number}0", f"s{number}"), before=status).status

    assert len(status.credentials) == MOST_GONE + 1


# -- who delays --------------------------------------------------------------------------------------------------------


def test_an_absent_member_delays_the_release():
    found = released(ES, member("a", using=(using("9"),)), leases=(lease("a"),), absent={"a"})

    assert (bound(found), blocking(found), found.fences) == ("9", [("a", "9", "Absent")], {})


def test_an_ended_member_delays_nothing():
    found = released(ES, member("a", using=(using("9"),), pod="p"), ended={"a"}, absent={"a"})

    assert (bound(found), blocking(found)) == ("30", [])


def test_a_lost_directory_delays_the_release():
    found = released(ES, member("a", lost=(lost(using=(using("9"),)),)))

    assert (bound(found), blocking(found)) == ("9", [("a/dir-old", "9", "Lost")])


def test_a_member_that_has_said_nothing_delays_every_release():
    before = released(Secret("es", "10", "s")).status
    found = released(ES, member("a"), before=before, registering={"b"})

    assert (bound(found), blocking(found)) == ("10", [("b", "", "Registering")])


def test_a_member_whose_status_cannot_be_read_delays_every_release():
    found = released(ES, dataclasses.replace(member("a"), status=None))

    assert (bound(found), blocking(found)) == ("", [("a", "", "Unreadable")])


def test_a_live_lease_without_a_member_is_registering():
    assert registering([], {"a": lease("a")}, ()) == {"a"}


def test_a_lease_that_is_over_or_released_registers_nobody():
    assert registering([], {"a": lease("a"), "b": lease("b", holder="")}, {"a"}) == frozenset()


def test_a_lease_of_another_directory_than_the_status_is_registering():
    assert registering([member("a")], {"a": lease("a", holder="dir-new/boot/p")}, ()) == {"a"}
    assert registering([member("a")], {"a": lease("a", holder="dir-a/boot/another")}, ()) == frozenset()


# -- fences ------------------------------------------------------------------------------------------------------------


def held(version: str = "9") -> Member:
    return member("a", using=(using(version),), fence="hold")


def test_a_held_member_counts_until_the_bound_stands_in_its_lease():
    found = released(ES, held(), leases=(lease("a"),), absent={"a"})

    assert (bound(found), found.fences) == ("9", {"a": {"s/api_key": "30"}})


def test_a_fenced_member_delays_nothing():
    found = released(ES, held(), leases=(lease("a", bounds={"s/api_key": "30"}),), absent={"a"})

    assert (bound(found), found.fences, blocking(found)) == ("30", {}, [])


def test_a_fence_below_the_bound_is_raised_first():
    found = released(ES, held(), leases=(lease("a", bounds={"s/api_key": "20"}),), absent={"a"})

    assert (bound(found), found.fences) == ("9", {"a": {"s/api_key": "30"}})


def test_a_fence_as_high_as_the_bound_is_enough():
    other = member("b", using=(using("20"),))
    found = released(ES, held(), other, leases=(lease("a", bounds={"s/api_key": "20"}),), absent={"a"})

    assert (bound(found), found.fences) == ("20", {})


def test_a_fence_of_another_key_says_nothing():
    found = released(ES, held(), leases=(lease("a", bounds={"s/other": "30"}),), absent={"a"})

    assert bound(found) == "9"


def test_a_member_that_is_alive_again_counts_whatever_its_lease_says():
    found = released(ES, held(), leases=(lease("a", bounds={"s/api_key": "30"}),))

    assert bound(found) == "9"


def test_a_member_that_does_not_hold_is_never_fenced():
    goes_on = member("a", using=(using("9"),))
    found = released(ES, goes_on, leases=(lease("a", bounds={"s/api_key": "30"}),), absent={"a"})

    assert (bound(found), found.fences) == ("9", {})


def test_a_held_member_without_a_lease_cannot_be_fenced():
    found = released(ES, held(), absent={"a"})

    assert (bound(found), found.fences) == ("9", {})


def test_a_lost_directory_is_not_fenced_with_its_member():
    gone = member("a", fence="hold", lost=(lost(using=(using("9"),)),))
    found = released(ES, gone, leases=(lease("a", bounds={"s/api_key": "30"}),), absent={"a"})

    assert bound(found) == "9"


# -- without the right to read it --------------------------------------------------------------------------------------


def test_without_the_right_to_read_it_the_reported_versions_are_bounds():
    found = released(Secret("es", ""), member("a", using=(using("20"),)), member("b", using=(using("30"),)))

    assert (bound(found), blocking(found)) == ("20", [("a", "20", "Using")])


def test_without_the_right_to_read_it_nothing_is_known_of_what_nobody_uses():
    before = released(ES).status

    assert bound(released(Secret("es", ""), member("a"), before=before)) == "30"


# -- what is written ---------------------------------------------------------------------------------------------------


def test_the_history_has_each_bound_once():
    first = released(ES, now=NOW).status
    again = released(ES, before=first, now=LATER).status
    second = released(dataclasses.replace(ES, version="40"), before=again, now=LATER).status

    assert [(one.released_before, one.at) for one in second.history] == [("30", NOW), ("40", LATER)]
    assert again == first


def test_what_is_listed_is_bounded():
    status = SecretStatus()
    for number in range(1, 200):
        status = released(dataclasses.replace(ES, version=str(number)), before=status).status
    many = [member(f"m{number}", using=(using("1"),)) for number in range(300)]

    assert len(status.history) == MOST_HISTORY
    assert len(released(ES, *many).status.blocked_by) == MOST_BLOCKING


# -- all together ------------------------------------------------------------------------------------------------------

versions = st.integers(1, 40).map(str)
usings = st.lists(st.builds(using, versions, uid=st.sampled_from(["s", "s2"])), max_size=3).map(tuple)
members = st.builds(
    lambda name, of, gone, fence: member(name, using=of, lost=(lost(using=gone),) if gone else (), fence=fence),
    st.sampled_from("abc"),
    usings,
    usings,
    st.sampled_from(["hold", "continue"]),
)
crowds = st.lists(members, max_size=3, unique_by=lambda one: one.name)
leases = st.builds(lease, st.sampled_from("abcd"), bounds=st.dictionaries(st.just("s/api_key"), versions))
names = st.frozensets(st.sampled_from("abcd"), max_size=2)
views = st.builds(
    lambda crowd, found, absent, ended, unknown: View(
        crowd, {one.member: one for one in found}, Standings(absent, frozenset(), ended, unknown)
    ),
    crowds,
    st.lists(leases, max_size=3),
    names,
    names,
    names,
)
secrets = st.builds(Secret, st.just("es"), versions | st.just(""), st.sampled_from(["s", "s2", ""])).map(
    lambda one: dataclasses.replace(one, uid="") if not one.version else one
)


@given(st.lists(st.tuples(secrets, views), max_size=6))
def test_bounds_never_go_back(steps):
    before = SecretStatus()
    for secret, view in steps:
        found = release(secret, view, before, NOW, NAMED).status
        for one in before.credentials:
            assert int(bound(found, one.uid, one.key) or 0) >= int(one.released_before or 0)
        assert release(secret, view, found, LATER, NAMED).status == found
        before = found


@given(secrets, views)
def test_a_new_bound_is_never_above_what_a_member_uses_unless_that_is_fenced_or_ended(secret, view):
    found = release(secret, view, SecretStatus(), NOW, NAMED).status
    for one in found.credentials:
        for of in view.members:
            lapsed = view.leases.get(of.name) if of.name in view.standings.absent else None
            fence = int(lapsed.bounds.get(f"{one.uid}/{one.key}", 0)) if lapsed and of.status.fence == "hold" else 0
            own = [] if int(one.released_before or 0) <= fence else list(of.status.using)
            for use in [*own, *(use for gone in of.status.lost for use in gone.using)]:
                if (use.uid, use.key) == (one.uid, one.key) and of.name not in view.standings.ended:
                    assert int(one.released_before or 0) <= int(use.resource_version)
        if secret.version:
            assert int(one.released_before or 0) <= int(secret.version)
        assert not view.standings.registering or not one.released_before


@given(secrets, views)
def test_fences_written_lead_to_the_bound_of_without_these_members(secret, view):
    found = release(secret, view, SecretStatus(), NOW, NAMED)
    written = {
        name: dataclasses.replace(one, bounds={**one.bounds, **found.fences.get(name, {})})
        for name, one in view.leases.items()
    }
    after = release(secret, dataclasses.replace(view, leases=written), SecretStatus(), NOW, NAMED)

    assert after.fences == {}
