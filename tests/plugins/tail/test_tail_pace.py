"""What is written is read at once after a rest, and in turns while lines keep coming."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.tail import pace as gathering
from shipper_plugins.tail import tailer
from shipper_plugins.tail.discovery import Globs
from shipper_plugins.tail.pace import MUCH, TURN, Gathering
from shipper_plugins.tail.watch import Changes, Watch
from tests.plugins.running import becomes
from tests.plugins.tail.tailing import Store, append, following, lines, names, settings


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 2000)), max_size=60))
def test_no_write_waits_for_longer_than_a_turn_and_turns_are_no_closer_unless_much_comes(
    writes: list[tuple[float, int]],
) -> None:
    it, now, turns, waiting = Gathering(), 0.0, list[float](), list[float]()
    for pause, size in [*writes, (TURN, 0)]:
        now += pause
        if now - (waiting[0] if waiting else now) > TURN:  # who asks is back when the turn is over
            now = waiting[0] + it.left(waiting[0])
        it.note({"a.log"})
        waiting.append(now)
        if it.due(now):
            turns.append(now)
            assert now - waiting[0] <= TURN + 1e-9
            waiting.clear()
            it.count(size)

    assert all(later - earlier >= TURN - 1e-9 for earlier, later in pairwise(turns))


def test_a_file_that_grows_quickly_is_read_without_a_wait() -> None:
    it = Gathering()
    it.note({"a.log"})
    assert set(it.due(0.0)) == {"a.log"}
    it.note({"a.log"})
    it.count(MUCH - 1)
    assert not it.due(0.1)
    it.count(1)

    assert it.left(0.1) == 0
    assert set(it.due(0.1)) == {"a.log"}
    assert it.breath == gathering.BREATH


@pytest.fixture
def turns_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written waits until something other than time ends that."""
    monkeypatch.setattr(gathering, "TURN", 3600.0)
    monkeypatch.setattr(gathering, "CALM", 0.02)


async def settled(store: Store, source: tailer.Tailer, count: int) -> None:
    """Until so many lines are stored, and a turn has begun with them: what follows waits."""
    await store.comes(count)
    await becomes(lambda: bool(source._gathering.left(trio.current_time())))
    await source._reader.turns.quiet()


@pytest.mark.usefixtures("turns_without_end")
@pytest.mark.parametrize("deed", ["moved", "deleted", "out of the globs", "copied and truncated", "full", "the end"])
async def test_what_waits_is_read_when_its_file_is_taken_away_or_much_comes(tmp_path: Path, deed: str) -> None:
    path, store = tmp_path / "app.log", Store()
    append(path, lines(0, 1))
    async with following(settings(tmp_path / "app.log*"), store) as source:
        await store.comes(1)
        await becomes(lambda: source._followed.scans >= 2)  # there is one more once there are watches
        append(path, lines(1, 2))
        await settled(store, source, 2)
        append(path, lines(2, 3))
        await becomes(lambda: bool(source._gathering._paths))
        assert store.messages == names(0, 2)
        if deed == "moved":
            os.rename(path, tmp_path / "app.log.1")
        elif deed == "deleted":
            path.unlink()
        elif deed == "out of the globs":
            os.rename(path, tmp_path / "old.log")
        elif deed == "copied and truncated":
            (tmp_path / "app.log.1").write_bytes(path.read_bytes())
            os.truncate(path, 0)
        elif deed == "full":
            source._gathering.count(MUCH)
        else:
            await source.quiesce()
            assert store.count == 3
        await store.comes(3)

    assert store.messages == names(0, 3)


@pytest.mark.usefixtures("turns_without_end")
async def test_what_others_write_beside_a_file_begins_no_turn(tmp_path: Path) -> None:
    """Each directory on the way to a file is watched, and many programs write into `/var/log`."""
    (tmp_path / "app").mkdir()
    store, paths = Store(), (tmp_path / "app/a.log", tmp_path / "other.log", tmp_path / "app/a.txt")
    for path in paths:
        append(path, lines(0, 1))
    async with following(settings(tmp_path / "app/*.log"), store) as source:
        await store.comes(1)
        await becomes(lambda: source._followed.scans >= 2)
        source._heed(Changes({str(path) for path in paths[1:]}))
        source._wake_written()
        assert not source._gathering.left(trio.current_time())
        append(paths[0], lines(1, 2))
        await store.comes(2)

    assert store.messages == names(0, 2)


async def test_of_a_directory_on_the_way_to_files_no_writes_are_told(tmp_path: Path) -> None:
    """A busy program that logs into `/var/log` would wake whoever follows `/var/log/app/*.log`."""
    (tmp_path / "app").mkdir()
    (tmp_path / "same").symlink_to(tmp_path / "app")
    watch, paths = Watch(), (tmp_path / "app/a.log", tmp_path / "other.log")
    for path in paths:
        append(path, lines(0, 1))
    watch.follow(Globs([f"{tmp_path}/app/*.log", f"{tmp_path}/same/*/*.log"], ()).scan().interests)
    for path in paths:
        append(path, lines(1, 2))

    assert str(paths[0]) in watch.now().paths
    append(paths[1], lines(2, 3))
    assert watch.now() == Changes()
    (tmp_path / "app").rename(tmp_path / "former")
    assert watch.now().scan
    watch.close()


async def test_what_waits_is_due_though_its_turn_ends_between_two_looks(tmp_path: Path) -> None:
    """Else it would wait for the next write of any file, or the next regular scan."""
    async with settings(tmp_path / "a.log").open(Store()) as source:
        assert isinstance(source, tailer.Tailer)
        source._gathering.note({str(tmp_path / "a.log")})
        with trio.fail_after(30):
            await source._listen(trio.current_time() + 3600.0)


async def test_a_timer_that_is_set_anew_ends_no_turn(tmp_path: Path) -> None:
    """Names that change would be looked at each time that a file is to be tried again."""
    path = tmp_path / "a.log"
    append(path, lines(0, 1))
    async with settings(path).open(Store()) as source, trio.open_nursery() as nursery:
        assert isinstance(source, tailer.Tailer)
        source._watch.follow(source._globs.scan().interests)
        source._gathering.begin(trio.current_time() + 3600.0)
        path.unlink()
        nursery.start_soon(source._listen, trio.current_time() + 3600.0)
        await trio.testing.wait_all_tasks_blocked()
        source._sleep.cancel()
        await trio.testing.wait_all_tasks_blocked()

        assert not source._scan_wanted
        assert source._watch.now().scan
