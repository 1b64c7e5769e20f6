"""Which secrets every member has released, and the steps of the elected candidate."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shipper.fleet import release
from shipper.fleet.records import (
    Alive,
    Fence,
    Head,
    Lapse,
    Line,
    Lost,
    Release,
    Report,
    Secret,
    Settings,
    Undelivered,
    Version,
)
from shipper.fleet.release import MOST_DONE, WITHDRAWABLE, Retired, Steps, forgettable, retired
from shipper.fleet.view import View

SOME = Undelivered(events=12)
WALL = 1_000_000.0
ONE, TWO = Version(0, 1, "a"), Version(0, 2, "b")
LINES = [Line(ONE, 0.0, "p@h", {"es": "es-old"}, "n1"), Line(TWO, 0.0, "p@h", {"es": "es-new"}, "n2")]
HEAD = Head(
    "prod", number=2, history=LINES, secrets={"es": "es-new"}, fingerprints={"es-old": "1", "es-new": "2"}, token=5
)
FENCE = Fence(lease=15.0, request=10.0)


def member(name: str = "web-1", **changes: object) -> Report:
    """A member that has released `es-old`, but for the changes."""
    report = Report(name, "dir", "boot", "instance", 1, 0, state="member", begun=ONE)
    return replace(report, **({"stages": {"active": TWO}, "using": ["es-new"]} | changes))


def view(*reports: Report, head: Head = HEAD, gone: Mapping[str, float] | None = None, now: float = 0.0) -> View:
    gone = gone or {}
    alive = {
        report.name: Alive("dir", "boot", "instance")
        for report in reports
        if report.name not in gone and report.state in ("joining", "member")
    }
    return View(at=9, head=head, reports={report.name: report for report in reports}, alive=alive, gone=gone, now=now)


def old(of: View, wall: float = WALL) -> Retired:
    return next(one for one in retired(of, wall) if one.id == "es-old")


def whys(of: View, wall: float = WALL) -> list[str]:
    return [obstacle.why for obstacle in old(of, wall).obstacles]


def test_a_secret_is_kept_until_its_successor_was_accepted_somewhere_or_an_order() -> None:
    wrong = member(unaccepted=["es-new"])
    seen = view(wrong, member("web-2", unaccepted=["es-new"]))
    at_once = replace(HEAD, settings=Settings(release_when="at_once"))
    ordered = replace(HEAD, lapses={"es-new": Lapse("es-new", WALL, ["es-old"])})

    assert old(seen).obstacles == [release.Obstacle("es-new", "not accepted")]
    assert old(seen).obstacles[0].remedy("es-old") == "shipper fleet release es-old --despite es-new"
    assert Steps(5).next(seen, WALL).released == {}
    assert old(view(wrong, member("web-2"))).released
    assert old(view(wrong, head=at_once)).released
    assert old(view(wrong, head=ordered)).released
    assert Steps(5).next(view(member(using=["es-old"]), head=ordered), WALL).lapses == ordered.lapses


def test_what_the_store_has_no_content_of_is_never_released() -> None:
    """It came with a restore: another id in use may have the same content, and a command would get no name of it."""
    head = replace(HEAD, fingerprints={"es-old": "", "es-new": "2"})
    seen = view(member(), head=head)
    (obstacle,) = old(seen).obstacles

    assert (obstacle.why, Steps(5).next(seen, WALL).released) == ("unknown content", {})
    assert obstacle.remedy("es-old") == (
        "shipper fleet secret set es --file PATH, with that content; if nobody has it, "
        "shipper fleet release es-old --despite 'the store'"
    )


def test_lost_content_that_is_given_up_waits_for_the_members_alone_and_the_order_for_its_release() -> None:
    lapses = {release.THE_STORE: Lapse(release.THE_STORE, WALL, ["es-old"])}
    head = replace(HEAD, fingerprints={"es-old": "", "es-new": "2"}, lapses=lapses)
    seen = view(member(), head=head)
    marked = Steps(5).next(seen, WALL)

    assert whys(view(member(using=["es-old"]), head=head)) == ["using"]
    assert Steps(5).next(view(member(using=["es-old"]), head=head), WALL).lapses == lapses
    assert (old(seen).released, old(seen).despite) == (True, ["the store"])
    assert marked.released["es-old"].despite == ["the store"]
    begun = release.begun(marked, {"es-old": ["the store"]}, 5)
    assert release.noted(view(member(), head=begun), [], WALL).lapses == {}
    assert release.is_given_up(replace(begun, lapses={}), "es-old")


def test_a_secret_is_released_when_every_member_has_reached_the_version_that_unpinned_it() -> None:
    found = old(view(member("a"), member("b")))

    assert (found.released, found.name, found.since, found.despite) == (True, "es", TWO, [])


def test_a_live_member_delays_a_release_and_says_why() -> None:
    for changes, why in [
        ({"stages": {"active": ONE}}, "behind"),
        ({"stages": {"received": TWO}}, "behind"),
        ({"stages": {"active": Version(0, 2, "of another history")}}, "behind"),
        ({"using": ["es-old"]}, "using"),
        ({"state": "joining", "begun": None, "stages": {}, "using": []}, "joining"),
        ({"epoch": -1}, "not registered"),
    ]:
        assert whys(view(member("a"), member("b", **changes))) == [why]


def test_a_joiner_that_began_at_the_newest_version_has_released_what_it_does_not_use() -> None:
    joiner = member(state="joining", begun=TWO, stages={}, using=[])

    assert old(view(joiner)).released
    assert whys(view(replace(joiner, using=["es-old"]))) == ["using"]


def test_what_is_pinned_or_of_today_is_not_retired() -> None:
    pinned = replace(HEAD, secrets={"es": "es-newest"})

    assert [one.id for one in retired(view(member(), head=pinned), WALL)] == ["es-old"]
    assert [one.id for one in retired(view(member(), head=HEAD), WALL)] == ["es-old"]


def test_a_member_that_is_merely_away_blocks_for_ever_and_is_named_with_the_remedy() -> None:
    gone = view(member("b", using=["es-old"], undelivered=SOME), gone={"b": 0.0}, now=1e9)

    [obstacle] = old(gone, WALL * 10).obstacles
    assert (obstacle.member, obstacle.why, obstacle.seconds) == ("b", "absent", None)
    assert obstacle.remedy("es-old") == "shipper fleet forget b"


def test_a_member_that_has_released_before_its_lease_was_over_delays_nothing() -> None:
    assert old(view(member(), gone={"web-1": 0.0}, now=1.0)).released


def test_a_fenced_member_with_nothing_undelivered_does_not_count_at_once_but_is_named() -> None:
    fenced = view(member(using=["es-old"], fence=FENCE), gone={"web-1": 0.0}, now=60.0)

    assert (old(fenced).released, old(fenced).despite) == (True, ["web-1"])
    assert whys(view(member(using=["es-old"], fence=FENCE), gone={"web-1": 0.0}, now=1.0)) == ["absent"]


@pytest.mark.parametrize("state", ["member", "forgotten"])
def test_a_fenced_or_forgotten_member_with_undelivered_events_delays_for_the_grace(state: str) -> None:
    report = member(state=state, using=["es-old"], fence=FENCE, undelivered=SOME)
    first = view(report, gone={"web-1": 0.0}, now=60.0)
    head = release.noted(first, retired(first, WALL), WALL)
    grace = head.settings.release_grace

    assert whys(first) == ["undelivered"]
    later = view(report, head=head, gone={"web-1": 0.0}, now=60.0)  # a candidate elected later has seen less itself
    assert whys(later, WALL + grace - 61) == ["undelivered"]
    assert old(later, WALL + grace - 60).released
    assert old(later, WALL + grace - 60).despite == ["web-1"]


def test_a_member_that_wrote_again_begins_a_new_grace() -> None:
    report = member(using=["es-old"], fence=FENCE, undelivered=SOME)
    first = view(report, gone={"web-1": 0.0}, now=60.0)
    head = release.noted(first, retired(first, WALL), WALL)

    again = view(replace(report, write=2), head=head, gone={"web-1": 0.0}, now=60.0)
    assert whys(again, WALL + 10 * head.settings.release_grace) == ["undelivered"]


def test_a_record_of_an_earlier_epoch_proves_no_fence() -> None:
    """The snapshot may be older than the member's change to `on_lapse: continue`."""
    report = member(using=["es-old"], fence=FENCE)
    restored = replace(HEAD, epoch=1)

    assert whys(view(report, head=restored, gone={"web-1": 0.0}, now=60.0)) == ["absent"]


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_forgotten_directory_with_undelivered_events_delays_for_the_grace_or_until_an_order(is_listed: bool) -> None:
    lost = Lost("before", WALL, {}, SOME)
    head = replace(HEAD, forgotten={"web-1/before": lost}, settings=Settings(release_grace=100.0))
    report = member(lost=[lost] if is_listed else [])
    (obstacle,) = old(view(report, head=head), WALL + 40).obstacles
    ordered = replace(head, lapses={"web-1/before": Lapse("before", WALL, ["es-old"])})

    assert obstacle == release.Obstacle("web-1/before", "undelivered", SOME, 60.0)
    assert old(view(report, head=head), WALL + 101).despite == ["web-1/before"]
    assert old(view(report, head=ordered)).despite == ["web-1/before"]
    assert Steps(5).next(view(report, head=ordered), WALL).lapses == ordered.lapses


