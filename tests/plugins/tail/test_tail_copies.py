"""A copy is made in pieces, and its original is truncated or lost while the two are compared."""

from __future__ import annotations

import errno
import gzip
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from shipper_plugins.tail import content, copies, open_files, reader
from shipper_plugins.tail.identity import Remembered
from tests.plugins.running import becomes
from tests.plugins.tail.tailing import Store, append, following, lines, names, read_all, settings, stream_of


async def on_its_own(source: Any) -> None:
    """No file is a copy of another any more."""
    await becomes(lambda: all(s.kinship.original is None for s in source._followed.known.by_file.values()))


def compared(copied: Path, original: Remembered) -> copies.Compared:
    status = copied.stat()
    return copies.compare(str(copied), (status.st_dev, status.st_ino), original)


async def test_a_copy_that_grew_until_its_original_was_truncated_gives_nothing_twice(tmp_path: Path) -> None:
    """A copy of a large file takes a while, and is compared meanwhile."""
    path, copied, store = tmp_path / "a.log", tmp_path / "a.log.1", Store()
    append(path, lines(0, 100))
    async with following(settings(tmp_path / "*"), store) as source:
        await store.comes(100)
        append(copied, lines(0, 50))
        await becomes(lambda: any(s.place.done for s in source._followed.known.by_file.values()))
        append(copied, lines(50, 100))
        os.truncate(path, 0)
        append(path, "new\n")
        await store.comes(101)
        await on_its_own(source)
        append(copied, "own\n")
        await store.until(lambda: "own" in store.messages)

    assert store.messages == [*names(0, 100), "new", "own"]


async def test_a_copy_that_was_whole_when_its_original_was_truncated_goes_on_by_itself(tmp_path: Path) -> None:
    path, copied, store = tmp_path / "a.log", tmp_path / "a.log.1", Store()
    append(path, lines(0, 100))
    async with following(settings(tmp_path / "*"), store) as source:
        await store.comes(100)
        append(copied, lines(0, 100))
        await becomes(lambda: any(s.place.done for s in source._followed.known.by_file.values()))
        os.truncate(path, 0)
        append(path, "new\n")
        await store.comes(101)
        await on_its_own(source)
        append(copied, "own\n")
        await store.comes(102)

    assert store.messages == [*names(0, 100), "new", "own"]


async def test_an_original_that_is_lost_while_its_copy_is_compared_is_compared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copied, store = tmp_path / "a.log", tmp_path / "a.log.1", Store()
    compare, compared, go_on = reader.compare, threading.Event(), threading.Event()

    def slowly(*args: Any) -> copies.Compared:
        found = compare(*args)
        if found.verdict is copies.Verdict.COVERED:
            compared.set()
            go_on.wait(30)
        return found

    monkeypatch.setattr(reader, "compare", slowly)
    append(path, lines(0, 50))
    async with following(settings(tmp_path / "*"), store) as source:
        await store.comes(50)
        append(copied, lines(0, 50))
        await becomes(compared.is_set)
        append(path, lines(50, 100))
        append(copied, lines(50, 100))
        await store.comes(100)
        os.truncate(path, 0)
        append(path, "new\n")
        await store.comes(101)
        go_on.set()
        await on_its_own(source)
        append(copied, "own\n")
        await store.until(lambda: "own" in store.messages)

    assert store.messages == [*names(0, 100), "new", "own"]


async def test_an_original_that_is_truncated_while_it_is_compared_is_no_other_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copied, store, end = tmp_path / "a.log", tmp_path / "copy", Store(), content.Plain.end
    append(path, lines(0, 100))
    append(copied, lines(0, 100))
    async with following(settings(path), store) as source:
        await store.comes(100)
        await source._reader.turns.quiet()
        original = stream_of(source, path).remembered()

    def late(plain: content.Plain) -> Any:
        os.truncate(path, 0)
        return end(plain)

    monkeypatch.setattr(content.Plain, "end", late)

    assert compared(copied, original).verdict is copies.Verdict.STALE


