"""Sidecars that cannot be launched, beside the supervisor as a process."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from shipper.supervise.launcher import Launcher
from shipper.supervise.questions import NAME
from tests.limits import descriptors_at_most
from tests.supervise.driver import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_sidecar_whose_program_is_away_for_a_moment_is_launched_when_it_is_back(site: Site) -> None:
    """As it is while a package is upgraded."""
    program = site.program()
    async with site.supervisor() as process:
        await site.until("ack", revision="1", stage="drained")
        program.rename(site.directory / "away")
        os.kill((await site.until("launched"))["pid"], signal.SIGKILL)
        assert "No such file" in (await site.until("launch_failed"))["message"]
        (site.directory / "away").rename(program)
        await site.when(lambda: len(site.happened("ready")) == 2)

        before = len(site.happened("launch_failed"))
        program.unlink()
        os.kill((await site.until("launched"))["pid"], signal.SIGKILL)
        await site.when(lambda: site.happened("launch_failed")[before:])
        process.send_signal(signal.SIGTERM)
        assert await site.ended(process) == 0


async def test_a_sidecar_that_is_no_program_ends_the_first_start_with_78(site: Site) -> None:
    site.program().unlink()
    async with site.supervisor() as process:
        assert await site.ended(process) == 78
        await site.when(lambda: b"the sidecar cannot be started" in site.errors)


async def test_once_does_not_wait_for_ever_for_a_sidecar_that_never_starts(site: Site) -> None:
    site.program().write_text("#!/bin/sh\nexit 1\n")
    site.arguments = ["--once", "--once-timeout", "1s"]
    async with site.supervisor() as process:
        assert await site.ended(process) == 1
        await site.until("waits")


# -- without descriptors ----------------------------------------------------------------------------------------------


async def test_the_first_sidecar_too_waits_for_descriptors() -> None:
    failed: list[str] = []
    launcher = Launcher(["true"], dict, trio.Event(), lambda reason, seconds: failed.append(reason))
    with descriptors_at_most(0), trio.move_on_after(0.5):
        await launcher.launch()
    assert "Too many open files" in failed[0]

    child = await launcher.launch()
    assert child is not None
    assert await child.converse(_hear, lambda: 30.0) == 0


async def _hear(message: object) -> None:
    raise AssertionError(message)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits another process")
async def test_a_supervisor_whose_descriptors_askers_take_goes_on_and_says_so(site: Site) -> None:
    async with site.supervisor() as process:
        await site.until("ack", revision="1", stage="drained")
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (48, 48))
        with ExitStack() as askers:
            for _ in range(60):
                asker = askers.enter_context(socket.socket(socket.AF_UNIX))
                await trio.to_thread.run_sync(asker.connect, str(site.state / NAME))
            assert "Too many open files: the limit is 48" in (await site.until("unheard"))["message"]
            os.kill((await site.until("launched"))["pid"], signal.SIGKILL)
            await site.when(lambda: len(site.happened("ready")) == 2)
            site.replace(site.secret, "k2:hunter3\n")
            await site.until("ack", revision="2", stage="drained")
        process.send_signal(signal.SIGTERM)
        assert await site.ended(process) == 0
