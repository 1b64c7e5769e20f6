"""A copy is made in pieces, and its original is truncated or lost while the two are compared."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from shipper_plugins.inputs.tail import content, copies, reader
from tests.plugins.tail import Store, append, becomes, following, lines, names, settings


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
        await becomes(lambda: all(s.kinship.original is None for s in source._followed.known.by_file.values()))
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
        await becomes(lambda: all(s.kinship.original is None for s in source._followed.known.by_file.values()))
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
        await becomes(lambda: all(s.kinship.original is None for s in source._followed.known.by_file.values()))
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
        original = source._followed.known.at(str(path))
    assert original is not None

    def late(plain: content.Plain) -> Any:
        os.truncate(path, 0)
        return end(plain)

    monkeypatch.setattr(content.Plain, "end", late)
    status = copied.stat()
    found = copies.compare(str(copied), (status.st_dev, status.st_ino), original.remembered())

    assert found.verdict is copies.Verdict.STALE