def test_a_release_names_the_directories_that_a_person_has_forgotten() -> None:
    lost = Lost("before", 0.0, {"drained": ONE}, SOME)
    dropped = replace(HEAD, forgotten={"web-1/before": lost, "web-2/before": lost})
    again = member(lost=[replace(lost, directory="first", forgotten=True)])

    assert old(view(again, head=dropped)).released
    assert old(view(again, head=dropped)).despite == ["web-1/first", "web-1/before", "web-2/before"]
    assert old(
        view(member(), head=replace(HEAD, forgotten={"web-1/b": replace(lost, stages={"drained": TWO})}))
    ).released


def test_a_lost_directory_blocks_until_it_had_drained_the_version() -> None:
    lost = Lost("before", 0.0, {"drained": ONE}, SOME)

    [obstacle] = old(view(member(lost=[lost]))).obstacles
    assert (obstacle.member, obstacle.why, obstacle.undelivered) == ("web-1/before", "directory lost", SOME)
    assert old(view(member(lost=[replace(lost, stages={"drained": TWO})]))).released


def test_a_member_that_left_counts_only_with_undelivered_events() -> None:
    left = member(state="left", stages={"active": ONE})

    assert old(view(left)).released
    assert whys(view(replace(left, undelivered=SOME))) == ["absent"]


