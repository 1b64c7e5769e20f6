"""A chunk of a stream: what is stored of it, and where the stream stands after that."""

from __future__ import annotations

import msgspec

from shipper_plugins.tail.content import Look
from shipper_plugins.tail.lines import Cut
from shipper_plugins.tail.place import Place
from shipper_plugins.tail.stream import Stream


class Taken(msgspec.Struct, frozen=True):
    """A chunk that was read and cut, and is to be stored."""

    stream: Stream
    look: Look
    cut: Cut
    final: bool
    place: Place
    """Where the stream stands after it."""

    @classmethod
    def of(cls, stream: Stream, look: Look, cut: Cut, *, final: bool) -> Taken:
        """What was cut of what was seen at the place of a stream."""
        is_done = stream.identity.compressed and look.complete and cut.consumed == len(look.found)
        done = look.size if is_done else None
        return cls(stream, look, cut, final, stream.place.after(look, cut.consumed, skipping=cut.skipping, done=done))

    @property
    def is_stored(self) -> bool:
        """Whether there is anything to store."""
        return bool(self.cut.batches or self.cut.filtered) or self.place.done is not None

    @property
    def behind(self) -> bool:
        """Whether the file had more than was taken."""
        return not self.look.at_end or self.cut.consumed < len(self.look.found)

    def position(self) -> bytes:
        """What is stored with it."""
        return self.stream.position(self.place, behind=self.behind, written=0 if self.behind else self.look.written)
