"""`ignore_older`: a file that was old when it was first seen is taken as read to its end.

It is judged when it is opened, after it is known to be no copy of another one: the unread rest of a file that was
rotated and compressed is read, however old. So is that of a file with a stored position, and of one that was written
since it was seen: nothing that was once begun is left out. Lines that are written later are read.
"""

from __future__ import annotations

from shipper_plugins.tail.content import WINDOW
from shipper_plugins.tail.effects import Keep, LookAgain, Steps
from shipper_plugins.tail.followed import Followed
from shipper_plugins.tail.lines import Charset
from shipper_plugins.tail.place import Place, fingerprint
from shipper_plugins.tail.sight import Sight
from shipper_plugins.tail.stream import Stream

_BACK = 64 << 10


class Ignoring:
    """Decides for the streams that are followed."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed

    def ignore(self, stream: Stream, sight: Sight) -> Steps[bool]:
        """Put a stream at the end of its file, if that was too old; returns whether it did. Raises OSError."""
        if not self._is_old(stream, sight):
            return False
        place = Place(done=sight.size) if sight.compressed else (yield from self._end(stream, sight))
        if place == stream.place:  # it is empty, or has no whole line yet
            return False
        yield from Keep({stream.key: stream.position(place)})
        self._followed.go_to(stream, place)
        return True

    def _is_old(self, stream: Stream, sight: Sight) -> bool:
        age = self._followed.options.ignore_older
        is_fresh = stream.first_seen and not stream.offset and stream.place.done is None
        return bool(age and is_fresh and sight.written and sight.written < stream.first_seen - age * 1e9)

    def _end(self, stream: Stream, sight: Sight) -> Steps[Place]:
        """The place after the last whole line; in one-shot use, after all that is there."""
        path, file = sight.wish.path, sight.wish.file
        start = max(0, sight.size - _BACK) // 4 * 4
        last = yield from LookAgain(stream, path, file, start, _BACK + 4)
        charset = Charset.of(self._followed.options.encoding, sight.head or b"")
        is_last = self._followed.options.stop_at_end and last.at_end
        offset = start + (len(last.found) if is_last else charset.rfind(last.found))
        before = (yield from LookAgain(stream, path, file, offset, 0)).before
        return Place(offset, fingerprint(before[-WINDOW:]), since=offset)
