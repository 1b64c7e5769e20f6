"""Is a new file a copy of a stream? What is decided by a comparison: it waits, goes on from there, or is its own."""

from __future__ import annotations

from msgspec.structs import replace

from shipper_plugins.tail.content import HEAD
from shipper_plugins.tail.copies import Compared, Verdict
from shipper_plugins.tail.effects import Compare, IsWhole, Keep, Steps
from shipper_plugins.tail.followed import Followed
from shipper_plugins.tail.sight import Sight
from shipper_plugins.tail.stream import Stream


class Copying:
    """Decides for the streams that are followed."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed

    def settle(self, stream: Stream, sight: Sight) -> Steps[bool]:
        """Decide whether a new file is a copy; returns whether it can be read now."""
        head = sight.head or b""
        if not head or (len(head) < HEAD and not (yield from self._is_whole(stream, sight))):
            self._note_end(stream, sight, is_there=False)
            stream.sighting.rest(sight.size)
            return False
        if len(head) > stream.identity.head_length:
            self._followed.known.grow(stream, head)
        for original in self._originals(stream, head):
            if (yield from self._is_copy(stream, sight, original, long=len(head) == HEAD)):
                return stream.kinship.settled
            stream.unlink()
        stream.kinship.settle()
        return True

    def _originals(self, stream: Stream, head: bytes) -> list[Stream]:
        """Streams that this one may be a copy of."""
        original = stream.kinship.original
        first = [original] if original is not None else []
        return list(dict.fromkeys([*first, *self._followed.known.originals(stream, head)]))

    def _is_whole(self, stream: Stream, sight: Sight) -> Steps[bool]:
        """Whether a compressed file is complete, as far as that matters: a short beginning says too little."""
        if not sight.compressed or self._followed.options.stop_at_end:
            return True
        return (yield from IsWhole(stream, sight.wish.path, sight.wish.file))

    def _is_copy(self, stream: Stream, sight: Sight, original: Stream, *, long: bool) -> Steps[bool]:
        """Whether the stream is a copy of `original`: then it waits for it, or has taken over what was not read."""
        followed, kinship = self._followed, stream.kinship
        stream.link(original)
        if long and sight.compressed and original.file is not None and not kinship.measure(sight.size):
            followed.retry_soon(stream)  # perhaps it is being written: a comparison decompresses all of it, so not yet
            return True
        kinship.compare(original.offset)
        then = original.remembered()
        found = yield from Compare(sight.wish.path, sight.wish.file, then, stream.place)
        if original.key not in followed.known.streams or stream.file != sight.wish.file:
            # another copy was quicker to take over, or this one is gone
            stream.unlink()
            followed.wake([stream])
            return True
        if original.file != then.identity.file:  # it may have been read on since then, as the copy may have grown
            followed.wake([stream])
            return True
        waits_for_more = found.verdict is Verdict.WAITS and original.file is None
        self._note_end(stream, sight, is_there=not waits_for_more)
        if found.verdict is Verdict.STALE:
            followed.retry_soon(stream)
            followed.wake([original])
        if found.verdict is Verdict.COVERED:
            yield from self._cover(stream, original, found, sight.size)
        return found.verdict is not Verdict.OWN

    def _cover(self, stream: Stream, original: Stream, found: Compared, size: int) -> Steps[None]:
        """Go on after what was read of the original; one that is gone is replaced by its copy in the same instant."""
        followed = self._followed
        since = min(original.place.since, found.place.offset)
        done = size if original.file is not None else None
        place = replace(found.place, since=since, skipping=done is None and original.place.skipping, done=done)
        positions: dict[str, bytes | None] = {stream.key: stream.position(place)}
        if done is None:
            others = original.kinship.copies - {stream}
            positions[followed.known.forget(original)] = None
            followed.tidy.pop(original.key, None)
            stream.kinship.settle()
            followed.wake(others)
        yield from Keep(positions)
        followed.go_to(stream, place)

    def _note_end(self, stream: Stream, sight: Sight, *, is_there: bool) -> None:
        self._followed.note_end(stream, sight.written if sight.compressed and not is_there else None)
