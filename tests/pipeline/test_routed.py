"""Keyed state that a lane compares with what its destination has, through the contracts of input and output."""

from __future__ import annotations

from pathlib import Path

import pytest

from shipper.pipeline.destination.routed import Routed
from shipper.pipeline.sources import Sources
from shipper.sdk.state import Change, Version, digest_of, place_of
from shipper.spool import resync
from tests.fakes import StateInput, Theatre, theatre
from tests.pipeline.test_keyed_state import begun, document, keep, policy, script, settled

FOREIGN = place_of(2**31, 7)
"""A place that this directory has not given."""


def routed(on: Theatre, moved: list[int], sources: Sources | None = None) -> Routed:
    (lane,) = (lane for lane in on.of_state() if lane.active)
    return Routed(on.spool.state, lane.id, sources or on.intake.sources, moved.extend)


def there(key: str, n: int = 9) -> Version:
    return Version("", "things", key, FOREIGN, digest_of(document(n)), False)


async def test_what_a_lane_has_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "PAGE", 2)
    monkeypatch.setattr(resync, "MOST_KEYS", 2)
    async with theatre(tmp_path) as on:
        script()
        context = await begun(on)
        places = await keep(context, *"abc", n=1)
        await settled(on)
        of_lane = routed(on, [])
        marks = await of_lane.marks()
        assert marks is not None
        keys = [("", mark.point) for mark in marks]
        versions = await context.versions(keys)
        documents, read = await context.documents(keys, 1 << 20)

        assert marks == await context.marks("")
        assert [version.place for version in versions] == [mark.place for mark in marks] == places
        assert ([found for _, found in documents], read) == ([document(1)] * 2, 2)
        assert await of_lane.gone(versions) == versions
        await on.offer(2, policy(inputs="{}"))
        await on.ack(2, "active")
        assert await of_lane.marks() is None


async def test_what_a_lane_lacks_is_sent_again_and_places_go_on_above_those_of_the_destination(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        main, context, moved = script(), await begun(on), list[int]()
        await keep(context, "a", n=1)
        await settled(on)
        of_lane = routed(on, moved)
        main.shelf.clear()
        await of_lane.send_again([("", mark.point) for mark in await of_lane.marks() or ()])
        on.delivery.lanes[moved[0]].look()
        await main.until(lambda: "a" in main.shelf)
        await of_lane.place_above(FOREIGN)

        assert await keep(context, "a", n=2) > [FOREIGN]


async def test_what_only_the_destination_has_waits_until_its_source_has_read_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StateInput, "is_source", True)
    async with theatre(tmp_path) as on:
        main, context = script(), await begun(on)
        of_lane = routed(on, [])
        first = await of_lane.decide([there("a")])
        assert first.again is not None
        for is_complete in (True, True, False):
            context.complete(is_complete)
        assert first.again.is_set()
        context.complete(True)

        assert await of_lane.decide([there("a")]) == ([], None)
        for lane in on.delivery.lanes.values():
            lane.look()
        await main.until(lambda: "a" in main.shelf)
        assert main.shelf["a"][1] is None


async def test_what_is_adopted_is_kept_and_its_input_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateInput, "has_keys", lambda *_: True)
    async with theatre(tmp_path) as on:
        script()
        context = await begun(on)
        told: list[str] = []
        (running,) = on.intake.running.values()
        running.source.adopted = told.extend  # type: ignore[union-attr]
        of_lane = routed(on, [])
        (wanted,) = (await of_lane.decide([there("a")._replace(owner="berlin")])).wanted
        await of_lane.adopt([Change("things", "a", document(9), "berlin", wanted.place)])

        assert told == ["berlin"]
        assert [mark.place for mark in await context.marks("berlin")] == [FOREIGN]
