"""The running `file` input: it follows what the globs name, and gives turns to the streams that changed.

    scan ──> apply: new, moved, missing ──> turns ──> workers: take, store
     ^                                        ^
     └── names changed, or time ── watch ── files written

A wake-up can be lost: a file that is elsewhere for an instant cannot be opened in its turn, and the next scan sees no
change of it. So each scan also wakes the files that have more bytes than were looked at, and one-shot use does not end
while there is such a file.

A scan may take a fifth of the time at most, so a directory of ten thousand files that changes all the while does not
take the processor for itself. After what was written is read, events of writes are left in the kernel for 20 ms: a
system at rest forwards a line at once, and a trickle costs 50 batches a second and not 200 (with a wait as long as the
reading took, 5,000 lines a second took 41 % of a processor, and a line 2 ms).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial

import trio

from shipper.plugin import Code, Credential, InputContext, in_words, is_short
from shipper_plugins.inputs.tail.calls import Calls
from shipper_plugins.inputs.tail.chunk import Taken
from shipper_plugins.inputs.tail.content import Moved
from shipper_plugins.inputs.tail.discovery import Found, Globs, Scan
from shipper_plugins.inputs.tail.known import KEPT, Known
from shipper_plugins.inputs.tail.options import Options, Tails
from shipper_plugins.inputs.tail.reader import Reader
from shipper_plugins.inputs.tail.rotated import Recovered, Search, search
from shipper_plugins.inputs.tail.sight import Sight, Wish
from shipper_plugins.inputs.tail.start import MARK, begin_at_end
from shipper_plugins.inputs.tail.stream import Stream, shown
from shipper_plugins.inputs.tail.watch import POLL, SAFETY, Watch

SETTLED, TOLD = 5.0, 900.0
"""Seconds after which a file that is gone was not taken over by a copy, and for which its loss is reported."""
ABSENT = 10.0
"""Seconds after which a path without a glob that has no file is reported; a rotation is over sooner. Also those after
which what cannot be read, or is not there, is looked for again."""
CUT_SHORT = 60.0
"""Seconds after its last write at which a compressed file without its end is told of."""
CLOSING = 1.0
"""Seconds for which the end of the input waits until its files are closed."""
WORKERS = 3
"""Turns under way at once: while one is stored the next is read. A file that hangs stops those that are looked at
together with it, and all others only once all workers hang."""
TAKEN = 32
"""Streams whose chunks are stored together, at most."""
_BREATH = 0.02
_SOON = 1.0


class Tailer:
    """A source of lines."""

    def __init__(self, options: Options, context: InputContext) -> None:
        self._options = options
        self._context = context
        self._globs = Globs(options.paths, options.exclude)
        self._watch = Watch()
        self._calls = Calls(f"{context.name} {options.identity}")
        self._reader = Reader(options, context, Known({}), self._calls)
        self._aliases: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._unseen: dict[str, str] = {}
        self._absent: dict[str, float] = {}
        """Paths without a glob that have no file, and since when."""
        self._lost: dict[Stream, float] = {}
        """Streams whose file was gone before its end was read, and since when."""
        self._reported: str | None = None
        self._scan_wanted = False
        self._sleep = trio.CancelScope()
        self._rest = POLL[0]

    async def close(self) -> None:
        """Close all files and watches; what hangs is closed when it comes back, and not waited for."""
        closed = self._reader.open_files.clear()
        self._watch.close()
        if not closed.is_set():
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(closed.wait, CLOSING, limiter=trio.CapacityLimiter(1))

    def change(self, settings: Tails, credentials: Mapping[str, Credential]) -> None:
        """See `Source.change`."""
        self._options = self._reader.options = settings.options()
        for stream in list(self._reader.pending):
            self._reader.turns.wake(stream)
        self._look_again()

    def figures(self) -> dict[str, int]:
        """See `Source.change`."""
        followed = self._reader.known.by_file.values()
        return {
            "files": len(followed),
            "unread_bytes": sum(stream.unread for stream in followed),
        }

    async def run(self) -> None:
        """See `Source.run`."""
        stored = await self._context.positions()
        mark = stored.pop(MARK, None)
        self._reader.known = Known(stored)
        self._reader.timer_set = lambda: self._sleep.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._calls.watch, self._report)
            for _ in range(WORKERS):
                nursery.start_soon(self._work)
            await self._follow(mark)
            nursery.cancel_scope.cancel()

    async def _work(self) -> None:
        """Take the chunks of the streams that wait, many small ones at once, and store them together."""
        reader, turns = self._reader, self._reader.turns
        while True:
            wishes = list(self._wishes(await turns.next(TAKEN)))
            seen = await reader.see(wishes) if wishes else []
            turns.put_back([wish.stream for wish in wishes[len(seen) :]])
            taken: list[Taken] = []
            for wish, sight in zip(wishes, seen, strict=False):
                one = await self._take(wish, sight)
                if isinstance(one, Taken):
                    taken.append(one)
                else:
                    turns.done(wish.stream, more=one)
            for one, more in zip(taken, await reader.store(taken), strict=True):
                turns.done(one.stream, more=more)
            self._report()

    def _wishes(self, streams: Sequence[Stream]) -> Iterator[Wish]:
        for stream in streams:
            if (wish := Wish.of(stream)) is not None:
                yield wish
            else:
                self._reader.turns.done(stream, more=False)

    async def _take(self, wish: Wish, seen: Sight | OSError) -> Taken | bool:
        stream = wish.stream
        if not wish.is_current:  # it was moved or lost while a thread looked
            self._reader.unsee(seen)
            return True
        try:
            if isinstance(seen, OSError):
                raise seen
            taken = await self._reader.take(seen)
        except Moved:
            stream.moved = self._reader.scans if stream.moved is None else stream.moved
            if self._reader.scans <= stream.moved + 1:  # the scan that was under way may have looked before it moved
                self._look_again()
            else:
                self._problems[stream.path] = "another file is there whenever it is opened"
        except OSError as error:
            self._failed(stream, error)
        else:
            stream.moved = None
            self._problems.pop(stream.path, None)
            return taken
        return False

    def _failed(self, stream: Stream, error: OSError) -> None:
        """A file that cannot be read now is tried again, but one that no path leads to not for long."""
        self._reader.open_files.close(stream)
        if is_short(error):
            self._reader.retry_soon(stream)
        elif stream.detached is not None and trio.current_time() - stream.detached > SETTLED:
            self._problems.pop(stream.path, None)
            self._give_up(stream, unread=True)
            return
        self._problems[stream.path] = in_words(error)

    # -- looking ---------------------------------------------------------------------------------------------------

    async def _follow(self, mark: bytes | None) -> None:
        while True:
            self._scan_wanted = False
            started = trio.current_time()
            scan = await self._calls.run(self._options.paths[0], self._globs.scan)
            traces = await self._search(scan)
            now = trio.current_time()
            fresh_watches = await self._calls.run(self._options.paths[0], partial(self._watch.follow, scan.interests))
            if not self._reader.scans and self._options.from_end:
                await begin_at_end(self._options, self._context, self._calls, self._reader.known, scan, mark)
            changed, new = self._apply(scan, traces)
            if fresh_watches:
                continue
            if self._options.stop_at_end:
                await self._reader.turns.quiet()
                if not new and not self._reader.stale and not self._scan_wanted and not self._is_behind(scan):
                    return
                await self._breathe()
                continue
            self._rest = POLL[0] if changed else min(self._rest * 1.5, POLL[1])
            cost = now - started
            period = max(SAFETY if self._watch.complete else self._rest, 20 * cost)
            await self._wait(now + 4 * cost, now + (min(period, ABSENT) if self._is_incomplete() else period))

    def _is_incomplete(self) -> bool:
        return bool(self._problems or self._unseen or self._absent)

    def _is_behind(self, scan: Scan) -> bool:
        """Whether a file that can be read was not read to where the scan saw its end."""
        by_file = self._reader.known.by_file
        sizes = [(by_file.get(found.file), found.size) for found in scan.files.values()]
        return any(s is not None and s.is_behind(size) and s.path not in self._problems for s, size in sizes)

    async def _wait(self, earliest: float, due: float) -> None:
        """Wake what was written, until it is time for a scan."""
        reader = self._reader
        while (now := trio.current_time()) < due and not (self._scan_wanted and now >= earliest):
            due = min(due, now + _SOON) if reader.stale else due
            until = min(due, earliest if self._scan_wanted else due, *reader.pending.values())
            until = min(until, now + 1.0) if reader.known.detached else until
            with trio.CancelScope() as self._sleep:
                changes = await self._watch.changes(max(0.0, until - now))
                self._scan_wanted |= changes.scan
                for path in changes.paths:
                    stream = reader.known.at(self._aliases.get(path, path))
                    if stream is not None:
                        reader.turns.wake(stream)
            self._wake_due()
            await self._breathe()

    async def _breathe(self) -> None:
        """So many small writes become few batches."""
        await trio.sleep(_BREATH)

    def _wake_due(self) -> None:
        now = trio.current_time()
        for stream, when in list(self._reader.pending.items()):
            if now >= when:
                del self._reader.pending[stream]  # once, as its turn may take long, or fail
                stream.flush = True
                self._reader.turns.wake(stream)
        for stream in self._reader.known.detached:
            self._reader.turns.wake(stream)

    def _look_again(self) -> None:
        self._scan_wanted = True
        self._sleep.cancel()

    # -- applying --------------------------------------------------------------------------------------------------

    async def _search(self, scan: Scan) -> Search:
        """Look for known contents that the scan did not find; those that are open once, for their new path."""
        known, open_files = self._reader.known, self._reader.open_files
        here = {found.file for found in scan.files.values()}
        missing = [s for f, s in known.by_file.items() if f not in here and (s.detached is None or s not in open_files)]
        rotated_files = [copy.copy(s) for s in (*missing, *self._reader.replaced)]
        if not rotated_files:
            return Search()
        files = here | (known.by_file.keys() - {rotated_file.file for rotated_file in missing})
        return await self._calls.run(rotated_files[0].path, partial(search, rotated_files, files, self._globs.excludes))

    def _apply(self, scan: Scan, traces: Search) -> tuple[bool, bool]:
        """Take over what a scan found; returns whether anything changed, and whether a file is new."""
        reader, known = self._reader, self._reader.known
        reader.scans += 1
        here = self._chosen(scan)
        before = len(known.detached)
        recovered = {self._recover(one) for one in traces.recovered}
        changed = new = len(known.detached) > before
        for stale in reader.stale:
            reader.turns.wake(stale)
        reader.stale.clear()
        for stream in [s for s in reader.replaced if s.key in traces.sought]:
            reader.replaced.remove(stream)
            if stream.behind:
                self._lost[stream] = trio.current_time()
        for stream in reader.replaced:
            reader.retry_soon(stream)
        for file, stream in list(known.by_file.items()):
            found = here.get(file)
            if found is not None and 0 < stream.left < found.changed:  # the inode of a deleted file is the next one's
                reader.lose(stream, missing=False)
            elif found is not None:
                del here[file]
                changed |= self._present(stream, found)
            elif stream not in recovered and not scan.hides(stream.path):
                changed |= self._missing(stream, traces)
        for file, found in here.items():
            stream = known.reunite(found) or known.new(found.path, file, reader.scans)
            stream.seen, stream.size = (found.size, found.changed), found.size
            reader.turns.wake(stream)
            changed = new = True
        reader.rotated = {path: stream for path, stream in reader.rotated.items() if stream.file is not None}
        for key in known.expire(trio.current_time(), KEPT):
            reader.tidy[key] = None
        self._absent = {path: self._absent.get(path, trio.current_time()) for path in scan.absent}
        self._unseen = scan.problems | dict.fromkeys(scan.directories, "a directory, and not a file")
        self._report()
        return changed, new

    def _chosen(self, scan: Scan) -> dict[tuple[int, int], Found]:
        """One path for each file: the present one, if it is still right."""
        known, here = self._reader.known, dict[tuple[int, int], Found]()
        for found in scan.files.values():
            stream = known.by_file.get(found.file)
            if found.file not in here or (stream is not None and stream.path == found.path):
                here[found.file] = found
        self._aliases = dict(scan.aliases)
        for found in scan.files.values():
            if here[found.file].path != found.path:
                self._aliases[found.path] = here[found.file].path
        return here

    def _present(self, stream: Stream, found: Found) -> bool:
        seen = (found.size, found.changed)
        same = stream.seen == seen and stream.path == found.path and stream.detached is None
        if stream.path != found.path:
            self._problems.pop(stream.path, None)
            self._reader.rotated[stream.path] = stream
            self._reader.known.move(stream, found.path)
            stream.moved = None
        stream.seen, stream.size = seen, found.size
        stream.detached, stream.ended, stream.left = None, False, 0
        self._reader.known.detached.discard(stream)
        if not same or stream.path in self._problems or stream.is_behind(found.size):
            self._reader.turns.wake(stream)
        return not same

    def _recover(self, one: Recovered) -> Stream | None:
        """Read a file that the globs do not find to its end; its successor completes its last line."""
        reader, known = self._reader, self._reader.known
        stream = known.streams.get(one.key) if one.key is not None else None
        if stream is not None and stream.file is not None:
            known.relocate(stream, one.found.path, one.found.file)
        elif one.key is None and one.found.file not in known.by_file:
            stream = known.new(one.found.path, one.found.file, reader.scans)
        else:
            return None
        stream.seen, stream.size = (one.found.size, one.found.changed), one.found.size
        if stream.detached is None:
            stream.detached = trio.current_time()
            known.detached.add(stream)
            older = reader.rotated.get(one.path)
            if older is not None and older is not stream:
                older.final = True
                reader.turns.wake(older)
            reader.rotated[one.path] = stream
        reader.turns.wake(stream)
        return stream

    def _missing(self, stream: Stream, traces: Search) -> bool:
        opened = stream in self._reader.open_files
        if stream.busy and not opened:  # a thread is about to open it, or finds that it cannot
            self._reader.retry_soon(stream)
            return False
        if opened and stream.detached is not None:
            return False
        self._problems.pop(stream.path, None)
        if opened:
            stream.detached = trio.current_time()
            self._reader.known.detached.add(stream)
            self._reader.rotated[stream.path] = stream
            self._reader.turns.wake(stream)
        elif stream.key not in traces.sought:  # closed while the others were looked for, or no descriptor to look with
            self._reader.retry_soon(stream)
        else:
            self._give_up(stream, unread=_has_more(stream, traces))
        return True

    def _give_up(self, stream: Stream, *, unread: bool) -> None:
        if unread:
            self._lost[stream] = trio.current_time()
        self._reader.lose(stream, missing=True)

    def _losses(self) -> list[str]:
        """The files whose end is lost, for a while: not those that came back or went on in a copy."""
        streams, now = self._reader.known.streams, trio.current_time()
        there = {s: at for s, at in self._lost.items() if s.file is None and s.key in streams and now - at < TOLD}
        self._lost = there
        return sorted({shown(s.path) for s, at in there.items() if not s.copies and now - at >= SETTLED})

    def _nothing_there(self) -> dict[str, str]:
        latest = trio.current_time() - (0 if self._options.stop_at_end else ABSENT)
        return {path: "there is no such file" for path, since in self._absent.items() if since <= latest}

    def _cut_short(self) -> dict[str, str]:
        """The compressed files that nobody seems to go on writing."""
        latest = time.time_ns() - (0 if self._options.stop_at_end else int(CUT_SHORT * 1e9))
        return {s.path: "the gzip file is cut short" for s, at in self._reader.cut_short.items() if at <= latest}

    def _report(self) -> None:
        """Tell the shipper what cannot be read, if that has changed."""
        told = self._nothing_there() | self._unseen | self._problems | self._cut_short() | self._calls.silent()
        problems = sorted(told.items())
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        text = "; ".join(f"{shown(path)}: {why}" for path, why in problems[:3]) + more
        if losses := self._losses():
            gone = f"{len(losses)} files were gone before their end was read: {', '.join(losses[:3])}"
            text = f"{text}; {gone}" if text else gone
        if (text or None) != self._reported:
            self._reported = text or None
            self._context.report(self._reported, code=self._code(told.keys()))

    def _code(self, paths: Set[str]) -> Code:
        """A file that is there and cannot be read before one that is not there, and that before a loss."""
        if paths - self._absent.keys():
            return Code.FILE_UNREADABLE
        return Code.FILE_MISSING if paths else Code.DATA_LOST


def _has_more(stream: Stream, traces: Search) -> bool:
    """Whether a file that is gone had more to read: it had when last looked at, or (if that was in a former run)
    another file has its path, so it was rotated and will hardly have been complete."""
    if stream.ended or stream.key in traces.ended:
        return False
    if stream.seen is None:
        return stream.behind or stream.key in traces.replaced
    return stream.behind or (not stream.compressed and stream.seen[0] > stream.offset)
