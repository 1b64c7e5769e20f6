"""All streams of an input, by key, by file, by path and by fingerprint.

A stream whose file is gone is remembered for an hour, at most `MAX_GONE` of them, so that a copy that is found
later is not read again, nor the file itself if it comes back as it was (a plain copy that was written later is read:
`copies` says why); then its position is removed from the store, together with the next events.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice

from shipper_plugins.inputs.tail.content import HEAD, File
from shipper_plugins.inputs.tail.discovery import Found
from shipper_plugins.inputs.tail.stream import Stream, fingerprint

KEPT = 3600.0
"""Seconds for which a stream is remembered after its file is gone."""
MAX_GONE = 10_000
_SEPARATORS = ".-_~"
_CANDIDATES = 8
_NUMBERED = re.compile(r"(?:[-._~]\d.*)?(?:\.gz)?\Z")


def _root(path: str) -> str:
    """The name without what rotation adds to it."""
    name = os.path.basename(path)
    return name[: match.start()] if (match := _NUMBERED.search(name)) else name


def _restored(stored: Mapping[str, bytes]) -> Iterator[Stream]:
    for key, position in stored.items():
        try:
            yield Stream.restored(key, position)
        except ValueError:
            continue


class Known:
    """The streams that are followed or remembered."""

    def __init__(self, stored: Mapping[str, bytes]) -> None:
        self.streams: dict[str, Stream] = {}
        self.by_file: dict[File, Stream] = {}
        self.gone: dict[Stream, None] = {}
        self.detached: set[Stream] = set()
        self._by_path: defaultdict[str, list[Stream]] = defaultdict(list)
        self._by_head: defaultdict[tuple[int, str], dict[Stream, None]] = defaultdict(dict)
        self._lengths: Counter[int] = Counter()
        self._missing: defaultdict[File, set[Stream]] = defaultdict(set)
        for stream in sorted(_restored(stored), key=lambda stream: not stream.ended):
            older = self.by_file.get(stream.file) if stream.file is not None else None
            if older is not None:  # its inode is another file's now
                older.file = None
                self.gone[older] = None
            self.add(stream)

    def new(self, path: str, file: File, born: int) -> Stream:
        """Begin a stream at offset 0."""
        return self.add(Stream(key=secrets.token_hex(8), path=path, file=file, born=born))

    def add(self, stream: Stream) -> Stream:
        self.streams[stream.key] = stream
        if stream.file is not None:
            self.by_file[stream.file] = stream
        else:
            self.gone[stream] = None
        stream.paths.append(stream.path)
        self._by_path[stream.path].append(stream)
        self._index(stream)
        return stream

    def at(self, path: str) -> Stream | None:
        """The stream whose file is at this path."""
        streams = reversed(self._by_path.get(path, ()))
        return next((s for s in streams if s.file is not None and s.path == path), None)

    def reunite(self, found: Found) -> Stream | None:
        """The stream of a file that was missed, or that had this path and inode on a device with another number (a
        reboot changes those); from now on it is followed again. A file written since then is another one, perhaps:
        the inode of a deleted file is the next one's."""
        candidates: list[Stream] = [*self._missing.get(found.file, ()), *self._by_path.get(found.path, ())]
        for stream in candidates:
            if stream.missing is not None and stream.missing[1] == found.file[1] and found.changed <= stream.left:
                self._unmiss(stream)
                self.gone.pop(stream, None)
                stream.file, stream.gone, stream.ended, stream.left = found.file, None, False, 0
                self.by_file[found.file] = stream
                if stream.path != found.path:
                    self.move(stream, found.path)
                return stream
        return None

    def move(self, stream: Stream, path: str) -> None:
        """Its file has another path now; the former ones still tell what it may have been copied to."""
        stream.path = path
        if path not in stream.paths:
            stream.paths.append(path)
            self._by_path[path].append(stream)

    def relocate(self, stream: Stream, path: str, file: File) -> None:
        """Its file was found elsewhere, perhaps on a device with another number."""
        if stream.file is not None and self.by_file.get(stream.file) is stream:
            del self.by_file[stream.file]
        stream.file, stream.ended, stream.left = file, False, 0
        self.by_file[file] = stream
        self.move(stream, path)

    def grow(self, stream: Stream, head: bytes) -> None:
        """Its first bytes are known now, or more of them."""
        self._unindex(stream)
        stream.head, stream.head_length = fingerprint(head), len(head)
        self._index(stream)

    def lose(self, stream: Stream, now: float, *, missing: bool) -> None:
        """Its file is missing, or (if not) has other content: from now on it is only remembered."""
        file, stream.file, stream.gone, stream.detached = stream.file, None, now, None
        stream.left = stream.left or time.time_ns()
        if file is not None and self.by_file.get(file) is stream:
            del self.by_file[file]
        if file is not None and missing:
            stream.missing = file
            self._missing[file].add(stream)
        self.gone[stream] = None
        self.detached.discard(stream)

    def expire(self, now: float, keep: float = KEPT) -> list[str]:
        """Forget streams that were gone for long; the keys of those forgotten."""
        for stream in self.gone:
            stream.gone = now if stream.gone is None else stream.gone
        old = [s for s in self.gone if s.gone is not None and now - s.gone >= keep and not s.copies]
        surplus = list(islice(self.gone, max(0, len(self.gone) - MAX_GONE)))
        return [self.forget(stream) for stream in dict.fromkeys(old + surplus)]

    def forget(self, stream: Stream) -> str:
        """Forget a stream; its key."""
        self.gone.pop(stream, None)
        self.streams.pop(stream.key, None)
        if stream.file is not None and self.by_file.get(stream.file) is stream:
            del self.by_file[stream.file]
        self._unmiss(stream)
        for copy in stream.copies:
            copy.original = None
        stream.copies.clear()
        self._unpath(stream)
        self._unindex(stream)
        return stream.key

    def originals(self, stream: Stream, head: bytes) -> list[Stream]:
        """Streams that this one may be a copy of: what was read further comes first.

        A plain file is suspected only with good reason, for files may well be alike: it appeared later, under the
        original's name with something added (`app.log.1`, `app.log-20250101`), or the original was truncated and they
        agree in a full fingerprint. A compressed file is suspected by either, and as a copy of what had a name with
        the same root, since a rotation may have renamed it once more (`app.log.1` became `app.log.2.gz`).
        """
        suspects = {*self._by_name(stream, head), *self._by_content(stream, head)}
        return sorted((o for o in suspects if self._may_be_original(o, stream)), key=lambda other: -other.offset)

    def _may_be_original(self, other: Stream, stream: Stream) -> bool:
        both_packed = stream.compressed and other.compressed and other.file is not None
        itself = other is stream or (other.key == stream.former and not stream.compressed)
        return not itself and other.original is None and not both_packed

    def _by_name(self, stream: Stream, head: bytes) -> Iterator[Stream]:
        directory, name = os.path.split(stream.path)
        ends = [i for i, letter in enumerate(name) if i and letter in _SEPARATORS]
        for end in reversed(ends):
            for other in reversed(self._by_path.get(os.path.join(directory, name[:end]), ())[-_CANDIDATES:]):
                if not other.head_length or not (stream.compressed or other.born < stream.born):
                    continue
                if len(head) < other.head_length or fingerprint(head[: other.head_length]) == other.head:
                    yield other

    def _by_content(self, stream: Stream, head: bytes) -> Iterator[Stream]:
        lengths = [n for n in self._lengths if n <= len(head)] if stream.compressed else [HEAD]
        root = _root(stream.path)
        for length in sorted(lengths, reverse=True):
            for other in islice(self._by_head.get((length, fingerprint(head[:length])), ()), _CANDIDATES):
                truncated = other.file is None and not other.ended
                full = length == HEAD and (stream.compressed or truncated)
                if full or (stream.compressed and _root(other.path) == root):
                    yield other

    def _index(self, stream: Stream) -> None:
        if stream.head_length:
            self._by_head[stream.head_length, stream.head][stream] = None
            self._lengths[stream.head_length] += 1

    def _unindex(self, stream: Stream) -> None:
        alike = self._by_head.get((stream.head_length, stream.head), {})
        if stream in alike:
            del alike[stream]
            if not alike:
                del self._by_head[stream.head_length, stream.head]
            self._lengths[stream.head_length] -= 1
            if not self._lengths[stream.head_length]:
                del self._lengths[stream.head_length]

    def _unpath(self, stream: Stream) -> None:
        for path in stream.paths:
            there = self._by_path[path]
            there.remove(stream)
            if not there:
                del self._by_path[path]

    def _unmiss(self, stream: Stream) -> None:
        if stream.missing is None:
            return
        alike = self._missing[stream.missing]
        alike.discard(stream)
        if not alike:
            del self._missing[stream.missing]
        stream.missing = None
