"""Whatever is done to log files, and whenever the input stops and begins again: every line comes once."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import trio
import trio.testing
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shipper.plugin import Batch
from shipper.testing import RecordingInputContext
from shipper_plugins.file.input import FileInput
from shipper_plugins.tail.stream import Stream
from tests.examples import examples
from tests.short_reads import short_reads

DEEDS = [
    "write",
    "much",
    "part",
    "rename",
    "late",
    "copy",
    "gzip",
    "away",
    "settle",
    "restart",
    "stop",
    "start",
    "oneshot",
]


class Memory(RecordingInputContext):
    """Counts each message."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: Counter[str] = Counter()

    async def emit(
        self, *batches: Batch, positions: Mapping[str, bytes | None] | None = None, wait: bool = True
    ) -> None:
        await super().emit(*batches, positions=positions, wait=wait)
        self.messages.update(own["message"] for batch in batches for own in batch.own())

    def report(self, problem: str | None, *, code: str = "") -> None:
        raise AssertionError(problem)


class World:
    """A writer and its log files, and the input that may be following them."""

    def __init__(self, directory: Path, nursery: trio.Nursery) -> None:
        self.directory = directory
        self.path = directory / "app.log"
        self.memory = Memory()
        self.config = FileInput(paths=(str(directory / "app.log*"),))
        self.written: list[str] = []
        self.part = ""
        self.late: Any = None
        self._away = 0
        self._nursery = nursery
        self._scope: trio.CancelScope | None = None
        self._stopped = trio.Event()

    def write(self, count: int = 3) -> None:
        with self.path.open("a") as file:
            for _ in range(count):
                line = f"{self.part}line {len(self.written)}"
                file.write(line.removeprefix(self.part) + "\n")
                self.part = ""
                self.written.append(line)

    async def do(self, deed: str) -> None:
        await getattr(self, f"do_{deed}")()

    async def do_write(self) -> None:
        self.write()

    async def do_much(self) -> None:
        self.write(4000)

    async def do_part(self) -> None:
        if not self.part:
            self.part = f"part {len(self.written)} "
            with self.path.open("a") as file:
                file.write(self.part)

    async def do_rename(self) -> None:
        self.write(1)
        self._shift()
        if self.late is not None:
            self.late.close()
        self.late = self.path.open("a")
        os.rename(self.path, self.directory / "app.log.1")

    async def do_away(self) -> None:
        """It is renamed out of the glob, where only a file that is known can be found."""
        if not self._is_known():
            return
        self._done_late()
        self.write(1)
        self._away += 1
        os.rename(self.path, self.directory / f"old-{self._away}")

    def _is_known(self) -> bool:
        if not self.path.exists():
            return False
        inode, content = self.path.stat().st_ino, self.path.read_bytes()
        streams = [Stream.restored(key, stored) for key, stored in self.memory.stored.items()]
        mine = [s for s in streams if s.file is not None and s.file[1] == inode and s.offset]
        return any(s.identity.begins(content) for s in mine)

    async def do_late(self) -> None:
        """The writer still has the old file open."""
        if self.late is not None and (self.directory / "app.log.1").exists():
            self.written.append(f"line {len(self.written)}")
            self.late.write(self.written[-1] + "\n")
            self.late.flush()

    async def do_copy(self) -> None:
        self._done_late()
        self.write(1)
        self._shift()
        shutil.copy(self.path, self.directory / "app.log.1")
        os.truncate(self.path, 0)

    async def do_gzip(self) -> None:
        """As `gzip` does: the file is there, and empty, before anything is in it."""
        self._done_late()
        for path in sorted(self.directory.glob("app.log.*[0-9]")):
            with gzip.open(f"{path}.gz", "wb", compresslevel=1) as packed:
                await self.do_settle()
                packed.write(path.read_bytes())
            path.unlink()

    def _done_late(self) -> None:
        if self.late is not None:
            self.late.close()
            self.late = None

    def _shift(self) -> None:
        for path in sorted(self.directory.glob("app.log.*"), key=lambda p: -int(p.name.split(".")[2])):
            parts = path.name.split(".")
            parts[2] = str(int(parts[2]) + 1)
            os.rename(path, self.directory / ".".join(parts))

    # -- the input -------------------------------------------------------------------------------------------------

    async def do_start(self) -> None:
        if self._scope is None:
            self._scope, self._stopped = trio.CancelScope(), trio.Event()
            self._nursery.start_soon(self._run, self._scope, self._stopped)
            await trio.lowlevel.checkpoint()

    async def _run(self, scope: trio.CancelScope, stopped: trio.Event) -> None:
        with scope:
            async with self.config.open(self.memory) as source:
                await source.run()
        stopped.set()

    async def do_stop(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None
            await self._stopped.wait()

    async def do_restart(self) -> None:
        await self.do_stop()
        await self.do_start()

    async def do_oneshot(self) -> None:
        await self.do_stop()
        if not self.part:
            async with msgspec.structs.replace(self.config, stop_at_end=True).open(self.memory) as source:
                await source.run()
            assert Counter(self.written) == self.memory.messages

    async def do_settle(self) -> None:
        if self._scope is not None:
            with trio.move_on_after(4):
                await self.memory.wait_for(len(self.written))
                await trio.testing.wait_all_tasks_blocked()
            assert not Counter(self.written) - self.memory.messages, "a line is missing"
            assert Counter(self.written) == self.memory.messages


async def _live(world: World, deeds: list[str]) -> None:
    world.write(2)
    for deed in deeds:
        await world.do(deed)
    world.write(1)
    await world.do("start")
    await world.do("settle")
    await world.do("oneshot")


@settings(max_examples=examples(1), deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(st.lists(st.sampled_from(DEEDS), min_size=3, max_size=14), st.none() | st.integers(0, 1000))
@example(["restart", "settle", "away", "rename"], None)
@example(["rename", "write", "oneshot", "gzip", "copy"], None)  # the copy has the inode of what was compressed
@example(["much", "start", "settle", "gzip", "restart", "copy"], 1)
def test_every_line_comes_once_whatever_is_done_to_the_files(deeds: list[str], short: int | None) -> None:
    """Also where reads give less than they were asked for; `short` is the seed of those."""

    async def play() -> None:
        with tempfile.TemporaryDirectory() as directory, nullcontext() if short is None else short_reads(short):
            async with trio.open_nursery() as nursery:
                world = World(Path(directory), nursery)
                try:
                    await _live(world, deeds)
                finally:
                    world._done_late()

    trio.run(play)
