"""All streams of an input, by key, by file, by path and by fingerprint.

A stream whose file is gone is remembered for an hour, at most `MAX_GONE` of them, so that a copy that is found
later is not read again, nor the file itself if it comes back as it was (a plain copy that was written later is read:
`copies` says why); then its position is removed from the store, together with the next events.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice

from msgspec.structs import replace

from shipper_plugins.tail.content import HEAD, File
from shipper_plugins.tail.discovery import Found
from shipper_plugins.tail.identity import Identity
from shipper_plugins.tail.packing import ENDINGS
from shipper_plugins.tail.place import Place, fingerprint
from shipper_plugins.tail.stream import Stream

KEPT = 3600.0
"""Seconds for which a stream is remembered after its file is gone."""
MAX_GONE = 10_000
_SEPARATORS = ".-_~"
_CANDIDATES = 8
_NUMBERED = re.compile(rf"(?:[-._~]\d.*)?(?:{'|'.join(map(re.escape, ENDINGS))})?\Z")


def _root(path: str) -> str:
    """The name without what rotation adds to it."""
    name = os.path.basename(path)
    return name[: match.start()] if (match := _NUMBERED.search(name)) else name


def _is_unseen(stream: Stream) -> bool:
    """Whether a file, as it seems a plain one, has content that was not looked at yet."""
    it, scanned = stream.identity, stream.sighting.scanned
    is_packed = it.compressed or it.path.endswith(ENDINGS)
    return it.file is not None and not is_packed and scanned is not None and stream.is_behind(scanned[0])


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
        self.gone: dict[Stream, float | None] = {}
        """Streams whose file is gone or has other content, and since when; None: since before the start."""
        self.detached: dict[Stream, float] = {}
        """Streams whose open file has left the globs, and when it did, or has grown after that."""
        self._paths: defaultdict[Stream, list[str]] = defaultdict(list)
        """All the paths at which the file of a stream was found."""
        self._by_path: defaultdict[str, list[Stream]] = defaultdict(list)
        self._by_head: defaultdict[tuple[int, str], dict[Stream, None]] = defaultdict(dict)
        self._lengths: Counter[int] = Counter()
        self._by_root: defaultdict[str, dict[Stream, None]] = defaultdict(dict)
        """Streams whose first bytes are not known, by the root of their path."""
        self._missing: defaultdict[File, set[Stream]] = defaultdict(set)
        for stream in sorted(_restored(stored), key=lambda stream: not stream.identity.ended):
            older = self.by_file.get(stream.file) if stream.file is not None else None
            if older is not None:  # its inode is another file's now
                older.identity = replace(older.identity, file=None)
                self.gone[older] = None
            self._add(stream)

    def new(self, path: str, file: File, born: int, former: str = "") -> Stream:
        """Begin a stream at offset 0."""
        return self._add(Stream(secrets.token_hex(8), Identity(path, file), born=born, former=former))

    def begin(self, path: str, file: File, place: Place, head: bytes, *, compressed: bool) -> Stream:
        """Begin a stream elsewhere in a file that is there from the start, and therefore no copy."""
        identity = Identity(path, file, fingerprint(head), len(head), compressed)
        stream = Stream(secrets.token_hex(8), identity, place)
        stream.kinship.settle()
        return self._add(stream)

    def _add(self, stream: Stream) -> Stream:
        self.streams[stream.key] = stream
        if stream.file is not None:
            self.by_file[stream.file] = stream
        else:
            self.gone[stream] = None
        for path in stream.identity.paths:
            self._note_path(stream, path)
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
            missing = stream.identity.missing
            if missing is not None and missing[1] == found.file[1] and found.changed <= stream.identity.left:
                self._unmiss(stream)
                self.gone.pop(stream, None)
                stream.identity = replace(stream.identity, file=found.file, ended=False, left=0)
                self.by_file[found.file] = stream
                if stream.path != found.path:
                    self.move(stream, found.path)
                return stream
        return None

    def move(self, stream: Stream, path: str) -> None:
        """Its file has another path now; the former ones still tell what it may have been copied to."""
        by_root = not stream.identity.head_length
        if by_root:
            self._unindex(stream)
        stream.identity = replace(stream.identity, path=path)
        if by_root:
            self._index(stream)
        self._note_path(stream, path)

    def date(self, stream: Stream, born: int) -> None:
        """Its file was made then; 0: that is not known."""
        if born and stream.identity.born != born:
            stream.identity = replace(stream.identity, born=born)

    def aim(self, stream: Stream, target: str) -> None:
        """Its path is a link that leads there, or (if empty) none."""
        if stream.identity.target != target:
            stream.identity = replace(stream.identity, target=target)
            if target:
                self._note_path(stream, target)

    def _note_path(self, stream: Stream, path: str) -> None:
        if path not in self._paths[stream]:
            self._paths[stream].append(path)
            self._by_path[path].append(stream)

    def relocate(self, stream: Stream, path: str, file: File) -> None:
        """Its file was found elsewhere, perhaps on a device with another number."""
        if stream.file is not None and self.by_file.get(stream.file) is stream:
            del self.by_file[stream.file]
        stream.identity = replace(stream.identity, file=file, ended=False, left=0, target="", born=0)
        self.by_file[file] = stream
        self.move(stream, path)

    def attach(self, stream: Stream) -> bool:
        """The globs find its file; returns whether they did before."""
        if stream.identity.ended or stream.identity.left:
            stream.identity = replace(stream.identity, ended=False, left=0)
        return self.detached.pop(stream, None) is None

    def detach(self, stream: Stream, now: float) -> None:
        """Its file has left the globs, or has grown after that."""
        self.detached[stream] = now

    def grow(self, stream: Stream, head: bytes) -> None:
        """Its first bytes are known now, or more of them."""
        self._unindex(stream)
        stream.identity = replace(stream.identity, head=fingerprint(head), head_length=len(head))
        self._index(stream)

    def pack(self, stream: Stream, *, compressed: bool) -> None:
        """Its file is a compressed one, or none."""
        if stream.identity.compressed != compressed:
            stream.identity = replace(stream.identity, compressed=compressed)

    def lose(self, stream: Stream, now: float, left: int, *, missing: bool) -> None:
        """Its file is missing, or (if not) has other content: from now on it is only remembered."""
        it, file = stream.identity, stream.file
        if file is not None and self.by_file.get(file) is stream:
            del self.by_file[file]
        missed = file if file is not None and missing else it.missing
        stream.identity = replace(it, file=None, missing=missed, ended=missing, left=it.left or left)
        if file is not None and missing:
            self._missing[file].add(stream)
        self.gone[stream] = now
        self.detached.pop(stream, None)

    def expire(self, now: float, keep: float = KEPT) -> list[str]:
        """Forget streams that were gone for long; the keys of those forgotten."""
        self.gone |= dict.fromkeys((stream for stream, since in self.gone.items() if since is None), now)
        old = [s for s, at in self.gone.items() if at is not None and now - at >= keep and not s.kinship.copies]
        surplus = list(islice(self.gone, max(0, len(self.gone) - MAX_GONE)))
        return [self.forget(stream) for stream in dict.fromkeys(old + surplus)]

    def forget(self, stream: Stream) -> str:
        """Forget a stream; its key."""
        self.gone.pop(stream, None)
        self.streams.pop(stream.key, None)
        if stream.file is not None and self.by_file.get(stream.file) is stream:
            del self.by_file[stream.file]
        self._unmiss(stream)
        for copied in list(stream.kinship.copies):
            copied.unlink()
        self._unpath(stream)
        self._unindex(stream)
        return stream.key

    def originals(self, stream: Stream, head: bytes) -> list[Stream]:
        """Streams that this one may be a copy of: what was read further comes first.

        A plain file is suspected only with good reason, for files may well be alike: it appeared later, under the
        original's name with something added (`app.log.1`, `app.log-20250101`), or the original was truncated and they
        agree in a full fingerprint. A compressed file is suspected by either, and as a copy of what had a name with
        the same root, since a rotation may have renamed it once more (`app.log.1` became `app.log.2.gz`). If the first
        look at such a file is still under way, its name is reason enough.
        """
        unseen = self._unseen(stream) if stream.identity.compressed else ()
        suspects = {*self._by_name(stream, head), *self._by_content(stream, head), *unseen}
        return sorted((o for o in suspects if self._may_be_original(o, stream)), key=lambda other: -other.offset)

    def _may_be_original(self, other: Stream, stream: Stream) -> bool:
        both_packed = stream.identity.compressed and other.identity.compressed and other.file is not None
        itself = other is stream or (other.key == stream.former and not stream.identity.compressed)
        return not itself and other.kinship.original is None and not both_packed

    def _by_name(self, stream: Stream, head: bytes) -> Iterator[Stream]:
        directory, name = os.path.split(stream.path)
        ends = [i for i, letter in enumerate(name) if i and letter in _SEPARATORS]
        for end in reversed(ends):
            for other in reversed(self._by_path.get(os.path.join(directory, name[:end]), ())[-_CANDIDATES:]):
                if not (stream.identity.compressed or other.born < stream.born):
                    continue
                if not other.identity.head_length:
                    if stream.identity.compressed and _is_unseen(other):
                        yield other
                elif (
                    len(head) < other.identity.head_length
                    or fingerprint(head[: other.identity.head_length]) == other.identity.head
                ):
                    yield other

    def _by_content(self, stream: Stream, head: bytes) -> Iterator[Stream]:
        lengths = [n for n in self._lengths if n <= len(head)] if stream.identity.compressed else [HEAD]
        root = _root(stream.path)
        for length in sorted(lengths, reverse=True):
            for other in islice(self._by_head.get((length, fingerprint(head[:length])), ()), _CANDIDATES):
                truncated = other.file is None and not other.identity.ended
                full = length == HEAD and (stream.identity.compressed or truncated)
                if full or (stream.identity.compressed and _root(other.path) == root):
                    yield other

    def _unseen(self, stream: Stream) -> Iterator[Stream]:
        alike = self._by_root.get(_root(stream.path), ())
        return islice((other for other in alike if _is_unseen(other)), _CANDIDATES)

    def _index(self, stream: Stream) -> None:
        length, head = stream.identity.head_length, stream.identity.head
        if not length:
            self._by_root[_root(stream.path)][stream] = None
        else:
            self._by_head[length, head][stream] = None
            self._lengths[length] += 1

    def _unindex(self, stream: Stream) -> None:
        length, head, root = stream.identity.head_length, stream.identity.head, _root(stream.path)
        if stream in self._by_root.get(root, ()):
            del self._by_root[root][stream]
            if not self._by_root[root]:
                del self._by_root[root]
        alike = self._by_head.get((length, head), {})
        if stream in alike:
            del alike[stream]
            if not alike:
                del self._by_head[length, head]
            self._lengths[length] -= 1
            if not self._lengths[length]:
                del self._lengths[length]

    def _unpath(self, stream: Stream) -> None:
        for path in self._paths.pop(stream, ()):
            there = self._by_path[path]
            there.remove(stream)
            if not there:
                del self._by_path[path]

    def _unmiss(self, stream: Stream) -> None:
        missing = stream.identity.missing
        if missing is None:
            return
        alike = self._missing[missing]
        alike.discard(stream)
        if not alike:
            del self._missing[missing]
        stream.identity = replace(stream.identity, missing=None)
