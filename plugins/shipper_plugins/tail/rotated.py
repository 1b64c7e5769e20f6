"""Files that left the globs while nobody looked: rotated by rename when the input did not run, or was not quick enough.

A rotated file is a known file that no glob finds, or a stream whose file has other content now. It is looked for by its
inode in the directory of its last path, and taken if its first bytes are those that were read. Where the inode is gone,
a compressed copy with the old name and something added may have replaced it. If either is found, so may be others that
were born after it and rotated away before anyone saw them: files with the old name and a number or date added, not
written before the rotated_file was. An excluded file is taken only if it is the rotated file itself. Where the path was
a link, all of that is done by the name and in the directory of the link's target as well, which is stored: a kubelet
rotates behind its links, and takes them away.

Each directory is listed once for all its rotated files, without a `stat` for each entry: among 10,000
entries, one rotated file takes 10 ms and 10,000 take 250. Other directories are not searched: where a rotation moves
its files cannot be guessed.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice

import msgspec
from msgspec.structs import replace

from shipper.sdk.descriptors import is_short
from shipper_plugins.tail.calls import at
from shipper_plugins.tail.content import File, open_content
from shipper_plugins.tail.copies import Verdict, compare
from shipper_plugins.tail.discovery import Found
from shipper_plugins.tail.identity import Identity, Remembered
from shipper_plugins.tail.packing import READ

ENTRIES = 50_000
"""Entries of a directory that are looked at."""
RECENT = 300.0
"""Seconds after its last write or rename for which a rotated file that was read to its end is still followed."""
_COPIES = 16
_ADDED = re.compile(rf"[-._~](?=\d)|(?={'|'.join(map(re.escape, READ))}\Z)")
_NUMBER = re.compile(r"[-._~]\d[-._\d]*\Z")


class Recovered(msgspec.Struct, frozen=True):
    """A file to be read that no glob finds."""

    found: Found
    path: str
    """Where its content was written: the last known path of the rotated file, or of its predecessor."""
    key: str | None = None
    """The stream of the rotated file; None for a copy of it, or a file that was not known."""


class Search(msgspec.Struct):
    """What a search found."""

    recovered: list[Recovered] = msgspec.field(default_factory=list)
    """The one written last is last."""
    ended: set[str] = msgspec.field(default_factory=set)
    """Keys of rotated files that were found, but need not be read: nothing happened to them for long."""
    replaced: set[str] = msgspec.field(default_factory=set)
    """Keys of rotated files that were not found, while another file is at their path."""
    sought: set[str] = msgspec.field(default_factory=set)
    """Keys of all rotated files that could be looked for; of the others nothing is known for want of a descriptor."""


def search(rotated_files: Iterable[Remembered], files: Collection[File], excluded: Callable[[str], bool]) -> Search:
    """Look for rotated files; blocking. `files` are those that are found by globs or belong to another stream."""
    result = Search()
    places: defaultdict[str, list[Remembered]] = defaultdict(list)
    for rotated_file in rotated_files:
        result.sought.add(rotated_file.key)
        for directory in _directories(rotated_file.identity):
            places[directory].append(rotated_file)
    for directory, streams in places.items():
        try:
            _Place(directory, streams, files, excluded).look(result)
        except OSError:
            result.sought.difference_update(rotated_file.key for rotated_file in streams)
    known_last = sorted(result.recovered, key=lambda recovered: recovered.key is not None)
    result.recovered = list({recovered.found.file: recovered for recovered in known_last}.values())
    result.recovered.sort(key=lambda recovered: recovered.found.changed)
    return result


def is_rotated(path: str) -> bool:
    """Whether a rotation gave a file its name, as it seems: such a file is not written any more."""
    return bool(_NUMBER.search(path))


def _directories(it: Identity) -> set[str]:
    at(it.path)
    now = os.path.realpath(it.path) if os.path.islink(it.path) else it.path
    return {os.path.dirname(path) for path in (*it.paths, now)}


class _Place:
    """A directory, and its rotated files."""

    def __init__(
        self, path: str, rotated_files: list[Remembered], files: Collection[File], excluded: Callable[[str], bool]
    ) -> None:
        self._path = path
        self._rotated_files = rotated_files
        self._files = files
        self._excluded = excluded
        self._by_inode: dict[int, list[str]] = {s.identity.file[1]: [] for s in rotated_files if s.identity.file}
        self._added: dict[str, list[str]] = {name: [] for s in rotated_files for name in _names(s.identity)}
        self._unknown: dict[str, list[Found]] = {}

    def look(self, result: Search) -> None:
        """Raises OSError for want of a descriptor only; whatever else cannot be read is not there."""
        at(self._path)
        try:
            with os.scandir(self._path) as entries:
                for entry in islice(entries, ENTRIES):
                    self._note(entry)
        except OSError as error:
            _raise_if_short(error)
            return
        latest: dict[str, tuple[Found, Identity]] = {}
        for rotated_file in self._rotated_files:
            found, it = self._seek(rotated_file, result), rotated_file.identity
            if found is not None and (it.path not in latest or found.changed > latest[it.path][0].changed):
                latest[it.path] = found, it
        for path, (found, it) in latest.items():
            result.recovered += [Recovered(other, path) for other in self._younger(it, found)]

    def _note(self, entry: os.DirEntry[str]) -> None:
        inode = entry.inode()
        if inode in self._by_inode:
            self._by_inode[inode].append(entry.name)
        for match in _ADDED.finditer(entry.name):
            name = entry.name[: match.start()]
            if name in self._added:
                self._added[name].append(entry.name)

    def _seek(self, rotated_file: Remembered, result: Search) -> Found | None:
        found = self._itself(rotated_file)
        if found is not None:
            if _is_read(rotated_file, found):
                result.ended.add(rotated_file.key)
            else:
                result.recovered.append(Recovered(found, rotated_file.identity.path, rotated_file.key))
        elif not rotated_file.identity.ended:
            found = self._copy(rotated_file)
            if found is not None:
                result.recovered.append(Recovered(found, rotated_file.identity.path))
            elif _exists(rotated_file.identity.path):
                result.replaced.add(rotated_file.key)
        return found

    def _younger(self, it: Identity, than: Found) -> Iterator[Found]:
        for name in dict.fromkeys(map(os.path.basename, it.paths)):
            for found in self._siblings(name):
                if found.size and found.changed >= than.changed and found.file != than.file:
                    yield found

    def _itself(self, rotated_file: Remembered) -> Found | None:
        if rotated_file.identity.file is None:
            return None
        names = tuple(map(os.path.basename, rotated_file.identity.paths))
        for other in sorted(
            self._by_inode[rotated_file.identity.file[1]], key=lambda other: not other.startswith(names)
        ):
            found = self._found(other)
            # Without first bytes to compare, the name has to do.
            alike = bool(rotated_file.identity.head_length) or (found is not None and other.startswith(names))
            if found is not None and found.file not in self._files and alike and _begins_like(found, rotated_file):
                return found
        return None

    def _copy(self, rotated_file: Remembered) -> Found | None:
        """The compressed copy that goes on from where the rotated file was read to."""
        if not rotated_file.place.offset or rotated_file.identity.compressed:
            return None
        gone = replace(rotated_file, identity=replace(rotated_file.identity, file=None))
        siblings = (found for name in _names(rotated_file.identity) for found in self._siblings(name))
        packed = [found for found in siblings if found.path.endswith(READ)]
        for found in sorted(packed, key=lambda f: -f.changed)[:_COPIES]:
            try:
                if compare(found.path, found.file, gone).verdict is Verdict.COVERED:
                    return found
            except OSError as error:
                _raise_if_short(error)
        return None

    def _siblings(self, name: str) -> list[Found]:
        """Unknown files with this name and what rotation adds to it."""
        if name not in self._unknown:
            there = (self._found(other) for other in self._added[name])
            self._unknown[name] = [f for f in there if f and f.file not in self._files and not self._excluded(f.path)]
        return self._unknown[name]

    def _found(self, name: str) -> Found | None:
        path = os.path.join(self._path, name)
        at(path)
        try:
            status = os.lstat(path)
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return Found.of(path, status)


def _exists(path: str) -> bool:
    at(path)
    return os.path.exists(path)


def _names(it: Identity) -> set[str]:
    """The names, and those without the number or date that a former rotation added."""
    names = set(map(os.path.basename, it.paths))
    return names | {_NUMBER.sub("", name) for name in names}


def _begins_like(found: Found, rotated_file: Remembered) -> bool:
    try:
        content = open_content(found.path, found.file)
    except OSError as error:
        _raise_if_short(error)
        return False
    try:
        return rotated_file.identity.begins(content.head())
    except OSError:
        return False
    finally:
        content.close()


def _raise_if_short(error: OSError) -> None:
    if is_short(error):
        raise error


def _is_read(rotated_file: Remembered, found: Found) -> bool:
    if rotated_file.identity.compressed:
        return rotated_file.place.done == found.size
    try:
        at(found.path)
        touched = os.lstat(found.path).st_ctime  # a rename counts, for a writer may not have noticed it yet
    except OSError:
        return False
    return rotated_file.place.offset >= found.size and time.time() - touched > RECENT
