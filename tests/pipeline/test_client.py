"""How long what an output has opened stays open: through waits where it wants that, and never longer than it may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from shipper.plugin import Code, Held, Later
from shipper.plugin.relay import Principal
from shipper.spool.queue import Settlement
from shipper.values import Counts
from tests import fakes
from tests.fakes import DESTINATIONS, PATIENCE, Bench, Destination, bench, poke

NEVER = 3600.0


@asynccontextmanager
async def lasting(path: Path, client: str = "lane", **feeding: object) -> AsyncIterator[tuple[Bench, Destination]]:
    """A lane whose client may outlive a session."""
    async with bench(path) as on:
        script = DESTINATIONS["main"]
        script.feeding |= {"client": client} | feeding
        await on.activate(1, main="k1")
        yield on, script


@asynccontextmanager
async def waiting(path: Path, wait: float = NEVER) -> AsyncIterator[tuple[Bench, Destination]]:
    """The same, and it waits out a trouble with its client open."""
    async with lasting(path) as (on, script):
        script.send = script.raising(Later("503", wait))
        await on.enter()
        await script.until(lambda: on.active["main"].next_attempt is not None)
        assert (script.open_senders, script.log) == (1, ["open k1", "send 1"])
        script.send = script.deliver
        yield on, script


# -- open through the waits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("client", "times"), [("lane", 1), ("session", 11)])
async def test_a_client_of_the_lane_is_opened_once_over_ten_refusals(tmp_path: Path, client: str, times: int) -> None:
    async with lasting(tmp_path, client) as (on, script):
        script.send = script.raising(Later("503"), times=10)
        sent = await on.enter(3)
        await on.empty()

        assert script.received == sent
        assert script.log.count("open k1") == times
        assert script.log.count("close k1") == times - 1
        assert on.active["main"].problem is None


@pytest.mark.parametrize("error", [Later("503"), Held("401"), OSError("broken pipe"), ConnectionResetError()])
async def test_a_client_stays_open_through_trouble_of_the_destination(tmp_path: Path, error: Exception) -> None:
    async with lasting(tmp_path) as (on, script):
        script.send = script.raising(error, times=2)
        await on.enter()
        await on.empty()

        assert script.log.count("open k1") == 1


async def test_a_client_that_fails_by_a_bug_is_opened_again(tmp_path: Path) -> None:
    async with lasting(tmp_path) as (on, script):
        script.send = script.raising(ZeroDivisionError(), times=2)
        await on.enter()
        await on.empty()

        assert script.log[:5] == ["open k1", "send 1", "close k1", "open k1", "send 1"]


async def test_a_client_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    async with lasting(tmp_path) as (on, script):
        fails = iter([True, True])

        async def on_open() -> None:
            if next(fails, False):
                raise OSError("no route")

        script.on_open = on_open
        await on.enter()
        await on.empty()

        assert script.log == ["open k1", "send 1"]


async def test_a_lane_whose_events_are_gone_after_a_wait_closes_and_says_nothing(tmp_path: Path) -> None:
    async with lasting(tmp_path, backoff=(NEVER, NEVER)) as (on, script):
        lane = on.active["main"]
        script.send = script.raising(Later("503"))
        await on.enter()
        await script.until(lambda: lane.next_attempt is not None)
        (entry,) = await on.spool.queue.window(lane.id, 0, 10)
        await on.spool.queue.settle(lane.id, {entry.seq: Settlement(Counts(delivered=1))})
        lane.hasten()
        await script.until(lambda: lane.problem is None)

        assert script.log == ["open k1", "send 1", "close k1"]


async def test_a_client_is_opened_though_nothing_waits_where_the_output_wants_that(tmp_path: Path) -> None:
    async with lasting(tmp_path, is_open_idle=True) as (on, script):
        await script.until(lambda: script.open_senders == 1)
        await on.enter()
        await on.empty()

        assert script.log == ["open k1", "send 1"]


async def test_an_idle_client_that_cannot_be_opened_is_tried_again_and_a_retired_lane_has_none(tmp_path: Path) -> None:
    async with lasting(tmp_path, is_open_idle=True) as (on, script):
        await script.until(lambda: script.open_senders == 1)
        fails = iter([True, True])

        async def on_open() -> None:
            if next(fails, False):
                raise OSError("no route")

        script.on_open = on_open
        await on.activate(2, main="k2")
        await script.until(lambda: {"close k1", "open k2"} <= {*script.log})

        assert sorted(line for line in script.log if line != "barrier") == ["close k1", "open k1", "open k2"]
        assert script.open_senders == 1


async def test_an_idle_client_waits_for_its_credential(tmp_path: Path) -> None:
    async with lasting(tmp_path, is_open_idle=True) as (on, script):
        await script.until(lambda: script.open_senders == 1)
        secrets = on.keyring.of(["k1"])
        on.keyring.withdraw(["k1"])
        on.delivery.pool.withdrawn(["k1"])
        await script.until(lambda: script.open_senders == 0)
        on.keyring.keep(secrets)
        on.delivery.pool.supplied(["k1"])
        await script.until(lambda: script.open_senders == 1)

        assert script.log == ["open k1", "close k1", "open k1"]


# -- whom it relays to -------------------------------------------------------------------------------------------------


async def test_the_lanes_of_a_destination_know_whom_each_other_and_themselves_relayed_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Principal("principal:1", 7.0, "", "stored")
    monkeypatch.setattr(fakes._Scripted, "principal", lambda _: there, raising=False)
    async with lasting(tmp_path, is_open_idle=True) as (on, script):
        lane, away = on.active["main"], there._replace(connected_seconds=None)
        await script.until(lambda: script.open_senders == 1)
        assert script.contexts[0].beside() == [there]
        with trio.fail_after(PATIENCE):
            async with lane.suspended():
                assert script.contexts[0].beside() == [away]

        there = there._replace(confirms=None)
        await script.until(lambda: script.open_senders == 1)
        assert script.contexts[1].beside() == [away]


async def test_an_output_that_cannot_say_whom_it_relays_to_is_asked_once_and_trusted_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> Principal:
        asked.append("asked")
        raise KeyError("principal")

    asked: list[str] = []
    monkeypatch.setattr(fakes.ScriptedOutput, "relays", True)
    monkeypatch.setattr(fakes._Scripted, "principal", broken, raising=False)
    async with lasting(tmp_path, is_open_idle=True) as (on, script):
        lane = on.active["main"]
        await script.until(lambda: script.open_senders == 1)

        assert (lane.link.principal(), lane.link.confirms, lane.link.relayed_to()) == (None, "stored", None)
        assert asked == ["asked"]


# -- closed when it has to be ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what", ["retired", "removed", "withdrawn", "a lapsed lease", "an order", "supplied anew", "other settings"]
)
async def test_a_client_that_waits_is_closed_at_once(tmp_path: Path, what: str) -> None:
    async with waiting(tmp_path) as (on, script):
        lane = on.active["main"]
        match what:
            case "retired":
                await on.activate(2, main="k2")
            case "removed":
                await on.activate(2, other="k2")
            case "withdrawn":
                on.keyring.withdraw(["k1"])
                on.delivery.pool.withdrawn(["k1"])
            case "a lapsed lease":
                on.delivery.pool.renew_lease(on.boottime - 1)
            case "an order":
                with trio.fail_after(PATIENCE):
                    async with lane.suspended():
                        assert script.open_senders == 0
            case "supplied anew":
                on.delivery.pool.supplied(["k1"])
            case "other settings":
                await on.activate(2, {"main": {"live_setting": 1}}, main="k1")
        await script.until(lambda: "close k1" in script.log)

        if what in ("supplied anew", "other settings"):
            await on.empty()
            assert script.log == ["open k1", "send 1", "close k1", "open k1", "send 1"]
        else:
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert script.log == ["open k1", "send 1", "close k1"]


async def test_a_client_that_waits_is_closed_when_the_process_stops(tmp_path: Path) -> None:
    async with waiting(tmp_path) as (_, script):
        assert script.open_senders == 1

    assert script.log == ["open k1", "send 1", "close k1"]


async def test_a_client_under_way_is_closed_when_its_credential_is_supplied_anew(tmp_path: Path) -> None:
    async with lasting(tmp_path) as (on, script):
        await on.enter()
        await on.empty()
        on.delivery.pool.supplied(["k1"])
        await on.enter()
        await on.empty()

        assert script.log == ["open k1", "send 1", "close k1", "open k1", "send 1"]


async def test_a_client_is_closed_before_the_barrier_of_its_lane_is_settled(tmp_path: Path) -> None:
    async with lasting(tmp_path) as (on, script):
        script.send = script.raising(Later("503"), times=10)
        await on.enter()
        await on.activate(2, main="k2")
        await on.empty()

        assert [line for line in script.log if line in ("close k1", "barrier")][-2:] == ["close k1", "barrier"]
        assert script.open_senders == script.log.count("open k2") - script.log.count("close k2")


async def test_a_retired_lane_in_trouble_keeps_no_client(tmp_path: Path) -> None:
    async with lasting(tmp_path) as (on, script):
        script.send = script.raising(Later("503"))
        await on.enter()
        await on.activate(2, main="k2")
        await script.until(lambda: script.log.count("send 1") >= 5)

        log = [line for line in script.log if line != "send 1"]
        assert "open k1 open k1" not in " ".join(log)
        assert "k2" not in " ".join(log)


# -- one that hangs ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def hanging(
    path: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> AsyncIterator[tuple[Bench, Destination, trio.Event]]:
    """A lane that was retired, and hangs as it closes its client, until the event is set."""
    monkeypatch.setattr("shipper.pipeline.delivery.delivery.WATCH_SECONDS", 0.01)
    monkeypatch.setattr("shipper.pipeline.destination.client.STUCK_SECONDS", 0.05)
    monkeypatch.setattr("shipper.pipeline.delivery.lane.SILENT_SECONDS", 0.05)
    async with lasting(path, client) as (on, script):
        closes = trio.Event()
        script.closing = closes.wait
        await on.enter()
        await script.until(lambda: script.received == [0])
        yield on, script, closes
        closes.set()


@pytest.mark.parametrize("client", ["session", "lane"])
async def test_a_close_that_hangs_holds_the_barrier_of_its_lane_and_shows_and_no_other_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    async with hanging(tmp_path, monkeypatch, client) as (on, script, closes):
        lane = on.active["main"]
        await on.activate(2, other="k2")
        await script.until(lambda: lane.code == Code.CLIENT_STUCK)
        await on.enter()
        await DESTINATIONS["other"].until(lambda: DESTINATIONS["other"].received == [1])

        assert lane.problem == "its output has been closing for 0 s"
        assert (on.barriers, lane.id in on.delivery.lanes) == (0, True)
        assert on.delivery.slots.draining.borrowed_tokens == 0
        closes.set()
        await on.empty()
        assert script.log[-2:] == ["close k1", "barrier"]


async def test_a_withdrawn_credential_whose_client_hangs_at_close_shows_that_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hanging(tmp_path, monkeypatch, "lane") as (on, script, closes):
        lane = on.active["main"]
        on.keyring.withdraw(["k1"])
        on.delivery.pool.withdrawn(["k1"])
        await script.until(lambda: lane.code == Code.CLIENT_STUCK)
        assert script.open_senders == 1
        closes.set()
        await script.until(lambda: lane.code == Code.CREDENTIAL_WITHDRAWN)

        assert script.open_senders == 0


async def test_an_open_that_hangs_shows_and_ends_with_the_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shipper.pipeline.delivery.delivery.WATCH_SECONDS", 0.01)
    monkeypatch.setattr("shipper.pipeline.destination.client.STUCK_SECONDS", 0.05)
    async with lasting(tmp_path) as (on, script):
        script.on_open = trio.sleep_forever
        await on.enter()
        await script.until(lambda: on.active["main"].code == Code.CLIENT_STUCK)
        script.on_open = trio.lowlevel.checkpoint
        async with on.active["main"].suspended():
            assert on.active["main"].problem is None
        await on.empty()


async def test_an_error_of_a_close_between_sessions_is_trouble_and_not_the_end(tmp_path: Path) -> None:
    async with waiting(tmp_path) as (on, script):

        def fail() -> None:
            script.on_close = lambda: None
            raise OSError("simulated")

        script.on_close = fail
        poke(on.delivery)
        await on.empty()

        assert script.received == [0]
