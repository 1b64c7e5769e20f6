"""Faults made by hand in the product: each breaks a promise, and each must be caught by the oracle.

A mutant is a function that puts the fault into the product, through pytest's monkeypatch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any

import pytest
import trio
from msgspec import structs

from shipper.pipeline import plan
from shipper.pipeline.attempts.attempt import Attempt, Trouble
from shipper.pipeline.delivery.lane import Lane
from shipper.pipeline.delivery.machine import Machine
from shipper.pipeline.delivery.session import Facts, Session
from shipper.pipeline.intake.intake import Intake
from shipper.pipeline.intake.port import Port
from shipper.pipeline.keyring import Keyring
from shipper.pipeline.memory.slots import Slot
from shipper.plugin import Answer, Feeding, Outcome
from shipper.policy.document import Node
from shipper.policy.policy import Policy
from shipper.policy.registry import Registry
from shipper.revisions.rollout import Rollout
from shipper.spool import contact, revisions, schema
from shipper.spool.ground import urgent
from shipper.spool.parts.drains import Drains
from shipper.spool.parts.queue import Queue
from shipper.spool.parts.revisions import Revisions
from shipper.spool.queue import Arrival
from shipper.spool.seal import Sealer
from tests.simulation import mutants_of_keys
from tests.simulation.backend import SimulatedOutput
from tests.simulation.stage import Crashed


def drained_at_the_cut(patch: pytest.MonkeyPatch) -> None:
    """`drained` looks at no barrier."""
    original = revisions.drained

    def drained(db: sqlite3.Connection, *arguments: Any) -> Any:
        db.execute("CREATE TEMP TABLE IF NOT EXISTS kept AS SELECT * FROM barrier WHERE 0")
        db.execute("INSERT INTO kept SELECT * FROM barrier")
        db.execute("DELETE FROM barrier")
        ack = original(db, *arguments)
        db.execute("INSERT INTO barrier SELECT * FROM kept")
        db.execute("DELETE FROM kept")
        return ack

    patch.setattr(revisions, "drained", drained)


def acknowledged_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """`emit` returns at once, and stores behind its caller's back."""
    original = Port.emit

    async def emit(self: Port, *batches: Any, **more: Any) -> None:
        async def store() -> None:
            await _quietly(original, self, *batches, **more)

        trio.lowlevel.spawn_system_task(store)
        await trio.lowlevel.checkpoint()

    patch.setattr(Port, "emit", emit)


def refused_is_dead_lettered(patch: pytest.MonkeyPatch) -> None:
    """401 becomes a dead letter."""
    original = Attempt.failed

    def failed(self: Attempt, trouble: Trouble) -> None:
        if not trouble.held:
            return original(self, trouble)
        for piece in self._pieces:
            for position in piece:
                self._note(position, Answer(Outcome.REJECTED, trouble.reason))
        self._pieces.clear()
        return None

    patch.setattr(Attempt, "failed", failed)


def first_lane_only(patch: pytest.MonkeyPatch) -> None:
    """A cut puts its barrier into the first lane that it retires; the others are just retired."""
    original = revisions._put_barrier

    def put(db: sqlite3.Connection, lane: int, seq: int, at: Any) -> None:
        if db.execute("SELECT 1 FROM barrier WHERE seq = ?", (seq,)).fetchone() is None:
            original(db, lane, seq, at)
        else:
            db.execute("UPDATE lane SET active = 0 WHERE id = ?", (lane,))

    patch.setattr(revisions, "_put_barrier", put)


def positions_beside_the_batches(patch: pytest.MonkeyPatch) -> None:
    """The input's position is stored in a transaction of its own, after the batch."""
    original = Queue.enter

    async def enter(self: Queue, arrival: Arrival, *unheard: Any, **options: Any) -> Any:
        batches = Arrival(arrival.revision, arrival.input, arrival.lanes, arrival.batches)
        entered = await original(self, batches, *unheard, **options)
        await original(self, Arrival(arrival.revision, arrival.input, arrival.lanes, (), arrival.positions))
        return entered

    patch.setattr(Queue, "enter", enter)


def enters_under_an_old_revision(patch: pytest.MonkeyPatch) -> None:
    """A batch that was prepared before the cut enters after it, under the old revision."""
    original = schema.get_meta

    def get_meta(db: sqlite3.Connection, key: str) -> Any:
        return _Any() if key == "active" else original(db, key)

    patch.setattr("shipper.spool.queue.get_meta", get_meta)


class _Any(str):
    def __ne__(self, other: object) -> bool:
        return False


def released_while_connected(patch: pytest.MonkeyPatch) -> None:
    """A retired lane settles its barrier within the session, its connections open."""
    original = Session.next

    def next(self: Session, now: float, facts: Facts) -> Any:
        return original(self, now, facts._replace(is_active=True))

    settle = revisions.settle_barrier

    def settle_anyway(db: sqlite3.Connection, lane: int, seq: int, *, connected: bool = False) -> Any:
        return settle(db, lane, seq)

    patch.setattr(Drains, "settle_barrier", urgent(settle_anyway))
    patch.setattr(Session, "next", next)


