"""A chunk of a stream: what is stored of it, and where the stream stands after that."""

from __future__ import annotations

from dataclasses import dataclass

from shipper_plugins.inputs.tail.content import WINDOW, Look, checksum
from shipper_plugins.inputs.tail.lines import Cut
from shipper_plugins.inputs.tail.stream import Stream, fingerprint


@dataclass(frozen=True, slots=True)
class Taken:
    """A chunk that was read and cut, and is to be stored."""

    stream: Stream
    look: Look
    cut: Cut
    final: bool
    done: int | None
    """The size of a compressed file that was read to its end."""

    @property
    def is_stored(self) -> bool:
        """Whether there is anything to store."""
        return bool(self.cut.batches) or self.done is not None

    @property
    def behind(self) -> bool:
        """Whether the file had more than was taken."""
        return not self.look.at_end or self.cut.consumed < len(self.look.found)

    def tail(self) -> str:
        """The fingerprint of what stands before the new offset."""
        if not self.cut.consumed:
            return self.stream.tail
        window = self.look.found[max(0, self.cut.consumed - WINDOW) : self.cut.consumed]
        missing = WINDOW - len(window)
        return fingerprint((self.look.before[-missing:] if missing else b"") + window)

    def crc(self) -> int:
        """The checksum of what stands before the new offset."""
        return checksum(memoryview(self.look.found)[: self.cut.consumed], self.stream.crc)

    def position(self) -> bytes:
        """Where the stream stands after this."""
        offset, skipping = self.stream.offset + self.cut.consumed, self.cut.skipping
        return self.stream.position(
            offset, self.tail(), self.crc(), skipping=skipping, done=self.done, behind=self.behind
        )
