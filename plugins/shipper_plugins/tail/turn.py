"""One turn of a stream: what was seen of its file is compared with what is known of it, and cut into lines.

The position moves in the transaction that stores the events, and in memory after it; so a cancel at any step loses and
repeats nothing. What is decided is decided by what was seen, and only if the stream still is where it was.
"""

from __future__ import annotations

from shipper_plugins.tail.chunk import Taken
from shipper_plugins.tail.content import HEAD, Look, Moved
from shipper_plugins.tail.copying import Copying
from shipper_plugins.tail.effects import CutUp, Keep, LookAgain, Steps
from shipper_plugins.tail.followed import Followed
from shipper_plugins.tail.ignoring import Ignoring
from shipper_plugins.tail.lines import Cut, Cutter
from shipper_plugins.tail.packing import LONGEST_START, may_become_packed, packing_of
from shipper_plugins.tail.sight import Sight
from shipper_plugins.tail.stream import Stream, shown

DETACHED = 300.0
"""Seconds without a new line after which a file that was moved out of the globs is closed."""


class Turning:
    """Decides for the streams that are followed."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self._copying = Copying(followed)
        self._ignoring = Ignoring(followed)

    def take(self, sight: Sight, chunk_bytes: int) -> Steps[Taken | bool]:
        """Make a chunk of what was seen of a stream; nothing moves before it is stored. Raises OSError.

        If there is nothing to store, returns whether there is more to look at.
        """
        stream, compressed = sight.wish.stream, sight.compressed
        stream.sighting.look(sight.size)
        if stream.identity.is_older(sight.born, sight.written):
            self._followed.restart(stream)
            return False
        self._followed.known.date(stream, sight.born)
        if stream.identity.compressed != compressed and stream.identity.head_length:
            self._followed.restart(stream)
            return False
        self._followed.known.pack(stream, compressed=compressed)
        if stream.place.done is not None and stream.place.done == sight.size:
            self._stay_done(stream)
            return False
        if (is_packed := self._turns_packed(stream, sight)) is not None:
            return is_packed
        if not stream.kinship.settled and not (yield from self._copying.settle(stream, sight)):
            return False
        if (yield from self._ignoring.ignore(stream, sight)):
            return True
        yield from self._keep(stream)
        look = sight.look
        if look is None or not sight.wish.is_current:
            return True
        path, options = shown(stream.path), self._followed.options
        cutter = stream.assembly.cutter(options, path, stream.offset, sight.head or b"")
        while compressed and not look.at_end and not look.found:  # until the next turn it might be closed
            look = yield from _look(stream, chunk_bytes)
        if not self._is_same(stream, sight, look):
            self._followed.restart(stream)
            return False
        is_cut_short = compressed and look.at_end and not look.complete
        self._followed.note_end(stream, sight.written if is_cut_short else None)
        return (yield from self._cut(stream, cutter, look, chunk_bytes))

    def _keep(self, stream: Stream) -> Steps[None]:
        """Store at once that the time of its last write says nothing: reading changes what told that."""
        kept = self._followed.tidy.get(stream.key)
        if kept is not None:
            yield from Keep({stream.key: kept})
            self._followed.tidied({stream.key: kept})

    def _stay_done(self, stream: Stream) -> None:
        """It was read to its end, and has not grown."""
        self._followed.close(stream)
        original = stream.kinship.original
        if original is not None and original.file is None:  # a copy of all that there was to copy
            stream.unlink()
            stream.kinship.settle()
        if stream in self._followed.known.detached:
            self._followed.lose(stream, missing=True)

    def _turns_packed(self, stream: Stream, sight: Sight) -> bool | None:
        """A file that was empty, or nearly, when it was opened may become a compressed one: returns whether it did, or
        None where it cannot."""
        head = (sight.head or b"")[:LONGEST_START]
        if stream.identity.head_length or sight.compressed:
            return None
        is_packed = packing_of(head) is not None
        is_text = head.isascii() and head.decode().isprintable() and self._is_final(stream)
        if not is_packed and (is_text or not may_become_packed(head)):
            return None
        self._followed.close(stream)
        stream.sighting.rest(len(head))
        return is_packed

    def _cut(self, stream: Stream, cutter: Cutter, look: Look, chunk_bytes: int) -> Steps[Taken]:
        # Of a compressed file that is not complete, the last line is perhaps a half one.
        final = look.at_end and (look.complete or (not stream.identity.compressed and self._is_final(stream)))
        flush = stream.assembly.flush and look.at_end
        cut = yield from CutUp(cutter, look.found, stream.place, final, flush)
        if not cut.consumed and not look.at_end:
            final = False
            look = yield from _look(stream, chunk_bytes + self._followed.options.max_line_bytes)
            cut = yield from CutUp(cutter, look.found, stream.place, final, not look.at_end)
            if not cut.consumed and not look.at_end:  # the read stopped too early: raise what stopped it
                yield from _look(stream, 1, len(look.found))
        return Taken.of(stream, look, cut, final=final)

    def _is_final(self, stream: Stream) -> bool:
        return stream.assembly.final or self._followed.options.stop_at_end

    def _is_same(self, stream: Stream, sight: Sight, look: Look) -> bool:
        """Whether the file still has the content that was read; learns more of its first bytes."""
        if not sight.was_open and not stream.identity.begins(sight.head or b""):
            return False
        if not stream.identity.compressed and look.size < stream.offset:  # what is there again was written since
            return False
        head = look.found[:HEAD] if not stream.offset else b""
        if not stream.matches(look.before, head):
            return False
        if stream.identity.head_length < HEAD and look.found:
            head = head or sight.head or b""
            if not stream.identity.begins(head):
                return False
            self._followed.known.grow(stream, head)
        return True

    # -- what was stored -------------------------------------------------------------------------------------------

    def stored(self, taken: Taken) -> bool:
        """Its events and position are stored: move on; returns whether there is more to read."""
        stream, look, cut = taken.stream, taken.look, taken.cut
        stream.sighting.take(has_more=not look.at_end, behind=taken.behind if taken.is_stored else None)
        self._followed.go_to(stream, taken.place)
        if stream.offset or look.found:
            self._followed.succeed(stream.path, stream)
        has_left = cut.consumed < len(look.found)
        if not look.at_end or (cut.consumed and has_left and (taken.final or cut.skipping)):
            return True
        self._rest(stream, look, cut, final=taken.final)
        return False

    def _rest(self, stream: Stream, look: Look, cut: Cut, *, final: bool) -> None:
        """Nothing more to read until the file grows: everything up to its size was looked at."""
        followed = self._followed
        if stream.sighting.rest(look.size, look.written, heard=stream.turn.again):
            self._ask_names(stream, look)
        stream.assembly.rest(final=final)
        multiline = followed.options.multiline
        if not cut.pending:
            followed.pending.pop(stream, None)
        elif multiline is not None:
            followed.wait_for_more(stream, stream.offset + len(look.found) - cut.consumed, multiline.timeout)
        if stream in followed.known.detached:
            self._rest_detached(stream, look, moved=cut.consumed > 0)
        followed.wake(copied for copied in stream.kinship.copies if copied.kinship.compared != stream.offset)

    def _ask_names(self, stream: Stream, look: Look) -> None:
        """The file was written and has not grown: the next scan says what that means; for one in no glob, nothing."""
        if stream in self._followed.known.detached:
            stream.sighting.accept(look.written)
        else:
            self._followed.retry_soon(stream)

    def _rest_detached(self, stream: Stream, look: Look, *, moved: bool) -> None:
        """The file has left the globs: it is read to its end if it is deleted, and for a while if it was moved."""
        known, now = self._followed.known, self._followed.clock.now()
        if moved:
            known.detach(stream, now)
        if look.complete or now - known.detached[stream] > DETACHED:
            self._followed.lose(stream, missing=True)


def _look(stream: Stream, size: int, beyond: int = 0) -> Steps[Look]:
    """Look again, from its offset or so far beyond it. Raises OSError; Moved also if its file is gone."""
    if stream.file is None:
        raise Moved(0, "its file is gone")
    return (yield from LookAgain(stream, stream.path, stream.file, stream.offset + beyond, size))
