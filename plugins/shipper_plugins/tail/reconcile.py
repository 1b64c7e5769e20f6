"""What a scan changes: which files are new, elsewhere, gone, or back; decided without looking at any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import msgspec

from shipper_plugins.tail.content import File
from shipper_plugins.tail.discovery import Found, Scan
from shipper_plugins.tail.followed import Followed
from shipper_plugins.tail.identity import Remembered
from shipper_plugins.tail.place import Place
from shipper_plugins.tail.registry import KEPT
from shipper_plugins.tail.rotated import Recovered, Search, is_rotated
from shipper_plugins.tail.stream import Stream


class Outcome(msgspec.Struct, frozen=True):
    """What became of a scan."""

    changed: bool
    """Whether anything is other than before."""
    new: bool
    """Whether there is another file to be read."""


class Before(msgspec.Struct, frozen=True):
    """What was known when a scan began; any thread may ask it."""

    by_file: Mapping[File, Stream]
    at_hand: Set[Stream]
    """Those that have left the globs, and can be read wherever they are."""
    replaced: Sequence[Stream]

    def sought(self, scan: Scan) -> tuple[list[Remembered], Set[File]]:
        """Known contents that the scan did not find, those that are open once, for their new path; and the files that
        none of them can be."""
        here = {found.file for found in scan.files.values()}
        missing = [s for f, s in self.by_file.items() if f not in here and s not in self.at_hand]
        others = here | (self.by_file.keys() - {stream.file for stream in missing})
        return [stream.remembered() for stream in (*missing, *self.replaced)], others


class Survey:
    """Takes over what scans found."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self._aliases: Mapping[str, str] = {}
        self.hears_all = True
        """Whether every write is told of."""

    def begin(self, ends: Mapping[Found, tuple[Place, bytes]]) -> dict[str, bytes | None]:
        """Files that are read from where they end now, with their first bytes; returns what to store of them."""
        positions: dict[str, bytes | None] = {}
        for found, (place, head) in ends.items():
            compressed = place.done is not None
            stream = self._followed.known.begin(found.path, found.file, place, head, compressed=compressed)
            positions[stream.key] = stream.position(place)
        return positions

    def strangers(self, scan: Scan) -> list[Found]:
        """The files that are not known."""
        return list({f.file: f for f in scan.files.values() if f.file not in self._followed.known.by_file}.values())

    def is_followed(self, path: str) -> bool:
        """Whether a file that is followed is at this path."""
        return self._at(path) is not None

    def _at(self, path: str) -> Stream | None:
        return self._followed.known.at(self._aliases.get(path, path))

    def written(self, path: str) -> None:
        """A file was written: it gets a turn."""
        stream = self._at(path)
        if stream is not None:
            stream.sighting.hear()
            self._followed.wake([stream])

    def before(self, is_open: Set[Stream]) -> Before:
        """What is known now; the streams of which the file is open are `is_open`."""
        known = self._followed.known
        return Before(dict(known.by_file), known.detached.keys() & is_open, tuple(self._followed.replaced))

    def apply(self, scan: Scan, traces: Search, is_open: Set[Stream]) -> Outcome:
        """Take over what a scan found, and a search for what it did not find."""
        followed, known = self._followed, self._followed.known
        followed.scans += 1
        here = self._chosen(scan)
        before = len(known.detached)
        self._part_with_reused(traces, is_open)
        recovered = {self._recover(one) for one in traces.recovered}
        changed = new = len(known.detached) > before
        followed.wake(followed.stale)
        followed.stale.clear()
        self._forget_replaced(traces)
        for file, stream in list(known.by_file.items()):
            found = here.get(file)
            if found is not None and 0 < stream.identity.left < found.changed:  # a deleted file's inode is the next's
                followed.lose(stream, missing=False)
            elif found is not None:
                del here[file]
                changed |= self._present(stream, found)
            elif stream not in recovered and not scan.hides(stream.path):
                changed |= self._missing(stream, traces, is_open)
        for found in here.values():
            stream = known.reunite(found) or self._first_seen(found)
            known.aim(stream, found.target)
            stream.sighting.scan(found.size, found.changed)
            followed.wake([stream])
            changed = new = True
        followed.rotated = {path: stream for path, stream in followed.rotated.items() if stream.file is not None}
        followed.tidy |= dict.fromkeys(known.expire(followed.clock.now(), KEPT))
        return Outcome(changed, new)

    def _first_seen(self, found: Found) -> Stream:
        stream = self._followed.known.new(found.path, found.file, self._followed.scans)
        stream.first_seen = self._followed.clock.of_files()
        return stream

    def _chosen(self, scan: Scan) -> dict[File, Found]:
        """One path for each file: the present one, if it is still right."""
        known, here = self._followed.known, dict[File, Found]()
        for found in scan.files.values():
            stream = known.by_file.get(found.file)
            if found.file not in here or (stream is not None and stream.path == found.path):
                here[found.file] = found
        others = {f.path: here[f.file].path for f in scan.files.values() if here[f.file].path != f.path}
        self._aliases = scan.aliases | others
        return here

    def _forget_replaced(self, traces: Search) -> None:
        """What was looked for once is not looked for again."""
        followed = self._followed
        for stream in [s for s in followed.replaced if s.key in traces.sought]:
            followed.replaced.remove(stream)
            if stream.sighting.behind:
                followed.note_loss(stream)
        for stream in followed.replaced:
            followed.retry_soon(stream)

    def _present(self, stream: Stream, found: Found) -> bool:
        followed, known, path = self._followed, self._followed.known, stream.path
        same = stream.sighting.scan(found.size, found.changed) and path == found.path
        if path != found.path:
            followed.problems.pop(path, None)
            followed.rotated[path] = stream
            known.move(stream, found.path)
            stream.sighting.open()
        known.aim(stream, found.target)
        rests = same
        same &= known.attach(stream)
        if stream.sighting.is_later(found.size, found.changed) and self._is_new(stream, found, rests=rests):
            followed.restart(stream)
            return True
        if not same or stream.path in followed.problems or stream.is_behind(found.size):
            followed.wake([stream])
        return not same

    def _is_new(self, stream: Stream, found: Found, *, rests: bool) -> bool:
        """Whether a file that has not grown was written anew, with what it had; `sighting` says how that is told."""
        heard = stream.sighting.heard
        is_quiet = heard is False and self.hears_all
        if is_quiet and not rests:  # what changed may be told of before the next scan
            self._followed.retry_soon(stream)
            return False
        if is_quiet or (not heard and not found.was_written):
            stream.sighting.accept(found.changed)
            self._followed.tidy[stream.key] = stream.position(stream.place)
            return False
        if not rests:  # a write may be under way that makes it longer
            self._followed.retry_soon(stream)
        return rests

    def _part_with_reused(self, traces: Search, is_open: Set[Stream]) -> None:
        """The inode of a file that is gone was given to another one, which was rotated away as well."""
        for one in traces.recovered:
            stream = self._followed.known.by_file.get(one.found.file)
            if one.key is None and stream is not None and stream not in is_open:
                if _has_more(stream, traces):
                    self._followed.note_loss(stream)
                self._followed.lose(stream, missing=False)

    def _recover(self, one: Recovered) -> Stream | None:
        """Read a file that the globs do not find to its end; its successor completes its last line."""
        followed, known = self._followed, self._followed.known
        stream = known.streams.get(one.key) if one.key is not None else None
        if stream is not None and stream.file is not None:
            known.relocate(stream, one.found.path, one.found.file)
        elif one.key is None and one.found.file not in known.by_file:
            stream = known.new(one.found.path, one.found.file, followed.scans)
        else:
            return None
        stream.sighting.scan(one.found.size, one.found.changed)
        if stream not in known.detached:
            known.detach(stream, followed.clock.now())
            followed.succeed(one.path, stream)
            followed.rotated[one.path] = stream
        followed.wake([stream])
        return stream

    def _missing(self, stream: Stream, traces: Search, is_open: Set[Stream]) -> bool:
        followed = self._followed
        opened = stream in is_open
        if stream.turn.busy and not opened:  # a thread is about to open it, or finds that it cannot
            followed.retry_soon(stream)
            return False
        if opened and stream in followed.known.detached:
            return False
        followed.problems.pop(stream.path, None)
        if opened:
            followed.rotated[stream.path] = stream
            followed.leave(stream)
        elif stream.key not in traces.sought:  # closed while the others were looked for, or no descriptor to look with
            followed.retry_soon(stream)
        else:
            followed.give_up(stream, unread=_has_more(stream, traces))
        return True


def _has_more(stream: Stream, traces: Search) -> bool:
    """Whether a file that is gone had more to read: it had when last looked at, or (if that was in a former run) may
    have been written since: another file has its path, or its path was a link, which others take away."""
    it, sighting = stream.identity, stream.sighting
    if it.ended or stream.key in traces.ended or stream.place.done is not None:
        return False
    if sighting.scanned is None:
        is_behind_link = bool(it.target) and not is_rotated(it.target)
        return sighting.behind or stream.key in traces.replaced or is_behind_link
    return sighting.behind or (not it.compressed and sighting.scanned[0] > stream.offset)
