"""All lanes: counters that outlive them, and lanes that a restart finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.plugin import Held, Later, TooLarge
from tests.fakes import DESTINATIONS, Bench, Pace, ScriptedOutput, bench, poke, secret


async def test_counters_of_an_output_outlive_its_lanes(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        for number in range(1, 4):
            await on.activate(number, main=f"k{number}")
            await on.enter(5)
        await on.empty()

        assert on.delivery.counters()["main"]["delivered"] == 15
        assert len(on.delivery.lanes) == 1


async def test_of_outputs_that_are_gone_the_newest_alone_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.destination.counts.MOST_PAST", 2)
    async with bench(tmp_path) as on:
        for number in range(1, 6):
            await on.activate(number, main="k1", **{f"one-{number}": "k1"})
            await on.enter(number)
            await on.empty()
        await on.activate(6, main="k1")
        with trio.fail_after(30):
            while len(on.delivery.lanes) > 1:  # noqa: ASYNC110 (nobody tells)
                await trio.sleep(0.005)

        delivered = {output: counts["delivered"] for output, counts in on.delivery.counters().items()}
        assert delivered == {"main": 15, "one-4": 4, "one-5": 5}


async def test_a_restart_finds_every_lane_that_has_something_to_do(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        for number in range(1, 4):
            await on.activate(number, main=f"missing-{number}")
            await on.enter(2)
    async with bench(tmp_path) as on:
        await on.delivery.restore(await on.spool.revisions.lanes())
        assert sorted("".join(lane.key.credentials) for lane in on.delivery.lanes.values()) == [
            "missing-1",
            "missing-2",
            "missing-3",
        ]
        on.keyring.keep({f"missing-{n}": secret(f"missing-{n}") for n in range(1, 4)})
        poke(on.delivery)
        await on.empty()

        assert len(DESTINATIONS["main"].asked) == 6
        assert [lane.active for lane in on.delivery.lanes.values()] == [True]


async def test_lanes_that_cannot_be_opened_are_looked_at_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read the settings of all for each of them took seconds of a start with a thousand."""
    async with bench(tmp_path) as on:
        for number in range(1, 4):
            await on.activate(number, main=f"missing-{number}")
            await on.enter(number % 2)
        await on.spool.store.do(lambda db: db.execute("UPDATE lane SET type = 'gone'"))
    async with bench(tmp_path) as on:
        rows = await on.spool.revisions.lanes()
        monkeypatch.delattr(type(on.spool.revisions), "lanes")
        await on.delivery.restore(rows)

        assert {row.id for row in rows} == on.delivery.closed
        await on.spool.store.do(lambda db: db.execute("DELETE FROM todo WHERE kind = 0"))
        await on.spool.store.do(lambda db: db.execute("UPDATE barrier SET accepted = 0"))
        for lane in sorted(on.delivery.closed):
            await on.delivery.settle_unopened(lane)
        assert {row.id for row in rows if row.active} == on.delivery.closed


def standing(on: Bench) -> dict[str, Any]:
    return on.delivery.outputs()["main"]


@pytest.mark.parametrize(
    ("error", "failure"),
    [(Later("503"), "later"), (Held("401"), "held"), (TooLarge("413"), "too_large"), (OSError("x"), "failed")],
)
async def test_requests_are_counted_of_an_output_that_does_nothing_for_it(
    tmp_path: Path, error: Exception, failure: str
) -> None:
    async with bench(tmp_path) as on:
        script = DESTINATIONS["main"]
        script.send = script.raising(error, times=1)
        await on.activate(1, main="k1")
        await on.enter(2)
        await on.empty()

        assert standing(on)["failures"] == {failure: 1}
        assert standing(on)["requests"] == len([line for line in script.log if line.startswith("send")])


async def test_an_output_that_waits_for_a_person_is_held_and_says_when_it_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedOutput, "backoff", Pace(1000.0, 1000.0))
    async with bench(tmp_path) as on:
        script = DESTINATIONS["main"]
        script.send = script.raising(Held("401"))
        (lane,) = (await on.activate(1, main="k1")).values()
        await on.enter(2)
        await script.until(lambda: lane.next_attempt is not None)
        assert standing(on)["held"]
        assert 0 < standing(on)["next_attempt_seconds"] <= 1000
        assert standing(on)["ill_seconds"] is not None

        script.send = script.deliver
        lane.poke()
        await on.empty()
        assert standing(on)["held"] is False
        assert (standing(on)["next_attempt_seconds"], standing(on)["ill_seconds"]) == (None, None)


async def test_what_is_counted_of_an_output_goes_with_its_last_lane(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="k1")
        await on.enter(2)
        await on.activate(2, other="k1")
        await on.empty()

        assert list(on.delivery.outputs()) == ["other"]


async def test_a_lane_that_is_gone_meanwhile_is_not_looked_at(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing")
        on.delivery.pool.moved([on.active["main"].id, 10**6])

        assert list(on.delivery.lanes) == [on.active["main"].id]
