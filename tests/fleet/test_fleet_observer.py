"""`observer`, on a store in memory with real seals."""

import math
from contextlib import asynccontextmanager, suppress

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shipper.fleet import judge
from shipper.fleet.observer import PAUSE, RETRY, Observer, Observers, observing, wait
from shipper.fleet.records import Alive, Fence, Head, Line, Report, Version
from shipper.fleet.seal import Seals, Unauthentic
from shipper.fleet.standings import fenced
from shipper.fleet.store import PROMPT, SECONDS, StoreUnreachable
from shipper.fleet.view import View
from tests.examples import examples
from tests.fleet.memory import MemoryStore

SEALS = Seals("prod", [bytes(32)])
V6, V7 = Version(0, 6, "six"), Version(0, 7, "seven")


def head(*versions: Version) -> Head:
    newest = versions[-1]
    lines = [Line(version, 0.0, "ann@desk", {}, "p") for version in versions]
    return Head(fleet="prod", epoch=newest.epoch, number=newest.number, history=lines)


class Fleet:
    """A store with a fleet in it; changes it as members and publishers do."""

    def __init__(self) -> None:
        self.server = MemoryStore()
        self.store = self.server.client("members")
        self.asker = self.server.client("asker")
        self.leases: dict = {}

    async def put(self, key: str, record, lease=None) -> None:
        found = await self.store.read(key)
        expected = found.entry.revision if found.entry else 0
        assert (await self.store.swap(key, SEALS.seal(key, record), expected=expected, lease=lease)).done

    async def publish(self, *versions: Version) -> None:
        await self.put("head", head(*versions))

    async def report(self, name: str, drained: Version, **more) -> None:
        more = {"state": "member", "lease": 10.0, **more}
        stages = {"received": drained, "active": drained, "drained": drained}
        await self.put(f"members/{name}", Report(name, "d", "b", "i", 1, 0, stages=stages, **more))

    async def live(self, name: str, seconds: float = 1e6) -> None:
        lease = self.leases[name] = await self.store.grant(seconds)
        await self.put(f"alive/{name}", Alive("d", "b", "i"), lease)

    async def die(self, name: str) -> None:
        await self.store.revoke(self.leases[name])


@pytest.fixture
async def fleet() -> Fleet:
    fleet = Fleet()
    await fleet.publish(V6, V7)
    for name in ("a", "b"):
        await fleet.report(name, V6)
        await fleet.live(name)
    return fleet


@asynccontextmanager
async def asking(fleet: Fleet):
    async with observing(fleet.asker, SEALS) as observer:
        yield observer


async def test_a_store_in_which_nothing_was_written_is_a_fleet_without_members(autojump_clock):
    async with observing(MemoryStore().client(), SEALS) as observer:
        assert (await wait(observer, 1, "drained", 0, 0)).state == "unknown"


async def test_t152_4_a_wait_returns_when_the_last_member_has_reported(fleet, autojump_clock, nursery):
    async def reports() -> None:
        await trio.sleep(5)
        await fleet.report("a", V7)
        await trio.sleep(5)
        await fleet.publish(V6, V7, Version(0, 8, "eight"))
        await fleet.report("b", V7)

    nursery.start_soon(reports)
    async with asking(fleet) as observer:
        start = trio.current_time()
        verdict = await wait(observer, 7, "drained", 600, 10)

    assert verdict.state == "open"
    assert trio.current_time() - start == pytest.approx(10)


async def test_a_wait_returns_who_keeps_it_closed_when_its_time_is_over(fleet, autojump_clock):
    await fleet.report("a", V7)
    async with asking(fleet) as observer:
        start = trio.current_time()
        verdict = await wait(observer, 7, "drained", 60, 10)

    assert (verdict.state, [each.name for each in verdict.members]) == ("closed", ["b"])
    assert trio.current_time() - start == pytest.approx(60)


