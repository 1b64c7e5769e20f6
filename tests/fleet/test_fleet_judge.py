"""`judge`: each rule by a name of its own, then all of them together against a naive reading of the rules."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replace_fields

from shipper.fleet import judge as judging
from shipper.fleet.judge import Asked, Tally, asked, due, find, judge
from shipper.fleet.overview import overview
from shipper.fleet.records import (
    Accepting,
    Alive,
    Fence,
    Head,
    Line,
    Lost,
    Refusal,
    Report,
    Restored,
    Undelivered,
    Version,
)
from shipper.fleet.standings import fenced
from shipper.fleet.view import View
from tests.examples import examples

ALIVE = Alive("d", "b", "i")
FENCE = Fence(lease=10.0, request=5.0)
FENCED_AFTER = 10.0 + 0.2 + 5.0


def v(number: int, epoch: int = 0, sha256: str = "") -> Version:
    return Version(epoch, number, sha256 or f"sha-{epoch}-{number}")


def head(*versions: Version, **more) -> Head:
    versions = versions or (v(5), v(6), v(7))
    lines = [Line(version, 0.0, "ann@desk", {}, "p") for version in versions]
    newest = versions[-1]
    return Head(fleet="prod", epoch=newest.epoch, number=newest.number, history=lines, **more)


def report(name: str, drained: Version | None = None, state: str = "member", **more) -> Report:
    stages = {} if drained is None else {"received": drained, "active": drained, "drained": drained}
    more = {"stages": stages, "lease": 10.0, **more}
    return Report(name=name, directory=f"dir-{name}", boot="b", instance="i", write=1, epoch=0, state=state, **more)


def view(*reports: Report, away: Mapping[str, float] | None = None, now: float = 100.0, **more) -> View:
    """Members without an entry in `away` have a lease."""
    away = away or {}
    alive = {one.name: ALIVE for one in reports if one.name not in away}
    kept = {"head": head(), "alive": alive, "gone": away, **more}
    return View(at=42, reports={one.name: one for one in reports}, now=now, **kept)


def kinds(verdict) -> dict[str, str]:
    return {each.name: each.kind for each in verdict.members}


def ask(seen: View, number=7, stage="drained", grace: float = 10.0):
    return judge(seen, number, stage, grace)


# -- Opening


def test_t152_4_it_opens_when_each_member_has_reported_the_version_or_a_newer_one():
    assert ask(view(report("a", v(7)), report("b", v(6)))).state == "closed"
    assert ask(view(report("a", v(7)), report("b", v(7)))).state == "open"


def test_t152_4_a_newer_version_on_its_way_neither_closes_nor_starves_it():
    newer = head(v(7), v(8))
    on_its_way = report("b", v(7), stages={"received": v(8), "active": v(8), "drained": v(7)})

    assert ask(view(report("a", v(8)), on_its_way, head=newer)).state == "open"


def test_t152_9_a_member_that_went_on_to_a_newer_version_has_reached_the_older_one():
    verdict = ask(view(report("a", v(7)), report("b", v(6))), 6)

    assert (verdict.state, verdict.counts, verdict.members) == ("open", {"reached": 2}, [])


def test_answers_about_two_versions_do_not_touch_each_other():
    before = view(report("a", v(6)), report("b", v(5)))
    after = replace(before, reports={**before.reports, "b": report("b", v(6))})
    six, seven = Tally(6, "drained", 10.0), Tally(7, "drained", 10.0)
    for tally in (six, seven):
        tally.again(before)
        assert tally.state(before) == "closed"
    six.changed(after, ["b"])

    assert six.state(after) == "open"
    assert seven.verdict(after).counts == {"waiting": 2}


def test_a_member_that_is_away_after_it_had_reached_the_version_does_not_close_it():
    assert ask(view(report("a", v(7)), away={"a": 99.0})).counts == {"reached": 1}


def test_each_stage_is_judged_by_itself():
    only_active = report("a", stages={"received": v(7), "active": v(7), "drained": v(6)}, undelivered=Undelivered(3))
    seen = view(only_active)

    assert ask(seen, stage="active").state == "open"
    assert ask(seen).members[0].why == "active, not yet drained; 3 events undelivered"


# -- Triples


def test_t152_8_a_version_that_the_history_does_not_contain_never_counts():
    twin = report("a", v(7, sha256="another"))
    beyond = report("b", v(9))

    verdict = ask(view(twin, beyond))

    assert kinds(verdict) == {"a": "waiting", "b": "waiting"}
    assert "history of this store does not contain" in verdict.members[0].why


def test_t152_12_versions_of_the_future_are_unknown_and_those_dropped_from_the_history_are_gone():
    for number, state in [(0, "unknown"), (-1, "unknown"), (8, "unknown"), (4, "gone"), (6, "closed")]:
        assert ask(view(report("a")), number).state == state


def test_a_number_without_an_epoch_is_of_the_newest_one():
    seen = view(report("a", v(8, 1)), head=head(v(7), v(8), v(8, 1)))

    assert ask(seen, 8).triple == v(8, 1)
    assert ask(seen, asked("0.8")).triple == v(8)
    assert ask(seen, 7).state == "gone"
    assert ask(seen, 7).warnings == ["epoch 0 has a version 7: ask for 0.7"]
    assert ask(seen, asked("2.1")).state == "unknown"


def test_a_version_in_full_is_found_only_as_itself():
    assert find(view(), v(7)) == v(7)
    assert find(view(), v(7, sha256="another")) == "gone"


@pytest.mark.parametrize(
    ("text", "expected"), [("7", Asked(None, 7)), ("0.7", Asked(0, 7)), ("12.345", Asked(12, 345))]
)
def test_versions_are_named_by_a_number_or_with_an_epoch(text, expected):
    assert asked(text) == expected


def test_other_names_of_versions_are_refused():
    for text in ["", "v7", "-1", "1.2.3", ".7", "7.", "٧", "7\n", "1" * 30]:
        with pytest.raises(ValueError, match="a version is a number"):
            asked(text)


EIGHT = v(8)


def apart(name="b", **changes) -> dict[str, Restored]:
    return {name: replace_fields(Restored(name, f"dir-{name}", 1, 0, EIGHT, 5, "store"), **changes)}


def test_a_member_that_has_seen_a_version_which_the_store_lacks_proves_a_restore():
    verdict = ask(view(report("a", v(7)), apart=apart()))
    assert verdict.state == "store_restored"
    assert verdict.warnings[0].endswith("b has seen version 8")
    assert overview(view(report("a", v(7)), apart=apart())).state == "store_restored"


@pytest.mark.parametrize(
    "changes",
    [{"newest": v(7)}, {"newest": None}, {"why": "clone"}, {"newest": v(1)}],
    ids=["has it", "nothing", "clone", "pruned"],
)
def test_a_member_that_takes_no_part_closes_the_answer_by_itself_whatever_it_knows(changes):
    seen = view(report("a", v(7)), report("b", v(7)), apart=apart(**changes))
    assert ask(seen).state == "closed"
    assert kinds(ask(seen)) == {"b/dir-b": "absent"}
    assert kinds(ask(view(report("a", v(7)), apart=apart(**changes)))) == {"b/dir-b": "absent"}


def test_a_directory_that_was_lost_and_takes_no_part_is_one_that_holds_what_it_held():
    held = Undelivered(9, 900, 1.0)
    taken = report("b", v(7), lost=[Lost("dir-b", 5.0, {}, held), Lost("other", 6.0, {}, Undelivered())])
    verdict = ask(view(taken, apart=apart(why="clone")))
    assert sorted(one.name for one in verdict.members) == ["b/dir-b", "b/other"]
    assert verdict.counts == {"reached": 1, "absent": 2}
    assert verdict.undelivered == {"absent": held}
    assert "another process" in next(one.why for one in verdict.members if one.name == "b/dir-b")


def test_a_later_epoch_or_a_person_ends_what_a_member_says_that_takes_no_part():
    lost = Lost("dir-b", 0.0, {}, Undelivered())
    later = replace_fields(head(v(7), v(8, 1)), epoch=1)
    assert ask(view(report("a", v(8, 1)), head=later, apart=apart()), 8).state == "open"
    accepted = apart(epoch=1, newest=v(9))
    assert ask(view(report("a", v(8, 1)), head=later, apart=accepted), 8).state == "closed"
    forgotten = replace_fields(head(), forgotten={"b/dir-b": lost})
    assert ask(view(report("a", v(7)), head=forgotten, apart=apart())).state == "open"
    gone = report("b", state="forgotten")
    assert ask(view(report("a", v(7)), gone, apart=apart())).state == "open"


def test_a_restored_store_is_said():
    assert ask(view(report("a", v(7)), restored=True)).state == "store_restored"
    accepting = msgspec.structs.replace(head(), accepting=Accepting(1, 0.0, "ann@desk"))
    assert ask(view(report("a", v(7)), head=accepting)).state == "store_restored"


# -- Refusals


def refusing(reason: str, version: Version | None = None, **more) -> Report:
    return report("a", v(6), refusal=Refusal(version or v(7), reason, ["no such output"]), **more)


@pytest.mark.parametrize("reason", ["invalid", "conflict", "credential_conflict"])
def test_t152_11_a_nack_that_stays_ends_the_wait_at_once_with_its_reason(reason):
    verdict = ask(view(refusing(reason), refused={"a": 100.0}))

    assert verdict.state == "refused"
    assert verdict.members[0].why == f"{reason}: it refused version 7"
    assert verdict.members[0].problems == ["no such output"]


@pytest.mark.parametrize("reason", ["superseded", "stale"])
def test_a_nack_that_only_says_that_there_is_a_newer_one_never_counts(reason):
    assert ask(view(refusing(reason), refused={"a": 0.0})).state == "closed"


def test_another_nack_counts_after_the_grace():
    seen = view(refusing("start_failed"), refused={"a": 95.0})

    assert ask(seen).state == "closed"
    assert "start_failed" in ask(seen).members[0].why
    assert due(seen, 7, "drained", 10.0) == 105.0
    later = view(refusing("start_failed"), refused={"a": 95.0}, now=105.0)
    assert ask(later).state == "refused"
    assert due(later, 7, "drained", 10.0) is None


def test_a_later_stage_or_a_newer_version_clears_a_nack():
    for stages in [{"received": v(7), "active": v(7), "drained": v(6)}, {"received": v(8), "drained": v(6)}]:
        seen = view(refusing("invalid", stages=stages), refused={"a": 0.0}, head=head(v(6), v(7), v(8)))

        assert kinds(ask(seen)) == {"a": "waiting"}


def test_a_nack_of_an_older_version_or_of_one_that_is_not_in_the_history_never_counts():
    assert ask(view(refusing("invalid", v(6)), refused={"a": 0.0})).state == "closed"
    assert ask(view(refusing("invalid", v(7, sha256="another")), refused={"a": 0.0})).state == "closed"


def test_a_nack_of_a_newer_version_counts_after_the_grace_unless_this_one_was_received():
    refused = refusing("invalid", v(7))

    assert ask(view(report("b", v(6)), refused, refused={"a": 95.0}), 6).state == "open"
    overtaking = view(refusing("invalid", v(7), stages={}), refused={"a": 95.0})
    assert ask(overtaking, 6).state == "closed"
    assert due(overtaking, 6, "drained", 10.0) == 105.0
    received = refusing("invalid", v(7), stages={"received": v(6)})
    assert ask(view(received, refused={"a": 0.0}), 6).state == "closed"


# -- Members that are away


def test_a_member_whose_lease_is_over_keeps_it_closed():
    verdict = ask(view(report("a", v(6), undelivered=Undelivered(12, 900, 3.0)), away={"a": 0.0}))

    assert (verdict.state, kinds(verdict)) == ("closed", {"a": "absent"})
    assert verdict.undelivered == {"absent": Undelivered(12, 900, 3.0)}
    assert "on_lapse: continue" in verdict.members[0].why


def test_t152_5_a_member_that_holds_is_fenced_lease_and_margin_after_it_was_seen_gone():
    held = report("a", v(6), fence=FENCE, undelivered=Undelivered(12))
    gone = 100.0
    before = view(held, away={"a": gone}, now=gone + FENCED_AFTER - 0.01)
    after = view(held, away={"a": gone}, now=gone + FENCED_AFTER)

    assert kinds(ask(before)) == {"a": "absent"}
    assert due(before, 7, "drained", 10.0) == pytest.approx(gone + FENCED_AFTER)
    assert (ask(after).state, kinds(ask(after))) == ("open", {"a": "fenced"})
    assert ask(after).undelivered == {"fenced": Undelivered(12)}


def test_t152_5_a_fenced_member_that_is_alive_again_is_no_longer_fenced():
    held = report("a", v(6), fence=FENCE)

    assert not fenced(view(held, now=1e9), "a")
    assert ask(view(held, now=1e9)).state == "closed"


def test_a_member_is_not_fenced_before_it_was_seen_gone_nor_without_the_capability():
    assert not fenced(view(report("a", fence=FENCE), away={"a": 0.0}, gone={}), "a")
    assert not fenced(view(report("a"), away={"a": 0.0}, now=1e9), "a")
    assert not fenced(view(), "a")


def test_a_forged_lease_record_never_fences():
    assert not fenced(view(report("a", fence=FENCE), away={"a": 0.0}, now=1e9, unauthentic={"a"}), "a")


def test_a_report_of_an_earlier_epoch_never_fences():
    """The store may have lost that the member no longer holds."""
    seen = view(report("a", v(6), fence=FENCE), away={"a": 0.0}, now=1e9, head=head(v(6), v(7), v(8, 1)))

    assert not fenced(seen, "a")
    assert "epoch 0" in ask(seen, 8).members[0].why


def test_the_longer_of_two_leases_decides_when_a_member_is_fenced():
    assert not fenced(view(report("a", fence=FENCE, lease=60.0), away={"a": 0.0}, now=60.0), "a")
    assert not fenced(view(report("a", fence=Fence(60.0, 0.0), lease=15.0), away={"a": 0.0}, now=60.0), "a")


def test_a_member_that_left_with_nothing_undelivered_or_was_forgotten_does_not_count():
    gone = [report("a", v(6), "left"), report("b", v(6), "forgotten", undelivered=Undelivered(5))]
    verdict = ask(view(report("c", v(7)), *gone, away={"a": 0.0, "b": 0.0}))

    assert verdict.state == "open"
    assert kinds(verdict) == {"a": "left", "b": "forgotten"}
    assert verdict.undelivered == {"forgotten": Undelivered(5)}


def test_a_member_that_left_with_events_keeps_it_closed():
    verdict = ask(view(report("a", v(6), "left", undelivered=Undelivered(5)), away={"a": 0.0}))

    assert kinds(verdict) == {"a": "absent"}
    assert verdict.members[0].why == "it left with 5 events undelivered"


def test_a_lost_directory_keeps_it_closed_under_its_own_name():
    lost = Lost("old", 3.0, {"drained": v(6)}, Undelivered(8))
    verdict = ask(view(report("a", v(7), lost=[lost])))

    assert (verdict.state, kinds(verdict)) == ("closed", {"a/old": "absent"})
    assert verdict.members[0].why == "directory lost"
    assert verdict.undelivered == {"absent": Undelivered(8)}


def test_a_lost_directory_that_was_forgotten_does_not_keep_it_closed():
    lost = Lost("old", 3.0, {"drained": v(6)}, Undelivered(8))
    seen = view(report("a", v(7), lost=[lost]))
    verdict = ask(replace(seen, head=msgspec.structs.replace(seen.head, forgotten={"a/old": lost})))

    assert (verdict.state, kinds(verdict)) == ("open", {"a/old": "forgotten"})
    assert verdict.undelivered == {"forgotten": Undelivered(8)}


def test_a_forgotten_directory_is_named_also_after_the_report_has_dropped_it():
    lost = Lost("old", 3.0, {"drained": v(6)}, Undelivered(8))
    known = head(forgotten={"a/old": lost, "b/old": lost, "c/dir-c": replace_fields(lost, directory="dir-c")})
    seen = view(report("a", v(7)), report("c", v(7)), head=known)

    assert (ask(seen).state, kinds(ask(seen))) == ("open", {"a/old": "forgotten", "b/old": "forgotten"})
    assert ask(seen).undelivered == {"forgotten": Undelivered(16)}
    assert ask(seen, 6).members == []
    assert {each.name: each.stages["drained"] for each in overview(seen).members}["a/old"] == "6"


def test_a_directory_that_was_forgotten_before_another_one_took_its_name_is_named():
    lost = Lost("old", 3.0, {"drained": v(6)}, Undelivered(8), forgotten=True)
    seen = view(report("a", v(7), lost=[lost]))

    assert (ask(seen).state, kinds(ask(seen))) == ("open", {"a/old": "forgotten"})


def test_a_lost_directory_that_had_reached_the_version_does_not_close_it():
    assert ask(view(report("a", v(7), lost=[Lost("old", 3.0, {"drained": v(7)}, Undelivered())]))).state == "open"


def test_t152_8_a_joiner_has_not_yet_answered():
    assert kinds(ask(view(report("a", None, "joining")))) == {"a": "joining"}
    assert kinds(ask(view(alive={"a": ALIVE}))) == {"a": "joining"}


def test_a_record_that_is_not_sealed_by_the_fleet_keeps_it_closed_and_is_named():
    verdict = ask(view(report("a", v(7)), report("b", v(7)), unauthentic={"b", "c"}))

    assert (verdict.state, kinds(verdict)) == ("closed", {"b": "unauthentic", "c": "unauthentic"})


@pytest.mark.parametrize("members", [[], [report("a", None, "left")], [report("a", None, "forgotten")]])
def test_t152_12_a_fleet_without_members_is_open_with_a_warning(members):
    verdict = ask(view(*members, away={"a": 0.0}))

    assert (verdict.state, verdict.warnings) == ("open", ["the fleet has no members"])


# -- All rules together, read naively

VERSIONS = st.sampled_from([v(4), v(5), v(6), v(7), v(8), v(6, 1), v(7, sha256="another")])
STAGES = st.dictionaries(st.sampled_from(["received", "active", "drained"]), VERSIONS)
UNDELIVERED = st.builds(Undelivered, st.integers(0, 3))
REASONS = st.sampled_from(["invalid", "conflict", "superseded", "stale", "start_failed", "unauthentic"])
INSTANTS = st.sampled_from([0.0, 80.0, 89.0, 95.0, 100.0])
LOST = st.builds(Lost, st.just("old"), st.just(0.0), STAGES, UNDELIVERED, st.booleans())
FORGOTTEN = st.builds(Lost, st.just("older"), st.just(0.0), STAGES, UNDELIVERED)


@st.composite
def views(draw) -> View:
    names = draw(st.lists(st.sampled_from("abcd"), unique=True))
    reports = {
        name: report(
            name,
            state=draw(st.sampled_from(["joining", "member", "member", "member", "left", "forgotten"])),
            stages=draw(STAGES),
            refusal=draw(st.none() | st.builds(Refusal, VERSIONS, REASONS)),
            undelivered=draw(UNDELIVERED),
            fence=draw(st.none() | st.just(FENCE)),
            lost=draw(st.lists(LOST, max_size=1)),
        )
        for name in names
    }
    alive = dict.fromkeys(draw(st.sets(st.sampled_from("abcde"))), ALIVE)
    return View(
        at=42,
        head=replace_fields(
            draw(st.sampled_from([head(), head(v(5)), head(v(6), v(7), v(6, 1)), Head(fleet="prod")])),
            forgotten={full: draw(FORGOTTEN) for full in draw(st.sets(st.sampled_from(["a/older", "e/older"])))},
        ),
        reports=reports,
        alive=alive,
        gone={name: draw(INSTANTS) for name in names if name not in alive and draw(st.booleans())},
        now=100.0,
        refused={name: draw(INSTANTS) for name, one in reports.items() if one.refusal},
        unauthentic=draw(st.sets(st.sampled_from("abf"), max_size=1)),
    )


def naive(seen: View, number: int, stage: str) -> str:
    """The state of the answer, read from the rules in words; shares nothing with `judge`."""
    history = [line.version for line in seen.head.history]
    target = next((each for each in history if each.epoch == seen.head.epoch and each.number == number), None)
    if target is None:
        return "unknown" if number > seen.head.number or number < 1 else "gone"

    def at_least(version: Version | None, other: Version) -> bool:
        if version is None or version not in history:
            return False
        return version.epoch > other.epoch or (version.epoch == other.epoch and version.number >= other.number)

    refused = closed = False
    for name in {*seen.reports, *seen.alive, *seen.unauthentic}:
        if name in seen.unauthentic or name not in seen.reports:
            closed = True
            continue
        one = seen.reports[name]
        behind = any(not at_least(lost.stages.get(stage), target) for lost in one.lost if not lost.forgotten)
        closed |= behind and one.state != "forgotten"
        done = at_least(one.stages.get(stage), target)
        departed = one.state == "forgotten" or (one.state == "left" and one.undelivered.events == 0)
        silent = name not in seen.alive and name in seen.gone and one.fence and 100.0 - seen.gone[name] >= FENCED_AFTER
        silent = silent and one.epoch == seen.head.epoch
        if done or departed or silent:
            continue
        closed = True
        nack = one.refusal
        if nack is None or nack.reason in ("superseded", "stale") or not at_least(nack.version, target):
            continue
        if at_least(one.stages.get("active"), target) or at_least(one.stages.get("drained"), target):
            continue
        received = one.stages.get("received")
        if at_least(received, nack.version) and received != nack.version:
            continue
        if nack.version != target and at_least(received, target):
            continue
        final = nack.version == target and nack.reason in ("invalid", "conflict")
        refused |= final or 100.0 - seen.refused[name] >= 10.0
    return "refused" if refused else "closed" if closed else "open"


@settings(max_examples=examples(5), deadline=None)
@given(views(), st.integers(0, 9), st.sampled_from(["received", "active", "drained"]))
def test_the_answer_is_that_of_the_rules_in_words(seen, number, stage):
    assert ask(seen, number, stage).state == naive(seen, number, stage)


def test_members_are_in_the_order_in_which_people_count():
    names = ["web-10", "web-2", "web-2b", "db", "7", "web-1/3f", "web-1"]
    verdict = ask(view(*(report(name, v(6)) for name in names)))

    assert [each.name for each in verdict.members] == ["7", "db", "web-1", "web-1/3f", "web-2", "web-2b", "web-10"]


@given(views(), st.integers(5, 7), st.sampled_from(["received", "active", "drained"]))
def test_no_answer_is_closed_without_a_reason(seen, number, stage):
    verdict = ask(seen, number, stage)

    for each in verdict.members:
        assert each.why
    if verdict.state in ("closed", "refused"):
        assert any(each.kind not in judging.OPENING for each in verdict.members)
    if verdict.triple is not None:
        listed = sum(each.events for each in verdict.undelivered.values())
        reported = [one for name, one in seen.reports.items() if name not in seen.unauthentic]
        each_directory = [*seen.head.forgotten.values(), *(each for one in reported for each in (one, *one.lost))]
        assert listed == sum(each.undelivered.events for each in each_directory)


def test_a_tally_judges_those_again_for_whom_time_decides():
    before = view(report("a", v(6), fence=FENCE), away={"a": 100.0})
    tally = Tally(7, "drained", 10.0)
    tally.again(before)
    after = replace(before, now=200.0)
    tally.changed(after, ())

    assert tally.state(after) == "open"


@given(views(), views(), st.booleans(), st.integers(5, 7))
def test_a_tally_that_follows_changes_answers_as_one_that_judges_all_anew(before, after, has_new_head, number):
    after = after if has_new_head else replace(after, head=before.head)
    tally = Tally(number, "drained", 10.0)
    tally.again(before)
    tally.changed(after, before.names | after.names)

    assert tally.verdict(after) == ask(after, number)
    assert tally.due() == due(after, number, "drained", 10.0)


@given(views(), st.integers(5, 7), st.floats(0.0, 60.0))
def test_nothing_changes_by_time_alone_before_it_is_due(seen, number, seconds):
    at = due(seen, number, "drained", 10.0)
    assume(at is None or seen.now + seconds < at)
    later = replace(seen, now=seen.now + seconds)

    assert ask(later, number).counts == ask(seen, number).counts


def test_a_tally_forgets_a_member_that_is_gone():
    tally = Tally(7, "drained", 10.0)
    both = view(report("a", v(7)), report("b"))
    tally.again(both)
    left = replace(both, reports={"a": both.reports["a"]}, alive={"a": ALIVE})
    tally.changed(left, ["b"])

    assert tally.state(left) == "open"
