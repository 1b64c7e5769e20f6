"""A file is read to its size, whatever a read gives and whichever wake-up is forgotten."""

from __future__ import annotations

import errno
import gzip
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from shipper.plugin import Duration
from shipper.testing import RecordingInputContext
from shipper_plugins.tail import content, open_files, reader, tailer, turn
from shipper_plugins.tail.multiline import Multiline
from shipper_plugins.tail.queue import Turns
from shipper_plugins.tail.stream import Stream
from tests.plugins.running import becomes
from tests.plugins.tail.tailing import Store, append, following, lines, names, read_all, settings
from tests.short_reads import short_reads

LONG = [f"{number} {'x' * (number * 7919 % 20_000)}" for number in range(100)]
"""A megabyte in lines of many pages and of less than one."""


@pytest.fixture(autouse=True)
def chunks_that_small_files_have_several_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordingInputContext, "chunk_bytes", 64 << 10)


@pytest.fixture
def regular_scans_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailer, "SAFETY", 0.05)


def text(these: list[str] = LONG) -> str:
    return "".join(f"{line}\n" for line in these)


# -- short reads -------------------------------------------------------------------------------------------------------

MANY_LINES = Multiline(pattern="^[^0-9]", timeout=Duration(0.05))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", [{}, {"encoding": "utf-16"}, {"multiline": MANY_LINES}, {"max_line_bytes": 4096}])
async def test_each_line_comes_once_though_reads_are_short(tmp_path: Path, seed: int, options: Any) -> None:
    append(tmp_path / "a.log", text().encode(options.get("encoding", "utf-8")))
    store = Store()
    with short_reads(seed):
        async with following(settings(tmp_path / "a.log", **options), store):
            await store.comes(len(LONG))
    cut = options.get("max_line_bytes", 1 << 20)

    assert store.messages[: len(LONG)] == [line[:cut] for line in LONG]
    assert store.problems == []


@pytest.mark.parametrize("seed", range(5))
async def test_a_compressed_file_and_a_rotated_one_come_once_though_reads_are_short(tmp_path: Path, seed: int) -> None:
    path, config, store = tmp_path / "app.log", settings(tmp_path / "app.log*"), Store()
    append(path, text())
    with short_reads(seed):
        await read_all(config, store)
        append(path, lines(0, 50))
        with gzip.open(tmp_path / "app.log.1.gz", "wb") as packed:
            packed.write(path.read_bytes())
        os.truncate(path, 0)
        append(path, lines(50, 100))
        await read_all(config, store)

    assert store.messages[: len(LONG)] == LONG
    assert sorted(store.messages[len(LONG) :]) == sorted(names(0, 100))