async def test_a_compressed_copy_that_gets_its_end_during_the_comparison_is_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, packed, has_read = tmp_path / "a.log", tmp_path / "a.log.1.gz", copies._has_read
    append(path, lines(0, 3000))
    whole = gzip.compress(path.read_bytes())
    packed.write_bytes(whole[: len(whole) // 2])
    gone = await _read_and_gone(path, 3000)

    def late(*args: Any) -> bool:
        found = has_read(*args)
        packed.write_bytes(whole)
        return found

    monkeypatch.setattr(copies, "_has_read", late)

    assert compared(packed, gone) == copies.Compared(copies.Verdict.COVERED, gone.place)


async def test_an_original_and_its_copy_that_grow_during_the_comparison_are_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copied, store, head = tmp_path / "a.log", tmp_path / "a.log.1", Store(), content.Plain.head
    append(path, lines(0, 5))
    append(copied, lines(0, 5))
    async with following(settings(path), store) as source:
        await store.comes(5)
        await source._reader.turns.quiet()
        original = stream_of(source, path).remembered()

    def early(plain: content.Plain) -> bytes:
        found = head(plain)
        append(path, "more\n")
        append(copied, "more\n")
        return found

    monkeypatch.setattr(content.Plain, "head", early)

    assert compared(copied, original).verdict is copies.Verdict.WAITS


async def _read_and_gone(path: Path, count: int) -> Remembered:
    """What is remembered of a file with so many lines that was read, and removed."""
    store = Store()
    async with following(settings(path), store) as source:
        await store.comes(count)
        await source._reader.turns.quiet()
        (stream,) = source._followed.known.streams.values()
        os.unlink(path)
        await becomes(lambda: stream.file is None)
    return stream.remembered()


@pytest.mark.parametrize(
    ("packed", "is_removed", "count"),
    [
        ("app.log.1.gz", False, 5),
        ("app.log.1.gz", True, 3000),
        ("app.log.2.gz", False, 3000),
        ("app.log.2.gz", True, 5),
    ],
)
async def test_a_file_that_is_compressed_during_the_first_look_at_it_gives_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: str, is_removed: bool, count: int
) -> None:
    """On a busy machine that look takes longer than to compress it, and then nothing is known of it but its name."""
    path, store = tmp_path / "app.log.1", Store()
    first, go_on = _held(monkeypatch, path)
    append(path, lines(0, count) + "last")
    whole = path.read_bytes()
    async with following(settings(tmp_path / "*"), store) as source:
        await becomes(first.is_set)
        (tmp_path / packed).write_bytes(gzip.compress(whole))
        if is_removed:
            path.unlink()
        await becomes(lambda: any(s.kinship.original or s.offset for s in source._followed.known.streams.values()))
        go_on.set()
        await store.comes(count)
        if not is_removed:
            path.unlink()
        await store.comes(count + 1)
        await becomes(lambda: all(s.kinship.settled for s in source._followed.known.streams.values()))
        await source._reader.turns.quiet()

    assert store.messages == [*names(0, count), "last"]


async def test_a_compressed_copy_that_is_looked_at_before_its_original_gives_nothing_twice(tmp_path: Path) -> None:
    """The globs say which one is looked at first."""
    path, store = tmp_path / "app.log", Store()
    append(path, lines(0, 3000))
    (tmp_path / "app.log.gz").write_bytes(gzip.compress(path.read_bytes()))

    assert await read_all(settings(tmp_path / "*.gz", tmp_path / "*.log"), store) == names(0, 3000)
    assert await read_all(settings(tmp_path / "*.gz", tmp_path / "*.log"), store) == []


async def test_a_compressed_file_beside_one_that_was_never_readable_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, store = tmp_path / "app.log", Store()
    append(path, lines(0, 3000))
    (tmp_path / "app.log.gz").write_bytes(gzip.compress(path.read_bytes()))

    def refused(at: str, *args: Any, **options: Any) -> content.Content:
        if at == str(path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return content.open_content(at, *args, **options)

    for module in (open_files, copies):
        monkeypatch.setattr(module, "open_content", refused)
    async with following(settings(tmp_path / "*"), store):
        await store.comes(3000)
        await store.until(lambda: str(path) in (store.problem or ""))

    assert store.messages == names(0, 3000)


def _held(monkeypatch: pytest.MonkeyPatch, path: Path) -> tuple[threading.Event, threading.Event]:
    """The file was opened for the first time; and what lets it be looked at."""
    opened, go_on = threading.Event(), threading.Event()

    def held(at: str, *args: Any, **options: Any) -> content.Content:
        found = content.open_content(at, *args, **options)
        if at == str(path) and not opened.is_set():
            opened.set()
            go_on.wait(60)
        return found

    monkeypatch.setattr(open_files, "open_content", held)
    return opened, go_on
