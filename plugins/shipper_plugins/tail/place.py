"""How far a content was read: a value, which another one replaces when the reading goes on."""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from shipper_plugins.tail.content import WINDOW, Look, checksum


def fingerprint(content: bytes) -> str:
    """128 bits of SHA-256, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()[:32]


NOTHING = fingerprint(b"")


class Place(msgspec.Struct, frozen=True):
    """An offset, and what tells that the bytes before it are those that were read."""

    offset: int = 0
    tail: str = NOTHING
    """The fingerprint of the up to 256 bytes before the offset."""
    crc: int = 0
    """The checksum of the bytes from `since` to the offset."""
    since: int = 0
    """Where reading began."""
    skipping: bool = False
    """Whether the offset is inside a line that was cut: what is left of it is skipped."""
    done: int | None = None
    """The size on disk of a compressed file, or of a copy, that was read to its end."""

    def after(self, look: Look, consumed: int, *, skipping: bool, done: int | None) -> Place:
        """The place so many bytes further, of those that were seen here."""
        if not consumed:
            return replace(self, skipping=skipping, done=done)
        window = look.found[max(0, consumed - WINDOW) : consumed]
        missing = WINDOW - len(window)
        tail = fingerprint((look.before[-missing:] if missing else b"") + window)
        crc = checksum(memoryview(look.found)[:consumed], self.crc)
        return Place(self.offset + consumed, tail, crc, self.since, skipping, done)

    def follows(self, before: bytes) -> bool:
        """Whether these are the bytes before the offset."""
        return len(before) == min(self.offset, WINDOW) and fingerprint(before) == self.tail


BEGINNING = Place()
