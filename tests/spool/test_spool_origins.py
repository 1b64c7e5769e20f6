"""The secret of an origin is kept as long as one of its events is."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from shipper.sdk.origins import is_proven
from shipper.spool import origins
from shipper.spool.queue import Settlement
from shipper.values import Counts
from tests.fakes import bench
from tests.spool.keyed import Shelf


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


async def test_what_an_earlier_process_accepted_is_proven_by_a_later_one(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        await on.enter(2)
        origin = on.spool.origin
    async with bench(tmp_path) as on:
        proof = on.spool.prove(origin, "berlin")

        assert on.spool.origin != origin
        assert proof is not None
        assert is_proven(origin, "berlin", proof)


async def test_an_origin_that_was_drawn_elsewhere_is_not_proven(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        assert on.spool.prove(bytes(16), "berlin") is None


async def test_no_secret_of_an_origin_is_in_the_clear(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        await on.enter(2)
        secret = on.spool.drawn.secret

    assert not [path for path in await trio.to_thread.run_sync(files, tmp_path) if secret in path.read_bytes()]


async def test_origins_without_events_are_forgotten_once_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origins, "MANY", 2)
    lives = []
    for life in range(5):
        async with bench(tmp_path) as on:
            await on.activate(1, main="missing-1")
            await on.enter(2)
            lives.append(on.spool.origin)
            if life:
                lane = on.active["main"].id
                entry = (await on.spool.queue.window(lane, 0))[-1]
                await on.spool.queue.settle(lane, {entry.seq: Settlement(Counts(delivered=2))})
    async with bench(tmp_path) as on:
        await on.spool.store.read(lambda db: None)
        await on.spool.store.do(lambda db: None)
        kept = await on.spool.store.read(lambda db: [id for (id,) in db.execute("SELECT id FROM origin")])

    assert lives[0] in kept
    assert len(kept) <= 3


def test_what_cannot_be_the_secret_of_an_origin_proves_nothing(shelf: Shelf) -> None:
    short, id = b"short", bytes(16)
    sealed = shelf.sealer.seal("origin", id.hex(), 0, 0, short)
    shelf.db.execute("INSERT INTO origin VALUES (?, ?)", (id, sealed))

    assert origins.load(shelf.db, shelf.sealer) == {}
