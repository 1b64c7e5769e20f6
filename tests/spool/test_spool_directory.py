"""The state directory: who owns it, which generation counts, and what is kept back for a full disk."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.sdk.errors import StartFailed, StateBusy
from shipper.spool.directory import Ballast, StateDirectory, own
from shipper.spool.keys import StateKey
from shipper.spool.spool import open_spool
from tests.disks import fill, small_disk


@pytest.fixture
def directory(tmp_path: Path) -> Any:
    with own(tmp_path / "state") as directory:
        yield directory


def content(path: Path) -> dict[str, tuple[bytes, int]]:
    return {entry.name: (entry.read_bytes(), entry.stat().st_mtime_ns) for entry in path.iterdir()}


def test_a_new_directory_is_for_its_owner_alone(directory: StateDirectory) -> None:
    assert directory.path.stat().st_mode & 0o777 == 0o700


def test_every_file_is_for_its_owner_alone_whatever_the_umask(directory: StateDirectory) -> None:
    umask = os.umask(0)
    try:
        directory.write("x", b"")
        directory.ballast.restore()
        directory.begin_generation()
    finally:
        os.umask(umask)

    assert {path.stat().st_mode & 0o777 for path in directory.path.iterdir()} == {0o600}


def test_a_second_process_is_told_who_the_owner_is_and_changes_nothing(directory: StateDirectory) -> None:
    before = content(directory.path)
    program = "import sys, pathlib; from shipper.spool.directory import own; own(pathlib.Path(sys.argv[1])).__enter__()"
    command = [sys.executable, "-c", program, str(directory.path)]

    second = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (
        f"StateBusy: the state directory {directory.path} belongs to another process (pid {os.getpid()})"
        in second.stderr
    )
    assert content(directory.path) == before


def test_a_directory_is_free_again_when_its_owner_left_it(tmp_path: Path) -> None:
    for _ in range(2):
        with own(tmp_path / "state"), pytest.raises(StateBusy), own(tmp_path / "state"):
            pass


def die_while_owning(path: Path) -> None:
    with own(path):
        os._exit(9)


def test_an_owner_that_did_not_end_in_order_is_known_to_the_next_alone(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=die_while_owning, args=(tmp_path / "state",))
    process.start()
    process.join()
    with pytest.raises(StartFailed), own(tmp_path / "state"):
        raise StartFailed("this one has not begun anything")
    found = []
    for _ in range(2):
        with own(tmp_path / "state") as directory:
            found.append(directory.was_killed)

    assert found == [True, False]


def test_a_directory_is_free_again_when_its_owner_died(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=die_while_owning, args=(tmp_path / "state",))
    process.start()
    process.join()

    with own(tmp_path / "state"):
        pass


def test_a_file_in_the_place_of_the_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")

    with pytest.raises(StartFailed, match="is not a directory") as refused, own(tmp_path / "state"):
        pass
    assert refused.value.code == "state_unusable"


def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a directory away needs root")
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", 65534, 65534)

    with pytest.raises(StartFailed, match="another user") as refused, own(tmp_path / "state"):
        pass
    assert refused.value.code == "state_unusable"


def test_a_directory_that_is_a_link_works_like_its_target(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to("target")

    with own(tmp_path / "link") as directory:
        directory.write("x", b"content")

    assert (tmp_path / "target" / "x").read_bytes() == b"content"


def test_a_database_that_is_a_link_is_refused(directory: StateDirectory) -> None:
    directory.database(1).symlink_to("/etc/passwd")

    with pytest.raises(StartFailed, match="not a regular file"):
        directory.generations()


def test_no_other_file_is_followed_either(directory: StateDirectory, tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"content")
    for name in ("ballast", "x.tmp", "x"):
        (directory.path / name).symlink_to(tmp_path / "victim")

    with pytest.raises(OSError, match="symbolic link"):
        directory.ballast.restore()
    with pytest.raises(OSError, match="symbolic link"):
        directory.write("x", b"")
    with pytest.raises(OSError, match="symbolic link"):
        directory.read("x")
    assert (tmp_path / "victim").read_bytes() == b"content"


@pytest.mark.parametrize("name", ["state.key", "keyring", "keyring.copy", "keyring.tmp", "ballast", "spool-1.db-wal"])
async def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    async with open_spool(tmp_path / "state", None):
        pass
    (tmp_path / "state" / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "state" / name)

    with trio.fail_after(60), pytest.raises(StartFailed):
        async with open_spool(tmp_path / "state", [StateKey("new", bytes(32))]):
            pass


@pytest.mark.root
def test_a_file_that_another_user_put_there_is_refused(directory: StateDirectory) -> None:
    directory.write("state.key", b"")
    os.chown(directory.path / "state.key", 65534, 65534)

    with pytest.raises(StartFailed, match="another user"):
        directory.read("state.key")


def test_the_highest_complete_generation_is_the_last(directory: StateDirectory) -> None:
    for _ in range(11):
        number, _ = directory.begin_generation()
        directory.complete_generation(number)
    directory.begin_generation()

    assert directory.generations() == list(range(1, 12))


@pytest.mark.parametrize("trace", ["spool-41.db", "spool-41.db-wal", "spool-41.db.tmp", "quarantine-41.db"])
def test_no_trace_of_an_older_generation_meets_a_new_one(directory: StateDirectory, trace: str) -> None:
    (directory.path / trace).touch()

    number, _ = directory.begin_generation()

    assert number == (1 if trace.endswith(".tmp") else 42)


def test_leftovers_of_a_process_that_died_are_removed(directory: StateDirectory) -> None:
    for name in ("spool-3.db.tmp", "spool-3.db.tmp-journal", "keyring.tmp"):
        (directory.path / name).write_bytes(b"part")

    directory.clear_leftovers()

    assert [path.name for path in directory.path.iterdir()] == ["lock"]


@pytest.mark.parametrize("name", ["budget.tmp.2026.xlsx", "notes.tmp", "keyring.tmp.old", "exports.tmp"])
def test_what_somebody_else_put_there_stays(directory: StateDirectory, name: str) -> None:
    if name == "exports.tmp":
        (directory.path / name).mkdir()
    else:
        (directory.path / name).write_text("not yours")

    directory.clear_leftovers()
    directory.begin_generation()

    assert (directory.path / name).exists()


@pytest.mark.parametrize("way", ["file", "generation"])
def test_a_name_is_durable_before_anybody_relies_on_it(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    number, _ = directory.begin_generation()
    steps: list[str] = []
    sync, rename = os.fsync, os.rename

    def synced(fd: int) -> None:
        sync(fd)
        steps.append(f"synced {Path(os.readlink(f'/proc/self/fd/{fd}')).name}")

    def renamed(source: Path, target: Path) -> None:
        rename(source, target)
        steps.append(f"renamed to {target.name}")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    if way == "file":
        directory.write("keyring", b"content")
    else:
        directory.complete_generation(number)

    name = "keyring" if way == "file" else f"spool-{number}.db"
    assert steps == [f"synced {name}.tmp", f"renamed to {name}", "synced state"]


def test_a_generation_set_aside_keeps_its_bytes_and_its_wal(directory: StateDirectory) -> None:
    for suffix in ("", "-wal"):
        Path(f"{directory.database(3)}{suffix}").write_bytes(b"content" + suffix.encode())

    directory.set_aside(3)

    assert directory.generations() == []
    assert directory.aside(3).read_bytes() == b"content"
    assert Path(f"{directory.aside(3)}-wal").read_bytes() == b"content-wal"


def test_the_ballast_holds_real_blocks(directory: StateDirectory) -> None:
    assert directory.ballast.restore()
    assert (directory.path / "ballast").stat().st_blocks * 512 >= Ballast.SIZE


def test_the_ballast_is_given_up_in_steps_and_taken_back(directory: StateDirectory) -> None:
    directory.ballast.restore()

    steps = 0
    while directory.ballast.give():
        steps += 1

    assert steps == Ballast.SIZE // Ballast.STEP
    assert directory.ballast.missing() == Ballast.SIZE
    assert directory.ballast.restore()
    assert directory.ballast.missing() == 0


def test_disk_bytes_counts_every_file(directory: StateDirectory) -> None:
    before = directory.disk_bytes()
    for number in range(3):
        (directory.path / f"file-{number}").write_bytes(bytes(1000))

    assert directory.disk_bytes() - before == 3000


def test_disk_bytes_are_those_of_before_while_no_descriptor_is_free(directory: StateDirectory) -> None:
    before = directory.disk_bytes()
    (directory.path / "more").write_bytes(bytes(1000))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert directory.disk_bytes() == before > 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert directory.disk_bytes() == before + 1000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, "12m") as disk:
        yield disk


@pytest.mark.root
def test_a_file_is_replaced_on_a_full_disk_with_the_ballasts_room(disk: Path) -> None:
    with own(disk / "state") as directory:
        assert directory.ballast.restore()
        assert directory.has_room()
        fill(disk / "filler")
        assert not directory.has_room()

        directory.write("x", bytes(100_000))

        assert directory.read("x") == bytes(100_000)
        assert 0 < directory.ballast.missing() <= Ballast.STEP
        assert not directory.ballast.restore()
        (disk / "filler").unlink()
        assert directory.ballast.restore()


@pytest.mark.root
def test_a_read_only_disk_is_a_clear_error(disk: Path) -> None:
    with own(disk / "state"):
        pass
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)

    with pytest.raises(StartFailed, match="Read-only file system") as refused, own(disk / "state"):
        pass
    assert refused.value.code == "state_unusable"


def test_a_file_that_finds_no_room_gets_that_of_the_ballast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter(range(2))
    write = os.write

    def full(fd: int, content: memoryview) -> int:
        if next(failures, None) is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, content)

    with own(tmp_path / "state") as directory:
        directory.ballast.restore()
        monkeypatch.setattr(os, "write", full)
        directory.write("keyring", b"keys")

        assert directory.read("keyring") == b"keys"
        assert directory.ballast.missing() == 2 * Ballast.STEP
