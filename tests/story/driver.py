"""Drives the real process by its standard input, and keeps a transcript of its output."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from tests import canary
from tests.canary import EVENT

Message = dict[str, Any]

PATIENCE = 60.0


class Sidecar:
    """A running `shipper run`; made by `launched`."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.said: list[Message] = []
        """Every line of standard output, in order."""
        self.raw: bytes = b""
        self.log = b""
        self.on_message: Callable[[Message], None] = lambda message: None
        """Called when a line was read."""
        self._news = trio.Event()
        self.closed = False
        self._secrets: set[bytes] = set()
        self._shown = _started_with(process)
        """Read at once: most tests end the process before they end."""

    # -- what a supervisor says ----------------------------------------------------------------------------------------

    async def send(self, message: Message | bytes) -> None:
        assert self.process.stdin is not None
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        await self.process.stdin.send_all(line + b"\n")

    async def hello(self, **fields: Any) -> Message:
        self._secrets |= {key["key"].encode() for key in fields.get("state_keys", [])}
        await self.send({"type": "hello", "protocol": 1, **fields})
        return await self.wait(lambda m: m["type"] == "ready")

    async def policy(
        self, revision: int, policy: str, credentials: Message | None = None, *, epoch: int = 0, **fields: Any
    ) -> None:
        sha256 = hashlib.sha256(policy.encode()).hexdigest()
        self._secrets |= canary.of_credentials(credentials)
        message = {"type": "policy", "epoch": epoch, "revision": revision, "sha256": sha256, "policy": policy}
        await self.send({**message, "credentials": credentials or {}, **fields})

    async def action(self, name: str, **params: Any) -> Message:
        id = f"a{len(self.said)}"
        await self.send({"type": "action", "id": id, "name": name, "params": params})
        return await self.wait(lambda m: m["type"] == "result" and m["id"] == id)

    async def observe(self) -> Message:
        """Returns the present `observed`."""
        before = len(self.said)
        await self.send({"type": "observe"})
        return await self.wait(lambda m: m["type"] == "observed", since=before)

    async def stop(self, within: float = 10) -> Message:
        await self.send({"type": "stop", "within_seconds": within})
        stopped = await self.wait(lambda m: m["type"] == "stopped")
        with trio.fail_after(PATIENCE):
            assert await self.process.wait() == 0
        return stopped

    async def kill(self) -> None:
        """Kills the process, as the kernel's out-of-memory killer does."""
        self.process.kill()
        with trio.fail_after(PATIENCE):
            await self.process.wait()
            while not self.closed:
                await self._news.wait()

    # -- what it says --------------------------------------------------------------------------------------------------

    async def wait(self, wanted: Callable[[Message], bool], *, since: int = 0, seconds: float = PATIENCE) -> Message:
        """Returns the first past or future message that is `wanted`, after the first `since`."""
        with trio.move_on_after(seconds):
            while True:
                for message in self.said[since:]:
                    if wanted(message):
                        return message
                since = len(self.said)
                assert not self.closed, f"the process ended: {self.log.decode()[-3000:]}"
                await self._news.wait()
        raise AssertionError(f"not said within {seconds} s; said: {self.summary()}; log: {self.log.decode()[-3000:]}")

    async def ack(self, revision: int, stage: str, *, since: int = 0, seconds: float = PATIENCE) -> Message:
        """Returns the ack of a stage; fails at once on a nack of the revision."""

        def wanted(message: Message) -> bool:
            assert not (message["type"] == "nack" and message["revision"] == revision), message
            return message["type"] == "ack" and message["revision"] == revision and message["stage"] == stage

        return await self.wait(wanted, since=since, seconds=seconds)

    async def nack(self, revision: int, *, since: int = 0) -> Message:
        return await self.wait(lambda m: m["type"] == "nack" and m["revision"] == revision, since=since)

    async def state(self, wanted: Callable[[Message], bool], *, seconds: float = PATIENCE) -> Message:
        """Asks for `observed` until one fits; returns it."""
        with trio.fail_after(seconds):
            while True:
                if wanted(observed := await self.observe()):
                    return observed
                await trio.sleep(0.05)

    async def holds(self, events: int) -> Message:
        """Waits until so many events are in its queue."""
        return await self.state(lambda observed: bool(observed["queue"]["events"] == events))

    def acks(self, stage: str = "drained") -> list[int]:
        """Returns the revisions of all acks of a stage, in order."""
        return [m["revision"] for m in self.said if m["type"] == "ack" and m["stage"] == stage]

    def summary(self) -> list[str]:
        return [json.dumps(m)[:200] for m in self.said[-12:]]

    async def _read(self) -> None:
        assert self.process.stdout is not None
        rest = b""
        async for data in self.process.stdout:
            self.raw += data
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                self.said.append(message)
                self.on_message(message)
            self._notify()
        self.closed = True
        self._notify()

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        async for data in self.process.stderr:
            self.log = (self.log + data)[-(1 << 20) :]

    def leaks(self, state: Path) -> list[bytes]:
        """Returns secrets and events at places where they must not be."""
        canaries = {*self._secrets, EVENT.encode()}
        shown = canary.found(self.raw + self.log + self._shown, canaries)
        return [*shown, *(form for forms in canary.left_in(state, canaries).values() for form in forms)]

    def _notify(self) -> None:
        self._news.set()
        self._news = trio.Event()


def _started_with(process: trio.Process) -> bytes:
    """Returns its arguments and environment, which /proc shows a moment after `exec` has released the parent."""
    while process.poll() is None and not canary.shown_by(process.pid, "cmdline"):
        os.sched_yield()
    return canary.shown_by(process.pid, "cmdline", "environ")


@asynccontextmanager
async def launched(
    state: Path, *arguments: str, env: dict[str, str] | None = None, tracer: Sequence[str] = ()
) -> AsyncIterator[Sidecar]:
    """Runs the real process on a state directory, under a `tracer` if given; kills it at the end if it still runs."""
    command = [*tracer, sys.executable, "-m", "shipper", "run", "--state", str(state), *arguments]
    pipe = subprocess.PIPE
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(
            command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, env={**os.environ, **(env or {})}
        )
        sidecar = Sidecar(process)
        nursery.start_soon(sidecar._read)
        nursery.start_soon(sidecar._read_log)
        try:
            yield sidecar
            assert sidecar.leaks(state) == []
        finally:
            with trio.CancelScope(shield=True):
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                await process.wait()
            nursery.cancel_scope.cancel()


def policy(
    *,
    url: str = "",
    paths: str = "",
    credential: str | None = None,
    inputs: str | None = None,
    outputs: str | None = None,
    more: str = "",
) -> str:
    """Returns a policy of one file input and one elasticsearch output, or of the given parts."""
    key = f", credential: {credential}" if credential else ""
    pace = "backoff: {first: 50ms, longest: 500ms}"
    if inputs is None:
        inputs = f'  access: {{type: file, paths: ["{paths}"]}}\n'
    if outputs is None:
        outputs = f'  main: {{type: elasticsearch, hosts: ["{url}"], {pace}{key}}}\n'
    parts = "version: 1\n"
    parts += f"inputs:\n{inputs}" if inputs else ""
    parts += f"outputs:\n{outputs}" if outputs else ""
    return parts + more
