"""Who publishes to the fleet: each verb of `shipper fleet`, as a person or a program would call it."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from shipper.sdk.errors import ShipperError
from shipper_demo import leash
from shipper_demo.key import Key
from shipper_demo.process import Process, Said, launched

_SECRET = "es"


class Operator:
    """Works in a directory with the `supervise.yaml` of the fleet, but without a member."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def set_secret(self, key: Key) -> str | None:
        """Give the fleet this key; returns the version that begins by it, if one does."""
        file = self._directory / "es.key"
        file.touch(mode=0o600)
        file.write_text(key.text + "\n")
        said = await self._done("secret", "set", _SECRET, "--file", file.name)
        return said.get("version")

    async def publish(self, policy: str) -> str:
        """Publish a policy; returns its version."""
        (self._directory / "policy.yaml").write_text(policy)
        version: str = (await self._done("publish", "policy.yaml"))["version"]
        return version

    async def wait(self, version: str) -> tuple[int, Said]:
        """Wait until every member has drained a version; returns the exit status and the answer."""
        return await self._verb("wait", version, "--stage", "drained", "--timeout", "1m")

    async def watch(self, hear: Callable[[Said], None]) -> None:
        """Pass on the status of the fleet after each change, until cancelled."""
        async with self._launched("status", "--watch") as process:
            await process.listen(hear)

    async def _done(self, *arguments: str) -> Said:
        """Returns what a verb says; raises ShipperError unless it succeeds."""
        status, said = await self._verb(*arguments)
        if status:
            log = (self._directory / "log").read_text(errors="replace").strip()
            raise ShipperError(f"`shipper fleet {arguments[0]}` has failed (status {status}): {log}")
        return said

    async def _verb(self, *arguments: str) -> tuple[int, Said]:
        said: list[Said] = []
        async with self._launched(*arguments) as process:
            status = await process.result(said.append)
        return status, said[-1] if said else {}

    @asynccontextmanager
    async def _launched(self, *arguments: str) -> AsyncIterator[Process]:
        name = f"shipper fleet {arguments[0]}"
        command = [sys.executable, "-P", "-m", leash.__name__, "fleet", *arguments, "--config", "supervise.yaml"]
        async with launched(name, [*command, "--json"], self._directory / "log", os.environ) as process:
            yield process
