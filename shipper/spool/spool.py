"""The interface of the spool: changes are durable when a call returns, and figures of the queue are kept.

All methods are safe to cancel: a transaction that the store has taken commits as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from shipper.process.environment import REAL, Environment
from shipper.spool import limits, schema
from shipper.spool.disk import Disk
from shipper.spool.ground import Ground
from shipper.spool.keys import StateKey
from shipper.spool.parts.drains import Drains
from shipper.spool.parts.letters import Letters
from shipper.spool.parts.queue import Queue
from shipper.spool.parts.revisions import Revisions
from shipper.spool.parts.state import State
from shipper.spool.store import Store, open_store


class Spool(Ground):
    """The ground, and what stands on it; made by `open_spool`. The destination of a lane is made by the lane."""

    def __init__(self, store: Store, environment: Environment) -> None:
        super().__init__(store, environment)
        self.queue = Queue(self)
        self.state = State(self)
        self.letters = Letters(self)
        self.revisions = Revisions(self, self.letters)
        self.drains = Drains(self)


@asynccontextmanager
async def open_spool(
    directory: Path, keys: Sequence[StateKey] | None, *, disk: Disk | None = None, environment: Environment = REAL
) -> AsyncIterator[Spool]:
    """Owns a state directory while the block runs. Raises StateBusy, StateLocked, StartFailed."""
    async with (
        open_store(
            directory, keys, prepare=schema.prepare, sealed=schema.SEALED, disk=disk, environment=environment
        ) as store,
        trio.open_nursery() as nursery,
    ):
        spool = Spool(store, environment)
        await spool.heed_damage()
        spool.limits = await store.read(limits.load)
        await spool.load_origins()
        store.on_report(lambda report: nursery.start_soon(spool.heed_damage))
        yield spool
        nursery.cancel_scope.cancel("the spool is closed")