async def test_t152_14_a_report_that_was_compacted_before_the_watch_saw_it_is_not_missed(
    fleet, autojump_clock, nursery
):
    fleet.asker.set(watch_delay=1000.0)
    async with asking(fleet) as observer:
        await fleet.report("a", V7)
        await fleet.report("b", V7)
        start = trio.current_time()
        answers: list = []

        async def ask() -> None:
            answers.append(await wait(observer, 7, "drained", 600, 10))

        await fleet.report("a", V6)
        nursery.start_soon(ask)
        await trio.sleep(1)
        await fleet.report("a", V7)
        fleet.server.compact()
        fleet.asker.compact()
        await trio.sleep(2)

    assert [verdict.state for verdict in answers] == ["open"]
    assert trio.current_time() - start == pytest.approx(3)


async def test_a_report_that_a_silent_watch_never_shows_is_found_by_the_next_listing(fleet, autojump_clock):
    fleet.asker.set(watch_delay=1e9)
    async with asking(fleet) as observer:
        view = observer.view()
        await fleet.report("a", V7)
        await observer.changed()

        assert observer.view().reports["a"] != view.reports["a"]
        assert observer.view().now - view.now == pytest.approx(fleet.asker.relist)


async def test_t152_10_a_wait_survives_a_store_that_is_away_for_a_while(fleet, autojump_clock, nursery):
    async def outage() -> None:
        await trio.sleep(5)
        fleet.asker.set(cut=True)
        await fleet.report("a", V7)
        await fleet.report("b", V7)
        await trio.sleep(100)
        fleet.asker.set(cut=False)

    nursery.start_soon(outage)
    async with asking(fleet) as observer:
        assert (await wait(observer, 7, "drained", 600, 10)).state == "open"


async def test_t152_10_a_wait_whose_store_is_away_at_the_end_says_so(fleet, autojump_clock):
    async with asking(fleet) as observer:
        fleet.asker.set(cut=True)
        start = trio.current_time()
        with pytest.raises(StoreUnreachable):
            await wait(observer, 7, "drained", 60, 10)

        assert trio.current_time() - start <= 60 + SECONDS + 1


async def test_a_single_look_at_a_store_that_is_away_ends_within_the_bounds_of_the_store(fleet, autojump_clock):
    fleet.asker.set(cut=True)
    start = trio.current_time()
    async with asking(fleet) as observer:
        with pytest.raises(StoreUnreachable):
            observer.view()
        with pytest.raises(StoreUnreachable):
            await wait(observer, 7, "drained", 0, 10)

    assert trio.current_time() - start <= 2 * SECONDS + 2


async def test_a_question_is_judged_on_nothing_older_than_itself(fleet, autojump_clock):
    """A watch that lags behind hides the joiner; the listing for the question shows it."""
    await fleet.report("a", V7)
    await fleet.report("b", V7)
    fleet.asker.set(watch_delay=1e9)
    async with asking(fleet) as observer:
        await fleet.put("members/c", Report("c", "d", "b", "i", 1, 0))
        await fleet.live("c")

        assert (await wait(observer, 7, "drained", 0, 10)).state == "closed"


async def test_t152_8_a_joiner_with_an_older_version_is_not_missed_by_a_listing_that_a_publish_crosses(
    fleet, autojump_clock, monkeypatch
):
    """It registers after the reports were listed, and the next version is published before the head is read again."""
    await fleet.report("a", V7)
    await fleet.report("b", V7)
    list_ = fleet.asker.list
    crossing = iter([True])

    async def crossed(prefix: str):
        listing = await list_(prefix)
        if prefix == "members/" and next(crossing, False):
            await fleet.put("members/c", Report("c", "d", "b", "i", 1, 0))
            await fleet.publish(V7, Version(0, 8, "eight"))
            await fleet.report("a", Version(0, 8, "eight"))
            await fleet.report("b", Version(0, 8, "eight"))
        return listing

    monkeypatch.setattr(fleet.asker, "list", crossed)
    fleet.asker.set(watch_delay=1e9)
    async with asking(fleet) as observer:
        view = observer.view()

    assert (view.head.number, sorted(view.reports)) == (8, ["a", "b", "c"])


