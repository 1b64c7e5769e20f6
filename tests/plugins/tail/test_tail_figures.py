"""What a `file` input says of itself in numbers: what it follows, and what of that is not read."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.tail import tailer
from shipper_plugins.tail.identity import Identity
from shipper_plugins.tail.place import Place
from shipper_plugins.tail.sighting import Sighting
from shipper_plugins.tail.stream import Stream
from tests.plugins.running import becomes
from tests.plugins.tail.tailing import Store, append, following, lines, settings


@pytest.fixture(autouse=True)
def regular_scans_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailer, "SAFETY", 0.05)


async def test_files_are_counted_until_they_are_gone(tmp_path: Path) -> None:
    for name in "abc":
        append(tmp_path / f"{name}.log", lines(0, 10))
    store = Store()
    async with following(settings(tmp_path / "*.log"), store) as source:
        await store.comes(30)
        await becomes(lambda: source.figures() == {"files": 3, "unread_bytes": 0})
        (tmp_path / "a.log").unlink()
        await becomes(lambda: source.figures() == {"files": 2, "unread_bytes": 0})


async def test_what_the_queue_has_no_room_for_is_unread(tmp_path: Path) -> None:
    store = Store()
    append(tmp_path / "a.log", lines(0, 10))
    async with following(settings(tmp_path / "*.log"), store) as source:
        await store.comes(10)
        store.full = True
        append(tmp_path / "a.log", lines(10, 100))
        await becomes(lambda: source.figures()["unread_bytes"] == len(lines(10, 100)))
        store.full = False
        await store.comes(100)
        await becomes(lambda: source.figures()["unread_bytes"] == 0)


async def test_a_line_without_its_end_is_unread_and_so_is_a_truncated_file_from_its_beginning(tmp_path: Path) -> None:
    path, store = tmp_path / "a.log", Store()
    append(path, "one\ntwo")
    async with following(settings(path), store) as source:
        await store.comes(1)
        await becomes(lambda: source.figures()["unread_bytes"] == len("two"))
        os.truncate(path, 0)
        append(path, "t")
        await becomes(lambda: source.figures()["unread_bytes"] == 1)


async def test_of_a_compressed_file_nothing_is_left_once_it_was_read_to_its_end(tmp_path: Path) -> None:
    store = Store()
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(lines(0, 50).encode()))
    async with following(settings(tmp_path / "*.gz"), store) as source:
        await store.comes(50)
        await becomes(lambda: source.figures() == {"files": 1, "unread_bytes": 0})


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.booleans(), st.none() | st.integers(0, 1 << 40))
def test_what_is_unread_is_what_size_and_offset_say(size: int, offset: int, compressed: bool, done: int | None) -> None:
    identity, place = Identity("a", (0, 1), compressed=compressed), Place(offset, done=done)
    stream = Stream("a", identity, place, sighting=Sighting(size))

    assert 0 <= stream.unread <= size
    assert compressed or size == done or stream.unread == max(0, size - offset)
    assert size != done or stream.unread == 0
