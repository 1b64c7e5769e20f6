"""A sidecar that runs in this process, and the account of what it answered to hostile lines."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from shipper.control.pipes import Stdin, Stdout
from shipper.protocol.messages import Action, Policy
from shipper.sidecar import Options, Outside, run
from tests.hostile.frames import Frame, is_error

PATIENCE = 60.0


class Talk:
    """Lines to a sidecar, and all that it says."""

    def __init__(self, stdin: trio.abc.SendStream, stdout: trio.abc.ReceiveStream) -> None:
        self.stdin, self.stdout = stdin, stdout
        self.lines = 0
        self.errors: Counter[int] = Counter()
        """By line."""
        self.results: Counter[str] = Counter()
        """By the id of an action."""
        self.wanted: Counter[str] = Counter()
        """Results that are due."""
        self.policies: Counter[tuple[int, int]] = Counter()
        """Acks and nacks, by epoch and revision."""
        self.others: Counter[str] = Counter()
        self._news = trio.Event()

    async def hello(self) -> None:
        await self.send(b'{"type":"hello","protocol":1}')
        await self.until(lambda: self.others["ready"] > 0)

    async def send(self, line: bytes) -> int:
        """The number of the line."""
        self.lines += 1
        await self.stdin.send_all(line + b"\n")
        return self.lines

    async def hear(self) -> None:
        """Take note of what is said, until the end."""
        rest = b""
        async for chunk in self.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._note(json.loads(line))
            self._news.set()
            self._news = trio.Event()

    def _note(self, said: dict[str, Any]) -> None:
        match said["type"]:
            case "error":
                self.errors[said["line"]] += 1
            case "result":
                assert not said["message"].startswith("failed: "), said
                self.results[said["id"]] += 1
            case "ack" | "nack":
                self.policies[said["epoch"], said["revision"]] += 1
            case other:
                self.others[other] += 1

    async def until(self, condition: Any) -> None:
        with trio.fail_after(PATIENCE):
            while not condition():
                await self._news.wait()

    async def answers(self, frames: Sequence[Frame]) -> None:
        """Send frames, and raise AssertionError for the first that is not answered as it deserves.

        A `stop` and what is no line are left out.
        """
        sent = [(await self.send(frame.line), frame) for frame in frames if frame.is_answered]
        self.wanted += Counter(frame.message.id for _, frame in sent if isinstance(frame.message, Action))
        policies = {frame.message.at for _, frame in sent if isinstance(frame.message, Policy)}
        errors = {line for line, frame in sent if is_error(frame.message)}
        alive = f"alive {self.lines}"
        await self.send(json.dumps({"type": "action", "id": alive, "name": "explode"}).encode())
        with trio.move_on_after(PATIENCE) as patience:
            await self.until(
                lambda: (
                    self.results[alive] == 1
                    and self.results >= self.wanted
                    and all(self.policies[at] for at in policies)
                    and errors <= self.errors.keys()
                )
            )
        for line, frame in sent:
            expected = is_error(frame.message)
            count = self.errors[line]
            assert count <= 1, (count, frame)
            assert expected in (None, count == 1), (count, frame)
            if isinstance(frame.message, Action):
                assert self.results[frame.message.id] == self.wanted[frame.message.id], frame
            if isinstance(frame.message, Policy):
                assert self.policies[frame.message.at], frame
        assert not patience.cancelled_caught, "it does not answer any more"


@asynccontextmanager
async def talking(state: Path) -> AsyncIterator[Talk]:
    """The whole of `shipper run` in this process, over pipes; told to stop at the end."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    status: list[int] = []

    async def live() -> None:
        status.append(await run(Options(state), Outside(Stdin(theirs_in), Stdout(theirs_out))))
        os.close(theirs_in)
        os.close(theirs_out)

    stdin, stdout = trio.lowlevel.FdStream(ours_out), trio.lowlevel.FdStream(ours_in)
    async with stdin, stdout, trio.open_nursery() as nursery:
        nursery.start_soon(live)
        talk = Talk(stdin, stdout)
        nursery.start_soon(talk.hear)
        await talk.hello()
        yield talk
        await talk.send(b'{"type":"stop","within_seconds":0}')
        await talk.until(lambda: talk.others["stopped"] == 1)
    assert status == [0]
