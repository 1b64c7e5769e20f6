"""A mutant: a patch file, whose header says what it breaks and what is to kill it.

    Breaks: B1 `drained` comes after the last answer of every older event
    Fault: a lane settles its barrier when it comes to it
    Resembles: FLINK-17568                                            (where it is known)
    Killed by: tests/pipeline/test_lane.py::test_a_parked_event_keeps_the_barrier_open_and_no_connection

    --- a/shipper/pipeline/session.py
    +++ b/shipper/pipeline/session.py
    …

The letter is that of the property (B barrier, Q queue, E encryption, O output, P process, L liveness, R resources,
T trust; S secrets, which has no number). A check is a selection for pytest, or `python -m tests.simulation …`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PATCHES = Path(__file__).parent / "patches"
_KNOWN = ("Breaks", "Fault", "Resembles", "Killed by")
_PROPERTY = re.compile(r"([BQEOPLRST]\d*) (.+)")


class BadHeader(ValueError):
    """A patch whose header lacks something."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault."""

    name: str
    """The patch's path below `patches`, without its suffix, such as `spool/commit_error_ignored`."""
    path: Path
    letter: str
    breaks: str
    """The property, in words."""
    fault: str
    resembles: str
    check: str

    @classmethod
    def read(cls, path: Path, below: Path = PATCHES) -> Mutant:
        """Raises BadHeader."""
        header = dict(_fields(path.read_text()))
        if unknown := header.keys() - set(_KNOWN):
            raise BadHeader(f"{path.name}: {', '.join(sorted(unknown))}: no such line of a header")
        found = _PROPERTY.fullmatch(header.get("Breaks", ""))
        if found is None or not header.get("Fault") or not header.get("Killed by"):
            raise BadHeader(f"{path.name}: a header has the lines `Breaks: LETTER words`, `Fault:` and `Killed by:`")
        name = path.relative_to(below).with_suffix("").as_posix()
        return cls(name, path, found[1], found[2], header["Fault"], header.get("Resembles", ""), header["Killed by"])

    @property
    def files(self) -> list[str]:
        """The files that it changes."""
        return re.findall(r"^\+\+\+ b/(\S+)$", self.path.read_text(), re.M)

    def digest(self) -> str:
        """Another one for each change of the patch or its header."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """The lines `Name: value` above the patch; one that begins with a space goes on with the one before it."""
    header, _, _ = text.partition("\n--- a/")
    for field in re.sub(r"\n[ \t]+", " ", header).strip().splitlines():
        name, _, value = field.partition(": ")
        yield name, value.strip()


def all_mutants(below: Path = PATCHES) -> list[Mutant]:
    """Every mutant, by name."""
    return [Mutant.read(path, below) for path in sorted(below.glob("**/*.patch"))]