def forgotten_acks(patch: pytest.MonkeyPatch) -> None:
    """`drained` is said before it is durable."""
    advance = Revisions.advance

    async def early(self: Revisions, *arguments: Any) -> Any:
        looking, ground = copy(self), copy(self.ground)
        looking.ground = ground
        vars(ground)["urgent"] = lambda op: self.ground.urgent(lambda db: _undone(db, op))
        found = await advance(looking, *arguments)
        trio.lowlevel.spawn_system_task(_quietly, advance, self, *arguments)
        return found

    patch.setattr(Revisions, "advance", early)


def _undone(db: sqlite3.Connection, op: Callable[[sqlite3.Connection], Any]) -> Any:
    db.execute("SAVEPOINT look")
    try:
        return op(db)
    finally:
        db.execute("ROLLBACK TO look")
        db.execute("RELEASE look")


async def _quietly(function: Callable[..., Any], *arguments: Any, **more: Any) -> None:
    with suppress(Exception, Crashed, trio.Cancelled):
        await trio.sleep(0.05)
        await function(*arguments, **more)


def newest_secret_wins(patch: pytest.MonkeyPatch) -> None:
    """A known id may come with another secret."""
    patch.setattr(Keyring, "check", lambda self, offered: None)


def nonces_by_the_clock(patch: pytest.MonkeyPatch) -> None:
    """A nonce is not counted, but made of the time."""

    def next_nonce(self: Sealer) -> tuple[bytes, bytes]:
        return self._key_id, int(trio.current_time()).to_bytes(12, "big")

    patch.setattr(Sealer, "_next_nonce", next_nonce)


def retry_after_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A busy destination may say for how long: nobody listens."""
    original = Machine.failed

    def failed(self: Machine, trouble: Trouble, now: float) -> None:
        original(self, Trouble(trouble.reason, trouble.held), now)

    patch.setattr(Machine, "failed", failed)


def held_drains_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """A drain past its deadline is dropped, though the policy says `hold`."""
    original = plan.build

    def build(root: Node, registry: Registry, *how: Any) -> Policy:
        policy = original(root, registry, *how)
        action = "drop" if policy.drain.on_deadline == "hold" else policy.drain.on_deadline
        return structs.replace(policy, drain=structs.replace(policy.drain, on_deadline=action))

    patch.setattr(plan, "build", build)


def inputs_are_all_replaced(patch: pytest.MonkeyPatch) -> None:
    """Each revision closes and opens every input."""
    patch.setattr(Intake, "_is_kept", lambda self, name, input: False)


def the_old_pipeline_drains_first(patch: pytest.MonkeyPatch) -> None:
    """A revision becomes active when nothing waits any more."""
    original = Rollout._bring_up

    async def bring_up(self: Rollout, candidate: Any) -> None:
        ground = self._revisions.ground
        while ground.figures.total().events:
            await ground.room.wait()
        await original(self, candidate)

    patch.setattr(Rollout, "_bring_up", bring_up)


def slots_are_kept(patch: pytest.MonkeyPatch) -> None:
    """A lane that becomes active again keeps its slot, and nobody gives one up."""

    def kept(self: Slot) -> None:
        if self._held is self._slots.asking:
            self._held.release_on_behalf_of(self)
            self._held = None

    patch.setattr(Slot, "give_back", kept)


def nobody_watches(patch: pytest.MonkeyPatch) -> None:
    """A lane without answers and without progress looks healthy."""
    patch.setattr(Lane, "watch", lambda self, *, holds_events: None)


def requests_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Every lane looks as if nobody had ever asked its hosts for anything."""
    patch.setattr(contact, "note", lambda db, lane: None)


def leases_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A timer ends the sessions of a lapsed lease; nobody asks before a request."""
    patch.setattr("shipper.pipeline.destination.client.Fenced", lambda sender, may_begin, cut_off: sender)


def order_forgotten(patch: pytest.MonkeyPatch) -> None:
    """An output wants its events in order: they are fed to it as to any other."""
    original = SimulatedOutput.feeding

    def feeding(self: SimulatedOutput) -> Feeding:
        return replace(original(self), ordered=False, in_flight=self.workers)

    patch.setattr(SimulatedOutput, "feeding", feeding)


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    drained_at_the_cut: "B1",
    acknowledged_before_the_commit: "Q1",
    refused_is_dead_lettered: "O5",
    first_lane_only: "L2",
    positions_beside_the_batches: "B12",
    enters_under_an_old_revision: "L1",
    released_while_connected: "B3",
    forgotten_acks: "B7",
    newest_secret_wins: "B8",
    nonces_by_the_clock: "E2",
    retry_after_forgotten: "O4",
    order_forgotten: "O9",
    held_drains_are_dropped: "B10",
    inputs_are_all_replaced: "B13",
    the_old_pipeline_drains_first: "L3",
    slots_are_kept: "L1",
    nobody_watches: "L8",
    requests_are_forgotten: "T1",
    leases_are_forgotten: "O7",
    **mutants_of_keys.MUTANTS,
}
"""By the law that each of them breaks."""
