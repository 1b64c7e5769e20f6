"""A world: one scenario, run from its first process to the last answer."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from unittest import mock

import trio

from tests.march.kind import Kind, Violation
from tests.simulation import stage as stages
from tests.simulation.backend import BACKENDS, NOWHERE, Backend
from tests.simulation.case import FINAL
from tests.simulation.disk import Disk
from tests.simulation.oracle import judge
from tests.simulation.ports import quiet
from tests.simulation.scenario import Scenario
from tests.simulation.stage import Note, Stage, digest
from tests.simulation.steps import follow
from tests.simulation.streams import STREAMS, Stream
from tests.simulation.supervisor import Supervisor
from tests.simulation.things import NAME, SHELVES, Things

HEALING_SECONDS = 900.0
"""Within which, after the last fault, everything must be delivered, drained and released."""

EVENTS = 5
"""Of each stream, while a destination is away."""


@dataclass(frozen=True)
class Outcome:
    """What became of a world."""

    scenario: Scenario
    violations: list[Violation]
    notes: list[Note]
    faults: Counter[str]
    log: list[str]

    @cached_property
    def trace(self) -> str:
        """A digest of the notes."""
        return digest(self.notes)

    @property
    def figures(self) -> Counter[str]:
        """What there was."""
        return Counter(
            {
                "simulated seconds": round(self.notes[-1].at),
                "barriers acknowledged": self.barriers,
                "processes": self.processes,
                "events": self.events,
            }
        )

    def told(self) -> Iterator[str]:
        """All that happened."""
        for note in self.notes:
            yield f"{note.n:5} {note.at:9.4f} {note.life} {note.kind:9} {note.facts}"
        yield from (*self.log, self.trace)

    @property
    def processes(self) -> int:
        """How many there were, one after the other."""
        return self.notes[-1].life

    @property
    def events(self) -> int:
        """How many an input has emitted."""
        return sum(len(note.facts["numbers"]) for note in self.notes if note.kind == "emitted")

    @cached_property
    def barriers(self) -> int:
        """Revisions that put a barrier, and of which `drained` was said: by its own line, or by that of a newer one.

        Of several that drain at once, only the newest has a line, which implies the others.
        """
        acks = [note.facts["message"] for note in self.notes if note.kind == "said"]
        acks = [(ack["stage"], (ack["epoch"], ack["revision"]), ack["change"]) for ack in acks if ack["type"] == "ack"]
        drained = max((at for stage, at, _ in acks if stage == "drained"), default=(-1, -1))
        return len({at for stage, at, change in acks if stage == "active" and change == "barrier" and at <= drained})


def run(scenario: Scenario) -> Outcome:
    """Run a world and judge it. Deterministic: the same scenario has the same notes."""
    stage = Stage(scenario)
    stages.enter(stage)
    disk = Disk(stage)
    stage.on_crash.append(disk.crash)
    BACKENDS.update({name: Backend(stage, name) for name in ("east", "west", NOWHERE)})
    STREAMS.update({name: Stream(name) for name in ("pull", "push")})
    SHELVES[NAME] = Things(stage, scenario.keys)
    violations: list[Violation] = []
    was_on = gc.isenabled()
    gc.disable()
    try:
        with scheduled(scenario.seed), _limited(scenario), stage.clock.at_work():
            violations += trio.run(_live, stage, disk, clock=stage.clock)
    finally:
        disk.db.close()
        if was_on:
            gc.enable()
    violations += judge(stage.notes, scenario)
    return Outcome(scenario, violations, stage.notes, stage.faults, stage.log)


@contextmanager
def scheduled(seed: int) -> Iterator[None]:
    """trio draws the order of tasks from this seed (as its own support for Hypothesis does)."""
    with mock.patch.object(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True):
        trio._core._run._r.seed(f"schedule {seed}")
        yield


@contextmanager
def _limited(scenario: Scenario) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in scenario.limits:
            stack.enter_context(mock.patch(name, value))
        yield


async def _live(stage: Stage, disk: Disk) -> list[Violation]:
    supervisor = Supervisor(stage, disk)
    violations: list[Violation] = []
    with quiet(stage):
        async with trio.open_nursery() as stage.nursery:
            stage.nursery.start_soon(supervisor.keep_alive)
            await follow(supervisor, stage.scenario.steps)
            await supervisor.heal()
            violations += await _others_go_on(stage, supervisor)
            with trio.move_on_after(HEALING_SECONDS) as patience:
                await _come_to_rest(stage, supervisor)
            if patience.cancelled_caught:
                violations.append(Violation("L1", f"not at rest {HEALING_SECONDS:.0f} s after the last fault"))
            stage.kill()
            stage.nursery.cancel_scope.cancel("the world is over")
    return violations


async def _others_go_on(stage: Stage, supervisor: Supervisor) -> list[Violation]:
    """L3, L7: while one destination refuses everything, or all of them one stream, a revision becomes active, and what
    else is written reaches them."""
    if (away := stage.scenario.away) is None:
        return []
    _refuse(away, True)
    last, outputs = supervisor.sent[-1].at[1], supervisor.shape.outputs
    missing: set[tuple[str, str, int]] = set()
    with trio.move_on_after(HEALING_SECONDS) as patience:
        answered = await stage.noted(lambda note: _said(note, stage="active", revision=last))
        for stream in STREAMS.values():
            stream.write(EVENTS)
            stage.note("written", stream=stream.name, upto=stream.written)
            numbers = range(stream.written - EVENTS + 1, stream.written + 1)
            reached = [output for output in outputs if away not in (outputs[output].to, stream.name)]
            missing |= {(output, stream.name, n) for output in reached for n in numbers}
        while missing:
            answered = await stage.noted(lambda note: note.kind == "answered", answered.n + 1)
            missing -= set(_final(answered))
    _refuse(away, False)
    text = f"{away} was refused, and {sorted(missing) or 'no revision became active'} waited for it"
    return [Violation("L7" if away in STREAMS else "L3", text)] if patience.cancelled_caught else []


def _refuse(away: str, is_away: bool) -> None:
    for backend in BACKENDS.values():
        backend.away = is_away and away == backend.name
        backend.refused = {away} & STREAMS.keys() if is_away else set()


def _final(answered: Note) -> Iterator[tuple[str, str, int]]:
    for event, outcome in zip(answered.facts["events"], answered.facts["answers"], strict=True):
        if outcome in FINAL:
            yield answered.facts["output"], event.stream, event.number


async def _come_to_rest(stage: Stage, supervisor: Supervisor) -> None:
    """The last revision is drained, all that was written is accepted; then the process is asked, and told to stop."""
    last = supervisor.sent[-1].at[1]
    await stage.noted(lambda note: _said(note, stage="drained", revision=last))
    await stage.until(lambda: all(len(stream.accepted) >= stream.written for stream in STREAMS.values()))
    await stage.until(lambda: SHELVES[NAME].is_read)
    await _empty(stage, supervisor)
    page = [{"id": 0}]
    while page:
        asked = supervisor.act("dead_letters", {"list": True, "after": page[-1]["id"]})
        answer = await stage.noted(lambda note, asked=asked: _said(note, type="result", id=asked))  # type: ignore[misc]
        page = answer.facts["message"]["result"]["dead_letters"]
    supervisor.is_over = True
    since = len(stage.notes)
    stage.note("at_rest")
    supervisor.node.send(b'{"type":"stop","within_seconds":600}\n')
    await stage.noted(lambda note: note.kind in ("ended", "failed"), since)


async def _empty(stage: Stage, supervisor: Supervisor) -> None:
    """Ask until nothing waits, and nothing has failed; twice, since the first may have been on its way already."""
    calm = 0
    while calm < 2:
        since = len(stage.notes)
        supervisor.node.send(b'{"type":"observe"}\n')
        observed = await stage.noted(lambda note: _said(note, type="observed"), since)
        message = observed.facts["message"]
        calm = calm + 1 if message["queue"]["events"] == 0 and message["state"] != "FAILED" else 0
        await trio.sleep(1.0)


def _said(note: Note, **fields: object) -> bool:
    message = note.facts.get("message", {})
    return note.kind == "said" and all(message.get(name) == value for name, value in fields.items())


WORLDS = Kind("python -m tests.simulation", Scenario.draw, run)
