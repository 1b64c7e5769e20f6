"""The disk: a database in memory that outlives the process, and the two kinds of thread that use it, as tasks.

The product's own `Writer` does its work here: groups, savepoints, parking what needs room, replaying a failed group.
Only its loop is written anew, with a pause where the thread would wait. The database is real; a COMMIT that is to fail
raises SQLite's own error, and if the process dies before the group was replayed, the seed decides whether the commit
that failed is found after all. Not simulated: the files themselves (WAL, generations, damage), which have tests of
their own; a repair or a copy to a new generation is a long pause here.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import trio

from shipper.process.environment import Entropy, Environment
from shipper.spool import database, disk
from shipper.spool.database import Generation, Prepare
from shipper.spool.directory import StateDirectory
from shipper.spool.disk import Opened
from shipper.spool.inbox import Operation
from shipper.spool.keys import StateKey, open_keyring
from shipper.spool.readers import Readers, Unreadable
from shipper.spool.seal import KEY_ID_BYTES, Sealer
from shipper.spool.writer import FULL_SECONDS, Broken, Busy, GaveUp, Listener, NoRoom, Writer
from tests.databases import Forgotten, in_memory
from tests.simulation.clock import Alarm
from tests.simulation.stage import Crashed, Stage

T = TypeVar("T")

COPY_SECONDS = 3.0
INSTANT = 1e-6
"""The least that a wait takes: less could be lost in rounding, and the clock would stand still."""
SOUND_SECONDS = 60.0
BALLAST_COMMITS = 4
_PAIR_BYTES = KEY_ID_BYTES + 12


class _Database(Forgotten):
    """Fails at a COMMIT if it is told to; else `execute` is SQLite's own, for a world calls it a thousand times."""

    execute: Any

    def fail_next_commit(self, code: int) -> None:
        """With this error, once."""
        name = "SQLITE_FULL" if code == sqlite3.SQLITE_FULL else "SQLITE_IOERR"

        def execute(sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql != "COMMIT":
                return super(_Database, self).execute(sql, *parameters)
            del self.execute
            error = sqlite3.OperationalError("simulated")
            error.sqlite_errorcode, error.sqlite_errorname = code, name
            raise error

        self.execute = execute


class Disk:
    """What is durable."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.files: dict[str, bytes] = {}
        self.is_full = False
        self.ballast_commits = 0
        self.unknown: Callable[[], None] | None = None
        """Applies a group whose commit failed, for the case that it is found after a crash."""
        self.writer: SimulatedWriter | None = None
        self.db = in_memory(_Database, cached_statements=256)

    def fate(self, group: Sequence[Operation]) -> int | None:
        """The error at the next COMMIT."""
        if self.is_full and not self.stage.healed:
            if any(operation.needs_room for operation in group) or not self.ballast_commits:
                self.stage.faults["disk_full"] += 1
                return sqlite3.SQLITE_FULL
            self.ballast_commits -= 1
        return sqlite3.SQLITE_IOERR if self.stage.strikes("commit_fails") else None

    async def pause(self) -> None:
        """What a transaction takes; a slow disk answers after seconds."""
        if self.stage.strikes("disk_slow"):
            await trio.sleep(self.stage.random("disk").uniform(0.1, 12.0))
        await self.stage.pause("disk")

    def crash(self) -> None:
        """The process is gone; what it had not committed is too, and of what failed the seed decides."""
        unknown, self.unknown = self.unknown, None
        if unknown is not None and self.stage.random("found").random() < 0.5:
            self.stage.faults["failed_commit_found"] += 1
            unknown()
        if self.writer is not None:
            self.writer.kill()


class _Directory(StateDirectory):
    """Files as values; each write is durable."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(Path("simulated"))
        self._disk = disk
        self.ballast = cast(Any, SimpleNamespace(give=self._give, restore=self._restore))

    def _give(self) -> bool:
        self._disk.ballast_commits += BALLAST_COMMITS
        return True

    def _restore(self) -> bool:
        return self._disk.stage.healed or not self._disk.is_full

    def read(self, name: str) -> bytes | None:
        return self._disk.files.get(name)

    def write(self, name: str, content: bytes) -> None:
        self._disk.stage.effect()
        self._disk.files[name] = content

    def remove(self, name: str) -> None:
        self._disk.files.pop(name, None)

    def has_room(self, size: int = 0) -> bool:
        return True

    def disk_bytes(self) -> int:
        return sum(map(len, self._disk.files.values()))


class SimulatedWriter(Writer):
    """The product's writer, its thread a task."""

    def __init__(
        self, disk: Disk, opened: Opened, prepare: Prepare, listener: Listener, environment: Environment
    ) -> None:
        super().__init__(opened.directory, opened.generation, prepare, database.connect, listener, environment)
        self._stage, self._disk = disk.stage, disk
        disk.writer = self
        self._upkeep = cast(
            Any, SimpleNamespace(is_due=lambda: False, checkpoint=lambda cut=False: not cut, reserve=lambda: True)
        )
        self._arrival = Alarm()
        self._scope = trio.CancelScope()
        self._dead = False

    def start(self) -> None:
        self._stage.nursery.start_soon(self._live)

    def put(self, operation: Operation) -> None:
        if self._dead:
            raise Crashed
        super().put(operation)
        self._arrival.ring()

    def stop(self) -> None:
        if not self._dead:
            super().stop()
            self._arrival.ring()

    def kill(self) -> None:
        """The process dies; whoever waits for an answer must not wait for ever in a shielded scope."""
        self._dead = True
        self._listener.ended(0, GaveUp("killed"))
        self._scope.cancel("the process was killed")

    async def _live(self) -> None:
        failure: BaseException | None = None
        with self._scope:
            try:
                while await self._gathered():
                    await self._write()
            except Crashed:
                return
            except Exception as error:
                failure = error
            self._listener.ended(len(self._group) + len(self._inbox.left()), failure)

    async def _gathered(self) -> bool:
        """Wait for the next group; False if there will be none any more."""
        inbox = self._inbox
        while True:
            if inbox.full and self._stage.clock.now >= self._look_at:
                self._look_for_room()
            inbox.receive(0)
            self._group = inbox.claim()
            if self._group:
                return True
            if inbox.closing.is_set() and inbox.is_empty:
                if inbox.has_parked:
                    raise GaveUp("the disk is full")
                return False
            patience = inbox.patience(FULL_SECONDS if inbox.full else math.inf) or 0.0
            self._arrival = Alarm()
            await self._stage.clock.wait(self._arrival, max(patience, INSTANT))

    async def _write(self) -> None:
        await self._disk.pause()
        if any(operation.repairs is not None for operation in self._group):
            await trio.sleep(COPY_SECONDS)
        while self._group:
            self._stage.effect()
            try:
                if (code := self._disk.fate(self._group)) is not None:
                    self._disk.db.fail_next_commit(code)
                self._transaction(self._group)
            except Busy:
                raise AssertionError("nobody else opens this database") from None
            except NoRoom:
                self._make_room()
            except Broken:
                await self._copy()
            else:
                await self._stage.pause("answers")
                self._committed()

    async def _copy(self) -> None:
        """What the product does in a thread: all that is intact goes to a new file, and the group runs again there."""
        group = list(self._group)
        self._disk.unknown = lambda: self._transaction(group)
        self._say("a commit failed, copying to a new generation")
        await trio.sleep(self._stage.random("disk").uniform(0.0, COPY_SECONDS))
        self._disk.unknown = None
        self._say(None)


class SimulatedReaders(Readers):
    """Reads through the one connection, between two transactions."""

    def __init__(self, disk: Disk, opened: Opened, environment: Environment) -> None:
        super().__init__(opened.generation.path, database.connect, environment)
        self._stage, self._db = disk.stage, disk.db
        self._sound_until = 0.0

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        if not self._stage.alive:
            raise Crashed
        await self._stage.pause("reads")
        if self._stage.clock.now >= self._sound_until and self._stage.strikes("read_fails"):
            self._sound_until = self._stage.clock.now + SOUND_SECONDS  # it will be another file, on other blocks
            raise Unreadable(self.path, sqlite3.OperationalError("simulated"))
        return query(self._db)

    def open_all(self) -> None:
        pass

    def move(self, path: Path) -> None:
        raise AssertionError("there is one generation only")

    def close(self) -> None:
        pass


_made: list[sqlite3.Connection] = []


def _empty_spool(prepare: Prepare) -> sqlite3.Connection:
    """With all tables, made once for all worlds: making them is a tenth of what a quiet world costs."""
    if not _made:
        db = in_memory()
        prepare(db)
        _made.append(db)
    return _made[0]


class SimulatedDisk(disk.Disk):
    """The way of the product to a disk, which outlives it."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk
        self._sealed_with: dict[bytes, bytes] = {}

    def open(
        self,
        owned: ExitStack,
        path: Path,
        keys: Sequence[StateKey] | None,
        prepare: Prepare,
        sealed: Collection[tuple[str, str]],
        entropy: Entropy,
    ) -> Opened:
        directory, db = _Directory(self._disk), self._disk.db
        ring = open_keyring(directory, keys, entropy)
        sealer = ring.sealer()
        sealer.seal = self._watched(sealer)  # type: ignore[method-assign]
        if not db.total_changes:
            _empty_spool(prepare).backup(db)
        return Opened(directory, ring, sealer, Generation(1, Path("simulated.db"), db, db))

    def writer(self, opened: Opened, prepare: Prepare, listener: Listener, environment: Environment) -> Writer:
        return SimulatedWriter(self._disk, opened, prepare, listener, environment)

    def readers(self, opened: Opened, environment: Environment) -> Readers:
        return SimulatedReaders(self._disk, opened, environment)

    def _watched(self, sealer: Sealer) -> Callable[..., bytes]:
        """What stands on the disk begins with the id of its key and the nonce: no such pair may seal two texts."""
        seal = sealer.seal

        def watched(kind: str, row: int | str, epoch: int, revision: int, plain: bytes) -> bytes:
            sealed = seal(kind, row, epoch, revision, plain)
            if self._sealed_with.setdefault(sealed[:_PAIR_BYTES], plain) != plain:
                self._disk.stage.note("nonce_reused", of=kind)
            return sealed

        return watched