async def test_pages_that_left_the_cache_end_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel itself ends these reads early: before each, it drops what follows the first pages."""
    path, store, preadv, short = tmp_path / "a.log", Store(), os.preadv, list[int]()
    append(path, text())

    def read(file: int, buffers: list[bytearray], offset: int, flags: int) -> int:
        os.posix_fadvise(file, offset + 8192, 0, os.POSIX_FADV_DONTNEED)
        count = preadv(file, buffers, offset, flags)
        short.append(len(buffers[0]) - count)
        return count

    monkeypatch.setattr(os, "preadv", read)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    async with following(settings(path), store):
        await store.comes(len(LONG))

    if not any(short):
        pytest.skip("this file system keeps every page in memory")
    assert store.messages == LONG


# -- bytes that cannot be read -----------------------------------------------------------------------------------------


def bad_from(byte: int, fails: Callable[[], bytes]) -> Callable[..., bytes]:
    """A disk, or a file system, that does not give what is there from a byte on."""
    pread = os.pread

    def read(file: int, size: int, offset: int) -> bytes:
        return pread(file, min(size, byte - offset), offset) if offset < byte else fails()

    return read


def bad_sector() -> bytes:
    raise OSError(errno.EIO, "Input/output error")


def nothing() -> bytes:
    return b""


@pytest.mark.parametrize(
    ("fails", "problem"),
    [(bad_sector, "Input/output error"), (nothing, "it has 5000 bytes, but cannot be read beyond byte 2012")],
)
@pytest.mark.usefixtures("regular_scans_come_soon")
async def test_bytes_that_cannot_be_read_are_told_of_and_read_once_they_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Callable[[], bytes], problem: str
) -> None:
    path, store = tmp_path / "a.log", Store()
    append(path, "".join(f"line {number:04}\n" for number in range(500)))
    monkeypatch.setattr(content, "_NOWAIT", None)
    with monkeypatch.context() as broken:
        broken.setattr(os, "pread", bad_from(2012, fails))
        async with following(settings(path), store):
            await store.until(lambda: store.problems == [f"{path}: {problem}"])
            assert store.messages == [f"line {number:04}" for number in range(201)]
            broken.undo()
            await store.until(lambda: store.count == 500 and store.problem is None)

    assert store.messages == [f"line {number:04}" for number in range(500)]


async def test_an_unfinished_event_of_a_file_that_cannot_be_read_is_tried_as_calmly_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, store, woken = tmp_path / "a.log", Store(), list[str]()
    append(path, "a\n b\n")
    monkeypatch.setattr(tailer, "SAFETY", 0.3)
    monkeypatch.setattr(content, "_NOWAIT", None)
    wake = Turns.wake

    def noted(turns: Turns[Stream], stream: Stream) -> None:
        woken.append(stream.key)
        wake(turns, stream)

    async with following(settings(path, multiline=Multiline(pattern=r"^\s", timeout=Duration(0.05))), store) as source:
        with monkeypatch.context() as broken:
            await becomes(lambda: bool(source._followed.pending))
            broken.setattr(os, "pread", bad_from(0, bad_sector))
            await store.until(lambda: store.problem == f"{path}: Input/output error")
            await becomes(lambda: not source._followed.pending)  # its time came: from now on only scans try it
            broken.setattr(Turns, "wake", noted)
            scans = source._followed.scans
            await becomes(lambda: source._followed.scans >= scans + 3)
            assert len(woken) <= source._followed.scans - scans
        await store.comes(1)

    assert store.messages == ["a\n b"]


# -- forgotten wake-ups ------------------------------------------------------------------------------------------------


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first three wake-ups of each stream are lost."""
    wake, lost = Turns.wake, Counter[str]()

    def forget(turns: Turns[Stream], stream: Stream) -> None:
        lost[stream.key] += 1
        if lost[stream.key] > 3:
            wake(turns, stream)

    monkeypatch.setattr(Turns, "wake", forget)


@pytest.mark.usefixtures("forgotten", "regular_scans_come_soon")
async def test_a_forgotten_wake_up_costs_one_regular_scan(tmp_path: Path) -> None:
    append(tmp_path / "a.log", lines(0, 3))
    store = Store()
    async with following(settings(tmp_path / "*.log"), store):
        await store.comes(3)

    assert store.messages == names(0, 3)


@pytest.mark.usefixtures("forgotten")
async def test_one_shot_use_does_not_end_before_every_file_was_read_to_its_size(tmp_path: Path) -> None:
    append(tmp_path / "a.log", lines(0, 3))
    store = Store()

    assert await read_all(settings(tmp_path / "*.log"), store) == names(0, 3)


@pytest.mark.usefixtures("regular_scans_come_soon")
async def test_a_file_that_was_elsewhere_for_an_instant_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renamed away and back between a scan and the turn: for the next scan nothing has changed."""
    append(tmp_path / "a.log", lines(0, 3))
    store, open_content = Store(), open_files.open_content
    away = [content.Moved(errno.ENOENT, "another file is there") for _ in range(2)]

    def open_once_it_is_back(path: str, file: content.File, **more: Any) -> content.Content:
        if away:
            raise away.pop()
        return open_content(path, file, **more)

    monkeypatch.setattr(open_files, "open_content", open_once_it_is_back)
    async with following(settings(tmp_path / "*.log"), store):
        await store.comes(3)

    assert (store.messages, store.problems, away) == (names(0, 3), [], [])


@pytest.mark.usefixtures("regular_scans_come_soon")
async def test_a_file_that_was_read_to_its_size_is_left_alone_by_regular_scans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "whole.log", lines(0, 3))
    append(tmp_path / "part.log", "part of a line")
    append(tmp_path / "packed.log", gzip.compress(lines(3, 6).encode()))
    sizes = {path.stat().st_size for path in tmp_path.iterdir()}  # noqa: ASYNC240 - three small files
    store, turns = Store(), list[str]()
    async with following(settings(tmp_path / "*.log"), store) as source:
        await becomes(
            lambda: {s.place.done or s.sighting.rested for s in source._followed.known.by_file.values()} == sizes
        )
        monkeypatch.setattr(Turns, "wake", lambda _, stream: turns.append(stream.path))
        scans = source._followed.scans
        await becomes(lambda: source._followed.scans >= scans + 3)

    assert turns == []


async def test_the_last_line_of_a_rotated_file_does_not_wait_until_its_successor_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy successor may never rest."""
    path, store = tmp_path / "app.log", Store()
    append(path, "first\nlast")
    async with following(settings(tmp_path / "app.log*"), store):
        await store.comes(1)
        monkeypatch.setattr(turn.Turning, "_rest", lambda *_, **__: None)
        path.rename(tmp_path / "app.log.1")
        append(path, lines(0, 3))
        await store.comes(5)

    assert sorted(store.messages) == sorted(["first", "last", *names(0, 3)])


