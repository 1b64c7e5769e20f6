"""A mutant on trial: its own check first, then wider ones, until one fails.

What was found is kept in a file, by a digest of the fault, of the program and of its tests: a run that was interrupted
goes on where it stopped, and after a change all are tried again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from tests.mutants import check, tree
from tests.mutants.source import Program, Stale

SECONDS = 120.0
WIDER_SECONDS = 300.0
KEPT = tree.ROOT / ".cache" / "mutants.json"
KEPT_GENERATED = tree.ROOT / ".cache" / "generated.json"


class Fault(Protocol):
    """What is put on trial: made by hand or generated."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def fault(self) -> str: ...
    @property
    def check(self) -> str: ...
    @property
    def checks(self) -> Sequence[str]: ...
    def changed(self, program: Program) -> dict[str, str]: ...
    def digest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a mutant."""

    settlement: Literal["killed", "survived", "hung", "stale", "broken"]
    by: str
    """What killed it, or why nothing can be said."""
    seconds: float = 0.0
    wider: bool = False
    """Whether its own check let it live."""


def trial(mutant: Fault, program: Program, root: Path = tree.ROOT) -> Result:
    """Put the fault into a copy of the tree, and check that."""
    seconds = 0.0
    try:
        texts = mutant.changed(program)
    except Stale as error:
        return Result("stale", str(error))
    with tree.copied(root) as copy:
        tree.put(texts, copy)
        for number, one in enumerate(mutant.checks):
            found = check.run(one, copy, WIDER_SECONDS if number else SECONDS)
            seconds += found.seconds
            if found.settlement == "hung" or found.settlement == "broken":
                return Result(found.settlement, found.by, seconds)
            if found.settlement == "failed":
                return Result("killed", found.by, seconds, wider=number > 0)
    return Result("survived", "", seconds)


def sound(mutants: Sequence[Fault], root: Path = tree.ROOT) -> str | None:
    """What fails on a tree without any fault, so that its failing says nothing; None: every check passes there."""
    checks = dict.fromkeys(mutant.check for mutant in mutants)
    simulated = [one for one in checks if one.startswith("python -m ")]
    selected = " ".join(one for one in checks if one not in simulated)
    with tree.copied(root) as copy:
        for one in (*simulated, *([selected] if selected else [])):
            found = check.run(one, copy, WIDER_SECONDS + 2 * len(checks))
            if found.settlement != "passed":
                return found.by
    return None


@dataclass(slots=True)
class Kept:
    """Results of former runs."""

    path: Path = KEPT
    tree: str = field(default_factory=tree.digest)
    _found: dict[str, Any] = field(default_factory=dict)

    def load(self) -> Kept:
        """What the file holds, if it can be read."""
        try:
            self._found = json.loads(self.path.read_text())
        except (OSError, ValueError):
            self._found = {}
        return self

    def get(self, mutant: Fault) -> Result | None:
        """The result, if neither fault nor tree has changed since."""
        entry = self._found.get(mutant.name, {})
        return Result(**entry["result"]) if entry.get("key") == self._key(mutant) else None

    def put(self, mutant: Fault, result: Result) -> None:
        """Keep a result; one that says nothing is not kept."""
        if result.settlement in ("hung", "broken"):
            return
        self._found[mutant.name] = {"key": self._key(mutant), "result": asdict(result)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".new")
        part.write_text(json.dumps(self._found, indent=1, sort_keys=True))
        part.replace(self.path)

    def untried(self, mutants: Sequence[Fault]) -> Iterator[Fault]:
        """Those without a result."""
        return (mutant for mutant in mutants if self.get(mutant) is None)

    def _key(self, mutant: Fault) -> str:
        return f"{self.tree}:{mutant.digest()}"