# -- Fences

FENCE = Fence(lease=10.0, request=5.0)
FENCED_AFTER = 10.0 + 0.2 + 5.0


async def test_t152_5_a_wait_opens_when_a_member_that_holds_is_fenced(fleet, autojump_clock):
    await fleet.report("a", V7)
    await fleet.report("b", V6, fence=FENCE)
    async with asking(fleet) as observer:
        await trio.testing.wait_all_tasks_blocked()
        await fleet.die("b")
        start = trio.current_time()
        verdict = await wait(observer, 7, "drained", 600, 10)

    assert (verdict.state, verdict.counts) == ("open", {"reached": 1, "fenced": 1})
    assert trio.current_time() - start == pytest.approx(FENCED_AFTER, abs=2 * PAUSE)


async def test_a_fence_comes_in_time_although_other_members_report_all_the_time(fleet, autojump_clock, nursery):
    await fleet.report("a", V7)
    await fleet.report("b", V6, fence=FENCE)

    async def chatter() -> None:
        while True:
            await fleet.report("a", V7)
            await trio.sleep(PAUSE / 4)

    async with asking(fleet) as observer:
        nursery.start_soon(chatter)
        await trio.testing.wait_all_tasks_blocked()
        await fleet.die("b")
        start = trio.current_time()
        await wait(observer, 7, "drained", 600, 10)
        nursery.cancel_scope.cancel()

    assert trio.current_time() - start == pytest.approx(FENCED_AFTER, abs=2 * PAUSE)


async def test_a_member_that_came_back_behind_the_back_of_the_observer_is_not_fenced(fleet, autojump_clock):
    """Its lease ended, it came back and went again while the asker was cut off: time counts from the new end only."""
    await fleet.report("a", V7)
    await fleet.report("b", V6, fence=FENCE)
    async with asking(fleet) as observer:
        observer.view()
        await fleet.die("b")
        await observer.changed()
        observer.view()
        fleet.asker.set(cut=True)
        await trio.sleep(8)
        await fleet.report("b", V6, fence=FENCE, seen=1.0)
        await fleet.live("b")
        await trio.sleep(8)
        await fleet.die("b")
        back = trio.current_time()
        fleet.server.compact()
        fleet.asker.compact()
        fleet.asker.set(cut=False)
        await trio.sleep(2)
        verdict = await wait(observer, 7, "drained", 600, 10)

    assert verdict.counts == {"reached": 1, "fenced": 1}
    assert trio.current_time() - back >= FENCED_AFTER


async def test_a_member_that_came_back_while_the_asker_was_cut_off_is_not_fenced(fleet, autojump_clock):
    await fleet.report("a", V7)
    await fleet.report("b", V6, fence=FENCE)
    async with asking(fleet) as observer:
        observer.view()
        await fleet.die("b")
        await observer.changed()
        assert observer.view().gone
        fleet.asker.set(cut=True)
        await fleet.live("b")
        await trio.sleep(FENCED_AFTER + 10)
        fleet.asker.set(cut=False)

        assert (await wait(observer, 7, "drained", 5, 10)).counts == {"reached": 1, "waiting": 1}


# -- Records that do not belong there


async def test_a_forged_report_keeps_it_closed_until_it_is_replaced(fleet, autojump_clock):
    for name in ("a", "b"):
        await fleet.report(name, V7)
    found = await fleet.store.read("members/a")
    await fleet.store.swap(
        "members/b", found.entry.value, expected=(await fleet.store.read("members/b")).entry.revision
    )
    async with asking(fleet) as observer:
        assert (await wait(observer, 7, "drained", 0, 10)).counts == {"reached": 1, "unauthentic": 1}
        await fleet.report("b", V7)
        assert (await wait(observer, 7, "drained", 0, 10)).state == "open"


async def test_a_forged_head_is_an_error_of_its_own(fleet, autojump_clock):
    await fleet.store.swap("head", b"forged", expected=(await fleet.store.read("head")).entry.revision)
    async with asking(fleet) as observer:
        with pytest.raises(Unauthentic):
            observer.view()
        with pytest.raises(Unauthentic):
            await wait(observer, 7, "drained", 600, 10)