def test_a_forged_record_delays_and_a_lease_without_a_record_too() -> None:
    seen = view(member("a"))

    assert whys(View(9, HEAD, seen.reports, seen.alive, {}, 0.0, unauthentic={"a"})) == ["unauthentic"]
    assert whys(View(9, HEAD, {}, seen.alive, {}, 0.0)) == ["joining"]


def test_a_release_is_marked_then_withdrawable_then_begun_then_run_then_done() -> None:
    steps, head = Steps(token=5), HEAD

    head = steps.next(view(member(), head=head, now=0.0), WALL)
    assert head.released["es-old"].state == "released"
    withdrawable = view(member(), head=head, now=1.0)
    assert steps.next(withdrawable, WALL) == head
    assert steps.wait(withdrawable, WALL) == WITHDRAWABLE
    assert steps.due(withdrawable) == []
    assert steps.next(view(member(), head=head, now=1.0 + WITHDRAWABLE), WALL) == head
    head = steps.next(view(member(write=2), head=head, now=1.0 + WITHDRAWABLE), WALL)
    assert (head.released["es-old"].state, head.released["es-old"].token) == ("begun", 5)
    written = view(member(), head=head, now=7.0)
    assert (steps.due(written), steps.due(written)) == (["es-old"], [])
    steps.succeeded("es-old")
    head = steps.next(written, WALL)
    assert head.released["es-old"].state == "done"
    assert steps.next(view(member(), head=head, now=8.0), WALL) == head


