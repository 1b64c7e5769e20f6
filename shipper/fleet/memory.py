"""What a member of a fleet remembers: the values that `home` keeps in files."""

from __future__ import annotations

from typing import Literal

import msgspec

from shipper.fleet.records import Version

FORMAT = 1
"""Of both files; a newer one is refused and not changed."""

MOST_WRITERS = 16
"""Processes that are killed in a row, each with a write under way."""


class Memory(msgspec.Struct, frozen=True):
    """What a member must know for certain after a crash."""

    fleet: str
    member: str
    directory: str
    """The id of this state directory."""
    state: Literal["new", "member", "left", "forgotten"] = "new"
    """What it is in the fleet, as it knew last; only a `member` starts without the store."""
    newest: Version | None = None
    """The newest version that it has seen."""
    head: tuple[int, int] = (0, 0)
    """`Head.order` of the newest head that it has seen."""
    epoch: int = 0
    """For which it registered last."""
    instance: str = ""
    """The process of the last write."""
    writers: tuple[str, ...] = ()
    """Processes before it whose last write may still arrive, the newest last: none of a later one was done since."""
    write: int = 0
    """The number of the last write, which the store may have or not."""
    revision: int = 0
    """The revision of a write before that, which the store certainly had; 0 for none."""
    fence: bool = False
    """Whether the store may have a report that promises a fence."""
    released: tuple[str, ...] = ()
    """The ids that it knows to be released, the newest last."""
    inode: int = 0
    """Of the directory in which this was saved; 0 if that is unknown."""
    format: int = FORMAT


class Kept(msgspec.Struct, frozen=True):
    """A version as it came from the store."""

    version: Version
    text: bytes
    """The sealed `Text`."""
    secrets: dict[str, bytes]
    """The sealed `Secret` records by id."""
    format: int = FORMAT

    def __repr__(self) -> str:
        return f"<Kept {self.version}>"
