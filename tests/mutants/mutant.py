"""A fault made by hand: a table of a file in `faults`, which says what it breaks and what is to kill it.

    [settles_before_the_answers]
    breaks = "B1 `drained` comes after the last answer of every older event"
    fault = "a lane settles its barrier when it comes to it"
    resembles = "FLINK-17568"                                         # where it is known
    killed_by = "tests/pipeline/test_lane.py::test_a_parked_event_keeps_the_barrier_open"
    function = "Backlog.barrier_is_reached"
    module = "shipper/pipeline/delivery/backlog.py"                            # where several have a function so named
    old = '''return lowest > self.barriers[0]'''
    new = '''return True'''

A fault that two places prevent has a `[[settles_before_the_answers.also]]` with another `function`, `old` and `new`.

The letter is that of the property (B barrier, Q queue, K keyed state, E encryption, O output, P process, L liveness,
R resources, T trust; S secrets, which has no number). A check is a selection for pytest, or
`python -m tests.simulation …`.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants.source import Edit, Program

FAULTS = Path(__file__).parent / "faults"
WORLDS = "python -m tests.simulation --seed 0 --worlds 300"
_WORDS = ("breaks", "fault", "resembles", "killed_by")
_OF_EDIT = {"function", "old", "new"}
_PROPERTY = re.compile(r"([BFQEKOPLRST]\d*) (.+)")


class BadFault(ValueError):
    """A table that lacks something, or has something unknown."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault."""

    name: str
    """The file, without its suffix, and the table, such as `spool/commit_error_ignored`."""
    kind: str
    """The letter and number of the property."""
    breaks: str
    """The property, in words."""
    fault: str
    resembles: str
    check: str
    edits: tuple[Edit, ...]

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any]) -> Mutant:
        """Raises BadFault."""
        words = {key: value for key in _WORDS if isinstance(value := table.get(key, ""), str)}
        own = {key: value for key, value in table.items() if key not in (*_WORDS, "also")}
        found = _PROPERTY.fullmatch(words.get("breaks", ""))
        if found is None or not (words.get("fault") and words.get("killed_by")):
            raise BadFault(f"{name} needs `breaks` (LETTER words), `fault` and `killed_by`")
        edits = tuple(_edit(name, each) for each in (own, *table.get("also", ())))
        check = " ".join(words["killed_by"].split())
        return cls(name, found[1], found[2], words["fault"], words.get("resembles", ""), check, edits)

    @property
    def checks(self) -> tuple[str, ...]:
        """What is to kill it; then the whole modules of the tests which that names, and simulated worlds."""
        modules = dict.fromkeys(one.partition("::")[0] for one in self.check.split() if one.startswith("tests/"))
        return (self.check, *([" ".join(modules)] if modules else []), WORLDS)

    def changed(self, program: Program) -> dict[str, str]:
        """The modules with this fault. Raises Stale."""
        return program.changed(self.edits)

    def digest(self) -> str:
        """Another one for each change of the fault."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


def _edit(name: str, table: Mapping[str, Any]) -> Edit:
    if not _OF_EDIT <= table.keys() <= {*_OF_EDIT, "module"} or not all(isinstance(one, str) for one in table.values()):
        raise BadFault(f"{name} needs the texts `function`, `old` and `new`, perhaps `module`, and has {sorted(table)}")
    return Edit(**table)


def all_mutants(below: Path = FAULTS) -> list[Mutant]:
    """Every fault made by hand, by name. Raises BadFault."""
    return [
        Mutant.of(f"{path.stem}/{name}", table)
        for path in sorted(below.glob("*.toml"))
        for name, table in sorted(tomllib.loads(path.read_text()).items())
    ]
