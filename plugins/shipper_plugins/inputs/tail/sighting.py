"""What was last seen of a stream's file, and whether there is more of it to be looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Sighting:
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

    def rest(self, size: int) -> None:
        """All was looked at, up to this size on disk."""
        self.rested = size

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
