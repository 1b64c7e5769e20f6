"""What a thread sees of the files of streams."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shipper_plugins.tail import content, reader
from shipper_plugins.tail.content import Moved
from shipper_plugins.tail.identity import Identity
from shipper_plugins.tail.open_files import OpenFiles
from shipper_plugins.tail.sight import Wish, at_hand, see
from shipper_plugins.tail.stream import Stream
from tests.plugins.tail.tailing import Store, append, following, lines, names, settings


def wish(path: Path) -> Wish:
    found = path.stat()
    wished = Wish.of(Stream(str(path), Identity(str(path), (found.st_dev, found.st_ino))))
    assert wished is not None
    return wished


def test_a_file_that_is_gone_does_not_keep_what_was_seen_of_others(tmp_path: Path) -> None:
    """Not even until Python's collector comes: up to a chunk of each look would wait for that."""
    paths = tmp_path / "a.log", tmp_path / "b.log"
    for path in paths:
        path.write_text("line\n" * 1000)
    wishes = [wish(path) for path in paths]
    os.unlink(paths[1])
    gc.disable()
    try:
        open_files = OpenFiles(lambda stream: False)
        seen, _ = see(wishes, open_files, 1 << 20)
        kinds = [type(one) for one in seen]
        moved = weakref.ref(seen[1])
        open_files.close(wishes[0].stream)
        del seen

        assert kinds[1] is Moved
        assert moved() is None
    finally:
        gc.enable()


async def test_a_line_of_an_open_file_is_read_without_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a quiet host a thread and back took as long as all that is done with the line."""
    monkeypatch.setattr(content, "_NOWAIT", 0)  # as if every page were in memory, on every file system
    store, in_threads = Store(), list[str]()

    def noted(wishes: Sequence[Wish], *more: Any) -> Any:
        in_threads.extend(one.path for one in wishes if one.offset == len(lines(0, 2)))
        return see(wishes, *more)

    monkeypatch.setattr(reader, "see", noted)
    append(tmp_path / "a.log", lines(0, 1))
    async with following(settings(tmp_path / "*.log"), store):
        for number in (1, 2, 3):
            await store.comes(number)
            append(tmp_path / "a.log", lines(number, number + 1))
        await store.comes(4)

    assert store.messages == names(0, 4)
    assert in_threads == []


def test_what_another_host_has_is_not_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "_NOWAIT", 0)
    path = tmp_path / "a.log"
    path.write_text("line\n")
    for is_local in (True, False):
        monkeypatch.setattr(content, "is_local", lambda file, is_local=is_local: is_local)
        wished, open_files = wish(path), OpenFiles(lambda stream: False)
        see([wished], open_files, 1 << 20)

        assert bool(at_hand([wished], open_files, 1 << 20)) == is_local


def test_a_file_that_became_shorter_is_not_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "_NOWAIT", 0)
    path = tmp_path / "a.log"
    path.write_text("line\n" * 1000)
    wished, open_files = wish(path), OpenFiles(lambda stream: False)
    see([wished], open_files, 1 << 20)
    further = replace(wished, offset=5000, wants_head=False)

    assert [one.look and one.look.at_end for one in at_hand([further], open_files, 1 << 20)] == [True]
    os.truncate(path, 4999)
    assert at_hand([further], open_files, 1 << 20) == []
