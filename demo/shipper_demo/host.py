"""One host of the fleet: its own log, `shipper supervise` as a member, and a wire to the destination."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import trio

from shipper_demo import leash
from shipper_demo.access_log import AccessLog
from shipper_demo.process import Process, Said, launched
from shipper_demo.tally import Tally
from shipper_demo.wire import Wire


class Host:
    """A member by its name, which is also that of its directory."""

    def __init__(self, name: str, directory: Path, record: Path, *, holds: bool = False) -> None:
        """`holds`: it sends nothing without a lease."""
        self.name = name
        self.holds = holds
        self.wire = Wire()
        self.tally = Tally(record, name)
        self._directory = directory / name
        self._directory.mkdir()
        self.log = AccessLog(self._directory / "access.log")
        self._process: Process | None = None
        self._sidecar: int | None = None
        self._hangs = trio.Event()

    @property
    def is_killed(self) -> bool:
        return self._process is None

    def configure(self, fleet: Mapping[str, Any]) -> None:
        """Write its `supervise.yaml`: the section of the whole fleet, and what is its own."""
        lapse = "hold" if self.holds else "continue"
        own = {"member": self.name, "on_lapse": lapse, "rebind_revoked": True}
        configure(self._directory, {**fleet, **own})

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start it; returns when it has ended by `kill` or `end`. Raises ShipperError if it ends by itself."""
        arguments = ["supervise", "--config", "supervise.yaml", "--state", "state", "--json", "--grace", "2s"]
        environment = {
            "DEMO_LOG": str(self.log.path),
            "DEMO_URL": f"http://127.0.0.1:{self.wire.port}",
            "DEMO_HOST": self.name,
        }
        command = [sys.executable, "-P", "-m", leash.__name__, *arguments]
        log = self._directory / "supervise.ndjson"
        async with launched(self.name, command, log, os.environ | environment) as self._process:
            task_status.started()
            await self._process.listen(self._hear)

    def _hear(self, event: Said) -> None:
        """What it says is kept, for people."""
        with (self._directory / "said.ndjson").open("ab") as said:
            said.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))
        if event["event.action"] == "launched":
            self._sidecar = event["shipper.pid"]

    async def kill(self) -> None:
        """As `kill -9` of both its processes does."""
        assert self._process is not None
        process, self._process = self._process, None
        await process.kill()
        if self._sidecar is not None:
            with suppress(ProcessLookupError):
                os.kill(self._sidecar, signal.SIGKILL)

    async def hang(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Stop its supervisor, as SIGSTOP does, until `go_on`; its sidecar runs on."""
        assert self._process is not None
        self._hangs = trio.Event()
        command = [sys.executable, "-P", "-m", leash.__name__, "--stopped", str(self._process.pid)]
        async with launched(f"what stops {self.name}", command, self._directory / "stopped.log", os.environ):
            self._process.stop()
            task_status.started()
            await self._hangs.wait()
            self._process.go_on()

    def go_on(self) -> None:
        """End a `hang`, if there is one."""
        self._hangs.set()

    async def end(self) -> None:
        """Ask it to end in order, and wait."""
        assert self._process is not None
        await self._process.end()


def configure(directory: Path, fleet: Mapping[str, Any]) -> None:
    """Write a `supervise.yaml` with the section of a fleet."""
    (directory / "supervise.yaml").write_text(json.dumps({"fleet": fleet}, indent=2))
