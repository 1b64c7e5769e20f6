"""`shipper status` as a process: what it says of one that runs, hangs, was killed or never was, and its exit status."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.sdk.aio import open_asyncio
from shipper.testing import open_destination
from tests.spool.test_spool_stored import looked_at
from tests.supervise.driver import Site
from tests.supervise.test_supervise_story import key, policy


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def command(state: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "shipper", "status", "--state", str(state), *arguments]


async def status(state: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    with trio.fail_after(60):
        return await trio.run_process(command(state, *arguments), check=False, capture_stdout=True, capture_stderr=True)


async def test_the_exit_status_is_that_of_the_whole(site: Site) -> None:
    before = await status(site.state)
    async with site.supervisor() as process:
        await site.until("unit", state="HEALTHY")
        healthy = await status(site.state)
        (site.fake / "ail").write_text("401, events held")
        degraded = await status(site.state)
        (site.fake / "ail").unlink()
        site.replace(site.policy, "version: 2\n")
        await site.until("invalid")
        invalid = await status(site.state)
        os.kill(process.pid, signal.SIGSTOP)
        hung = await status(site.state)
        os.kill(process.pid, signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        await site.ended(process)
    after = await status(site.state)

    assert [seen.returncode for seen in (before, healthy, degraded, invalid, hung, after)] == [78, 0, 0, 1, 2, 3]
    assert b"this is no state directory" in before.stderr
    assert str(site.policy).encode() in invalid.stdout
    assert hung.stdout.startswith(b"shipper: FAILED, the supervisor of ")
    assert after.stdout.startswith(b"shipper: not running")


async def test_a_supervisor_that_ends_while_it_is_asked_does_not_run_and_has_not_failed(tmp_path: Path) -> None:
    (tmp_path / "supervise.lock").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "supervise.sock"))
        listener.listen()

        def end() -> None:
            peer, _ = listener.accept()
            listener.close()
            peer.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, end)
            seen = await status(tmp_path)

    assert (seen.returncode, seen.stdout.startswith(b"shipper: not running")) == (3, True)


@pytest.mark.parametrize("how", ["absent", "empty", "foreign", "file"])
async def test_what_is_no_state_directory_is_told_in_one_line_and_stays_as_it_is(tmp_path: Path, how: str) -> None:
    place = tmp_path / "place"
    if how == "file":
        place.write_text("mine")
    elif how != "absent":
        place.mkdir()
    if how == "foreign":
        (place / "lock").write_text("4711\n")
    before = looked_at(tmp_path)
    ended = await status(place)

    assert (ended.returncode, ended.stdout, ended.stderr.count(b"\n")) == (78, b"", 1)
    assert ended.stderr.startswith(f"shipper: --state {place}: ".encode())
    assert looked_at(tmp_path) == before


async def killed(tmp_path: Path) -> tuple[Site, dict[str, Any]]:
    """A site whose processes were killed while an old key drains, and the last status of before."""
    site = Site(tmp_path, fake_sidecar=False)
    async with open_asyncio() as aio, open_destination(aio, keys={key(2)}) as destination:
        site.secret.write_text("id1:hunter1\n")
        site.policy.write_text(policy(destination, "{type: generate, rate: 200, count: 40}"))
        async with site.supervisor() as process:
            await site.until("unit", unit="outputs.main", state="DEGRADED")
            site.replace(site.secret, "id2:hunter2\n")
            await site.until("ack", revision="2", stage="active")
            pid = (await site.until("launched"))["pid"]
            seen = json.loads((await status(site.state, "--json")).stdout)
            os.kill(pid, signal.SIGSTOP)
            process.kill()
            await process.wait()
            os.kill(pid, signal.SIGKILL)
            await site.when(lambda: not Path(f"/proc/{pid}").exists())
    return site, seen


async def test_when_all_was_killed_it_says_what_lies_there_and_touches_nothing(tmp_path: Path) -> None:
    site, alive = await killed(tmp_path)
    before = looked_at(site.state)
    told = await status(site.state)
    dead = json.loads((await status(site.state, "--json")).stdout)
    below = await status(site.state / "sidecar")
    after = looked_at(site.state)

    assert (told.returncode, below.returncode, told.stderr) == (3, 3, b"")
    assert after == before
    assert told.stdout.startswith(b"shipper: not running: its process (pid ")
    assert b"was killed or crashed, and wrote last 20" in told.stdout
    assert below.stdout.splitlines()[0] == told.stdout.splitlines()[0]
    assert (alive["running"], dead["running"], dead["state"]) == (True, False, "STOPPED")
    for field in ("revisions", "credentials_in_use", "dead_letters"):
        assert dead["observed"][field] == {**alive["observed"], "dead_letters": dead["observed"]["dead_letters"]}[field]
    assert dead["observed"]["queue"]["events"] > 0
    (drain,) = dead["observed"]["draining"]
    old, new = (one["id"] for one in sorted(dead["credentials"], key=lambda one: one["current"]))
    waiting = drain["outputs"]["main"]
    assert (waiting["credentials"], waiting["rebind_to"], waiting["reason"]) == ([old], new, "nothing runs")


async def test_a_directory_whose_name_is_no_text_is_told_as_json_all_the_same(tmp_path: Path) -> None:
    state = tmp_path / os.fsdecode(b"not \xff text")
    state.mkdir()
    (state / "supervise.lock").touch()
    (state / "sidecar").mkdir()
    for name in ("spool-1.db", "spool-1.db-wal"):
        (state / "sidecar" / name).write_bytes(b"x")
    seen = await status(state, "--json")

    assert (seen.returncode, seen.stderr) == (3, b"")
    assert "is missing beside" in json.loads(seen.stdout)["troubles"][0]["message"]


async def test_a_key_that_a_drain_needs_is_named_with_the_command_that_ends_it(tmp_path: Path) -> None:
    site = Site(tmp_path, fake_sidecar=False)
    async with open_asyncio() as aio, open_destination(aio, keys={key(2)}) as destination:
        site.secret.write_text("id1:hunter1\n")
        site.policy.write_text(policy(destination, "{type: generate, count: 20}"))
        site.arguments = ["--grace", "0s"]
        async with site.supervisor():
            await site.until("unit", unit="outputs.main", state="DEGRADED")
            site.replace(site.secret, "id2:hunter2\n")
            await site.until("ack", revision="2", stage="active")
            with trio.fail_after(60):
                while b"order rebind" not in (told := await status(site.state)).stdout:  # noqa: ASYNC110
                    await trio.sleep(0.05)
            (line,) = (line for line in told.stdout.decode().splitlines() if "order rebind" in line)
            done = await trio.run_process(
                ["sh", "-c", line.replace("shipper", f"{sys.executable} -m shipper", 1)], capture_stdout=True
            )
            await site.until("ack", revision="2", stage="drained")

    assert told.returncode == 1
    assert b"needed by revision 1 of main" in told.stdout
    assert b" is released" in done.stdout


# -- again and again ---------------------------------------------------------------------------------------------------


async def test_on_a_pipe_each_look_is_a_block_and_ctrl_c_ends_it_with_the_last_state(site: Site) -> None:
    async with site.supervisor() as process:
        await site.until("unit", state="HEALTHY")
        watching = await trio.lowlevel.open_process(
            command(site.state, "--watch", "0.1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        said = b""
        assert watching.stdout is not None
        with trio.fail_after(60):
            while said.count(b"shipper: HEALTHY") < 2:
                said += await watching.stdout.receive_some()
            process.send_signal(signal.SIGTERM)
            await site.ended(process)
            while b"shipper: not running" not in said:
                said += await watching.stdout.receive_some()
            watching.send_signal(signal.SIGINT)
            assert await watching.wait() == 3
        assert watching.stderr is not None
        assert await watching.stderr.receive_some() == b""

    assert b"\x1b" not in said
    assert b"\n\nshipper: " in said


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


async def test_on_a_terminal_it_is_drawn_in_its_place_in_colour_and_foreign_text_is_no_markup(site: Site) -> None:
    hostile = "[red]x[/b] \x1b]0;title\x07 \u202e漢字"
    (site.fake / "ail").write_text(hostile)
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    async with site.supervisor():
        await site.until("unit", state="DEGRADED")
        with terminal() as (ours, theirs):
            watching = await trio.lowlevel.open_process(
                command(site.state, "--watch", "0.1"),
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                env={**environment, "TERM": "xterm-256color"},
            )
            said = b""
            with trio.fail_after(60):
                while said.count(b"\x1b[H") < 3:
                    said += await trio.to_thread.run_sync(os.read, ours, 65536)
                watching.send_signal(signal.SIGINT)
                assert await watching.wait() == 0

    text = said.decode(errors="ignore")
    assert "\x1b]" not in text
    assert "\u202e" not in text
    assert text.count("\x1b[2J") == 1
    assert "[red]x[/b]" in text
    assert "\x1b[33mDEGRADED" in text
    assert "Traceback" not in text
