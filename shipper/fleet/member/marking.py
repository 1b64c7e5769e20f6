"""`restored/NAME`: the record by which everybody sees that a member takes no part, since it doubts the store."""

from __future__ import annotations

from typing import Literal

from shipper.fleet.member.head import KnownHead
from shipper.fleet.member.order import position
from shipper.fleet.member.steps import Facts, Mark, Seen
from shipper.fleet.memory import Memory
from shipper.fleet.records import Restored


class Marking:
    """The mark as the store has it."""

    def __init__(self, memory: Memory) -> None:
        self._mark: Restored | None = None
        """What the store has; None for no mark, or a forged one."""
        self._revision = 0
        self._directories = frozenset({(memory.directory, memory.inode)})
        """Ids that this directory has had, with its inode."""

    def saw(self, seen: Seen) -> None:
        """A look has found this."""
        self._mark, self._revision = seen.restored, seen.restored_revision

    def marked(self, mark: Restored | None, revision: int) -> None:
        """A mark was written as this revision, 0 if it was removed."""
        self._mark, self._revision = mark, revision

    def renamed(self, memory: Memory) -> None:
        """The directory has another id now."""
        self._directories |= {(memory.directory, memory.inode)}

    def apart(self, memory: Memory, known: KnownHead, cause: Literal["store", "clone"], facts: Facts) -> Mark | None:
        """Returns the step by which the store says that this member takes no part; None if it says that."""
        what = Restored(
            memory.member,
            memory.directory,
            memory.inode,
            max(memory.epoch, position(known.newest)[0]),
            known.newest,
            memory.revision,
            cause,
            known.seen,
            {id: [*facts.contents[id]] for id in sorted(facts.using) if id in facts.contents},
        )
        return Mark(what, self._revision) if what != self._mark else None

    def ours(self) -> Mark | None:
        """Returns the step that removes the mark, as this member takes part; one of another directory stays."""
        if not self._revision:
            return None
        is_own = self._mark is None or (self._mark.directory, self._mark.inode) in self._directories
        return Mark(None, self._revision) if is_own else None
