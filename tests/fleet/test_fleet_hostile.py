"""Who can write to the store, and has no key of the fleet: what it may delay, and what it can never bring about."""

import pytest
import trio

from shipper.fleet import operations, pictures
from shipper.fleet.errors import Refused
from shipper.fleet.observer import observing, wait
from shipper.fleet.overview import overview
from shipper.fleet.records import ALIVE, HEAD, MEMBERS, VERSIONS, Alive, Fence, Head, Line, Report, Text, Version
from tests.fleet.hosts import Fleet, running, until

V7 = Version(0, 7, "seven")
V8 = Version(0, 8, "eight")
HOLD = Fence(lease=10.0, request=5.0)


@pytest.fixture
async def fleet() -> Fleet:
    fleet = Fleet()
    fleet.put(HEAD, head(V7, V8))
    fleet.put(VERSIONS + V8.sha256, Text("a: 1", {}, "p"))
    return fleet


def head(*versions: Version, **more) -> Head:
    lines = [Line(version, 0.0, "ann@desk", {}, "p") for version in versions]
    return Head("prod", number=versions[-1].number, history=lines, **more)


def report(drained: Version = V7, *, name: str = "a", **more) -> Report:
    stages = dict.fromkeys(("received", "active", "drained"), drained)
    fields = {"name": name, "directory": f"dir-{name}", "boot": "b", "instance": "i", "write": 1, "epoch": 0}
    return Report(**fields | {"state": "member", "lease": 10.0, "stages": stages, "fence": HOLD} | more)


def member(fleet: Fleet, drained: Version, name: str = "a") -> None:
    fleet.put(MEMBERS + name, report(drained, name=name))
    fleet.put(ALIVE + name, Alive(f"dir-{name}", "b", "i"), fleet.server.grant(1e6, 1.0).id)


async def asked(fleet: Fleet, number: int = 8, seconds: float = 0.0):
    async with observing(fleet.server.client("asker"), fleet.seals) as observer:
        return await wait(observer, number, "drained", seconds, 10.0)


async def test_a_member_whose_lease_was_removed_and_that_goes_on_to_report_is_never_fenced(fleet, autojump_clock):
    """It renews its lease, and sends; only its key is gone."""
    member(fleet, V7)

    async def reports() -> None:
        for write in range(2, 30):
            fleet.put(MEMBERS + "a", report(V7, write=write))
            await trio.sleep(3.0)

    async with observing(fleet.server.client("asker"), fleet.seals) as observer, trio.open_nursery() as nursery:
        nursery.start_soon(reports)
        await trio.sleep(1)
        fleet.put(ALIVE + "a", None)
        verdict = await wait(observer, 8, "drained", 80.0, 10.0)
        nursery.cancel_scope.cancel()

    assert (verdict.state, verdict.counts) == ("closed", {"absent": 1})


async def test_a_member_whose_records_were_removed_keeps_an_answer_closed_and_can_be_forgotten(fleet, autojump_clock):
    member(fleet, V8, "a")
    member(fleet, V7, "b")
    async with observing(fleet.server.client("asker"), fleet.seals) as observer:
        for key in (MEMBERS + "b", ALIVE + "b"):
            fleet.put(key, None)
        assert (await wait(observer, 8, "drained", 5.0, 10.0)).counts == {"reached": 1, "unauthentic": 1}
        with pytest.raises(Refused):
            await operations.forget(fleet.server.client("ann"), fleet.seals, "b")
        await operations.forget(fleet.server.client("ann"), fleet.seals, "b", force=True)

        assert (await wait(observer, 8, "drained", 5.0, 10.0)).state == "open"


@pytest.mark.parametrize("name", ["", "a/b", "\x1b[2J", "b" * 300, "ü", "\\xff"])
async def test_a_forged_key_that_no_member_can_have_keeps_nothing_closed(fleet, autojump_clock, name):
    member(fleet, V8)
    for kind in (MEMBERS, ALIVE):
        fleet.put(kind + name, b"forged")

    assert (await asked(fleet)).counts == {"reached": 1}


async def test_a_forged_lease_of_nobody_keeps_nothing_closed(fleet, autojump_clock):
    member(fleet, V8)
    fleet.put(ALIVE + "nobody", b"forged", fleet.server.grant(1e6, 1.0).id)

    assert (await asked(fleet)).counts == {"reached": 1}


@pytest.mark.parametrize("alive", [Alive("dir-a", "b", "i"), b"forged"], ids=["replayed", "forged"])
async def test_a_key_of_a_lease_that_no_lease_removes_makes_nobody_live(fleet, autojump_clock, alive):
    member(fleet, V7)
    fleet.put(ALIVE + "a", alive)

    assert (await asked(fleet, seconds=60.0)).counts == {"fenced": 1}
    await operations.forget(fleet.server.client("ann"), fleet.seals, "a")


async def test_a_member_with_a_forged_record_or_lease_can_be_forgotten(fleet, autojump_clock):
    for name in "ab":
        member(fleet, V7, name)
    fleet.put(MEMBERS + "a", b"forged")
    fleet.put(ALIVE + "b", b"forged", fleet.server.grant(1e6, 1.0).id)
    assert (await asked(fleet)).counts == {"unauthentic": 2}

    for name in "ab":
        await operations.forget(fleet.server.client("ann"), fleet.seals, name, force=True)

    assert (await asked(fleet)).counts == {"forgotten": 2}


@pytest.mark.parametrize("wild", [1e300, -1e300, float("nan"), float("inf")])
async def test_a_member_with_wild_numbers_is_shown_and_delays_no_order(fleet, autojump_clock, wild):
    """A member has the key of the fleet, and may be hostile."""
    fleet.put(MEMBERS + "a", report(V7, seen=wild, since=wild, lease=wild, fence=Fence(wild, wild), forget_after=wild))
    async with observing(fleet.server.client("asker"), fleet.seals) as observer:
        seen = await observer.fresh()
        verdict = await wait(observer, 8, "drained", 1.0, 10.0)
    began = trio.current_time()
    accepted = await operations.accept_restore(fleet.server.client("ann"), fleet.seals, "ann@desk", force=True)

    assert pictures.member_tables(overview(seen))
    assert verdict.state in ("open", "closed")
    assert accepted.epoch == 1
    assert trio.current_time() - began < 700


async def test_an_older_report_in_its_own_place_is_replaced_by_its_member(fleet, tmp_path, autojump_clock):
    fleet.publish()
    async with running(fleet, tmp_path / "state") as one:
        await until(lambda: fleet.report() is not None and fleet.report().state == "member")
        older = fleet.server.read(MEMBERS + "web-1").entry.value
        written = fleet.report().write
        await until(lambda: fleet.report().write > written)
        fleet.put(MEMBERS + "web-1", older)
        await until(lambda: fleet.report().write > written + 1)

        assert one.member.status()["state"] == "member"