def test_a_member_that_came_back_before_the_mark_keeps_the_release_from_beginning() -> None:
    """The view in which it was fenced may be older than the swap that marked the release."""
    steps = Steps(token=5)
    away = member(using=["es-old"], fence=FENCE)
    head = steps.next(view(away, gone={"web-1": 0.0}, now=60.0), WALL)
    assert head.released["es-old"].despite == ["web-1"]

    back = view(away, head=head, now=61.0)
    assert steps.next(back, WALL) == head
    assert steps.next(view(away, head=head, now=99.0), WALL).released["es-old"].state == "released"
    assert steps.next(view(member(write=2), head=head, now=99.0), WALL).released["es-old"].state == "begun"


def test_nothing_begins_before_every_live_member_has_written_since() -> None:
    """A member that found the store to be restored writes nothing; its lease is over soon."""
    steps, head = Steps(token=5), replace(HEAD, released={"es-old": Release("es", WALL)})
    steps.next(view(member("a"), member("b"), head=head), WALL)
    steps.next(view(member("a"), member("b"), head=head, now=WITHDRAWABLE), WALL)

    one = view(member("a", write=2), member("b"), head=head, now=99.0)
    assert steps.next(one, WALL) == head
    both = view(member("a", write=2), member("b"), head=head, now=99.0, gone={"b": 98.0})
    assert steps.next(both, WALL).released["es-old"].state == "begun"


def test_t152_6_a_candidate_with_a_lower_token_than_the_head_writes_and_runs_nothing() -> None:
    begun = replace(HEAD, released={"es-old": Release("es", WALL, "begun", token=5)}, token=6)
    stale = Steps(token=5)
    stale.succeeded("es-old")

    assert stale.next(view(member(), head=begun), WALL) == begun
    assert stale.due(view(member(), head=begun)) == []


def test_t152_10_a_new_candidate_continues_what_was_begun_under_its_own_higher_token() -> None:
    begun = replace(HEAD, released={"es-old": Release("es", WALL, "begun", token=5, despite=["b"])}, token=6)
    steps = Steps(token=6)

    assert steps.due(view(member(), head=begun)) == []
    head = steps.next(view(member(), head=begun), WALL)
    assert head.released["es-old"] == Release("es", WALL, "begun", token=6, despite=["b"])
    assert steps.due(view(member(), head=head)) == ["es-old"]


def test_the_head_says_since_when_the_command_fails_until_it_has_succeeded_or_another_candidate_begins() -> None:
    begun = replace(HEAD, released={"es-old": Release("es", WALL, "begun", token=5)}, token=5)
    steps = Steps(token=5)
    steps.failed("es-old")
    failing = steps.next(view(member(), head=begun), WALL + 1)
    assert failing.released["es-old"].failing == WALL + 1

    assert steps.next(view(member(), head=failing), WALL + 9) == failing
    assert not steps.has_news
    steps.failed("es-old")
    assert steps.next(view(member(), head=failing), WALL + 60) == failing
    steps.succeeded("es-old")
    assert steps.next(view(member(), head=failing), WALL + 70).released["es-old"] == Release("es", WALL, "done", 5)

    other = replace(failing, token=6)
    assert Steps(token=6).next(view(member(), head=other), WALL).released["es-old"] == Release("es", WALL, "begun", 6)


def test_a_restored_store_suspends_the_candidate() -> None:
    seen = view(member())
    restored = View(9, HEAD, seen.reports, seen.alive, {}, 0.0, restored=True)

    assert Steps(token=5).next(restored, WALL) == HEAD


