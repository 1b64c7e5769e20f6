"""A `shipper run` that the demo drives by the control protocol, killed and started again as it likes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from shipper.sdk.errors import ShipperError
from shipper_demo.key import Key
from shipper_demo.process import Process, Said, launched

_PATIENCE = 30.0


class Sidecar:
    """One state directory below `directory`, and the process that works in it. `name` is for people."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self._directory = directory
        self._process: Process | None = None
        self._offer: dict[str, Any] | None = None
        self._keys: dict[str, Key] = {}
        """Every key that is not released yet: what waits may need an old one after a restart."""
        self._settled: dict[tuple[int, str], Said] = {}
        self._revision = 0
        self._news = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start it; returns when it has ended by `kill` or `end`. Raises ShipperError if it ends by itself."""
        self._directory.mkdir(exist_ok=True)
        command = [sys.executable, "-P", "-m", "shipper", "run", "--state", str(self._directory / "state")]
        async with launched(self.name, command, self._directory / "log.ndjson", os.environ) as process:
            self._process = process
            await process.send({"type": "hello", "protocol": 1, "supervisor": "shipper demo"})
            if self._offer is not None:
                await self._supply()
                await process.send(self._offer)
            task_status.started()
            await process.listen(self._hear)

    async def kill(self) -> None:
        """As `kill -9` does."""
        assert self._process is not None
        await self._process.kill()

    async def end(self) -> None:
        """Ask it to end in order, and wait."""
        assert self._process is not None
        await self._process.end()

    async def offer(self, policy: str, keys: Mapping[str, Key]) -> int:
        """Give it a policy; returns its revision when that is active. Raises ShipperError if it is refused."""
        assert self._process is not None
        self._revision += 1
        revision = self._revision
        self._keys |= keys
        self._offer = {"type": "policy", "revision": revision, "policy": policy, "credentials": _secrets(keys)}
        await self._process.send(self._offer)
        await self.reached(revision, "active")
        return revision

    async def reached(self, revision: int, stage: str) -> Said:
        """Wait for an ack. Raises ShipperError if the policy is refused, or nothing is said for long."""
        with trio.move_on_after(_PATIENCE):
            while (revision, stage) not in self._settled:
                await self._news.wait()
            return self._settled[revision, stage]
        raise ShipperError(f"{self.name} has not said within {_PATIENCE:g} s that revision {revision} is {stage}")

    async def _supply(self) -> None:
        assert self._process is not None
        await self._process.send({"type": "credentials", "credentials": _secrets(self._keys)})

    def _hear(self, said: Said) -> None:
        if said["type"] == "nack":
            raise ShipperError(f"{self.name} refuses its policy: {said['reason']} {said['errors']}")
        if said["type"] == "ack":
            self._settled[said["revision"], said["stage"]] = said
            for name in said.get("credentials", {}).get("released", ()):
                self._keys.pop(name, None)
            self._news.set()
            self._news = trio.Event()


def _secrets(keys: Mapping[str, Key]) -> dict[str, dict[str, str]]:
    return {name: {"api_key": key.text} for name, key in keys.items()}
