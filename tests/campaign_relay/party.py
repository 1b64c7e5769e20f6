"""A shipper that is killed and started again. Its supervisor, which this is, keeps its policy and its secrets."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from tests.story.driver import Message, Sidecar, launched
from tests.story.world import secret

PATIENCE = 60.0
WENT_BACK = b"went back to an older state directory"


class Party:
    """One state directory, and the processes that it has one after the other."""

    def __init__(
        self, name: str, state: Path, pause: Callable[[], float], arrived: Callable[[], int] = lambda: 0
    ) -> None:
        self.name = name
        self.lives = 0
        self._state = state
        self._pause = pause
        """How many seconds pass between the end of a process and the start of the next one."""
        self._arrived = arrived
        """A number that grows while something goes on anywhere: so long nothing is stuck, on a slow machine either."""
        self._revision = 0
        self._text = ""
        self._ids: set[str] = set()
        """Every credential that a policy has named."""
        self._current: tuple[str, ...] = ()
        self._reached = {"active": 0, "drained": 0}
        self.drained: dict[int, str | None] = {}
        """By revision, what the confirmations of an `ack` of `drained` are worth."""
        self.ledgers: dict[int, Mapping[str, int]] = {}
        """By revision, the ledger of its `ack` of `drained`, if that was heard."""
        self._released: set[str] = set()
        self._told_before = 0
        """How often processes that have ended told that a principal went back."""
        self._news = trio.Event()
        self._sidecar: Sidecar | None = None
        """Where policies can be sent to."""
        self._process: trio.Process | None = None
        self._was_killed = False
        self._speaking = trio.Lock()
        self._change: Callable[[Path], None] | None = None
        """What is done to the state directory before the next process starts."""
        self._changed = trio.Event()
        self._copy = state.with_name(f"{state.name}.copy")

    async def run(self) -> None:
        """Live, again and again, until cancelled. A process that ends by itself is an error."""
        while True:
            if self._change is not None:
                await trio.to_thread.run_sync(self._change, self._state)
                self._change = None
                self._changed.set()
            self._was_killed = False
            async with launched(self._state) as sidecar:
                self._process = sidecar.process
                sidecar.on_message = self._hear
                self.lives += 1
                if self._change is not None:
                    self.kill()
                try:
                    await self._begin(sidecar)
                except (AssertionError, trio.BrokenResourceError, trio.ClosedResourceError):
                    if not self._was_killed:
                        raise
                await sidecar.process.wait()
                while not sidecar.closed:  # what it has said counts, though it is gone
                    await sidecar._news.wait()
                self._told_before += _told(sidecar)
                self._process = self._sidecar = None
            assert self._was_killed, f"{self.name} has ended by itself: {sidecar.log.decode()[-2000:]}"
            await trio.sleep(self._pause())

    async def _begin(self, sidecar: Sidecar) -> None:
        ready = await sidecar.hello()
        self._sidecar = sidecar
        async with self._speaking:
            wanted = {id: secret(id) for id in ready["credentials_wanted"]}
            await sidecar.send({"type": "credentials", "credentials": wanted})
            if self._revision:
                await self._say_policy(sidecar)

    # -- what is done to it --------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """As the kernel's out-of-memory killer does."""
        if self._process is not None:
            self._was_killed = True
            self._process.kill()

    async def change(self, change: Callable[[Path], None]) -> None:
        """Kill it, and do this to its state directory before it starts again."""
        self._change, self._changed = change, trio.Event()
        self.kill()
        await self._changed.wait()

    async def copy(self) -> None:
        """Keep a copy of its state directory."""
        await self.change(lambda state: _replace(state, self._copy))

    @property
    def has_copy(self) -> bool:
        return self._copy.exists()

    def forget_copy(self) -> None:
        """It is of no use any more, since keys in it have been revoked."""
        shutil.rmtree(self._copy, ignore_errors=True)

    async def go_back(self) -> None:
        """Have the copy for its state directory."""
        await self.change(lambda state: _replace(self._copy, state))

    async def lose(self) -> None:
        """Have no state directory."""
        await self.change(lambda state: shutil.rmtree(state, ignore_errors=True))

    async def become(self, other: Party) -> None:
        """Have a copy of another one's state directory, whose revisions are other ones."""
        self._revision = max(self._revision, other._revision) + 1
        clone = self._state.with_name(f"{self._state.name}.clone")
        await other.change(lambda state: _replace(state, clone))
        await self.change(lambda state: _replace(clone, state))

    @asynccontextmanager
    async def cloned(self, text: str) -> AsyncIterator[Party]:
        """A second one with a copy of its state directory, beside it, under this policy."""
        clone = Party(
            f"clone of {self.name}", self._state.with_name(f"{self._state.name}.clone"), self._pause, self._arrived
        )
        await self.change(lambda state: _replace(state, clone._state))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(clone.run)
            clone._revision, clone._ids = self._revision, set(self._ids)
            await clone.offer(text, *self._current)
            yield clone
            nursery.cancel_scope.cancel("the clone is not needed any more")
        shutil.rmtree(clone._state, ignore_errors=True)

    async def freeze(self, seconds: float) -> None:
        """Stop its process for a while, as a debugger or a paused machine does."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        os.kill(process.pid, signal.SIGSTOP)
        try:
            await trio.sleep(seconds)
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)

    # -- what its supervisor says and hears ----------------------------------------------------------------------------

    async def offer(self, text: str, *ids: str) -> int:
        """Give it a policy that names these credentials; returns the revision."""
        self._revision += 1
        self._text, self._current = text, ids
        self._ids |= set(ids)
        revision = self._revision
        async with self._speaking:
            if self._sidecar is not None:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._say_policy(self._sidecar)
        return revision

    async def reached(self, stage: str, revision: int) -> None:
        """Wait until the revision, or a newer one, has come to a stage."""
        await self._until(lambda: self._reached[stage] >= revision, f"{stage} of revision {revision}")

    async def released(self, id: str) -> None:
        """Wait until a credential may be revoked."""
        await self._until(lambda: id in self._released, f"the release of {id}")

    async def observe(self) -> Message:
        """Returns its `observed`, of the next process if this one is killed."""
        while True:
            await self._until(lambda: self._sidecar is not None, "its start")
            sidecar = self._sidecar
            assert sidecar is not None
            try:
                async with self._speaking:
                    return await sidecar.observe()
            except (AssertionError, trio.BrokenResourceError, trio.ClosedResourceError):
                if not (self._was_killed or self._sidecar is not sidecar):
                    raise
            await trio.sleep(0.05)

    @property
    def told(self) -> int:
        """How often it has told that its principal went back."""
        return self._told_before + (0 if self._sidecar is None else _told(self._sidecar))

    async def _say_policy(self, sidecar: Sidecar) -> None:
        await sidecar.policy(self._revision, self._text, {id: secret(id) for id in self._current})

    def _hear(self, said: Message) -> None:
        if said["type"] == "nack":
            assert said["reason"] == "superseded", said
        if said["type"] == "ack" and said["stage"] in self._reached:
            self._reached[said["stage"]] = max(self._reached[said["stage"]], said["revision"])
            if said["stage"] == "drained":
                self.drained[said["revision"]] = said.get("confirms")
                self.ledgers[said["revision"]] = said.get("ledger", {})
        if said["type"] == "ready":  # a process that was killed may have come to a stage without saying so
            for stage, reached in said["revisions"].items():
                if reached is not None and stage in self._reached:
                    self._reached[stage] = max(self._reached[stage], reached[1])
        self._released |= self._released_by(said)
        self._news.set()
        self._news = trio.Event()

    def _released_by(self, said: Message) -> set[str]:
        match said:
            case {"type": "ack", "credentials": {"released": released}} | {"type": "released", "credentials": released}:
                return set(released)
            case {"type": "nack", "released": released}:
                return set(released)
            case {"type": "ready", "credentials_in_use": in_use}:
                return self._ids - set(in_use) - set(self._current)
        return set()

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        before = -1
        while before != (before := self._arrived()):
            with trio.move_on_after(PATIENCE):
                while not condition():
                    await self._news.wait()
                return
        text = f"{self.name}: {what} has not come, and nothing else for {PATIENCE:g} s"
        raise AssertionError(f"{text}; {await self._facts()}")

    async def _facts(self) -> str:
        if self._sidecar is None:
            return "no process is ready"
        observed = await self._sidecar.observe()
        names = ("state", "message", "revisions", "draining", "queue", "credentials_in_use", "credentials_wanted")
        said = [m for m in self._sidecar.said if m["type"] in ("ready", "ack", "nack", "released", "error")]
        return json.dumps([self._revision, self._current, {name: observed.get(name) for name in names}, said])


def _told(sidecar: Sidecar) -> int:
    return sidecar.log.count(WENT_BACK)


def _replace(source: Path, target: Path) -> None:
    """A process that was killed early has made no directory."""
    shutil.rmtree(target, ignore_errors=True)
    if source.exists():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock"))