def test_releases_that_no_version_names_are_dropped_above_a_bound() -> None:
    done = {f"id-{n}": Release("x", float(n), "done") for n in range(MOST_DONE)}
    begun = {"es-old": Release("es", 0.0, "begun"), "id-new": Release("x", WALL, "begun")}
    head = replace(HEAD, released=done | begun, fingerprints={"id-0": "x", "id-1": "y"})

    after = release.finished(head, ["es-old", "id-new"])

    assert "id-0" not in after.released
    assert after.fingerprints == {"id-1": "y"}
    assert {"id-1", "id-new", "es-old"} <= after.released.keys()


def test_a_member_is_forgotten_after_its_own_time_if_it_has_nothing_undelivered() -> None:
    asks = member(forget_after=3600.0)
    first = view(asks, gone={"web-1": 0.0}, now=0.0)
    head = release.noted(first, [], WALL)

    assert forgettable(first, WALL) == []
    assert forgettable(view(asks, head=head, gone={"web-1": 0.0}), WALL + 3600) == ["web-1"]
    assert forgettable(view(asks, head=head), WALL + 3600) == []
    assert forgettable(view(member(forget_after=0.0, undelivered=SOME), gone={"web-1": 0.0}), WALL) == []


versions = st.sampled_from([None, ONE, TWO, Version(0, 2, "other")])
reports = st.builds(
    lambda name, **changes: member(name, **changes),
    name=st.sampled_from("abc"),
    epoch=st.sampled_from([-1, 0]),
    state=st.sampled_from(["joining", "member", "left", "forgotten"]),
    begun=versions,
    stages=st.dictionaries(st.sampled_from(["received", "active", "drained"]), st.sampled_from([ONE, TWO])),
    using=st.lists(st.sampled_from(["es-old", "es-new"])),
    undelivered=st.sampled_from([Undelivered(), SOME]),
    fence=st.sampled_from([None, FENCE]),
)


@given(st.lists(reports, max_size=4), st.sets(st.sampled_from("abc")), st.floats(0, 200), st.floats(0, 200_000))
def test_nothing_begins_while_a_member_uses_the_id_and_may_send(
    some: list[Report], gone: set[str], now: float, passed: float
) -> None:
    """A member that is alive, or away without a fence, and neither left nor forgotten."""
    seen = view(*some, gone=dict.fromkeys(gone, 0.0), now=now)
    head = replace(HEAD, settings=Settings(release_grace=100_000.0))
    marked = replace(head, released={"es-old": Release("es", WALL)})
    steps = Steps(token=5)
    before = {name: replace(report, write=0) for name, report in seen.reports.items()}
    steps.next(View(9, marked, before, seen.alive, seen.gone, now - 100), WALL)
    steps.next(View(9, marked, before, seen.alive, seen.gone, now - 50), WALL)
    after = steps.next(View(9, marked, seen.reports, seen.alive, seen.gone, now), WALL + passed)

    if after.released["es-old"].state == "begun":
        for report in seen.reports.values():
            may_send = report.state in ("joining", "member") and (report.name in seen.alive or report.fence is None)
            assert not (may_send and "es-old" in report.using)
            assert (
                report.name in seen.alive
                or "es-old" not in report.using
                or report.name in after.released["es-old"].despite
                or report.state == "left"
            )


def test_a_candidate_looks_again_for_a_member_whose_fence_will_hold_and_who_does_not_lead_never_does() -> None:
    soon = view(member(using=["es-old"], fence=FENCE), gone={"web-1": 0.0}, now=1.0)

    assert Steps(token=5).wait(soon, WALL) == release._LOOK_AGAIN
    assert Steps(token=6).wait(soon, WALL) is None


def test_without_any_version_nothing_unpins_a_secret_and_its_id_names_it() -> None:
    empty = replace(HEAD, history=[])

    assert release.unpinned(empty, "es-old") == -1
    assert release.name_of(empty, "es-old") == "es"
    assert release.name_of(replace(empty, released={"es-old": Release("kept", WALL)}), "es-old") == "kept"


def test_no_text_shows_the_content_of_a_secret() -> None:
    assert "hunter2" not in repr(Secret("es", b"hunter2"))
