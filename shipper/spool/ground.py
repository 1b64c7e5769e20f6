"""What the parts of the spool share: the store, the figures of the queue, the limits, and ways to run an operation."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import trio

from shipper.process.environment import Environment
from shipper.sdk.origins import SECRET_BYTES, Origin
from shipper.spool import audit, doubt, origins, places
from shipper.spool.awaited import Answered
from shipper.spool.figures import Figures
from shipper.spool.limits import DEFAULTS
from shipper.spool.queue import Settled
from shipper.spool.store import Store

P = ParamSpec("P")
Result = TypeVar("Result")


class Ground:
    """One for all parts."""

    def __init__(self, store: Store, environment: Environment) -> None:
        self.store = store
        self.now = environment.wall
        self.figures = self._counting = Figures.none()
        self.entropy = environment.entropy
        self.drawn = Origin(environment.entropy(SECRET_BYTES))
        self.origin = self.drawn.id
        """The origin of what enters in this process."""
        self._origins = {self.origin: self.drawn}
        self.limits = DEFAULTS
        """Of the active revision."""
        self.first_epoch = 0
        """Of the places that this process gives."""
        self.room = trio.Event()
        """Set, and replaced by a new one, whenever entries leave the spool."""
        self._is_repaired = False
        self._on_answered: list[Callable[[Sequence[Answered]], None]] = []
        self._on_damage: list[Callable[[], None]] = []

    async def urgent(self, op: Callable[[sqlite3.Connection], Result]) -> Result:
        """Runs an operation that goes first and does not wait for room on the disk."""
        return await self.store.do(op, urgent=True)

    def counted(
        self, op: Callable[[sqlite3.Connection], Result]
    ) -> Callable[[sqlite3.Connection], tuple[Result, Figures]]:
        """Returns an operation that also returns its figures: a recount replaces them before or after it, not
        between."""
        return lambda db: (op(db), self._counting)

    def made_room(self) -> None:
        """Wakes tasks that wait for room."""
        self.room.set()
        self.room = trio.Event()

    def settled(self, changes: Iterable[Settled]) -> None:
        """Tells that answers were stored: there is room, and awaited batches may have all of theirs."""
        self.made_room()
        answered = [change.answered for change in changes if change.answered is not None]
        if answered:
            for callback in self._on_answered:
                callback(answered)

    def on_answered(self, callback: Callable[[Sequence[Answered]], None]) -> None:
        """Registers a callback for awaited batches that have all their answers, durably."""
        self._on_answered.append(callback)

    async def repair_once(self) -> None:
        """Copies readable rows to a new generation, before rows with a broken seal are deleted.

        Once in a process: a copied database is sound, and only its values can be damaged.
        """
        if not self._is_repaired:
            self._is_repaired = True
            await self.store.repair()

    async def heed_damage(self) -> None:
        """Handles the report of a repair, recounts the figures, and runs the callbacks: entries may be there again."""
        now = self.now()

        def act(db: sqlite3.Connection) -> tuple[Figures, int]:
            audit.audit(db, self.store.sealer)
            doubt.act(db)
            self._counting = Figures.of(db, self.store.sealer)
            return self._counting, places.begin(db, now)

        self.figures, epoch = await self.urgent(act)
        self.first_epoch = self.first_epoch or epoch
        for callback in self._on_damage:
            callback()

    def on_damage(self, callback: Callable[[], None]) -> None:
        """Registers a callback that runs after damage was handled."""
        self._on_damage.append(callback)

    async def load_origins(self) -> None:
        """Loads the origins of stored events; forgets others, if there are many."""
        self._origins.update(await self.store.read(lambda db: origins.load(db, self.store.sealer)))
        if len(self._origins) > origins.MANY:
            self.store.post(origins.forget_unused)

    def prove(self, origin: bytes, name: str) -> bytes | None:
        """Returns the proof that the events of an origin are those of the edge `name`; None if it is not known."""
        known = self._origins.get(origin)
        return None if known is None else known.proof(name)


class Part:
    """What the rest of the program may ask of the spool about one subject."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.store, self.sealer = ground, ground.store, ground.store.sealer


def query(
    op: Callable[Concatenate[sqlite3.Connection, P], Result],
) -> Callable[Concatenate[Part, P], Coroutine[Any, Any, Result]]:
    """Makes a method of a part that runs this read, as `Store.read` does."""

    async def method(part: Part, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await part.store.read(lambda db: op(db, *args, **kwargs))

    return method


def urgent(
    op: Callable[Concatenate[sqlite3.Connection, P], Result],
) -> Callable[Concatenate[Part, P], Coroutine[Any, Any, Result]]:
    """Makes a method of a part that runs this operation, as `Ground.urgent` does."""

    async def method(part: Part, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await part.ground.urgent(lambda db: op(db, *args, **kwargs))

    return method
