"""All lanes: counters that outlive them, and lanes that a restart finds."""

from __future__ import annotations

from pathlib import Path

from tests.fakes import DESTINATIONS, bench, poke, secret


async def test_counters_of_an_output_outlive_its_lanes(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        for number in range(1, 4):
            await on.activate(number, main=f"k{number}")
            await on.enter(5)
        await on.empty()

        assert on.delivery.counters()["main"]["delivered"] == 15
        assert len(on.delivery.lanes) == 1


async def test_a_restart_finds_every_lane_that_has_something_to_do(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        for number in range(1, 4):
            await on.activate(number, main=f"missing-{number}")
            await on.enter(2)
    async with bench(tmp_path) as on:
        await on.delivery.restore(await on.spool.lanes())
        assert sorted(lane.key.credential or "" for lane in on.delivery.lanes.values()) == [
            "missing-1",
            "missing-2",
            "missing-3",
        ]
        on.keyring.keep({f"missing-{n}": secret(f"missing-{n}") for n in range(1, 4)})
        poke(on.delivery)
        await on.empty()

        assert len(DESTINATIONS["main"].asked) == 6
        assert [lane.active for lane in on.delivery.lanes.values()] == [True]
