"""Sidecars that cannot be launched, beside the supervisor as a process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

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
