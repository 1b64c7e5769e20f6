"""A file is overwritten with what it had, or another one with the same bytes has its inode: it is read again. A file
that was touched, restored or synchronized is not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio.testing

from shipper_plugins.inputs.tail import births
from tests.plugins.tail import Store, append, becomes, following, lines, names, read_all, settings

TEXT = lines(0, 200)
_born = births.born


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
        stream = source._followed.known.at(str(path))
        assert stream is not None
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
        stream = source._followed.known.at(str(path))
        assert stream is not None
        stream.sighting.hear()
        os.utime(path)
        await becomes(lambda: stream in source._followed.stale)
        append(path, "more\n")
        await store.comes(201)
        await trio.testing.wait_all_tasks_blocked(0.05)

    assert store.messages == [*names(0, 200), "more"]


async def test_another_file_with_the_inode_and_the_bytes_of_a_former_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system here may give another inode, so the one that was known is said to have been made before."""
    path, store, reborn = tmp_path / "job.log", Store(), list[int]()
    monkeypatch.setattr("shipper_plugins.inputs.tail.content.born", lambda file: _born(file) + sum(reborn))
    append(path, TEXT)
    await read_all(settings(path), store)
    reborn.append(-1)

    assert await read_all(settings(path), store) == names(0, 200)
    assert await read_all(settings(path), store) == []


async def test_a_restored_file_with_the_inode_of_a_former_one_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, store, later = tmp_path / "job.log", Store(), list[int]()
    monkeypatch.setattr("shipper_plugins.inputs.tail.content.born", lambda file: _born(file) + sum(later))
    await _read_once(path, store)
    later.append(1_000_000_000)

    assert await read_all(settings(path), store) == []


def test_a_file_was_made_when_it_was(tmp_path: Path) -> None:
    before = time.time_ns() - 1_000_000_000
    with (tmp_path / "a").open("w") as file:
        born = births.born(file.fileno())

    assert not born or before < born < time.time_ns() + 1_000_000_000
