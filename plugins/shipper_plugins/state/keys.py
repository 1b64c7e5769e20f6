"""The keys of an input, and what a look at the files changes; without a call to a file system.

A key has the path of its file, and that is stored: so a file that is removed while the input is stopped is noticed.
What was read of a file counts as long as the file system shows the same file; but not if the file had changed shortly
before, as it may have changed again within the same time stamp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from shipper_plugins.state.names import is_text, key_of
from shipper_plugins.state.view import View
from shipper_plugins.tail.discovery import Found

RECENT = 2.0
"""Seconds; coarser than the clock of any file system."""

Facts: TypeAlias = tuple[tuple[int, int], int, int, int]


class Known(NamedTuple):
    """A key: its file, and what this process has read of it; no facts if it must be read again."""

    path: str
    facts: Facts | None = None
    digest: bytes = b""


class Refused(NamedTuple):
    """A file that holds no valid document."""

    facts: Facts
    why: str


@dataclass(slots=True)
class Plan:
    """What a look asks for."""

    read: list[tuple[str, Found]] = field(default_factory=list)
    """Files to read, with their keys."""
    removed: list[str] = field(default_factory=list)
    """Keys to delete."""
    problems: dict[str, str] = field(default_factory=dict)
    """By path, why it cannot be taken."""
    left_out: int = 0
    """Files for which there is no room."""


def facts_of(found: Found) -> Facts:
    """Returns what identifies an unchanged file."""
    return found.file, found.size, found.changed, found.altered


def is_recent(found: Found, view: View) -> bool:
    """Whether a file may be changing just now, so that it must be looked at again."""
    return found.altered > view.began - int(RECENT * 1e9)


def plan(
    view: View, known: Mapping[str, Known], refused: Mapping[str, Refused], covers: Callable[[str], bool], most: int
) -> Plan:
    """Returns what to do; `covers`: whether the input's paths name a path, `most` is the largest number of keys."""
    made = Plan(problems=dict(view.problems))
    files = _files(view, made)
    for key, has in known.items():
        if has.path in view.removed and key not in files:
            made.removed.append(key)
        elif (why := view.unclear.get(has.path)) and covers(has.path):
            made.problems[has.path] = why
            if files.pop(key, None) is not None:
                made.problems[has.path] += "; another file of its key is not taken as long as this cannot be said"
    room = most - len(known) + len(made.removed)
    for key, found in files.items():
        at, facts = known.get(key), facts_of(found)
        if at is not None and (at.path, at.facts) == (found.path, facts):
            continue
        if found.path in refused and refused[found.path].facts == facts:
            made.problems[found.path] = refused[found.path].why
        elif at is None and room <= 0:
            made.left_out += 1
        else:
            made.read.append((key, found))
            room -= at is None
    return made


def _files(view: View, made: Plan) -> dict[str, Found]:
    """Returns the one file of each key; those that clash become problems."""
    files: dict[str, Found] = {}
    clashing: set[str] = set()
    for path, found in view.files.items():
        key = key_of(path)
        if key is None:
            continue
        if not is_text(key):
            made.problems[path] = "its name is not UTF-8"
        elif (other := files.setdefault(key, found)) is not found:
            made.problems[other.path] = f"{path} has the same key, so neither is taken"
            clashing.add(key)
    return {key: found for key, found in files.items() if key not in clashing}
