"""The running `file` input: it follows what the globs name, and gives turns to the streams that changed.

    scan ──> apply: new, moved, missing ──> turns ──> workers: take, store
     ^                                        ^
     └── names changed, or time ── watch ── files written

A wake-up can be lost: a file that is elsewhere for an instant cannot be opened in its turn, and the next scan sees no
change of it. So each scan also wakes the files that have more bytes than were looked at, and one-shot use does not end
while there is such a file.

A scan may take a fifth of the time at most, so a directory of ten thousand files that changes all the while does not
take the processor for itself. A system at rest forwards a line at once; while lines keep coming, they are read in turns
(`pace`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial

import trio

from shipper.plugin import Code, Credential, InputContext, Source, forget_frames
from shipper_plugins.tail.calls import Calls
from shipper_plugins.tail.chunk import Taken
from shipper_plugins.tail.content import Moved
from shipper_plugins.tail.discovery import Globs, Scan
from shipper_plugins.tail.followed import Clock, Followed
from shipper_plugins.tail.options import Options, Tails
from shipper_plugins.tail.pace import BREATH, TURN, Gathering
from shipper_plugins.tail.reader import Reader
from shipper_plugins.tail.reconcile import Before, Outcome, Survey
from shipper_plugins.tail.rotated import Search, search
from shipper_plugins.tail.sight import Sight, Wish
from shipper_plugins.tail.start import MARK, begun, ends
from shipper_plugins.tail.stream import Stream, shown
from shipper_plugins.tail.watch import POLL, SAFETY, Changes, Watch

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
TAKEN = 256
"""Streams whose chunks are stored together, at most."""
_SOON = 1.0


class Tailer(Source):
    """A source of lines."""

    def __init__(self, options: Options, context: InputContext) -> None:
        self._context = context
        self._globs = Globs(options.paths, options.exclude)
        self._watch = Watch()
        self._gathering = Gathering()
        self._calls = Calls(f"{context.name} {options.identity}")
        self._followed = Followed(options, Clock(trio.current_time, time.time_ns))
        self._survey = Survey(self._followed)
        self._reader = Reader(self._followed, context, self._calls, self._act)
        self._unseen: dict[str, str] = {}
        self._absent: dict[str, float] = {}
        """Paths without a glob that have no file, and since when."""
        self._reported: str | None = None
        self._scan_wanted = False
        self._sleep = trio.CancelScope()
        self._rest = POLL[0]

    @property
    def _options(self) -> Options:
        return self._followed.options

    async def close(self) -> None:
        """Close all files and watches; what hangs is closed when it comes back, and not waited for."""
        closed = self._reader.open_files.clear()
        self._watch.close()
        if not closed.is_set():
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(closed.wait, CLOSING, limiter=trio.CapacityLimiter(1))

    def change(self, settings: Tails, credentials: Mapping[str, Credential]) -> None:
        """See `Source.change`."""
        self._followed.change(settings.options())
        self._act()

    async def quiesce(self) -> None:
        """See `Source.change`: what was written waits no longer; what else there is to read is read by the next one."""
        self._heed(self._watch.now())
        self._wake_written(at_once=True)
        self._act()
        with trio.move_on_after(TURN):
            await self._reader.turns.quiet()

    def figures(self) -> dict[str, int]:
        """See `Source.change`."""
        followed, lost = self._followed.known.by_file.values(), self._followed.lost_files
        figures = {"files": len(followed), "unread_bytes": sum(stream.unread for stream in followed)}
        return {**figures, "lost_files": lost} if lost else figures

    async def run(self) -> None:
        """See `Source.run`."""
        stored = await self._context.positions()
        mark = stored.pop(MARK, None)
        self._followed.restore(stored)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._calls.watch, self._report)
            for _ in range(WORKERS):
                nursery.start_soon(self._work)
            await self._follow(mark)
            nursery.cancel_scope.cancel()

    def _act(self) -> None:
        """Do what was decided."""
        decided = self._followed.decided()
        if decided.close:
            self._reader.open_files.close(*decided.close)
        for stream in decided.wake:
            self._reader.turns.wake(stream)
        self._scan_wanted |= decided.scan
        if decided.scan or decided.set_timer:
            self._sleep.cancel()

    # -- turns -----------------------------------------------------------------------------------------------------

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
                    self._gathering.count(len(one.look.found))
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
        taken: Taken | bool = False
        try:
            if isinstance(seen, OSError):
                raise seen
            taken = await self._reader.take(seen)
        except OSError as error:
            forget_frames(error)  # this one has it
            if isinstance(error, Moved):
                self._followed.missed(stream)
            else:
                self._followed.failed(stream, error)
        else:
            self._followed.opened(stream)
        self._act()
        return taken

    # -- looking ---------------------------------------------------------------------------------------------------

    async def _follow(self, mark: bytes | None) -> None:
        while True:
            started = trio.current_time()
            if self._scan_wanted:
                self._gathering.begin(started)
                self._scan_wanted = False
            look = partial(self._look, self._survey.before(self._reader.open_files.streams()))
            scan, fresh_watches, traces = await self._calls.run(self._options.paths[0], look)
            now = trio.current_time()
            if not self._followed.scans and self._options.from_end and mark != begun(self._options):
                await self._begin_at_end(scan)
            self._survey.hears_all = self._watch.complete
            self._heed(self._watch.now())  # what the scan has seen
            self._wake_written(at_once=True)
            outcome = self._survey.apply(scan, traces, self._reader.open_files.streams())
            self._act()
            self._note(scan)
            if fresh_watches:
                continue
            if self._options.stop_at_end:
                await self._reader.turns.quiet()
                if self._is_over(scan, outcome):
                    return
                await trio.sleep(BREATH)
                continue
            self._rest = POLL[0] if outcome.changed else min(self._rest * 1.5, POLL[1])
            cost = now - started
            period = max(SAFETY if self._watch.complete else self._rest, 20 * cost)
            await self._wait(now + 4 * cost, now + (min(period, ABSENT) if self._is_incomplete() else period))

    def _is_over(self, scan: Scan, outcome: Outcome) -> bool:
        """Whether everything was read that is there."""
        followed = self._followed
        return not (outcome.new or followed.stale or self._scan_wanted or followed.is_behind(scan))

    def _is_incomplete(self) -> bool:
        return bool(self._followed.problems or self._unseen or self._absent)

    def _look(self, before: Before) -> tuple[Scan, bool, Search]:
        """Scan, watch what was scanned, and look for known contents that the scan did not find; also returns whether a
        watch is new. One blocking call: to a thread and back takes as long as the scan of a small directory."""
        scan = self._globs.scan()
        is_new = self._watch.follow(scan.interests)
        sought, others = before.sought(scan)
        return scan, is_new, search(sought, others, self._globs.excludes) if sought else Search()

    async def _begin_at_end(self, scan: Scan) -> None:
        """Put every file that is not known at its end, and store that the input has begun."""
        look = partial(ends, self._survey.strangers(scan), self._options.encoding)
        positions = self._survey.begin(await self._calls.run(self._options.paths[0], look))
        await self._context.emit(positions={**positions, MARK: begun(self._options)})

    async def _wait(self, earliest: float, due: float) -> None:
        """Wake what was written, until it is time for a scan."""
        followed = self._followed
        while (now := trio.current_time()) < due and not (self._scan_wanted and now >= earliest):
            due = min(due, now + _SOON) if followed.stale else due
            until = min(due, earliest if self._scan_wanted else due, *followed.due())
            until = min(until, now + 1.0) if followed.known.detached else until
            has_gathered = await self._listen(until)
            self._wake_written()
            followed.wake_due()
            self._act()
            if not (has_gathered or self._gathering.left(trio.current_time())):  # names, or what others write
                await trio.sleep(BREATH)

    async def _listen(self, until: float) -> bool:
        """Wait until something happens, until then, or until a timer is set anew, and heed what happened; during a turn
        it is left in the kernel. Returns whether it was."""
        now = trio.current_time()
        left = self._gathering.left(now)
        due = min(until, now + min(left, self._gathering.breath)) if left else until
        has_waited = left > 0 or self._gathering.has_some  # and some are due, if the turn has ended just now
        if left or not has_waited:
            with trio.CancelScope(deadline=due) as self._sleep:
                if left:
                    await trio.sleep_forever()
                await self._watch.wait()
        if not left or trio.current_time() >= due:
            self._heed(self._watch.now())
        return has_waited

    def _heed(self, changes: Changes) -> None:
        self._scan_wanted |= changes.scan
        self._gathering.note(filter(self._survey.is_followed, changes.paths))

    def _wake_written(self, *, at_once: bool = False) -> None:
        for path in self._gathering.due(trio.current_time(), at_once=at_once):
            self._survey.written(path)

    # -- telling ---------------------------------------------------------------------------------------------------

    def _note(self, scan: Scan) -> None:
        self._absent = {path: self._absent.get(path, trio.current_time()) for path in scan.absent}
        self._unseen = scan.problems | dict.fromkeys(scan.directories, "a directory, and not a file")
        self._report()

    def _nothing_there(self) -> dict[str, str]:
        latest = trio.current_time() - (0 if self._options.stop_at_end else ABSENT)
        return {path: "there is no such file" for path, since in self._absent.items() if since <= latest}

    def _cut_short(self) -> dict[str, str]:
        """The compressed files that nobody seems to go on writing."""
        latest = time.time_ns() - (0 if self._options.stop_at_end else int(CUT_SHORT * 1e9))
        return {
            s.path: "the compressed file is cut short" for s, at in self._followed.cut_short.items() if at <= latest
        }

    def _report(self) -> None:
        """Tell the shipper what cannot be read, if that has changed."""
        told = self._nothing_there() | self._unseen | self._followed.problems | self._cut_short() | self._calls.silent()
        problems = sorted(told.items())
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        text = "; ".join(_told(problems[:3])) + more
        if losses := self._followed.losses():
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


def _told(problems: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yields each reason once, behind the paths that have it."""
    paths: dict[str, list[str]] = {}
    for path, why in problems:
        paths.setdefault(why, []).append(shown(path))
    return (f"{', '.join(found)}: {why}" for why, found in paths.items())
