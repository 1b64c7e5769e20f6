"""A directory with policies, secrets and a supervisor in it, for tests that run the whole process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from tests import canary

FAKE = Path(__file__).with_name("fake_sidecar.py")
POLICY = """version: 1
outputs:
  main:
    type: elasticsearch
    hosts: ["http://127.0.0.1:9200"]
    credential: {file: es}
"""


def told(line: bytes | str) -> dict[str, Any]:
    """What a line of the supervisor says: `event` is the word for it, beside its fields."""
    record = json.loads(line)
    fields = {key.removeprefix("shipper."): value for key, value in record.items() if key.startswith("shipper.")}
    return {"event": record["event.action"], **fields}


class Site:
    """A directory with a policy, a secret and the configuration of a supervisor."""

    def __init__(self, directory: Path, *, fake_sidecar: bool = True) -> None:
        self.fake_sidecar = fake_sidecar
        self.directory = directory
        self.policy = directory / "policy.yaml"
        self.secret = directory / "es"
        self.state = directory / "state"
        self.fake = self.state / "sidecar"
        self.fake.mkdir(parents=True)
        self.policy.write_text(POLICY)
        self.secret.write_text("k1:hunter2\n")
        self.secret.chmod(0o600)
        self.on_release(
            "echo $SHIPPER_CREDENTIAL_ID $SHIPPER_CREDENTIAL_NAME $SHIPPER_CREDENTIAL_SOURCE $SHIPPER_OUTPUTS"
            f" >> {directory}/revoked"
        )
        self.lines: list[dict[str, Any]] = []
        self.arguments: list[str] = []
        self.environment = {**os.environ, "PYTHONPATH": ""}

    def on_release(self, script: str) -> None:
        config: dict[str, Any] = {"on_release": {"command": ["sh", "-c", script], "timeout": "5s"}}
        if self.fake_sidecar:
            config["sidecar"] = [sys.executable, str(FAKE)]
        (self.directory / "config.yaml").write_text(json.dumps(config))

    def program(self) -> Path:
        """The fake sidecar as an executable file of its own."""
        program = self.directory / "the-sidecar"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
        program.chmod(0o755)
        (self.directory / "config.yaml").write_text(json.dumps({"sidecar": [str(program)]}))
        return program

    @property
    def revoked(self) -> list[str]:
        file = self.directory / "revoked"
        return file.read_text().splitlines() if file.exists() else []

    def heard(self, kind: str) -> list[dict[str, Any]]:
        log = self.fake / "heard.jsonl"
        *lines, _ = log.read_text().split("\n") if log.exists() else [""]
        return [message for message in map(json.loads, lines) if message["type"] == kind]

    def happened(self, what: str, **fields: Any) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == what and fields.items() <= line.items()]

    async def until(self, what: str, **fields: Any) -> dict[str, Any]:
        """Wait for a line of the supervisor."""
        return (await self.when(lambda: self.happened(what, **fields)))[-1]

    async def when(self, condition: Callable[[], Any]) -> Any:
        """Wait until a condition holds, looking at what another process does."""
        with trio.fail_after(60):
            while not (found := condition()):  # noqa: ASYNC110 (other processes act)
                await trio.sleep(0.005)
            return found

    def command(self) -> list[str]:
        options = ["--state", str(self.state), "--config", str(self.directory / "config.yaml"), "--json"]
        return [sys.executable, "-m", "shipper", "supervise", str(self.policy), *options, *self.arguments]

    @asynccontextmanager
    async def supervisor(self) -> AsyncIterator[trio.Process]:
        """A running supervisor, killed in the end."""
        process = await trio.lowlevel.open_process(
            self.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment
        )
        self.lines = []
        self.errors = b""
        shown = canary.shown_by(process.pid, "cmdline")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, process)
            nursery.start_soon(self._complaints, process)
            try:
                yield process
                assert self.leaks(shown) == []
            finally:
                process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()

    def leaks(self, shown: bytes) -> list[bytes]:
        """Forms of the secret in its file that are where they must not be; a fake sidecar writes down all it hears."""
        canaries = set(canary.of_secret(self.secret.read_text().strip())) if self.secret.exists() else set()
        said = json.dumps(self.lines).encode() + self.errors + shown
        files = {} if self.fake_sidecar else canary.left_in(self.state, canaries)
        return [*canary.found(said, canaries), *(form for forms in files.values() for form in forms)]

    async def _follow(self, process: trio.Process) -> None:
        assert process.stdout is not None
        rest = b""
        async for chunk in process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            self.lines += map(told, lines)

    async def _complaints(self, process: trio.Process) -> None:
        assert process.stderr is not None
        async for chunk in process.stderr:
            self.errors += chunk

    async def order(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """`shipper order …`, to its end."""
        command = [sys.executable, "-m", "shipper", "order", *arguments, "--state", str(self.state)]
        with trio.fail_after(60):
            return await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True)

    async def ended(self, process: trio.Process) -> int:
        with trio.fail_after(60):
            return await process.wait()

    def replace(self, file: Path, text: str) -> None:
        """As editors and configuration tools do it."""
        new = file.with_name("new")
        new.write_text(text)
        new.rename(file)
