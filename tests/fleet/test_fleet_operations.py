"""Orders of people: forget, release despite, accept a restore."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from shipper.fleet import operations
from shipper.fleet.errors import Refused
from shipper.fleet.operations import accept_restore, forget, order_release
from shipper.fleet.records import (
    HEAD,
    MEMBERS,
    RESTORED,
    VERSIONS,
    Accepting,
    Fence,
    Head,
    Line,
    Lost,
    Report,
    Restored,
    Text,
    Undelivered,
    Version,
)
from shipper.fleet.release import THE_STORE, retired, retired_ids
from shipper.fleet.seal import Seals, Unauthentic, digest
from shipper.fleet.view import View
from tests.fleet import hosts

SEALS = Seals("prod", [b"k" * 32])
SOME = Undelivered(events=12)
FENCE = Fence(lease=15.0, request=10.0)
TEXT = Text("outputs: {}", {"es": "es-old"}, "nonce")
ONE, TWO = Version(0, 1, "a"), Version(0, 2, digest(TEXT))
LINES = [Line(ONE, 0.0, "p@h", {"es": "es-old"}, "n1"), Line(TWO, 0.0, "p@h", {"es": "es-old"}, "n2")]
START = Head("prod", number=2, history=LINES, secrets={"es": "es-new"}, fingerprints={"es-old": "1", "es-new": "2"})
MEMBER = Report("web-1", "dir", "boot", "i", 1, 0, state="member", begun=ONE, using=["es-old"], undelivered=SOME)


class Fleet(hosts.Fleet):
    """A fleet of one member, and a person with a client of its store."""

    def __init__(self) -> None:
        super().__init__()
        self.client = self.server.client("admin")

    def member(self, report: Report, *, alive: bool = False) -> None:
        self.put(MEMBERS + report.name, report)
        if alive:
            self.live(report.name)

    def view(self) -> View:
        report = self.report()
        return View(1, self.head, {report.name: report}, {}, {report.name: 0.0}, 60.0)


@pytest.fixture
async def fleet() -> Fleet:
    fleet = Fleet()
    fleet.put(HEAD, START)
    return fleet


async def refused(order: Awaitable[object]) -> str:
    with pytest.raises(Refused) as error:
        await order
    return str(error.value)


async def test_a_forgotten_member_leaves_its_last_report_as_a_tombstone(fleet: Fleet) -> None:
    fleet.member(MEMBER)

    done = await forget(fleet.client, SEALS, "web-1")

    assert (done.undelivered, "may still send" in done.warning) == (SOME, True)
    assert fleet.report() == replace(MEMBER, state="forgotten")
    assert await forget(fleet.client, SEALS, "web-1") == done


async def test_a_member_that_stops_without_its_lease_is_forgotten_without_a_warning(fleet: Fleet) -> None:
    fleet.member(replace(MEMBER, fence=FENCE))

    assert (await forget(fleet.client, SEALS, "web-1")).warning == ""


async def test_a_live_member_is_forgotten_only_by_force(fleet: Fleet) -> None:
    fleet.member(MEMBER, alive=True)

    assert "--force" in await refused(forget(fleet.client, SEALS, "web-1"))
    assert fleet.report() == MEMBER
    await forget(fleet.client, SEALS, "web-1", force=True)
    assert fleet.report().state == "forgotten"


async def test_a_member_that_wrote_since_the_order_was_decided_is_not_forgotten(fleet: Fleet) -> None:
    fleet.member(MEMBER)

    await refused(forget(fleet.client, SEALS, "web-1", only="i.0"))
    await forget(fleet.client, SEALS, "web-1", only="i.1")


async def test_unknown_members_and_directories_are_refused(fleet: Fleet) -> None:
    fleet.member(MEMBER)

    assert "no member web-9" in await refused(forget(fleet.client, SEALS, "web-9"))
    assert "no directory x" in await refused(forget(fleet.client, SEALS, "web-1/x"))


async def test_a_forged_record_can_be_forgotten(fleet: Fleet) -> None:
    await fleet.client.swap(MEMBERS + "web-1", b"forged", expected=0)

    await forget(fleet.client, SEALS, "web-1")

    assert fleet.report().state == "forgotten"


async def test_a_lost_directory_is_forgotten_in_the_head_and_delays_a_release_until_an_order(fleet: Fleet) -> None:
    lost = Lost("before", 0.0, {}, SOME)
    fleet.member(replace(MEMBER, lost=[lost], using=[], stages={"active": TWO}))
    fleet.put(HEAD, replace(START, history=[*LINES, Line(Version(0, 3, "c"), 0.0, "p@h", {}, "n3")]))
    assert [o.member for o in retired(fleet.view(), 0.0)[0].obstacles if o.why == "directory lost"] == ["web-1/before"]

    done = await forget(fleet.client, SEALS, "web-1/before")

    assert (done.member, done.undelivered) == ("web-1/before", SOME)
    assert fleet.head.forgotten == {"web-1/before": lost}
    assert ("web-1/before", "undelivered") in [(o.member, o.why) for o in retired(fleet.view(), 0.0)[0].obstacles]
    assert await forget(fleet.client, SEALS, "web-1/before") == done
    with pytest.raises(Refused, match="web-1/other is no forgotten directory"):
        await order_release(fleet.client, SEALS, "es-old", "web-1/other")
    await order_release(fleet.client, SEALS, "es-old", "web-1/before")
    assert retired(fleet.view(), 0.0)[0].despite == ["web-1/before"]


async def test_a_forgotten_directory_that_came_back_and_is_lost_again_counts_until_it_is_forgotten_again(
    fleet: Fleet,
) -> None:
    first, again = Lost("before", 0.0, {}, SOME), Lost("before", 9.0, {}, SOME)
    fleet.put(HEAD, replace(START, history=[*LINES, Line(Version(0, 3, "c"), 0.0, "p@h", {}, "n3")]))
    fleet.member(replace(MEMBER, lost=[first], using=[], stages={"active": TWO}))
    await forget(fleet.client, SEALS, "web-1/before")
    fleet.member(replace(MEMBER, lost=[again], using=[], stages={"active": TWO}))

    assert [o.member for o in retired(fleet.view(), 0.0)[0].obstacles if o.why == "directory lost"]
    await forget(fleet.client, SEALS, "web-1/before")
    assert fleet.head.forgotten == {"web-1/before": again}
    assert not [o for o in retired(fleet.view(), 0.0)[0].obstacles if o.why == "directory lost"]


async def test_the_head_remembers_a_bounded_number_of_forgotten_directories(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "MOST_FORGOTTEN", 2)
    fleet.member(replace(MEMBER, lost=[Lost(name, 0.0, {}, SOME) for name in "abc"]))

    for name in "abc":
        await forget(fleet.client, SEALS, f"web-1/{name}")

    assert list(fleet.head.forgotten) == ["web-1/b", "web-1/c"]


UNPINNED = replace(START, history=[*LINES, Line(Version(0, 3, "c"), 0.0, "p@h", {"es": "es-new"}, "n3")], number=3)


async def test_an_order_releases_despite_the_undelivered_events_of_a_fenced_member(fleet: Fleet) -> None:
    fleet.put(HEAD, UNPINNED)
    fleet.member(replace(MEMBER, fence=FENCE))
    assert [o.why for o in retired(fleet.view(), 0.0)[0].obstacles] == ["undelivered"]

    await order_release(fleet.client, SEALS, "es-old", "web-1")
    once = fleet.head
    await order_release(fleet.client, SEALS, "es-old", "web-1")

    assert fleet.head == once
    assert retired(fleet.view(), 0.0)[0].despite == ["web-1"]
    fleet.member(replace(MEMBER, fence=FENCE, write=2))
    assert not retired(fleet.view(), 0.0)[0].released


async def test_an_order_releases_a_secret_though_its_successor_is_not_accepted(fleet: Fleet) -> None:
    line = Line(Version(0, 3, "c"), 0.0, "p@h", {"es": "es-new"}, "n3")
    fleet.put(HEAD, replace(START, history=[*LINES, line], number=3))
    await order_release(fleet.client, SEALS, "es-old", "es-new")

    assert fleet.head.lapses["es-new"].ordered == ["es-old"]


async def test_an_order_gives_up_a_secret_whose_content_is_lost_and_no_other_one(fleet: Fleet) -> None:
    fleet.put(HEAD, UNPINNED)
    assert "has the content" in await refused(order_release(fleet.client, SEALS, "es-old", THE_STORE))

    fleet.put(HEAD, replace(UNPINNED, fingerprints={**UNPINNED.fingerprints, "es-old": ""}))
    await order_release(fleet.client, SEALS, "es-old", THE_STORE)

    assert fleet.head.lapses[THE_STORE].ordered == ["es-old"]


async def test_an_order_to_release_is_refused_for_whoever_may_still_send(fleet: Fleet) -> None:
    fleet.put(HEAD, UNPINNED)
    fleet.member(MEMBER)

    assert "shipper fleet forget web-1" in await refused(order_release(fleet.client, SEALS, "es-old", "web-1"))
    assert "no retired secret" in await refused(order_release(fleet.client, SEALS, "es-new", "web-1"))
    fleet.live()
    assert "is live" in await refused(order_release(fleet.client, SEALS, "es-old", "web-1"))
    assert fleet.head.lapses == {}


async def test_who_has_another_key_than_the_fleet_forgets_nobody(fleet: Fleet) -> None:
    fleet.member(MEMBER)
    for target in ("web-1", "web-1/before"):
        with pytest.raises(Unauthentic):
            await forget(fleet.client, Seals("prod", [b"x" * 32]), target, force=True)

    assert fleet.report() == MEMBER


@pytest.mark.parametrize("mishap", ["before", "after", "late"])
@pytest.mark.parametrize("order", ["forget", "directory", "release"])
async def test_an_order_whose_answer_was_lost_is_done_once(
    autojump_clock: MockClock, fleet: Fleet, mishap: str, order: str
) -> None:
    fleet.put(HEAD, UNPINNED)
    fleet.member(replace(MEMBER, fence=FENCE, lost=[Lost("before", 0.0, {}, SOME)]))
    fleet.client.lose(mishap)  # type: ignore[arg-type]

    if order == "release":
        await order_release(fleet.client, SEALS, "es-old", "web-1")
        assert fleet.head.lapses["web-1"].ordered == ["es-old"]
    else:
        await forget(fleet.client, SEALS, "web-1" if order == "forget" else "web-1/before")
        assert (fleet.report().state, len(fleet.head.forgotten)) == (
            ("forgotten", 0) if order == "forget" else ("member", 1)
        )


# a restored store


@pytest.fixture
async def restored(fleet: Fleet) -> Fleet:
    fleet.put(VERSIONS + TWO.sha256, TEXT)
    fleet.member(replace(MEMBER, lease=30.0))
    fleet.put(RESTORED + "web-1", Restored("web-1", "dir", 1, 0, Version(0, 3, "c"), 1, "store"))
    return fleet


def registering(fleet: Fleet, **changes: object) -> Callable[[], Awaitable[None]]:
    """A member that registers again as soon as it sees the order."""

    async def register() -> None:
        while (accepting := fleet.head.accepting) is None:  # noqa: ASYNC110 (another task writes to the store)
            await trio.sleep(1)
        fleet.member(replace(MEMBER, **{"epoch": accepting.epoch, "write": 2, **changes}))  # type: ignore[arg-type]

    return register


async def test_a_new_epoch_begins_a_lease_later_with_todays_secrets(autojump_clock: MockClock, restored: Fleet) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registering(restored))
        accepted = await accept_restore(restored.client, SEALS, "me@here", wall=lambda: 5.0)
    assert trio.current_time() >= 30

    head = restored.head
    assert head.newest is not None
    assert head.newest[:2] == (1, 3)
    assert (accepted.epoch, accepted.version, accepted.registered, accepted.missing) == (1, head.newest, 1, [])
    assert (head.history[-1].secrets, head.history[-1].why) == ({"es": "es-new"}, "accept-restore of 2")
    assert (head.accepting, head.token) == (None, 1 << 32)
    entry = (await restored.client.read(VERSIONS + head.newest.sha256)).entry
    assert entry is not None
    text = SEALS.open(entry.key, entry.value, Text)
    assert (text.policy, text.secrets, digest(text)) == (TEXT.policy, {"es": "es-new"}, head.newest.sha256)


@pytest.mark.parametrize("mark", [None, Restored("web-1", "dir", 1, 0, TWO, 1, "clone")])
async def test_a_store_that_nobody_says_was_restored_begins_an_epoch_only_by_force(
    autojump_clock: MockClock, restored: Fleet, mark: Restored | None
) -> None:
    restored.put(RESTORED + "web-1", mark)
    message = await refused(accept_restore(restored.client, SEALS, "me@here"))

    assert "no member says that this store was restored" in message
    assert "--force" in message
    assert restored.head == START
    assert (await accept_restore(restored.client, SEALS, "me@here", force=True)).epoch == 1


async def test_a_store_that_has_lost_a_report_only_is_accepted(autojump_clock: MockClock, restored: Fleet) -> None:
    restored.put(RESTORED + "web-1", Restored("web-1", "dir", 1, 0, TWO, 9, "store"))

    assert (await accept_restore(restored.client, SEALS, "me@here")).epoch == 1


async def test_an_interrupted_order_is_continued_and_begins_one_epoch(
    autojump_clock: MockClock, restored: Fleet
) -> None:
    with trio.move_on_after(5):
        await accept_restore(restored.client, SEALS, "me@here")
    assert restored.head.accepting is not None

    accepted = await accept_restore(restored.client, SEALS, "me@here")

    assert (accepted.epoch, accepted.registered, accepted.missing) == (1, 0, ["web-1"])
    assert len(restored.head.history) == 3


@pytest.mark.parametrize("mishap", ["before", "after", "late"])
async def test_an_epoch_begins_once_whatever_answer_is_lost(
    autojump_clock: MockClock, restored: Fleet, mishap: str
) -> None:
    restored.client.lose(mishap, HEAD)  # type: ignore[arg-type]
    restored.client.lose(mishap, HEAD)  # type: ignore[arg-type]

    await accept_restore(restored.client, SEALS, "me@here")

    assert [str(line.version) for line in restored.head.history] == ["1", "2", "1.3"]


async def test_a_secret_that_is_known_to_be_released_is_refused_with_the_remedy(
    autojump_clock: MockClock, restored: Fleet
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registering(restored, released=["es-new"]))
        message = await refused(accept_restore(restored.client, SEALS, "me@here", force=True))

    assert "shipper fleet secret set es" in message
    assert replace(restored.head, serial=0) == START  # so secrets can be set: nobody is registering


async def test_members_with_secrets_that_the_store_does_not_know_are_accepted_only_by_force(
    autojump_clock: MockClock, restored: Fleet
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registering(restored, using=["es-newest"]))
        assert "es-newest" in await refused(accept_restore(restored.client, SEALS, "me@here"))

    assert (await accept_restore(restored.client, SEALS, "me@here", force=True)).epoch == 1
    assert "es-newest" in retired_ids(restored.head)  # so no member is told that it was released
    assert restored.head.fingerprints["es-newest"] == ""  # and no command gets it: see test_fleet_release


async def test_a_restore_during_the_order_is_noticed(autojump_clock: MockClock, restored: Fleet) -> None:
    async with trio.open_nursery() as nursery:

        async def restore_again() -> None:
            await trio.sleep(5)
            restored.put(HEAD, START)

        nursery.start_soon(restore_again)
        assert "restored again" in await refused(accept_restore(restored.client, SEALS, "me@here"))


async def test_a_fleet_without_a_version_begins_its_epoch_too(autojump_clock: MockClock, fleet: Fleet) -> None:
    fleet.put(HEAD, Head("prod", accepting=Accepting(3, 0.0, "me")))

    assert (await accept_restore(fleet.client, SEALS, "me@here")).version is None
    assert fleet.head.epoch == 3
