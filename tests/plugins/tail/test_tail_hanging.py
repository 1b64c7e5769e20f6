"""A file system that hangs holds up the input that follows files there, which says so: nothing and nobody else."""

from __future__ import annotations

import errno
import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper_plugins.file.input import FileInput
from shipper_plugins.tail import calls, open_files, tailer
from tests.hanging_files import CALLS, hanging
from tests.plugins.running import becomes
from tests.plugins.tail.tailing import Store, append, following, lines, names, read_all, settings

DURING_A_TURN = ("open", "fstat", "pread")
DURING_A_SCAN = ("lstat", "listdir", "add_watch", "statfs")


@pytest.fixture(autouse=True)
def silence_is_told_of_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "SILENT", 0.05)
    monkeypatch.setattr(calls, "_LOOK", 0.02)


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A directory with a file; another one is `local`."""
    (tmp_path / "remote").mkdir()
    append(tmp_path / "remote" / "b.log", lines(0, 3))
    return tmp_path / "remote"


@pytest.mark.parametrize("call", [*DURING_A_TURN, *DURING_A_SCAN])
async def test_a_call_that_hangs_holds_up_its_own_input_which_names_the_path(
    tmp_path: Path, remote: Path, call: str
) -> None:
    local, healthy, ill = tmp_path / "a.log", Store(), Store()
    with hanging(remote, call) as fake:
        async with following(settings(local), healthy), following(settings(remote / "*.log"), ill):
            await ill.until(lambda: "does not answer" in (ill.problem or ""))
            for number in range(10):
                append(local, lines(number, number + 1))
                await healthy.comes(number + 1)
            assert str(remote) in (ill.problem or "")
            assert ill.count == 0
            fake.go_on()
            await ill.until(lambda: ill.count == 3 and ill.problem is None)

    assert healthy.messages == names(0, 10)
    assert ill.messages == names(0, 3)
    assert not [problem for problem in healthy.problems if str(remote) in (problem or "")]


@pytest.mark.parametrize("call", CALLS)
async def test_an_input_whose_calls_hang_is_cancelled_at_once(remote: Path, call: str) -> None:
    store = Store()
    with hanging(remote, call) as fake:
        async with following(settings(remote / "*.log"), store):
            await becomes(lambda: fake.under_way > 0 or store.count == 3)
            hung = fake.under_way > 0
        assert (fake.under_way > 0) == hung or call == "close"
        fake.go_on()
        await becomes(lambda: not fake.under_way)


@pytest.mark.parametrize("call", ["open", "fstat", "pread", "add_watch"])
async def test_what_a_thread_that_was_left_behind_had_open_is_closed_when_it_comes_back(
    remote: Path, call: str
) -> None:
    with hanging(remote, call) as fake:
        before = set(os.listdir("/proc/self/fd"))
        async with following(settings(remote / "*.log"), Store()):
            await becomes(lambda: fake.under_way > 0)
        fake.go_on()
        await becomes(lambda: set(os.listdir("/proc/self/fd")) <= before)


async def take_all_threads(fake: Any, config: FileInput) -> None:
    """By one input after the other, each of which leaves behind a call that hangs."""
    for _ in range(calls.THREADS):
        async with following(config, Store()):
            await becomes(lambda before=fake.under_way: fake.under_way > before)  # type: ignore[misc]


async def test_revisions_that_bring_back_an_input_that_hangs_make_no_more_threads(remote: Path) -> None:
    config = settings(remote / "*.log")
    with hanging(remote, "lstat") as fake:
        await take_all_threads(fake, config)
        store = Store()
        async with following(config, store):
            await store.until(lambda: "does not answer" in (store.problem or ""))
            assert fake.most == calls.THREADS
            fake.go_on()
            await store.comes(3)

    assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0


async def test_an_input_with_the_same_name_and_other_paths_has_its_own_threads(tmp_path: Path, remote: Path) -> None:
    """Who mends a policy need not wait for what it said before."""
    append(tmp_path / "a.log", lines(0, 3))
    with hanging(remote, "lstat") as fake:
        await take_all_threads(fake, settings(remote / "*.log"))
        store = Store()
        async with following(settings(tmp_path / "a.log"), store):
            await store.comes(3)


async def test_files_that_cannot_be_closed_hold_up_nothing(tmp_path: Path, remote: Path) -> None:
    """Some file systems have something to say to a close."""
    append(remote / "c.log", lines(3, 6))
    store = Store()
    with hanging(remote, "close") as fake:
        async with following(settings(remote / "*.log"), store):
            await store.comes(6)
            (remote / "b.log").unlink()
            await becomes(lambda: fake.under_way > 0)
            append(remote / "c.log", lines(6, 9))
            await store.comes(9)


@pytest.mark.parametrize("options", [{}, {"from_": "end"}, {"stop_at_end": True}])
async def test_no_call_about_a_followed_file_is_made_in_the_thread_of_the_loop(
    tmp_path: Path, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through all that a file goes through: rotation by name and by copy, compression, truncation, deletion."""
    monkeypatch.setattr(tailer, "SAFETY", 0.05)
    path, store = tmp_path / "app.log", Store()
    append(path, lines(0, 100))
    (tmp_path / "link.log").symlink_to(path)
    with hanging(tmp_path) as fake:
        if options.get("stop_at_end"):
            await read_all(settings(tmp_path / "*.log*"), store)
        async with following(settings(tmp_path / "*.log*", **options), store):
            await becomes(lambda: "begun" in store.stored or store.count >= 100)
            append(path, lines(100, 200))
            if not options.get("stop_at_end"):
                await store.until(lambda: "line 199" in store.messages)
                path.rename(tmp_path / "app.log.1")
                append(path, lines(200, 300))
                await store.until(lambda: "line 299" in store.messages)
                await trio.to_thread.run_sync(compress, tmp_path / "app.log.1")
                os.truncate(path, 0)
                append(path, lines(300, 305))
                await store.until(lambda: "line 304" in store.messages)
                await trio.to_thread.run_sync(path.unlink)
                append(path, lines(305, 310))
                await store.until(lambda: "line 309" in store.messages)

    assert fake.in_the_loop == []


