"""What must hold: in each state, and once all faults have ended."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from shipper.sdk.event import Batch
from shipper.spool import dead_letters, doubt
from shipper.spool.schema import BARRIER, REST, SLOT
from shipper.values import Revision
from tests.pipeline.exploration.actor import SEALER, number
from tests.pipeline.exploration.broken import Broken
from tests.pipeline.exploration.world import ORIGIN, Stage, State

PATIENCE = 400
"""Steps in which all is delivered once the destination takes everything."""


def judge(stage: Stage, state: State, *, ends: bool) -> None:
    """Raises Broken if a law does not hold in the present state of a stage, or once it `ends`; the stage is in another
    state afterwards."""
    if wrong := next(broken(stage), None) or (_ends(stage, state) if ends else None):
        raise Broken(wrong)


def broken(stage: Stage) -> Iterator[str]:
    """What does not hold in the present state of a stage."""
    world = stage.world
    waits, letters = waiting(stage), lettered(stage)
    superseded = frozenset(world.versions[:-1])
    final = {n for n in world.entered if world.got[n] or n in letters or (n in superseded and n not in waits)}
    if not world.ended:
        yield from (f"B11: event {n} is lost" for n in world.entered if n not in final and n not in waits)
        yield from (f"O5: event {n} is a dead letter" for n in letters if n not in world.refused)
        drained = _drained(stage)
        yield from (
            f"B1: revision {drained} is drained before event {n}"
            for n, entered in world.entered.items()
            if entered < drained and n not in final
        )
    lost = world.lost if not world.feeding.stable else {}
    yield from (f"Q7: event {n} was sent {count} times" for n, count in world.got.items() if count > 1 + lost.get(n, 0))
    if world.wrong:
        yield f"S1: a request did not stay the same: {world.wrong}"
    if doubt.lanes(stage.db):
        yield "B1: a barrier was settled too early, or too late"
    yield from _counts(stage)


def _drained(stage: Stage) -> int:
    """The newest revision below which no barrier is open."""
    (oldest,) = stage.db.execute("SELECT min(revision) FROM barrier").fetchone()
    return stage.world.at if oldest is None else oldest - 1


def waiting(stage: Stage) -> set[int]:
    """The events that wait on some lane."""
    found = set[int]()
    for lane, seq, kind in stage.db.execute("SELECT lane, seq, kind FROM todo"):
        if kind == BARRIER:
            continue
        table, where = ("rest", "lane = ? AND seq = ?") if kind == REST else ("batch", "? AND seq = ?")
        if kind == SLOT:
            row = stage.db.execute(
                "SELECT coalesce(slot.body, keyed.body) FROM slot JOIN keyed ON keyed.id = slot.keyed"
                " WHERE lane = ? AND seq = ?",
                (lane, seq),
            ).fetchone()
        else:
            row = stage.db.execute(f"SELECT body FROM {table} WHERE {where}", (lane, seq)).fetchone()
        if row is not None:
            found |= _numbers(row[0])
    return found


@lru_cache(10_000)
def _numbers(packed: bytes) -> frozenset[int]:
    return frozenset(map(number, Batch.unpack(packed, origin=ORIGIN, seq=1).own()))


def lettered(stage: Stage) -> set[int]:
    """The events that are dead letters."""
    found = set[int]()
    for lane, seq, item, reason, body in stage.db.execute("SELECT lane, seq, item, reason, body FROM dead_letter"):
        revision = Revision.parse(reason.partition(" ")[0])
        document = dead_letters.content(SEALER, (lane, seq, item), revision, body).document
        found |= {number(event) for event in Batch.documents([document]).own()}
    return found


def _counts(stage: Stage) -> Iterator[str]:
    """Each barrier counts what it found, and what became of it."""
    rows = stage.db.execute(
        "SELECT lane, seq, accepted, delivered + duplicate + dead_letter + dropped + damaged + superseded,"
        " (SELECT coalesce(sum(count), 0) FROM todo WHERE todo.lane = barrier.lane AND kind != ? AND seq < barrier.seq"
        "  AND seq > (SELECT coalesce(max(seq), 0) FROM barrier AS older"
        "   WHERE older.lane = barrier.lane AND older.seq < barrier.seq)) FROM barrier",
        (BARRIER,),
    )
    for lane, seq, accepted, answered, waits in rows:
        if accepted != answered + waits:
            yield f"B11: the barrier {seq} of lane {lane} counts {accepted}, and {answered} + {waits} are there"


def _ends(stage: Stage, state: State) -> str | None:
    """Ends all faults; returns what does not come to its end then."""
    stage.become(state)
    world = stage.world
    world.left = type(world.left)(arrivals=0)
    if world.bad:
        world.left.arrivals = 1  # another event shows that the output works
    world.limits = dead_letters.Limits()
    for actor in world.actors.values():
        actor.limits = world.limits
        if actor.machine.has_room(0.0):
            actor.news = True
    for act in ["renew"] * world.lapsed + ["supply"] * bool(world.withdrawn):
        stage.do(act)
    for _ in range(PATIENCE):
        stage.decide()
        act = next(stage.inner(), None) or next(stage.answers(), None) or next(stage.outer(), None)
        if act is None:
            break
        stage.do(act)
    waits = waiting(stage)
    if waits or stage.db.execute("SELECT 1 FROM barrier").fetchone() is not None or stage.world.order is not None:
        return f"L1: events {sorted(waits)} wait for ever, or a barrier does, or an order"
    return next(broken(stage), None)
