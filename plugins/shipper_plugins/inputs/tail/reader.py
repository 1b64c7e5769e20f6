"""One turn of a stream: see, compare with what is known, cut, emit, move on.

The position moves in the transaction that stores the events, and in memory after it; so a cancel at any await loses
and repeats nothing. Threads see and compare (`calls`, `sight`); what is decided is decided here, by what they saw, and
only if the stream still is where it was.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial

import trio

from shipper.plugin import Fields, InputContext
from shipper_plugins.inputs.tail.calls import Calls
from shipper_plugins.inputs.tail.chunk import Taken
from shipper_plugins.inputs.tail.content import HEAD, MAGIC, Look, Moved
from shipper_plugins.inputs.tail.copies import Compared, Verdict, compare
from shipper_plugins.inputs.tail.known import Known
from shipper_plugins.inputs.tail.lines import LONGEST_MARK, Charset, Cut, Cutter
from shipper_plugins.inputs.tail.open_files import OpenFiles
from shipper_plugins.inputs.tail.options import Options
from shipper_plugins.inputs.tail.sight import Sight, Wish, at_hand, see
from shipper_plugins.inputs.tail.stream import Stream, fingerprint, shown
from shipper_plugins.inputs.tail.turns import Turns

DETACHED = 300.0
"""Seconds without a new line after which a file that was moved out of the globs is closed."""


class Reader:
    """Reads streams by turns."""

    def __init__(self, options: Options, context: InputContext, known: Known, calls: Calls) -> None:
        self.options = options
        self.calls = calls
        self.known = known
        self.turns = Turns()
        self.open_files = OpenFiles()
        self.scans = 0
        self.pending: dict[Stream, float] = {}
        """Streams with an unfinished event of several lines → when it is finished, unless a line comes."""
        self.rotated: dict[str, Stream] = {}
        """Path → the stream that was there before; its last line is complete once its successor has content."""
        self.stale: set[Stream] = set()
        """Streams that wait for the next scan, which is due soon then."""
        self.replaced: list[Stream] = []
        """Streams whose file has other content now; a copy outside of the globs may have been made of it."""
        self.cut_short: dict[Stream, int] = {}
        """Compressed files whose end is not there, and when they were last written, in nanoseconds."""
        self.tidy: dict[str, bytes | None] = {}
        """Changes of positions that are stored together with the next events."""
        self.timer_set: Callable[[], None] = lambda: None
        """Called when `pending` or `stale` has grown."""
        self._context = context

    def lose(self, stream: Stream, *, missing: bool) -> None:
        """The file of a stream is gone, or has other content; its copies take over."""
        self.open_files.close(stream)
        self.pending.pop(stream, None)
        self.cut_short.pop(stream, None)
        self.known.lose(stream, trio.current_time(), missing=missing)
        stream.ended = missing
        if stream.offset or stream.done is not None:
            self.tidy[stream.key] = stream.position(
                stream.offset, stream.tail, stream.crc, skipping=stream.skipping, done=stream.done
            )
        if stream.original is not None:
            self._unlink(stream)
        for copied in stream.copies:
            self.turns.wake(copied)

    async def see(self, wishes: Sequence[Wish]) -> list[Sight | OSError]:
        """Look at the files of streams, at the first of them at least, until there is a chunk to store."""
        if (sight := at_hand(wishes[0], self.open_files, self._context.chunk_bytes)) is not None:
            return [sight]
        look = partial(see, wishes, self.open_files, self._context.chunk_bytes)
        return await self.calls.run(wishes[0].path, look)

    def unsee(self, seen: Sight | OSError) -> None:
        """What was seen is of no use: a file that was opened for it is compared by its first bytes when it is again."""
        if isinstance(seen, Sight) and not seen.was_open:
            self.open_files.close(seen.wish.stream)

    async def take(self, sight: Sight) -> Taken | bool:
        """Make a chunk of what was seen of a stream; nothing moves before it is stored. Raises OSError.

        If there is nothing to store, returns whether there is more to look at.
        """
        stream = sight.wish.stream
        stream.size = sight.size
        if stream.compressed != sight.compressed and stream.head_length:
            self._restart(stream)
            return False
        stream.compressed = sight.compressed
        if stream.done is not None and stream.done == sight.size:
            self.open_files.close(stream)
            if stream.original is not None and stream.original.file is None:  # a copy of all that there was to copy
                self._unlink(stream)
                stream.settled = True
            if stream.detached is not None:
                self.lose(stream, missing=True)
            return False
        if not stream.head_length and not sight.compressed:
            head = (sight.head or b"")[: len(MAGIC)]
            if head and MAGIC.startswith(head):  # it was empty, or nearly, when it was opened: a compressed file
                self.open_files.close(stream)
                stream.rested = len(head)
                return head == MAGIC
        if not stream.settled and not await self._settle(stream, sight):
            return False
        look = sight.look
        if look is None or not sight.wish.is_current:
            return True
        charset = self._charset(stream, sight.head or b"")
        while sight.compressed and not look.at_end and not look.found:  # until the next turn it might be closed
            look = await self._look(stream, self._context.chunk_bytes)
        if not self._is_same(stream, sight, look):
            self._restart(stream)
            return False
        self._note_end(stream, sight, is_there=look.complete or not look.at_end)
        return await self._cut_chunk(stream, charset, look)

    async def _cut_chunk(self, stream: Stream, charset: Charset, look: Look) -> Taken:
        cutter = self._cutter(stream, charset)
        # Of a compressed file that is not complete, the last line is perhaps a half one.
        final = look.at_end and (look.complete or (not stream.compressed and self._is_final(stream)))
        cut = await self._cut(cutter, stream, look, final=final, flush=stream.flush and look.at_end)
        if not cut.consumed and not look.at_end:
            longest = self._context.chunk_bytes + self.options.max_line_bytes
            look = await self._look(stream, longest)
            cut = await self._cut(cutter, stream, look, final=False, flush=not look.at_end)
            final = False
            if not cut.consumed and not look.at_end:  # the read stopped too early: raise what stopped it
                await self._look(stream, 1, len(look.found))
        done = look.complete and cut.consumed == len(look.found)
        return Taken(stream, look, cut, final, look.size if done and stream.compressed else None)

    async def _look(self, stream: Stream, size: int, beyond: int = 0) -> Look:
        """Look again, from its offset or so far beyond it. Raises OSError; Moved also if its file is gone."""
        path, file, offset = stream.path, stream.file, stream.offset
        if file is None:
            raise Moved(0, "its file is gone")

        def look() -> Look:
            with self.open_files.use(stream, path, file) as (content, _):
                return content.look(offset + beyond, size)

        return await self.calls.run(path, look)

    def _is_final(self, stream: Stream) -> bool:
        return stream.final or self.options.stop_at_end

    def _note_end(self, stream: Stream, sight: Sight, *, is_there: bool) -> None:
        if sight.compressed and not is_there:
            self.cut_short[stream] = sight.written
        else:
            self.cut_short.pop(stream, None)

    async def store(self, taken: Sequence[Taken]) -> list[bool]:
        """Store the chunks of some streams and their positions, all in one, then move on; which have more to read?"""
        tidy = dict(self.tidy)
        positions = {one.stream.key: one.position() for one in taken if one.is_stored}
        if positions:
            batches = [batch for one in taken for batch in one.cut.batches]
            await self._context.emit(*batches, positions={**tidy, **positions})
            self.tidy = {key: value for key, value in self.tidy.items() if key not in tidy or tidy[key] != value}
        return [self._move(one) for one in taken]

    def _move(self, taken: Taken) -> bool:
        stream, look, cut = taken.stream, taken.look, taken.cut
        if taken.is_stored:
            stream.behind = taken.behind
        tail, crc = taken.tail(), taken.crc()
        stream.offset, stream.tail, stream.crc = stream.offset + cut.consumed, tail, crc
        stream.skipping, stream.done = cut.skipping, taken.done
        stream.has_more = not look.at_end
        left = len(look.found) - cut.consumed
        if stream.offset or look.found:
            self._complete_older(stream)
        if not look.at_end or (cut.consumed and left and (taken.final or cut.skipping)):
            return True
        self._rest(stream, look, cut, final=taken.final)
        return False

    def _rest(self, stream: Stream, look: Look, cut: Cut, *, final: bool) -> None:
        """Nothing more to read until the file grows: everything up to its size was looked at."""
        now = trio.current_time()
        stream.rested = look.size
        end = stream.offset + len(look.found) - cut.consumed
        stream.flush = False
        if final:
            stream.final = False
        if not cut.pending:
            self.pending.pop(stream, None)
        elif self.options.multiline is not None and (stream.pending != end or stream not in self.pending):
            stream.pending = end
            self.pending[stream] = now + self.options.multiline.timeout
            self.timer_set()
        if stream.detached is not None:
            self._rest_detached(stream, look, now, moved=cut.consumed > 0)
        for copied in stream.copies:
            if copied.compared != stream.offset:
                self.turns.wake(copied)

    def _complete_older(self, stream: Stream) -> None:
        """The last line of the file that was rotated away from this path needs no newline any more."""
        older = self.rotated.get(stream.path)
        if older is not None and older is not stream:
            del self.rotated[stream.path]
            older.final = True
            self.turns.wake(older)

    def _rest_detached(self, stream: Stream, look: Look, now: float, *, moved: bool) -> None:
        """The file has left the globs: it is read to its end if it is deleted, and for a while if it was moved."""
        assert stream.detached is not None
        if moved:
            stream.detached = now
        if look.complete or now - stream.detached > DETACHED:
            self.lose(stream, missing=True)

    # -- identity --------------------------------------------------------------------------------------------------

    def _is_same(self, stream: Stream, sight: Sight, look: Look) -> bool:
        """Whether the file still has the content that was read; learns more of its first bytes."""
        if not sight.was_open and not _begins_alike(stream, sight.head or b""):
            return False
        head = look.found[:HEAD] if not stream.offset else b""
        if not stream.matches(look.before, head):
            return False
        if stream.head_length < HEAD and look.found:
            head = head or sight.head or b""
            if not _begins_alike(stream, head):
                return False
            self.known.grow(stream, head)
        return True

    def _restart(self, stream: Stream) -> None:
        """The file was truncated, or its inode is another file's now: its content is a new stream."""
        file, path, detached = stream.file, stream.path, stream.detached
        self.lose(stream, missing=False)
        if file is not None and detached is None:
            fresh = self.known.new(path, file, self.scans)
            fresh.seen, fresh.size, fresh.former = stream.seen, stream.size, stream.key
            if stream.offset:
                self.replaced.append(stream)
                self.retry_soon(fresh)
            self.turns.wake(fresh)

    async def _settle(self, stream: Stream, sight: Sight) -> bool:
        """Decide whether a new file is a copy; returns whether it can be read now."""
        head = sight.head or b""
        if not head or (len(head) < HEAD and not await self._is_whole(stream, sight)):
            self._note_end(stream, sight, is_there=False)
            stream.rested = sight.size
            return False
        if len(head) > stream.head_length:
            self.known.grow(stream, head)
        for original in self._originals(stream, head):
            if await self._copies(stream, sight, original, long=len(head) == HEAD):
                return stream.settled
            self._unlink(stream)
        stream.settled = True
        return True

    def _originals(self, stream: Stream, head: bytes) -> list[Stream]:
        """Streams that this one may be a copy of."""
        first = [stream.original] if stream.original is not None else []
        return list(dict.fromkeys([*first, *self.known.originals(stream, head)]))

    async def _is_whole(self, stream: Stream, sight: Sight) -> bool:
        """Whether a compressed file is complete, as far as that matters: a short beginning says too little."""
        if not sight.compressed or self.options.stop_at_end:
            return True

        def is_whole() -> bool:
            with self.open_files.use(stream, sight.wish.path, sight.wish.file) as (content, _):
                return content.end() is not None

        return await self.calls.run(stream.path, is_whole)

    async def _copies(self, stream: Stream, sight: Sight, original: Stream, *, long: bool) -> bool:
        """Whether the stream is a copy of `original`: then it waits for it, or has taken over what was not read."""
        self._link(stream, original)
        if long and sight.compressed and original.file is not None and stream.measured != sight.size:
            stream.measured = sight.size  # perhaps it is being written: a comparison decompresses all of it, so not yet
            self.retry_soon(stream)
            return True
        stream.compared = original.offset
        then = copy.copy(original)
        work = partial(compare, sight.wish.path, sight.wish.file, then, copy.copy(stream))
        found = await self.calls.run(sight.wish.path, work)
        if original.key not in self.known.streams or stream.file != sight.wish.file:
            # another copy was quicker to take over, or this one is gone
            self._unlink(stream)
            self.turns.wake(stream)
            return True
        if original.file != then.file:  # it may have been read on since it was compared, as the copy may have grown
            self.turns.wake(stream)
            return True
        waits_for_more = found.verdict is Verdict.WAITS and original.file is None
        self._note_end(stream, sight, is_there=not waits_for_more)
        if found.verdict is Verdict.STALE:
            self.retry_soon(stream)
            self.turns.wake(original)
        if found.verdict is Verdict.COVERED:
            await self._cover(stream, original, found, sight.size)
        return found.verdict is not Verdict.OWN

    async def _cover(self, stream: Stream, original: Stream, found: Compared, size: int) -> None:
        """Go on after what was read of the original; one that is gone is replaced by its copy in the same instant."""
        stream.since = min(original.since, found.offset)
        done = size if original.file is not None else None
        skipping = done is None and original.skipping
        positions: dict[str, bytes | None] = {}
        positions[stream.key] = stream.position(found.offset, found.tail, found.crc, skipping=skipping, done=done)
        if done is None:
            others = original.copies - {stream}
            positions[self.known.forget(original)] = None
            self.tidy.pop(original.key, None)
            stream.settled = True
            for other in others:
                self.turns.wake(other)
        await self._context.emit(positions=positions)
        stream.offset, stream.tail, stream.crc = found.offset, found.tail, found.crc
        stream.skipping, stream.done = skipping, done

    def retry_soon(self, stream: Stream) -> None:
        """Give a stream a turn after the next scan, which is due soon then."""
        self.stale.add(stream)
        self.timer_set()

    def _link(self, stream: Stream, original: Stream) -> None:
        stream.original = original
        original.copies.add(stream)

    def _unlink(self, stream: Stream) -> None:
        if stream.original is not None:
            stream.original.copies.discard(stream)
            stream.original = None

    # -- what a turn is made of ------------------------------------------------------------------------------------

    def _charset(self, stream: Stream, head: bytes) -> Charset:
        """The encoding of a file; settled once the bytes are there that may be a byte order mark."""
        if stream.charset is not None:
            return stream.charset
        charset, known = Charset.of(self.options.encoding), LONGEST_MARK
        if not stream.offset or charset.width > 1:
            charset, known = Charset.of(self.options.encoding, head), len(head)
        if known >= LONGEST_MARK:
            stream.charset = charset
        return charset

    async def _cut(self, cutter: Cutter, stream: Stream, look: Look, *, final: bool, flush: bool) -> Cut:
        def cut() -> Cut:
            return cutter.cut(look.found, stream.offset, skipping=stream.skipping, final=final, flush=flush)

        return await trio.to_thread.run_sync(cut) if cutter.slow and look.found else cut()

    def _cutter(self, stream: Stream, charset: Charset) -> Cutter:
        shared: Fields = {"log": {"file": {"path": shown(stream.path)}}, **self.options.fields(stream.path)}
        return Cutter(charset, self.options.max_line_bytes, self.options.multiline, shared)


def _begins_alike(stream: Stream, head: bytes) -> bool:
    """Whether a file still has its first bytes; another one may have its inode now."""
    return len(head) >= stream.head_length and fingerprint(head[: stream.head_length]) == stream.head