def compress(path: Path) -> None:
    with gzip.open(f"{path}.gz", "wb") as packed:
        packed.write(path.read_bytes())
    path.unlink()


def test_a_call_that_hangs_holds_up_no_end_of_the_process(remote: Path) -> None:
    script = f"""
import os, time, trio
from tests.plugins.tail.tailing import Store, following, settings
real = os.open
os.open = lambda path, *rest, **more: time.sleep(300) if "b.log" in str(path) else real(path, *rest, **more)
async def main():
    async with following(settings("{remote}/*.log"), Store()):
        await trio.sleep(0.5)
trio.run(main)
"""
    ended = subprocess.run([sys.executable, "-c", script], timeout=60, check=False, capture_output=True)

    assert (ended.returncode, ended.stderr) == (0, b"")


async def test_files_whose_close_fails_are_closed_with_those_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a network's file system that is gone: the descriptor is free all the same."""
    monkeypatch.setattr(calls, "SILENT", 30.0)  # a busy machine is no silent file system
    monkeypatch.setattr(open_files, "OPEN_FILES", 2)
    close, before = os.close, set(os.listdir("/proc/self/fd"))

    def fails(descriptor: int) -> None:
        is_followed = os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(tmp_path))
        close(descriptor)
        if is_followed:
            raise OSError(errno.EIO, "the server is gone")

    for number in range(10):
        append(tmp_path / f"{number}.log", lines(number, number + 1))
    store = Store()
    with monkeypatch.context() as gone:
        gone.setattr(os, "close", fails)
        async with following(settings(tmp_path / "*.log"), store) as source:
            await store.comes(10)
            for number in range(10):
                append(tmp_path / f"{number}.log", lines(10 + number, 11 + number))
            await store.comes(20)
            (tmp_path / "0.log").unlink()
            (tmp_path / "1.log").unlink()
            await becomes(lambda: len(source._followed.known.by_file) == 8 and source._reader.open_files._closing == 0)

    await becomes(lambda: set(os.listdir("/proc/self/fd")) <= before)
    assert sorted(store.messages) == sorted(names(0, 20))
    assert store.problems == []


async def test_files_are_closed_where_no_thread_can_be_started_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "a.log", lines(0, 3))
    store, before = Store(), set(os.listdir("/proc/self/fd"))
    async with following(settings(tmp_path / "*.log"), store):
        await store.comes(3)
        monkeypatch.setattr(trio.lowlevel, "start_thread_soon", no_thread)

    await becomes(lambda: set(os.listdir("/proc/self/fd")) <= before)  # a thread may be in the middle of a turn


def no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")