# -- files that cannot be read for a while -----------------------------------------------------------------------------


async def test_one_read_that_fails_does_not_give_up_a_rotated_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read, fails = tmp_path / "a.log", os.pread, 0
    append(path, lines(0, 3))
    store = Store()

    def fail_once(fd: int, size: int, offset: int) -> bytes:
        nonlocal fails
        if fails:
            fails -= 1
            raise OSError(errno.EIO, "Input/output error")
        return read(fd, size, offset)

    monkeypatch.setattr(content, "_NOWAIT", None)
    monkeypatch.setattr(os, "pread", fail_once)
    async with following(settings(path), store):
        await store.comes(3)
        path.rename(tmp_path / "a.old")
        append(path, lines(3, 4))
        await store.comes(4)
        fails = 1
        append(tmp_path / "a.old", lines(4, 7))
        await store.comes(7)

    assert sorted(store.messages) == names(0, 7)
    assert fails == 0


async def test_a_file_that_is_another_one_whenever_it_is_opened_is_told_of_and_looked_for_calmly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = 0

    def moved(path: str, file: Any, **more: Any) -> content.Content:
        nonlocal opened
        opened += 1
        raise content.Moved(errno.ENOENT, "another file is there")

    monkeypatch.setattr(tailer, "SAFETY", 0.5)
    monkeypatch.setattr(open_files, "open_content", moved)
    append(tmp_path / "a.log", lines(0, 3))
    store = Store()
    async with following(settings(tmp_path / "a.log"), store):
        await store.until(lambda: bool(store.problems))
        assert "another file is there whenever it is opened" in (store.problems[-1] or "")
        before, began = opened, trio.current_time()
        await trio.testing.wait_all_tasks_blocked(0.3)
        took = trio.current_time() - began

    assert opened - before <= 1 + took / tailer.SAFETY, "no more often than names are scanned"


# -- what was seen of no use any more ----------------------------------------------------------------------------------


async def test_a_file_that_grows_while_it_is_first_looked_at_is_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, store, head = tmp_path / "a.log", Store(), content.Plain.head
    append(path, lines(0, 3))

    def late(plain: content.Plain) -> bytes:
        if path.stat().st_size < 1000:
            append(path, lines(3, 6))
        return head(plain)

    monkeypatch.setattr(content.Plain, "head", late)
    async with following(settings(path), store) as source:
        await store.comes(3)
        append(path, lines(6, 9))
        await store.until(lambda: "line 8" in store.messages)
        assert len(source._followed.known.streams) == 1


async def test_another_content_is_noticed_though_the_file_was_moved_when_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes before the offset are the same; the first ones are not."""
    path, moved, store, see = tmp_path / "a.log", tmp_path / "b.log", Store(), reader.Reader.see
    alike = "x" * 2000 + "\n"
    append(path, lines(0, 1) + alike)

    async def moves(self: reader.Reader, wishes: Any) -> Any:
        seen = await see(self, wishes)
        if path.exists():
            path.rename(moved)
            self._followed.known.move(wishes[0].stream, str(moved))
        return seen

    async with following(settings(tmp_path / "*.log"), store) as source:
        await store.comes(2)
        await source._reader.turns.quiet()
        monkeypatch.setattr(reader.Reader, "see", moves)
        source._reader.open_files.close(next(iter(source._followed.known.by_file.values())))
        with path.open("r+b") as file:
            file.write((lines(1, 2) + alike + lines(2, 3)).encode())
        await store.until(lambda: "line 2" in store.messages)

    assert "line 1" in store.messages