async def test_a_store_that_was_restored_to_an_older_version_is_said(fleet, autojump_clock):
    before = fleet.server.snapshot()
    await fleet.publish(V6, V7, Version(0, 8, "eight"))
    async with asking(fleet) as observer:
        observer.view()
        fleet.server.restore(before)
        verdict = await wait(observer, 7, "drained", 600, 10)

    assert verdict.state == "store_restored"


async def test_an_older_head_is_a_restored_store_until_the_newest_one_or_a_later_epoch_is_back(fleet, autojump_clock):
    whole = replace(head(V6, V7), serial=8, token=2)
    await fleet.put("head", whole)
    async with asking(fleet) as observer:
        seen = []
        older = replace(whole, serial=7, token=1)
        made_from_it, later = replace(older, serial=9), replace(older, epoch=1, serial=3)
        for each in (older, made_from_it, whole, replace(whole, serial=9), older, later):
            await fleet.put("head", each)
            seen.append((await observer.fresh()).restored)

    assert seen == [True, True, False, False, True, False]


# -- Sharing


async def test_askers_share_one_watch_which_ends_with_the_last(fleet, autojump_clock, nursery):
    shared = Observers(fleet.asker, SEALS, nursery)
    async with shared.observing() as one:
        async with shared.observing() as other:
            await trio.testing.wait_all_tasks_blocked()
            assert one.view() == other.view()
            assert len(fleet.server.watches) == 1
        assert len(fleet.server.watches) == 1
    await trio.testing.wait_all_tasks_blocked()

    assert not fleet.server.watches


async def test_t152_12_a_caller_that_goes_away_leaves_nothing_behind(fleet, autojump_clock, nursery):
    shared = Observers(fleet.asker, SEALS, nursery)
    tasks = len(nursery.child_tasks)
    with trio.move_on_after(5):
        async with shared.observing() as observer:
            await wait(observer, 7, "drained", 600, 10)
    await trio.testing.wait_all_tasks_blocked()

    assert not fleet.server.watches
    assert len(nursery.child_tasks) == tasks


async def test_a_shared_observer_begins_again_for_the_next_asker(fleet, autojump_clock, nursery):
    shared = Observers(fleet.asker, SEALS, nursery)
    async with shared.observing() as observer:
        await observer.fresh()
    await fleet.report("a", V7)
    await fleet.report("b", V7)
    async with shared.observing() as observer:
        assert (await wait(observer, 7, "drained", 0, 10)).state == "open"


async def test_a_first_question_is_answered_by_the_first_look(fleet, autojump_clock, nursery):
    fleet.asker.set(cut=True)
    began = trio.current_time()
    async with Observers(fleet.asker, SEALS, nursery).observing() as observer:
        with pytest.raises(StoreUnreachable):
            await observer.fresh()

    assert trio.current_time() - began <= PROMPT


async def test_a_question_to_a_store_that_is_known_to_be_away_ends_as_soon(fleet, autojump_clock, nursery):
    """Others ask already; the answer that the store is away is for all of them."""
    shared = Observers(fleet.asker, SEALS, nursery)
    async with shared.observing() as other, shared.observing() as observer:
        await other.fresh()
        fleet.asker.set(cut=True)
        for _ in range(5):
            began = trio.current_time()
            with pytest.raises(StoreUnreachable):
                await observer.fresh()

            assert trio.current_time() - began <= PROMPT + RETRY
            await trio.sleep(0.7)


async def test_an_error_of_the_asker_comes_out_of_observing_as_it_is(fleet, autojump_clock):
    with pytest.raises(StoreUnreachable, match="mine"):
        async with asking(fleet):
            raise StoreUnreachable("mine")


# -- Many members


