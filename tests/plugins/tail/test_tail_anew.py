"""A file is overwritten with what it had, or another one with the same bytes has its inode: it is read again. A file
that was touched, restored or synchronized is not."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from shipper_plugins.tail import births, content, tailer
from tests.plugins.running import becomes
from tests.plugins.tail.tailing import Store, append, following, lines, names, read_all, settings, stream_of

TEXT = lines(0, 200)
_born = births.born


@pytest.fixture
def doubtful_files_are_looked_at_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailer, "_SOON", 0.05)


def overwritten(path: Path) -> None:
    path.write_text(TEXT)


def touched(path: Path) -> None:
    path.touch()


def synchronized(path: Path) -> None:
    """As `rsync --inplace --times` does it, from a source that was written later."""
    os.utime(path, ns=(time.time_ns(), time.time_ns() - 1_000_000))


def restored(path: Path) -> None:
    """In place: a file that is made anew may get another inode, and is another one then."""
    status = path.stat()
    path.write_text(TEXT)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def of_another_owner(path: Path) -> None:
    path.chmod(0o640)


async def _read_once(path: Path, store: Store) -> None:
    append(path, TEXT)
    os.utime(path, (1e9, 1e9))
    await read_all(settings(path), store)
    assert store.count == 200


@pytest.mark.parametrize(
    ("change", "times"),
    [(overwritten, 2), (touched, 1), (synchronized, 1), (restored, 1), (of_another_owner, 1)],
)
async def test_what_was_overwritten_while_nothing_ran_is_read_again_and_nothing_else(
    tmp_path: Path, change: Callable[[Path], None], times: int
) -> None:
    path, store = tmp_path / "job.log", Store()
    await _read_once(path, store)
    change(path)
    await read_all(settings(path), store)
    await read_all(settings(path), store)

    assert store.messages == names(0, 200) * times


@pytest.mark.usefixtures("doubtful_files_are_looked_at_soon")
async def test_what_was_overwritten_while_it_is_followed_is_read_again(tmp_path: Path) -> None:
    path, store = tmp_path / "job.log", Store()
    append(path, TEXT)
    async with following(settings(path), store) as source:
        for day in range(1, 4):
            await store.comes(200 * day)
            await source._reader.turns.quiet()
            overwritten(path)
        await store.comes(800)
        append(path, "more\n")
        await store.comes(801)

    assert store.messages == [*names(0, 200) * 4, "more"]
    assert await read_all(settings(path), store) == []


@pytest.mark.usefixtures("doubtful_files_are_looked_at_soon")
@pytest.mark.parametrize("change", [touched, synchronized, of_another_owner])
async def test_what_was_touched_while_it_is_followed_is_not_read_again(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path, store = tmp_path / "job.log", Store()
    append(path, TEXT)
    async with following(settings(path), store) as source:
        await store.comes(200)
        await source._reader.turns.quiet()
        change(path)
        stream = stream_of(source, path)
        await becomes(lambda: stream.sighting.whole == (len(TEXT), path.stat().st_mtime_ns))
        append(path, "more\n")
        await store.comes(201)

    assert store.messages == [*names(0, 200), "more"]


async def test_a_write_that_is_under_way_is_not_one_without_growth(tmp_path: Path) -> None:
    """The time of a write is there before its bytes are."""
    path, store = tmp_path / "job.log", Store()
    append(path, TEXT)
    async with following(settings(path), store) as source:
        await store.comes(200)
        await source._reader.turns.quiet()
        stream = stream_of(source, path)
        stream.sighting.hear()
        os.utime(path)
        await becomes(lambda: stream in source._followed.stale)
        append(path, "more\n")
        await store.comes(201)
        await trio.testing.wait_all_tasks_blocked(0.05)

    assert store.messages == [*names(0, 200), "more"]


async def test_a_write_that_a_scan_sees_before_inotify_tells_of_it_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, store, may_write, scans = tmp_path / "job.log", Store(), threading.Event(), itertools.count(1)
    append(path, TEXT)
    os.utime(path, (1e9, 1e9))
    async with following(settings(path), store) as source:
        scan = source._globs.scan

        def later() -> Any:
            if next(scans) == 2:
                may_write.wait(30)
                overwritten(path)
            return scan()

        monkeypatch.setattr(source._globs, "scan", later)
        await store.comes(200)
        await source._reader.turns.quiet()
        may_write.set()
        await store.comes(400)


@pytest.mark.parametrize("when", ["emptied before a look", "written after a look"])
async def test_a_write_that_a_look_runs_into_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    path, store = tmp_path / "job.log", Store()
    append(path, TEXT)
    os.utime(path, (1e9, 1e9))
    async with following(settings(path), store) as source:
        await store.comes(200)
        await source._reader.turns.quiet()
        stream = stream_of(source, path)
        look, status_of = content.Plain.look, content.Plain._status
        monkeypatch.setattr(content, "_NOWAIT", None)  # so that a thread looks

        def emptied(self: content.Plain) -> os.stat_result:
            monkeypatch.setattr(content.Plain, "_status", status_of)
            os.truncate(path, 0)
            found = status_of(self)
            path.write_text(TEXT)
            return found

        def looked(self: content.Plain, offset: int, size: int) -> content.Look:
            monkeypatch.setattr(content.Plain, "look", look)
            if when == "emptied before a look":
                monkeypatch.setattr(content.Plain, "_status", emptied)
                return look(self, offset, size)
            found = look(self, offset, size)
            with path.open("r+") as file:
                file.write(TEXT)
                file.flush()
                while not stream.turn.again:  # inotify has told of it
                    time.sleep(0.001)
            return found

        monkeypatch.setattr(content.Plain, "look", looked)
        source._reader.turns.wake(stream)
        await store.comes(400)


async def test_another_file_with_the_inode_and_the_bytes_of_a_former_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system here may give another inode, so the one that was known is said to have been made before."""
    path, store, reborn = tmp_path / "job.log", Store(), list[int]()
    monkeypatch.setattr("shipper_plugins.tail.content.born", lambda file: _born(file) + sum(reborn))
    append(path, TEXT)
    await read_all(settings(path), store)
    reborn.append(-1)

    assert await read_all(settings(path), store) == names(0, 200)
    assert await read_all(settings(path), store) == []


async def test_a_restored_file_with_the_inode_of_a_former_one_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, store, later = tmp_path / "job.log", Store(), list[int]()
    monkeypatch.setattr("shipper_plugins.tail.content.born", lambda file: _born(file) + sum(later))
    await _read_once(path, store)
    later.append(1_000_000_000)

    assert await read_all(settings(path), store) == []


def test_a_file_was_made_when_it_was(tmp_path: Path) -> None:
    before = time.time_ns() - 1_000_000_000
    with (tmp_path / "a").open("w") as file:
        born = births.born(file.fileno())

    assert not born or before < born < time.time_ns() + 1_000_000_000
