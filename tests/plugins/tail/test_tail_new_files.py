"""What a file costs that comes and goes, beside its lines: counted, not timed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper_plugins.tail import tailer
from shipper_plugins.tail.calls import Calls
from shipper_plugins.tail.discovery import Globs
from tests.plugins.running import becomes
from tests.plugins.tail.tailing import Store, append, following, lines, names, settings


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What ran in a thread of an input, by its function."""
    counted, run = Counter[str](), Calls.run

    async def noted(self: Calls, path: str, work: Callable[[], Any]) -> Any:
        counted[getattr(work, "func", work).__name__] += 1
        return await run(self, path, work)

    monkeypatch.setattr(Calls, "run", noted)
    return counted


async def test_names_are_looked_at_watched_and_sought_in_one_call(tmp_path: Path, in_threads: Counter[str]) -> None:
    store = Store()
    append(tmp_path / "0.log", lines(0, 1))
    async with following(settings(tmp_path / "*.log"), store) as source:
        await store.comes(1)
        append(tmp_path / "1.log", lines(1, 2))
        await store.comes(2)
        (tmp_path / "0.log").unlink()
        await becomes(lambda: source.figures()["files"] == 1)

        assert in_threads.keys() == {"_look", "see"}
        assert in_threads["_look"] - source._followed.scans <= 1  # one may be under way
    assert store.messages == names(0, 2)


def test_a_scan_asks_once_for_a_file_and_twice_for_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs").mkdir()
    for number in range(9):
        append(tmp_path / "logs" / f"{number}.log", lines(number, number + 1))
    (tmp_path / "logs" / "link.log").symlink_to(tmp_path / "logs" / "0.log")
    asked = Counter[str]()
    for name in ("stat", "lstat"):
        monkeypatch.setattr(os, name, _noted(getattr(os, name), asked))
    scan = Globs([f"{tmp_path}/logs/*.log"], ()).scan()
    monkeypatch.undo()

    assert [asked[f"{tmp_path}/logs/{number}.log"] for number in range(1, 9)] == [1] * 8
    assert asked[f"{tmp_path}/logs/link.log"] <= 3  # the third to see where it leads
    assert scan.files[f"{tmp_path}/logs/link.log"].target == f"{tmp_path}/logs/0.log"


def _noted(call: Callable[..., Any], asked: Counter[str]) -> Callable[..., Any]:
    def noted(path: Any, **more: Any) -> Any:
        asked[str(path)] += 1
        return call(path, **more)

    return noted


async def test_files_that_are_closed_together_take_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        append(tmp_path / f"{number}.log", lines(number, number + 1))
    store, begun, start = Store(), list[object](), trio.lowlevel.start_thread_soon
    async with following(settings(tmp_path / "*.log"), store) as source:
        await store.comes(9)
        await source._reader.turns.quiet()
        assert isinstance(source, tailer.Tailer)
        for stream in [*source._reader.open_files.streams()] * 2:
            source._followed.close(stream)

        def noted(*args: Any) -> None:
            begun.append(args)
            start(*args)

        monkeypatch.setattr(trio.lowlevel, "start_thread_soon", noted)
        source._act()
        monkeypatch.undo()
        assert len(begun) == 1
        await becomes(lambda: source._reader.open_files._closing == 0)
        assert not _open_below(tmp_path)
        append(tmp_path / "0.log", lines(9, 10))
        await store.comes(10)


def _open_below(directory: Path) -> list[str]:
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [link for link in links if os.path.lexists(link) and os.readlink(link).startswith(f"{directory}/")]
