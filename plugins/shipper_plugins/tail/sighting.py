"""What was last seen of a stream's file, and whether there is more of it to be looked at, or all of it anew.

A file that is overwritten in place with what it had has no other bytes; when it was written is what tells. If that is
later than when all of it was read, and the file is as long as then at two scans:

- it was written anew, and is read again, where inotify told of a write since then; or where nothing could tell, as the
  input did not run or cannot watch, if a write was the last that happened to it: then it was changed and written in the
  same instant, and read in another. `touch` sets all three; rsync, and who restores a backup, set the time of a write
  before; a new owner or name is a later change.
- otherwise it stays read. So a backup that is restored, `touch`, `chmod` and `rsync --times` give nothing twice.

An inode that is given to another file is told by the time at which that was made, unless it was last written before
that, as a restored backup was.

Refused: to take every later time for another content, as each `touch` would send a file twice; and to ask for the bytes
alone, as a job that says the same each day would be read once. Not covered: a file that is overwritten at once with all
it had and more, whose last write looks like any other; attempts to write to a full disk while nothing runs look like
writing anew, and give a file twice.
"""

from __future__ import annotations

import msgspec


class Sighting(msgspec.Struct, eq=False):
    """Changed by its own methods only."""

    size: int = 0
    """Size on disk, when last looked at or scanned."""
    scanned: tuple[int, int] | None = None
    """Size and modification time on disk, when last scanned."""
    rested: int = 0
    """Size on disk up to which everything had been looked at when it last came to rest."""
    behind: bool = False
    """Whether more was there to be read than what is stored."""
    has_more: bool = False
    """Whether its file had more bytes than the last chunk."""
    moved: int | None = None
    """The scan after which another file was first there when this one was to be opened; None: it was opened since."""
    whole: tuple[int, int] | None = None
    """Size and time of the last write of a plain file, when all of it was read."""
    heard: bool | None = None
    """Whether a write was told of since then; None: nothing could tell."""

    def scan(self, size: int, changed: int) -> bool:
        """A scan saw its file; returns whether that is as it was."""
        before, self.scanned, self.size = self.scanned, (size, changed), size
        return before == self.scanned

    def inherit(self, other: Sighting) -> None:
        """It has the file that another one had."""
        self.scanned, self.size = other.scanned, other.size

    def look(self, size: int) -> None:
        """A turn saw its file."""
        self.size = size

    def rest(self, size: int, written: int = 0, *, heard: bool = False) -> bool:
        """All was looked at, up to this size on disk; returns whether a plain file was written without having grown.

        `heard` is whether a write may have been told of since it was looked at.
        """
        self.rested = size
        if not written:
            return False
        if self.is_later(size, written):
            return True
        self.whole, self.heard = (size, written), heard
        return False

    def hear(self) -> None:
        """It was written, as inotify tells."""
        self.heard = True

    def is_later(self, size: int, written: int) -> bool:
        """Whether a file of this size was written after all of it was read, and has not grown."""
        return self.whole is not None and self.whole[0] == size and written > self.whole[1]

    def accept(self, written: int) -> None:
        """That it was written later says nothing."""
        if self.whole is not None:
            self.whole, self.heard = (self.whole[0], written), False

    def take(self, *, has_more: bool, behind: bool | None) -> None:
        """A chunk was taken; `behind` is None if it left nothing to store."""
        self.has_more = has_more
        self.behind = self.behind if behind is None else behind

    def open(self) -> None:
        """Its file was there when it was to be opened."""
        self.moved = None

    def miss(self, scans: int) -> bool:
        """Another file was there, after so many scans; returns whether the next scan may explain it."""
        self.moved = scans if self.moved is None else self.moved
        return scans <= self.moved + 1  # the scan that was under way may have looked before it moved
