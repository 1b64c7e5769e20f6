"""What a state directory says by itself: what its owner would say, and nothing of the directory is touched."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
import trio

from shipper.plugin import Held, Outcome
from shipper.spool import stored
from shipper.spool.directory import own
from shipper.spool.stored import NotReadable
from shipper.values import Revision
from tests.fakes import DESTINATIONS, Bench, bench

Seen = dict[str, tuple[int, int, int, bytes]]


def looked_at(directory: Path) -> Seen:
    """Every file: its inode, times and bytes."""
    found = {}
    for path in sorted(directory.rglob("*")):
        seen = path.stat()
        found[str(path)] = seen.st_ino, seen.st_mtime_ns, seen.st_size, path.read_bytes() if path.is_file() else b""
    return found


async def filled(on: Bench) -> None:
    """Two outputs, of which one leaves rests; a key that drains, and one that is new."""
    for name in ("main", "other"):
        DESTINATIONS.setdefault(name, DESTINATIONS["main"].__class__())
    main, other = DESTINATIONS["main"], DESTINATIONS["other"]
    main.send = main.raising(Held("401"))
    other.send = other.refusing(1, 2, outcome=Outcome.LATER)
    await on.activate(1, main="k1", other="k9")
    await on.enter(5)
    await other.until(lambda: len(other.received) == 3)
    await on.activate(2, main="k2", other="k9")
    await on.enter(4, to=["main"])
    with trio.fail_after(60):
        while on.delivery.counters().get("other", {}).get("delivered", 0) < 3:  # noqa: ASYNC110 (nobody tells)
            await trio.sleep(0.005)


async def test_it_reads_what_its_owner_knows_while_that_lives_and_changes_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path / "state") as on:
        await filled(on)
        await on.spool.store.read(lambda db: None)
        found = stored.read(tmp_path / "state")
        owner = stored.owner(tmp_path / "state")
        known, lanes = on.spool.figures, await on.spool.revisions.lanes()

        assert found is not None
        assert found.figures.total() == known.total()
        assert found.figures.events == known.events
        assert found.figures.bytes == known.bytes
        assert [lane[:2] for lane in found.lanes] == [(row.id, row.key) for row in lanes]
        assert [lane.active for lane in found.lanes] == [row.active for row in lanes]
        assert list(found.barriers.values()) == [Revision(0, 2)]
        assert found.credentials == ("k1", "k2", "k9")
        assert found.revisions.active == Revision(0, 2)
        assert (owner.pid, owner.lives) == (os.getpid(), True)


async def test_of_a_process_that_was_killed_it_reads_the_log_and_leaves_all_as_it_is(tmp_path: Path) -> None:
    state = tmp_path / "state"
    code = (
        "import os, signal, sys, trio\n"
        "from pathlib import Path\n"
        "from tests.fakes import bench\n"
        "from tests.spool.test_spool_stored import filled\n"
        "async def main():\n"
        "    async with bench(Path(sys.argv[1])) as on:\n"
        "        await filled(on)\n"
        "        print(*on.spool.figures.total(), flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "trio.run(main)\n"
    )
    ended = await trio.run_process([sys.executable, "-c", code, str(state)], capture_stdout=True, check=False)
    before = looked_at(state)
    found, owner = stored.read(state), stored.owner(state)

    assert looked_at(state) == before
    assert any(name.endswith("-wal") for name in before)
    assert found is not None
    assert list(found.figures.total()) == list(map(int, ended.stdout.split()))
    assert owner.pid is not None
    assert not owner.lives
    assert time.time() - 60 < (owner.at or 0) <= time.time()


async def test_of_a_process_that_ended_in_order_it_says_when(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with bench(state) as on:
        await on.activate(1, main="k1")
        await on.enter(3)
        await on.empty()
    before = looked_at(state)
    found, owner = stored.read(state), stored.owner(state)

    assert looked_at(state) == before
    assert found is not None
    assert found.figures.total() == (0, 0)
    assert (owner.pid, owner.lives) == (None, False)
    assert time.time() - 60 < (owner.at or 0) <= time.time()


async def test_a_log_without_its_index_is_not_read_since_that_would_make_one(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "spool-1.db").write_bytes(b"x" * 40000)
    (state / "spool-1.db-wal").write_bytes(b"x" * 40000)
    before = looked_at(state)

    with pytest.raises(NotReadable, match=r"without changing it: spool-1\.db-shm is missing"):
        stored.read(state)
    assert looked_at(state) == before


@pytest.mark.parametrize("content", [b"", b"x" * 40000])
def test_what_is_no_database_is_told_in_a_word(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "spool-1.db").write_bytes(content)

    with pytest.raises(NotReadable, match=r"the stored data cannot be read: SQLITE_\w+$"):
        stored.read(tmp_path)


def test_a_database_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "spool-1.db").symlink_to("/etc/passwd")

    with pytest.raises(NotReadable, match="is not a regular file"):
        stored.read(tmp_path)


def test_a_directory_that_nothing_was_written_to_holds_nothing(tmp_path: Path) -> None:
    with own(tmp_path / "state"):
        assert stored.read(tmp_path / "state") is None
        assert stored.is_locked(tmp_path / "state" / "lock")
    assert not stored.is_locked(tmp_path / "state" / "lock")
    assert stored.owner(tmp_path / "nowhere") == (None, None, False)
