"""The spool as the rest of the program sees it: a real directory, and what a restart finds."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.sdk.errors import StateLocked
from shipper.sdk.lineage import Confirmed
from shipper.spool import store
from shipper.spool.figures import Figures
from shipper.spool.keys import StateKey
from shipper.spool.parts.destination import Destination
from shipper.spool.parts.queue import Noted
from shipper.spool.queue import Arrival, Packed, Settlement
from shipper.spool.revisions import Text
from shipper.spool.spool import Spool, open_spool
from shipper.values import Counts, Revision
from tests.fakes import PATIENCE, bench, events, stored_batch


async def counted(spool: Spool) -> Figures:
    return await spool.store.read(lambda db: Figures.of(db, spool.store.sealer))


async def test_figures_after_a_restart_are_those_of_before(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1", other="missing-2")
        await on.enter(5, batches=3)
        lane = on.active["main"]
        (entry, *_) = await on.spool.queue.window(lane.id, 0)
        batch = await stored_batch(on.spool, lane.id, entry)
        await on.spool.queue.settle(lane.id, {entry.seq: Settlement(Counts(delivered=4), rest=batch.pick([2]))})
        before = on.spool.figures
        assert await counted(on.spool) == before
    async with bench(tmp_path) as on:
        assert on.spool.figures == before


class Gate:
    """An operation that holds up the writer."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, db: sqlite3.Connection) -> None:
        self.entered.set()
        self.opened.wait(PATIENCE)


async def test_what_is_stored_after_its_caller_lost_patience_is_counted_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_PATIENCE_SECONDS", 0.05)
    told: list[int] = []
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        arrival = Arrival(on.at, "in", [on.active["main"].id], [Packed(5, events(1, 2, 3, 4, 5).pack())])
        before, beside = Gate(), Gate()
        on.spool.store.post(before)
        await trio.to_thread.run_sync(before.entered.wait)
        on.spool.store.post(beside)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                on.spool.queue.enter, arrival, lambda entered: told.extend(batch.events for batch in entered)
            )
            await trio.testing.wait_all_tasks_blocked()
            before.opened.set()
            await trio.to_thread.run_sync(beside.entered.wait)
            nursery.cancel_scope.cancel()
        beside.opened.set()
        await on.spool.store.do(lambda db: None)

        assert on.spool.figures.total().events == 5
        assert on.spool.figures == await counted(on.spool)
        assert told == [5]


@pytest.mark.parametrize("failing", ["batch", "position"])
async def test_batches_and_positions_enter_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def refuse(*args: object) -> bytes:
        raise OSError("no new key can be stored")

    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        lanes = [on.active["main"].id]
        position: Any = b"7" if failing == "batch" else object()  # no column takes that
        if failing == "batch":
            monkeypatch.setattr(on.spool.store.sealer, "seal", refuse)
        with pytest.raises((OSError, sqlite3.Error)):
            await on.spool.queue.enter(Arrival(on.at, "in", lanes, [Packed(1, events(1).pack())], {"file": position}))

        assert await on.spool.queue.positions("in") == {}
        assert await on.spool.queue.window(lanes[0], 0) == []


async def test_every_process_has_another_origin(tmp_path: Path) -> None:
    origins = set()
    for _ in range(3):
        async with bench(tmp_path) as on:
            origins.add(on.spool.origin)

    assert len(origins) == 3


async def test_whoever_waits_for_room_wakes_when_something_is_settled(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        await on.enter(5)
        freed = on.spool.room
        (entry,) = await on.spool.queue.window(on.active["main"].id, 0)
        await on.spool.queue.settle(on.active["main"].id, {entry.seq: Settlement(Counts(delivered=5))})

        with trio.fail_after(60):
            await freed.wait()
        assert await on.spool.queue.settle(on.active["main"].id, {entry.seq: Settlement(Counts(delivered=5))}) == Noted(
            0
        )
        assert on.spool.figures.total().events == 0


async def test_a_process_repairs_its_database_once_for_bodies_that_do_not_open(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        for _ in range(3):
            await on.spool.repair_once()

        assert on.spool.store.directory.generations() == [2]


# -- who can write the directory must not be able to bring a key -------------------------------------------------------

K1 = StateKey("k1", b"1" * 32)


async def replaced_keyring(tmp_path: Path) -> Path:
    """A directory that a given key seals, with the keyring and the `state.key` of another one, which had none."""
    async with open_spool(tmp_path / "state", [K1]) as spool:
        await spool.revisions.receive(Text(Revision(0, 1), "sha", "meaning", "live", [], "version: 1"), {})
    async with open_spool(tmp_path / "his", None):
        pass
    for name in ("keyring", "keyring.copy", "state.key"):
        shutil.copy(tmp_path / "his" / name, tmp_path / "state" / name)
    return tmp_path / "state"


async def test_no_state_key_takes_over_what_another_keyring_sealed(tmp_path: Path) -> None:
    """Who removes all that the given key opens removes the data keys as well, and their rows say so."""
    state = await replaced_keyring(tmp_path)
    keyring = (state / "keyring").read_bytes()

    for _ in range(2):
        with pytest.raises(StateLocked, match=r"data that its own state\.key does not open"):
            async with open_spool(state, [K1]):
                pass
    assert (state / "keyring").read_bytes() == keyring
    assert (state / "state.key").exists()


async def test_given_keys_take_over_a_directory_with_rows_of_every_kind(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1", other="missing-2")
        await on.enter(5, batches=3)
        before = on.spool.figures
    async with open_spool(tmp_path, [K1]) as spool:
        assert spool.figures == before
        assert [row.settings is None for row in await spool.revisions.lanes()] == [False, False]
        assert not (tmp_path / "state.key").exists()


async def test_what_a_settlement_comes_too_late_for_changes_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing")
        await on.enter(2)
        lane = on.active["main"].id
        (entry,) = await on.spool.queue.window(lane, 0)
        for _ in range(2):
            noted = await on.spool.queue.settle(lane, {entry.seq: Settlement(Counts(delivered=2))})

        assert noted == Noted(0, frozenset(), frozenset())
        assert await counted(on.spool) == on.spool.figures


async def test_what_a_lineage_has_confirmed_is_known_with_all_that_was_noted_before(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing")
        lane, confirmed = Destination(on.spool, on.active["main"].id), Confirmed(3, 4)
        lane.note("a lineage", confirmed)

        assert await lane.known() == {"a lineage": confirmed}
