"""What all parts of a simulated world share: randomness by name, the notes of what happened, and the crash."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import trio

from tests.simulation.clock import Alarm, Clock
from tests.simulation.scenario import Scenario

MOST_TURNS = 500_000
"""Of trio's loop: hundreds of times what a world takes."""


class Crashed(BaseException):
    """The process is dead: what its code still does has no effect, whatever it catches."""


class Note(NamedTuple):
    """Something that an outsider can see; `n` orders all notes of a world."""

    n: int
    at: float
    life: int
    kind: str
    facts: dict[str, Any]


class Stage:
    """One for each world; `current` is that of the world that runs."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.clock = Clock(MOST_TURNS, self._end_livelock)
        self.notes: list[Note] = []
        self.log: list[str] = []
        self.faults: Counter[str] = Counter()
        self.life = 0
        self.alive = False
        self.healed = False
        self.crash_in: int | None = None
        self.on_crash: list[Callable[[], None]] = []
        self.wall_offset = 0.0
        self.slept = 0.0
        """Seconds in which the machine slept, and no clock but that of its boot went on."""
        self.nursery: trio.Nursery
        self._streams: dict[str, Random] = {}
        self._changed = trio.Event()

    # -- randomness ----------------------------------------------------------------------------------------------------

    def random(self, name: str) -> Random:
        """The stream of random numbers of this name."""
        if name not in self._streams:
            self._streams[name] = Random(f"{self.scenario.seed}/{name}")
        return self._streams[name]

    def strikes(self, fault: str) -> bool:
        """Whether a fault of this kind happens now."""
        rate = self.scenario.rates.get(fault, 0.0)
        if self.healed or not rate or self.random(fault).random() >= rate:
            return False
        self.faults[fault] += 1
        return True

    async def pause(self, name: str, typical: float = 0.004) -> None:
        """What something takes: often nothing or next to nothing, sometimes longer."""
        draw = self.random(name).random()
        if draw < 0.4:
            await trio.lowlevel.checkpoint_if_cancelled()
        elif draw < 0.6:
            await trio.lowlevel.checkpoint()
        else:
            await self.clock.wait(Alarm(), typical * (draw - 0.6) * 5)

    @property
    def boottime(self) -> float:
        return self.clock.now + self.slept

    # -- what happened -------------------------------------------------------------------------------------------------

    def note(self, kind: str, /, **facts: Any) -> Note:
        """Write down what an outsider saw."""
        return self.record(self.life, kind, facts)

    def record(self, life: int, kind: str, facts: dict[str, Any]) -> Note:
        """The same, of a process of this number."""
        note = Note(len(self.notes), self.clock.now, life, kind, facts)
        self.notes.append(note)
        self._changed.set()
        self._changed = trio.Event()
        return note

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that can change only by what is noted."""
        while not condition():
            await self._changed.wait()

    async def noted(self, is_it: Callable[[Note], bool], since: int = 0) -> Note:
        """Wait for such a note, the `since`-th or a later one."""
        while True:
            for note in self.notes[since:]:
                if is_it(note):
                    return note
            since = len(self.notes)
            await self._changed.wait()

    # -- the crash -----------------------------------------------------------------------------------------------------

    def effect(self) -> None:
        """The process is about to change something outside: the place where it may die instead."""
        if not self.alive:
            raise Crashed
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                self.crash()
                raise Crashed

    def crash(self) -> None:
        """kill -9, by a fault."""
        self.faults["crash"] += 1
        self.note("crashed")
        self.kill()

    def kill(self) -> None:
        """Be dead, now."""
        self.alive, self.crash_in = False, None
        for react in self.on_crash:
            react()

    def _end_livelock(self) -> None:
        """The world goes round and round without getting anywhere."""
        self.note("livelock")
        self.kill()
        self.nursery.cancel_scope.cancel("a livelock")


def digest(notes: Sequence[Note]) -> str:
    """Of all that happened; two runs with the same seed have the same."""
    sha = hashlib.sha256()
    for note in notes:
        sha.update(repr((note.n, round(note.at, 9), note.life, note.kind, sorted(note.facts.items()))).encode())
    return sha.hexdigest()


_current: list[Stage] = []


def current() -> Stage:
    """The stage of the world that runs now; plugins are made by the product and have no other way to it."""
    return _current[-1]


def enter(stage: Stage) -> None:
    """Make it the current one."""
    _current[:] = [stage]
