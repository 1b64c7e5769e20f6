"""What a stream is known by: a value, which `registry` replaces."""

from __future__ import annotations

import msgspec

from shipper_plugins.tail.content import File
from shipper_plugins.tail.place import NOTHING, Place, fingerprint

NOWHERE = (0, 0)
"""Device and inode in the position of a stream whose file has other content now."""


class Identity(msgspec.Struct, frozen=True):
    """The file of a content, and its first bytes."""

    path: str
    file: File | None
    """None once it is gone, or has other content."""
    head: str = NOTHING
    """The fingerprint of the first bytes."""
    head_length: int = 0
    compressed: bool = False
    target: str = ""
    """Where the file really is, if its path is a link: its rotated copies are there."""
    missing: File | None = None
    """The file that was missed; it may come back."""
    ended: bool = False
    """Whether the file was given up already; nobody needs to look for it."""
    left: int = 0
    """Wall-clock nanoseconds at which its file was found to be gone or to have other content; 0 while it is there."""
    born: int = 0
    """When the file was made, in nanoseconds; 0 if that is not known."""

    @property
    def paths(self) -> list[str]:
        """The path, and where that leads to."""
        return [self.path, self.target] if self.target else [self.path]

    def is_older(self, born: int, written: int) -> bool:
        """Whether another file has its inode, one that was made and written later."""
        return 0 < self.born != born and 0 < born <= written

    def begins(self, head: bytes) -> bool:
        """Whether a file has these first bytes; another one may have its inode now."""
        return len(head) >= self.head_length and fingerprint(head[: self.head_length]) == self.head


class Remembered(msgspec.Struct, frozen=True):
    """A stream as it was in an instant, for a thread that looks while the stream goes on."""

    key: str
    identity: Identity
    place: Place
