"""Many released credentials at once, and real commands."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pytest
import trio

from shipper import descriptors
from shipper.supervise.config import OnRelease
from shipper.supervise.ledger import Kept
from shipper.supervise.revocations import Revocations
from shipper.supervise.standing import Troubles


async def test_of_many_credentials_four_are_revoked_at_a_time(tmp_path: Path) -> None:
    """Else a supervisor that comes back after a long rotation starts a process for each of them in one moment."""
    log = tmp_path / "log"
    script = f"echo begins >> {log}; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo ends >> {log}"
    revoked: list[str] = []

    def written() -> list[str]:
        return log.read_text().split() if log.exists() else []

    async def done(id: str) -> None:
        revoked.append(id)

    revocations = Revocations(
        OnRelease(command=("sh", "-c", script)), lambda: os.environ, Troubles(), lambda what, **_: None, done
    )
    async with trio.open_nursery() as nursery:
        for number in range(8):
            revocations.begin(nursery, Kept(f"es-{number}", {}, [], []))
        with trio.fail_after(30):
            while len(written()) < 4:  # noqa: ASYNC110 (other processes act)
                await trio.sleep(0.005)
            (tmp_path / "go").touch()
            await revocations.ended()

    at_once = [written()[:end].count("begins") - written()[:end].count("ends") for end in range(1, 17)]
    assert (max(at_once), len(revoked)) == (4, 8)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits another process")
async def test_a_command_gets_the_limit_of_open_files_that_the_supervisor_was_started_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descriptors, "_found", (300, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    command = ("sh", "-c", "until [ $(ulimit -Sn) = 300 ]; do sleep 0.01; done")
    troubles, revoked = Troubles(), trio.Event()

    async def done(id: str) -> None:
        revoked.set()

    revocations = Revocations(OnRelease(command=command), lambda: os.environ, troubles, lambda what, **_: None, done)
    async with trio.open_nursery() as nursery:
        revocations.begin(nursery, Kept("es-1", {}, [], []))
        with trio.fail_after(30):
            await revoked.wait()