async def test_a_report_costs_the_judgement_of_its_member_only(fleet, autojump_clock, monkeypatch):
    for number in range(300):
        await fleet.report(f"m{number}", V6)
    judged: list[str] = []
    standings = judge.standings
    monkeypatch.setattr(
        judge, "standings", lambda view, name, *rest: judged.append(name) or standings(view, name, *rest)
    )
    answers: list = []
    async with asking(fleet) as observer, trio.open_nursery() as nursery:

        async def ask() -> None:
            answers.append(await wait(observer, 7, "drained", 600, 10))

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        names = [*(f"m{number}" for number in range(300)), "a", "b"]
        assert sorted(judged) == sorted(names)
        for name in names:
            await fleet.report(name, V7)

    assert [verdict.state for verdict in answers] == ["open"]
    assert len(judged) == 2 * len(names)


# -- All of it at random

NAMES = st.sampled_from("ab")
STEPS = st.one_of(
    st.tuples(st.just("report"), NAMES, st.sampled_from([V6, V7])),
    st.tuples(st.just("live"), NAMES),
    st.tuples(st.just("die"), NAMES),
    st.tuples(st.sampled_from(["cut", "heal", "compact", "lag", "look"])),
    st.tuples(st.just("sleep"), st.sampled_from([0.0, 0.5, 4.0, 11.0, FENCED_AFTER, 40.0])),
)


class Story:
    """A fleet whose members hold, an observer with faults, and what was true at each instant."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.away: dict[str, list[list[float]]] = {"a": [[0.0, math.inf]], "b": [[0.0, math.inf]]}
        """From when to when each member had no lease."""
        self.writes = 0

    async def run(self, steps: list[tuple]) -> None:
        await self.fleet.publish(V6, V7)
        async with observing(self.fleet.asker, SEALS) as observer:
            for step in steps:
                await self.step(observer, *step)
                await trio.testing.wait_all_tasks_blocked()
                with suppress(StoreUnreachable):
                    self.check(observer.view())
            self.fleet.asker.set(cut=False, watch_delay=0.0)
            await trio.sleep(2 * SECONDS)
            await self.check_all(observer)

    async def step(self, observer: Observer, what: str, *arguments) -> None:
        if what in ("report", "live", "die", "look"):
            await getattr(self, what)(*(arguments or (observer,)))
        elif what == "sleep":
            await trio.sleep(arguments[0])
        elif what == "compact":
            self.fleet.server.compact()
            self.fleet.asker.compact()
        else:
            faults = {"cut": {"cut": True}, "heal": {"cut": False, "watch_delay": 0.0}, "lag": {"watch_delay": 7.0}}
            self.fleet.asker.set(**faults[what])

    async def report(self, name: str, version: Version) -> None:
        self.writes += 1
        await self.fleet.report(name, version, fence=FENCE, seen=float(self.writes))

    async def live(self, name: str) -> None:
        if self.away[name][-1][1] == math.inf:
            await self.report(name, V6)
            await self.fleet.live(name)
            self.away[name][-1][1] = trio.current_time()

    async def die(self, name: str) -> None:
        if self.away[name][-1][1] != math.inf:
            self.away[name].append([trio.current_time(), math.inf])
            await self.fleet.die(name)

    async def look(self, observer: Observer) -> None:
        with suppress(StoreUnreachable):
            await observer.fresh()

    def check(self, view: View) -> None:
        for name in view.reports:
            if fenced(view, name):
                assert any(since + FENCED_AFTER <= view.now <= until for since, until in self.away[name])

    async def check_all(self, observer: Observer) -> None:
        view = await observer.fresh()
        records = [
            SEALS.open(entry.key, entry.value, Report) for entry in (await self.fleet.store.list("members/")).entries
        ]
        assert view.reports == {record.name: record for record in records}
        assert view.alive.keys() == {name for name, times in self.away.items() if times[-1][1] != math.inf}
        assert view.gone.keys() == view.reports.keys() - view.alive.keys()


@settings(max_examples=examples(3), deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_whatever_happens_all_is_seen_in_the_end_and_nobody_is_fenced_who_had_a_lease(steps):
    trio.run(Story().run, steps, clock=trio.testing.MockClock(autojump_threshold=0))
