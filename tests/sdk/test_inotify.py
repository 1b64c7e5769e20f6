from __future__ import annotations

from pathlib import Path

import pytest
import trio

from shipper.sdk.inotify import Inotify, Mask


async def test_a_file_renamed_into_a_watched_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    with Inotify() as inotify:
        watch = inotify.add(tmp_path, Mask.MOVED_TO)
        (tmp_path / "new").rename(tmp_path / "policy.yaml")
        with trio.fail_after(60):
            events = await inotify.receive()

        assert [(watch, Mask.MOVED_TO, "policy.yaml")] == events


async def test_receive_waits_until_something_happens(tmp_path: Path) -> None:
    with Inotify() as inotify:
        inotify.add(tmp_path, Mask.CREATE)
        seen: list[str] = []

        async def listen() -> None:
            seen.extend(name for _, _, name in await inotify.receive())

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen)
                await trio.testing.wait_all_tasks_blocked()
                assert not seen
                (tmp_path / "a").touch()

        assert seen == ["a"]


async def test_many_events_come_with_their_names_in_order(tmp_path: Path) -> None:
    names = [f"{'x' * (n % 40)}{n}" for n in range(500)]
    seen: list[str] = []
    with Inotify() as inotify:
        inotify.add(tmp_path, Mask.CREATE)
        for name in names:
            (tmp_path / name).touch()
        with trio.fail_after(60):
            while len(seen) < len(names):
                seen.extend(name for _, _, name in await inotify.receive())

    assert names == seen


async def test_close_wakes_a_waiting_receive(tmp_path: Path) -> None:
    inotify = Inotify()
    inotify.add(tmp_path, Mask.CREATE)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_expect_closed, inotify)
            await trio.testing.wait_all_tasks_blocked()
            inotify.close()


async def test_a_path_that_does_not_exist_is_an_error_that_names_it(tmp_path: Path) -> None:
    with Inotify() as inotify, pytest.raises(FileNotFoundError, match="absent"):
        inotify.add(tmp_path / "absent", Mask.CREATE)


async def _expect_closed(inotify: Inotify) -> None:
    with pytest.raises(trio.ClosedResourceError):
        await inotify.receive()
