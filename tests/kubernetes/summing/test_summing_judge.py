"""What the status of a policy is: each rule in a sentence, and what holds of all of them."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.kubernetes.kinds import STAGES, Counts, OnDelete, PolicyStatus, Selector
from shipper.kubernetes.summing.judge import LONGEST, MOST_WAITING, judge
from shipper.kubernetes.summing.parts import Standings, concerned
from shipper.kubernetes.summing.records import Policy
from tests.kubernetes.summing.made import (
    LATER,
    NOW,
    UID,
    condition,
    entry,
    judged,
    lost,
    member,
    nack,
    policy,
    says,
)

WEB = Selector(match_labels={"app": "web"})


def drained(generation: int = 7) -> PolicyStatus:
    return judged(policy(generation), member("a", entry(generation)))


# -- stages ------------------------------------------------------------------------------------------------------------


def test_a_stage_is_reached_when_every_member_has_reached_it():
    for stages, expected in [
        (["announced"], "FFF"),
        (["received"], "TFF"),
        (["active"], "TTF"),
        (["drained"], "TTT"),
        (["drained", "active"], "TTF"),
        (["drained", "announced"], "FFF"),
    ]:
        found = says(judged(policy(), *(member(str(number), entry(7, stage)) for number, stage in enumerate(stages))))

        assert "".join(found[type][0] for type in ("Received", "Active", "Drained")) == expected


def test_a_stage_of_an_older_generation_counts_for_nothing():
    found = judged(policy(8), member("a", entry(7, "drained")))

    assert says(found) == {"Received": "False", "Active": "False", "Drained": "False", "Degraded": "False"}


def test_a_stage_of_a_newer_generation_counts():
    assert says(judged(policy(6), member("a", entry(7, "drained"))))["Drained"] == "True"


def test_an_entry_under_another_uid_counts_for_nothing():
    """A policy that was deleted and created again is another one."""
    found = judged(policy(1), member("a", entry(1, "drained", uid="u-of-before")))

    assert condition(found, "Drained").status == "False"


def test_a_new_generation_takes_drained_back_in_the_status_that_observes_it():
    found = judged(policy(8, drained(7)), member("a", entry(7)), now=LATER)

    assert (found.observed_generation, says(found)["Drained"]) == (8, "False")


# -- who is concerned --------------------------------------------------------------------------------------------------


def test_a_member_without_the_labels_is_not_concerned():
    found = judged(policy(members=WEB), member("a", entry(7), labels={"app": "web"}), member("b"))

    assert says(found)["Drained"] == "True"
    assert found.members == Counts(registered=1, active=1, drained=1)


def test_a_member_that_is_not_selected_any_more_delays_drained_until_its_events_are_out():
    away = member("b", entry(6, "active", removed=True))
    found = judged(policy(members=WEB), member("a", entry(7), labels={"app": "web"}), away)

    assert (says(found)["Active"], says(found)["Drained"]) == ("True", "False")
    assert [one.member for one in found.waiting] == ["b"]


def test_a_member_that_has_not_heeded_its_removal_delays_active():
    away = member("b", entry(7, "drained"))
    found = judged(policy(members=WEB), member("a", entry(7), labels={"app": "web"}), away)

    assert says(found)["Active"] == "False"


def test_a_removal_that_has_drained_is_finished():
    away = member("b", entry(6, "drained", removed=True))
    found = judged(policy(members=WEB), member("a", entry(7), labels={"app": "web"}), away)

    assert says(found)["Drained"] == "True"
    assert found.members.registered == 1


def test_a_member_that_is_selected_again_counts_from_its_new_entry_on():
    again = member("b", entry(6, "drained", removed=True))

    assert says(judged(policy(), member("a", entry(7)), again))["Active"] == "False"


def test_a_member_that_left_with_nothing_counts_no_more():
    assert (
        says(judged(policy(), member("a", entry(7)), member("b", entry(6, "active"), state="left")))["Drained"]
        == "True"
    )


def test_a_member_that_left_with_events_delays_drained_but_not_active():
    found = judged(policy(), member("a", entry(7)), member("b", entry(6, "active"), state="left", undelivered=3))

    assert (says(found)["Active"], says(found)["Drained"]) == ("True", "False")
    assert condition(found, "Drained").reason == "Left"


# -- joining -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("joiner", [member("b"), member("b", entry(7, "announced", first=True))])
def test_a_drained_that_is_true_stays_so_when_a_member_joins(joiner):
    found = judged(policy(7, drained()), member("a", entry(7)), joiner)

    assert (says(found)["Drained"], says(found)["Active"]) == ("True", "False")


def test_a_drained_that_is_true_is_taken_back_when_a_member_is_found_behind():
    found = judged(policy(7, drained()), member("a", entry(7)), member("b", entry(6, "announced", first=True)))

    assert says(found)["Drained"] == "False"


def test_a_joining_member_keeps_drained_from_becoming_true():
    found = judged(policy(), member("a", entry(7)), member("b", entry(7, "active", first=True)))

    assert says(found)["Drained"] == "False"


def test_a_member_that_has_said_nothing_keeps_any_drained_from_becoming_true():
    found = judged(policy(), member("a", entry(7)), registering={"c"})

    assert condition(found, "Drained").reason == "Registering"
    assert "c" in condition(found, "Drained").message


def test_a_member_that_has_said_nothing_leaves_a_true_drained_alone():
    assert says(judged(policy(7, drained()), member("a", entry(7)), registering={"c"}))["Drained"] == "True"


def test_a_name_that_registers_again_holds_drained_up_whatever_its_last_process_left() -> None:
    of = policy(ended_members="ignore")
    known = {"ended": {"a"}, "registering": {"a"}}

    found = condition(judged(of, member("a", entry(6), undelivered=3), **known), "Drained")
    assert (found.status, found.reason) == ("False", "Registering")


def test_a_member_whose_status_cannot_be_read_delays_everything():
    unreadable = dataclasses.replace(member("b"), status=None)
    found = judged(policy(members=WEB), member("a", entry(7), labels={"app": "web"}), unreadable)

    assert condition(found, "Drained").reason == "Unreadable"
    assert says(found)["Degraded"] == "True"


# -- nobody ------------------------------------------------------------------------------------------------------------


def test_a_policy_that_never_had_a_member_is_unknown_and_drained():
    found = judged(policy(members=WEB), member("a"))

    assert [(one.status, one.reason) for one in found.conditions[:2]] == [("Unknown", "NoMembers")] * 2
    drained_ = condition(found, "Drained")
    assert (drained_.status, drained_.reason) == ("True", "NoMembers")
    assert "no member has these labels" in drained_.message


def test_it_stays_so_at_its_next_generation():
    before = judged(policy(7))

    assert judged(policy(7, before), now=LATER) == before
    assert says(judged(policy(8, before)))["Drained"] == "True"
    assert says(judged(policy(8, before)))["Active"] == "Unknown"


def test_a_policy_whose_members_are_gone_is_not_drained():
    before = judged(policy(7), member("a", entry(7, "active")))

    assert condition(judged(policy(7, before)), "Drained").reason == "NoMembers"
    assert says(judged(policy(7, before)))["Drained"] == "False"


def test_a_policy_whose_members_have_all_ended_is_drained_if_those_are_to_be_ignored():
    before = judged(policy(7), member("a", entry(7, "active")))
    of = policy(8, before, ended_members="ignore")
    with_events = judged(of, member("a", entry(7), pod="p", undelivered=4), ended={"a"}, absent={"a"})
    without = judged(of, member("a", entry(7), pod="p"), ended={"a"}, absent={"a"})
    forgotten = judged(policy(9, without, ended_members="ignore"))

    for found in (with_events, without, forgotten):
        drained_ = condition(found, "Drained")
        assert (drained_.status, drained_.reason) == ("True", "NoMembers")
    assert "ignored: a" in condition(with_events, "Drained").message
    assert with_events.members.ended == 1


def test_a_drained_that_is_true_stays_so_when_the_last_member_goes():
    assert says(judged(policy(7, drained())))["Drained"] == "True"


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_refusal_keeps_received_false_and_names_the_place_first():
    found = judged(policy(), member("a", entry(6, "active", nack=nack(path="outputs.main.url"))))

    assert condition(found, "Received").reason == "Invalid"
    assert condition(found, "Received").message.startswith("outputs.main.url: no such option (a)")
    assert condition(found, "Degraded").reason == "Invalid"
    assert found.members.refused == 1


def test_each_cause_of_a_refusal_is_a_reason():
    for reason, expected in [
        ("invalid", "Invalid"),
        ("conflict", "Conflict"),
        ("secret_missing", "SecretMissing"),
        ("unsupported", "Unsupported"),
        ("failed", "Failed"),
    ]:
        found = judged(policy(), member("a", entry(6, nack=nack(reason=reason))))

        assert condition(found, "Received").reason == expected


def test_a_generation_that_was_announced_and_then_refused_is_not_received():
    found = judged(policy(), member("a", entry(7, "announced", nack=nack(7, "failed"))))

    assert condition(found, "Received").reason == "Failed"


def test_a_refusal_of_an_older_generation_is_over():
    found = judged(policy(), member("a", entry(6, nack=nack(6))))

    assert (condition(found, "Received").reason, says(found)["Degraded"]) == ("Waiting", "False")


def test_what_runs_and_could_not_be_started_again_is_degraded():
    found = judged(policy(), member("a", entry(7, nack=nack(7, "secret_missing", "es has no key api_key"))))

    assert says(found) == {"Received": "True", "Active": "True", "Drained": "True", "Degraded": "True"}


# -- absent, ended, lost -----------------------------------------------------------------------------------------------


def test_an_absent_member_delays_what_it_has_not_reported():
    found = judged(policy(), member("a", entry(7)), member("b", entry(7, "active")), absent={"b"})

    assert condition(found, "Drained").reason == "Absent"
    assert (found.members.absent, says(found)["Degraded"]) == (1, "True")


def test_an_absent_member_keeps_what_it_has_reported():
    found = judged(policy(), member("a", entry(7)), absent={"a"})

    assert (says(found)["Drained"], condition(found, "Degraded").reason) == ("True", "Absent")


def test_a_new_leader_does_not_take_an_absence_back_before_it_has_looked():
    before = judged(policy(), member("a", entry(7)), absent={"a"})

    assert says(judged(policy(7, before), member("a", entry(7)), unproven={"a"}))["Degraded"] == "True"
    assert says(judged(policy(7, before), member("a", entry(7))))["Degraded"] == "False"


def test_an_ended_member_with_events_keeps_drained_closed():
    gone = member("b", entry(6), pod="p", undelivered=4)
    found = judged(policy(), member("a", entry(7)), gone, ended={"b"}, absent={"b"})

    assert condition(found, "Drained").reason == "Ended"
    assert "4 undelivered events" in found.waiting[0].reason
    assert (found.members.ended, condition(found, "Degraded").reason) == (1, "Ended")


def test_an_ended_member_with_events_may_be_ignored():
    of = policy(ended_members="ignore")
    found = judged(of, member("a", entry(7)), member("b", entry(6), pod="p", undelivered=4), ended={"b"})

    assert (says(found)["Drained"], found.members.ended, says(found)["Degraded"]) == ("True", 1, "False")


def test_an_ended_member_without_events_counts_no_more():
    found = judged(policy(), member("a", entry(7)), member("b", entry(6), pod="p"), ended={"b"}, absent={"b"})

    assert says(found) == {"Received": "True", "Active": "True", "Drained": "True", "Degraded": "False"}


def test_a_lost_directory_keeps_drained_closed_although_its_member_has_drained():
    gone = lost(policies=(entry(6, "active"),), undelivered=2)
    found = judged(policy(7, drained()), member("a", entry(7), lost=(gone,)))

    assert (condition(found, "Drained").reason, says(found)["Active"]) == ("Lost", "True")
    assert found.waiting[0].member == "a/dir-old"


def test_a_lost_directory_that_had_drained_this_generation_delays_nothing():
    for had in (entry(7, "drained"), entry(6, "drained", removed=True)):
        found = judged(policy(), member("a", entry(7), lost=(lost(policies=(had,)),)))

        assert says(found)["Drained"] == "True"


def test_a_member_that_reports_a_trouble_makes_its_policies_degraded():
    found = judged(policy(), member("a", entry(7), degraded="outputs.main: no answer"))

    assert condition(found, "Degraded").message == "a: outputs.main: no answer"


# -- other policies ----------------------------------------------------------------------------------------------------


def test_a_drained_that_waits_behind_another_policy_names_it():
    found = judged(policy(), member("a", entry(7, "active", waits_for=("old",))))

    assert (condition(found, "Drained").reason, found.waits_for) == ("WaitsForPolicies", ("old",))
    assert "old" in condition(found, "Drained").message


# -- deletion ----------------------------------------------------------------------------------------------------------


def test_a_policy_that_is_being_deleted_waits_for_its_removal():
    of = policy(8, deleted_at=NOW, on_delete=OnDelete(drain=True))
    found = judged(of, member("a", entry(7)), member("b", entry(7, "active", removed=True)))

    assert {one.member for one in found.waiting} == {"a", "b"}
    assert condition(found, "Active").reason == "Deleted"


def test_a_policy_that_is_being_deleted_has_drained_when_all_removals_have():
    found = judged(policy(8, drained(7), deleted_at=NOW), member("a", entry(7, "drained", removed=True)), member("b"))

    assert says(found)["Drained"] == "True"


# -- what is written ---------------------------------------------------------------------------------------------------


def test_the_time_of_a_condition_changes_with_its_status_only():
    before = judged(policy(), member("a", entry(7, "active")))
    found = judged(policy(7, before), member("a", entry(7)), member("b", entry(7)), now=LATER)

    assert condition(found, "Active").last_transition_time == NOW
    assert condition(found, "Drained").last_transition_time == LATER
    assert condition(found, "Active").message != condition(before, "Active").message


def test_nothing_changes_if_nothing_has_changed():
    crowd = member("a", entry(7, "active")), member("b", entry(6, nack=nack()))
    before = judged(policy(), *crowd)

    assert judged(policy(7, before), *crowd, now=LATER) == before


def test_what_is_listed_is_bounded():
    many = [member(f"m{number:03}", entry(6, nack=nack(message="x" * 9000))) for number in range(300)]
    found = judged(policy(), *many)

    assert (len(found.waiting), found.members.refused) == (MOST_WAITING, 300)
    assert "and 297 more" in condition(found, "Received").message
    assert all(len(one.reason) < LONGEST + 100 for one in found.waiting)
    assert len(msgspec.json.encode(found)) < 100_000


def test_nothing_is_concluded_of_a_policy_that_cannot_be_read():
    before = drained()

    assert judged(dataclasses.replace(policy(8, before), spec=None), member("a", entry(8))) == before


# -- all together ------------------------------------------------------------------------------------------------------

stages = st.sampled_from(STAGES)
entries = st.builds(
    entry,
    st.integers(1, 4),
    stages,
    uid=st.sampled_from([UID, "u-other"]),
    removed=st.booleans(),
    first=st.booleans(),
    nack=st.none() | st.builds(nack, st.integers(1, 4)),
)
losses = st.builds(lost, policies=st.lists(entries, max_size=1).map(tuple), undelivered=st.integers(0, 1))
labels = st.sampled_from([{}, {"app": "web"}])
members = st.builds(
    lambda name, of, has, state, undelivered, gone: member(
        name, *of, labels=has, state=state, undelivered=undelivered, lost=gone
    ),
    st.sampled_from("abc"),
    st.lists(entries, max_size=2, unique_by=lambda one: one.uid).map(tuple),
    labels,
    st.sampled_from(["running", "leaving", "left"]),
    st.integers(0, 2),
    st.lists(losses, max_size=1).map(tuple),
)
crowds = st.lists(members, max_size=3, unique_by=lambda one: one.name)
names = st.frozensets(st.sampled_from("abcd"), max_size=2)
standings = st.builds(Standings, absent=names, unproven=names, ended=names, registering=names)
policies = st.builds(
    policy,
    st.integers(1, 4),
    members=st.sampled_from([Selector(), WEB]),
    deleted_at=st.sampled_from(["", NOW]),
    ended_members=st.sampled_from(["wait", "ignore"]),
)


@given(policies, crowds, standings)
def test_drained_never_becomes_true_while_a_concerned_member_has_not_drained(of, crowd, known):
    found = judge(of, crowd, known, NOW)
    behind = [
        one.name
        for one in crowd
        if one.name not in known.ended
        for at in one.status.policies
        if at.uid == of.uid and not (one.status.state == "left" and not one.status.undelivered)
        if at.stage != "drained" or (at.generation < of.generation and not at.removed)
    ]
    lost_ones = [
        one.name
        for one in crowd
        for gone in one.status.lost
        for at in gone.policies
        if at.uid == of.uid and (at.stage != "drained" or (at.generation < of.generation and not at.removed))
    ]
    if condition(found, "Drained").status == "True":
        assert not behind
        assert not lost_ones
        assert not known.registering


def test_who_has_joined_is_waited_for_at_once_where_a_lost_directory_ends_drained():
    gone = lost(policies=(entry(7, "announced"),))
    first = judged(policy(7, drained()), member("a", entry(7, "received", first=True), lost=(gone,)))

    assert [one.member for one in first.waiting] == ["a/dir-old", "a"]
    assert judged(policy(7, first), member("a", entry(7, "received", first=True), lost=(gone,))) == first


@given(policies, crowds, standings, crowds, standings)
def test_a_status_is_of_the_generation_and_settles_at_once(of: Policy, crowd, known, then, known_then):
    first = judge(of, crowd, known, NOW)
    second = judge(dataclasses.replace(of, status=first), then, known_then, LATER)
    third = judge(dataclasses.replace(of, status=second), then, known_then, "never")

    assert second == third
    assert {one.observed_generation for one in second.conditions} == {second.observed_generation} == {of.generation}
    if says(first)["Drained"] == "True" and says(second)["Drained"] == "False":
        assert any(part.drains and part.stage < 3 and not part.joins for part in concerned(of, then, known_then))


@given(policies, crowds, standings)
def test_a_drained_implies_active_unless_it_stood_before(of, crowd, known):
    found = says(judge(of, crowd, known, NOW))

    if found["Active"] == "False" and found["Drained"] == "True":
        reasons = {condition(judge(of, crowd, known, NOW), "Active").reason}
        assert reasons <= {"Deleted", "NoMembers"}


@given(policies, crowds, standings, st.randoms())
def test_the_order_of_members_does_not_matter(of, crowd, known, random):
    shuffled = random.sample(crowd, len(crowd))

    assert judge(of, shuffled, known, NOW) == judge(of, crowd, known, NOW)


def test_a_member_that_was_not_looked_at_for_long_enough_is_no_trouble_by_itself():
    found = judged(policy(7, drained(7)), member("a", entry(7)), unproven=["a"])

    assert condition(found, "Degraded").reason == "AsExpected"
