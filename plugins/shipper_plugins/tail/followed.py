"""What is followed, and what is decided about it: no call here reads, waits or asks a clock but the one it was given.

    names changed ──> `reconcile` ┐
    a file was seen ─> `turn` ────┼──> here: streams change, and what is to be done is noted ──> `decided`
    a file is new ───> `copying` ─┘

Who calls does what was decided, before it waits for anything: `tailer` and `reader`, or a test without files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from shipper.sdk.descriptors import in_words, is_short
from shipper_plugins.tail.discovery import Scan
from shipper_plugins.tail.options import Options
from shipper_plugins.tail.packing import Crowded
from shipper_plugins.tail.place import Place
from shipper_plugins.tail.registry import Known
from shipper_plugins.tail.stream import Stream, shown

SETTLED, TOLD = 5.0, 900.0
"""Seconds after which a file that is gone was not taken over by a copy, and for which its loss is reported."""


class Clock(msgspec.Struct, frozen=True):
    """The time of this process in seconds, and that of the files in nanoseconds."""

    now: Callable[[], float]
    of_files: Callable[[], int]


class Decided(msgspec.Struct):
    """What is to be done, in this order."""

    close: list[Stream] = msgspec.field(default_factory=list)
    """Streams whose open file is to be closed."""
    wake: list[Stream] = msgspec.field(default_factory=list)
    """Streams that get a turn: they may have something to read."""
    set_timer: bool = False
    """Whether something is due sooner than it was."""
    scan: bool = False
    """Whether to look at the names again at once."""


class Followed:
    """All streams of an input, and what they wait for."""

    def __init__(self, options: Options, clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.known = Known({})
        self.scans = 0
        self.problems: dict[str, str] = {}
        """Path → why its file cannot be read."""
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
        self._lost: dict[Stream, float] = {}
        """Streams whose file was gone before its end was read, and since when."""
        self._lost_before = 0
        """Those that are not told of any more."""
        self._decided = Decided()

    def decided(self) -> Decided:
        """What was decided since this was last asked."""
        decided, self._decided = self._decided, Decided()
        return decided

    def restore(self, stored: Mapping[str, bytes]) -> None:
        """Go on from the positions that were stored."""
        self.known = Known(stored)

    def change(self, options: Options) -> None:
        """From now on these; an unfinished event may be none by them."""
        self.options = options
        self.wake(self.pending)
        self.look_again()

    # -- what is to be done ----------------------------------------------------------------------------------------

    def wake(self, streams: Iterable[Stream]) -> None:
        """They may have something to read."""
        self._decided.wake += streams

    def close(self, stream: Stream) -> None:
        """Its file is not needed open."""
        self._decided.close.append(stream)

    def retry_soon(self, stream: Stream) -> None:
        """Give a stream a turn after the next scan, which is due soon then."""
        self.stale.add(stream)
        self._decided.set_timer = True

    def look_again(self) -> None:
        """The names may lead elsewhere."""
        self._decided.scan = True

    def wake_due(self) -> None:
        """Wake the streams whose time has come."""
        now = self.clock.now()
        for stream, when in list(self.pending.items()):
            if now >= when:
                del self.pending[stream]  # once, as its turn may take long, or fail
                stream.assembly.finish()
                self.wake([stream])
        self.wake(self.known.detached)

    def due(self) -> Iterator[float]:
        """When `wake_due` will have something to do."""
        return iter(self.pending.values())

    # -- what becomes of a stream ----------------------------------------------------------------------------------

    def go_to(self, stream: Stream, place: Place) -> None:
        """Everything before this place is stored."""
        stream.place = place

    def wait_for_more(self, stream: Stream, end: int, seconds: float) -> None:
        """It has an unfinished event that ends at this offset; after so long without more it is finished."""
        if stream.assembly.wait(end) or stream not in self.pending:
            self.pending[stream] = self.clock.now() + seconds
            self._decided.set_timer = True

    def lose(self, stream: Stream, *, missing: bool) -> None:
        """The file of a stream is gone, or has other content; its copies take over."""
        self.close(stream)
        self.pending.pop(stream, None)
        self.cut_short.pop(stream, None)
        self.known.lose(stream, self.clock.now(), self.clock.of_files(), missing=missing)
        if stream.offset or stream.place.done is not None:
            self.tidy[stream.key] = stream.position(stream.place)
        stream.unlink()
        self.wake(stream.kinship.copies)

    def restart(self, stream: Stream) -> None:
        """The file was truncated, or its inode is another file's now: its content is a new stream."""
        file, path, detached = stream.file, stream.path, stream in self.known.detached
        self.lose(stream, missing=False)
        if file is not None and not detached:
            fresh = self.known.new(path, file, self.scans, stream.key)
            fresh.sighting.inherit(stream.sighting)
            if stream.offset:
                self.replaced.append(stream)
                self.retry_soon(fresh)
            self.wake([fresh])

    def give_up(self, stream: Stream, *, unread: bool) -> None:
        """Its file is gone for good, perhaps before all of it was read."""
        self.problems.pop(stream.path, None)
        if unread:
            self.note_loss(stream)
        self.lose(stream, missing=True)

    def note_loss(self, stream: Stream) -> None:
        """Its file was gone before its end was read."""
        self._lost[stream] = self.clock.now()

    def leave(self, stream: Stream) -> None:
        """Its open file has left the globs: it is read to its end."""
        self.known.detach(stream, self.clock.now())
        self.wake([stream])

    def note_end(self, stream: Stream, written: int | None) -> None:
        """The end of a compressed file is not there, and when it was last written; or (None) it is there."""
        if written is None:
            self.cut_short.pop(stream, None)
        else:
            self.cut_short[stream] = written

    def succeed(self, path: str, stream: Stream) -> None:
        """This stream has content, at a path: the last line of what was rotated away from there needs no newline."""
        older = self.rotated.get(path)
        if older is not None and older is not stream:
            del self.rotated[path]
            older.assembly.complete()
            self.wake([older])

    def tidied(self, tidy: Mapping[str, bytes | None]) -> None:
        """These changes of positions are stored."""
        self.tidy = {key: value for key, value in self.tidy.items() if key not in tidy or tidy[key] != value}

    # -- files that cannot be read ---------------------------------------------------------------------------------

    def opened(self, stream: Stream) -> None:
        """Its turn went well."""
        stream.sighting.open()
        self.problems.pop(stream.path, None)

    def missed(self, stream: Stream) -> None:
        """Another file was at its path when it was to be opened."""
        if stream.sighting.miss(self.scans):
            self.look_again()
        else:
            self.problems[stream.path] = "another file is there whenever it is opened"

    def failed(self, stream: Stream, error: OSError) -> None:
        """A file that cannot be read now is tried again, but one that no path leads to not for long."""
        self.close(stream)
        if isinstance(error, Crowded):
            self.retry_soon(stream)
            return
        since = self.known.detached.get(stream)
        if is_short(error):
            self.retry_soon(stream)
        elif since is not None and self.clock.now() - since > SETTLED:
            self.give_up(stream, unread=True)
            return
        self.problems[stream.path] = in_words(error)

    def is_behind(self, scan: Scan) -> bool:
        """Whether a file that can be read was not read to where the scan saw its end."""
        sizes = [(self.known.by_file.get(found.file), found.size) for found in scan.files.values()]
        return any(s is not None and s.is_behind(size) and s.path not in self.problems for s, size in sizes)

    def losses(self) -> list[str]:
        """The files whose end is lost, for a while: not those that came back or went on in a copy."""
        streams, now = self.known.streams, self.clock.now()
        there = {s: at for s, at in self._lost.items() if s.file is None and s.key in streams}
        self._lost = {s: at for s, at in there.items() if now - at < TOLD}
        self._lost_before += sum(now - at >= TOLD and not s.kinship.copies for s, at in there.items())
        return sorted({shown(s.path) for s in self._settled()})

    @property
    def lost_files(self) -> int:
        """Files that were gone before their end was read, since the input was opened."""
        return self._lost_before + len(self._settled())

    def _settled(self) -> list[Stream]:
        now = self.clock.now()
        return [s for s, at in self._lost.items() if not s.kinship.copies and now - at >= SETTLED]
