"""Globs become the regular files of now, and the directories in which a change may make that different.

`*` and `?` and `[…]` match within a name, `**` any number of directories; as in a shell, none matches a leading dot.
`[^…]` and `[!…]` are any other character. `{a,b}` is refused, and not taken as it stands: elsewhere it is either.
Symbolic links are followed; below `**` every directory is entered once, so loops end, and for any other part of a glob
a thousand times at most. Each directory that was looked into, from the root down, is of interest: a link that is
pointed elsewhere, or a directory that appears, is noticed there. So is the directory that a linked file is really in,
since that is where its changes show.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import msgspec

from shipper.plugin import BadOption
from shipper_plugins.tail import denied
from shipper_plugins.tail.calls import at
from shipper_plugins.tail.content import File
from shipper_plugins.wildcards import fits

_MAGIC = re.compile(r"[*?\[]")
_CLASS = re.compile(r"\[(\^?)(\][^\]]*|[^\]]+)\]")
_BRACES = re.compile(r"\{[^{},]*,[^{}]*\}")
_MOST_WAYS = 1000
"""Links through which one directory is looked into for one part of a glob: two in it that lead back to it would double
the paths at each `*`."""


class Found(msgspec.Struct, frozen=True):
    """A regular file that a glob matched."""

    path: str
    file: File
    size: int
    changed: int
    """Modification time, in nanoseconds."""
    altered: int
    """When the file system last noted a change of content or attributes, which no program can set; in nanoseconds."""
    target: str = ""
    """Where it really is, if the path is a link."""
    accessed: int = 0
    """When it was last read, in nanoseconds, as far as the file system notes that."""

    @classmethod
    def of(cls, path: str, status: os.stat_result, target: str = "") -> Found:
        """What the file system says of it."""
        file, changed, altered = (status.st_dev, status.st_ino), status.st_mtime_ns, status.st_ctime_ns
        return cls(path, file, status.st_size, changed, altered, target, status.st_atime_ns)

    @property
    def was_written(self) -> bool:
        """Whether a write was the last that happened to it; a program that sets its times is another thing."""
        return self.changed == self.altered and self.changed != self.accessed


class Interest(msgspec.Struct):
    """Which names matter in a directory."""

    names: set[str] = msgspec.field(default_factory=set)
    patterns: set[str] = msgspec.field(default_factory=set)
    has_files: bool = False
    """Whether files in it are read, so that their writes matter; else it is on the way to others."""

    def __contains__(self, name: str) -> bool:
        return name in self.names or any(_matcher(pattern).match(name) for pattern in self.patterns)


class Scan(msgspec.Struct):
    """What there is."""

    files: dict[str, Found] = msgspec.field(default_factory=dict)
    interests: defaultdict[str, Interest] = msgspec.field(default_factory=lambda: defaultdict(Interest))
    aliases: dict[str, str] = msgspec.field(default_factory=dict)
    """For a linked file: its real path → the path by which it was found."""
    problems: dict[str, str] = msgspec.field(default_factory=dict)
    """Path → why it cannot be looked at."""
    directories: set[str] = msgspec.field(default_factory=set)
    """Paths without a glob that lead to a directory: the files in it were meant, perhaps."""
    absent: set[str] = msgspec.field(default_factory=set)
    """Paths without a glob where there is nothing."""

    def hides(self, path: str) -> bool:
        """Whether a file that was not found may be there all the same."""
        return any(path == hidden or path.startswith(os.path.join(hidden, "")) for hidden in self.problems)


@lru_cache(4096)
def _matcher(pattern: str) -> re.Pattern[str]:
    dots = "" if pattern.startswith(".") else r"(?!\.)"
    return re.compile(dots + fnmatch.translate(pattern))


def check_pattern(pattern: str, *at: str | int) -> None:
    """Raises BadOption (`at` leads to the pattern) unless it can match."""
    if "\0" in pattern:
        raise BadOption("a NUL is in it, which no name of a file can have: remove it", *at)
    if not _split(pattern)[1]:
        raise BadOption("no name is in it: give that of a file, or a pattern such as *.gz", *at)
    if _BRACES.search(_replaced("", pattern)):
        raise BadOption("alternatives in braces are not known: give a pattern for each, or write [{] for a brace", *at)


class Globs:
    """The files that `paths` name and `exclude` does not. Patterns are absolute, but for an `exclude` without a
    separator: that one is compared with the name alone."""

    def __init__(self, paths: Sequence[str], exclude: Sequence[str]) -> None:
        self._paths = [_parts(path) for path in paths]
        self._single = {os.path.join(root, *parts) for root, parts in self._paths if not _MAGIC.search("".join(parts))}
        parts = [_parts(p)[1] if os.path.isabs(p) else ("**", *_parts(p)[1]) for p in exclude]
        self._excluded = [[None if part == "**" else re.compile(fnmatch.translate(part)) for part in p] for p in parts]

    def scan(self) -> Scan:
        """Look now; blocking. What vanishes meanwhile is left out."""
        walk = _Walk(self.excludes)
        for root, parts in self._paths:
            walk.entered.clear()
            walk.ways.clear()
            walk.expand(root, parts)
        scan = walk.scan
        scan.absent = {path for path in self._single if not self.excludes(path) and not _exists(path)}
        scan.absent -= scan.problems.keys()
        return scan

    def excludes(self, path: str) -> bool:
        """Whether `exclude` names this path."""
        names = _split(path)[1] if self._excluded else ()
        return any(fits(pattern, names, star=None, fits_one=_is_named) for pattern in self._excluded)


def _exists(path: str) -> bool:
    at(path)
    return os.path.lexists(path)


class _Walk:
    def __init__(self, excluded: Callable[[str], bool]) -> None:
        self.scan = Scan()
        self.entered: set[tuple[File, int]] = set()
        self.ways: Counter[tuple[File, int]] = Counter()
        """How often a directory was reached with so much of the glob left."""
        self._excluded = excluded
        self._listings: dict[str, list[str]] = {}

    def expand(self, root: str, parts: tuple[str, ...]) -> None:
        """Take over what the parts lead to, in the order of names; without recursion, as directories may be deep."""
        ahead = [(root, parts)]
        while ahead:
            ahead += reversed(list(self._below(*ahead.pop())))

    def _below(self, directory: str, parts: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """One step down; what is yielded is where to go on."""
        part, rest = parts[0], parts[1:]
        if part == "**":
            yield from self._everywhere(directory, parts, rest or ("*",))
        elif _MAGIC.search(part):
            self._interest(directory, rest).patterns.add(part)
            match = _matcher(part).match
            for name in self._listing(directory):
                if match(name):
                    yield from self._found(os.path.join(directory, name), rest)
        else:
            self._interest(directory, rest).names.add(part)
            yield from self._found(os.path.join(directory, part), rest, is_named=True)

    def _interest(self, directory: str, rest: tuple[str, ...]) -> Interest:
        """What matters in a directory with so much of the glob left behind it."""
        interest = self.scan.interests[directory]
        interest.has_files |= not rest
        return interest

    def _found(
        self, path: str, rest: tuple[str, ...], *, is_named: bool = False
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        if not rest and self._excluded(path):
            return
        status, is_link = self._stat(path)
        if status is None:
            return
        if not rest and stat.S_ISREG(status.st_mode):
            self._file(path, status, is_link=is_link)
        elif not rest and is_named and stat.S_ISDIR(status.st_mode):
            self.scan.directories.add(path)
        elif rest and stat.S_ISDIR(status.st_mode) and self._is_a_way(path, status, rest):
            yield path, rest

    def _is_a_way(self, path: str, status: os.stat_result, rest: tuple[str, ...]) -> bool:
        place = ((status.st_dev, status.st_ino), len(rest))
        self.ways[place] += 1
        if self.ways[place] > _MOST_WAYS:
            self.scan.problems[path] = f"more than {_MOST_WAYS} links lead to this directory; remove some"
        return self.ways[place] <= _MOST_WAYS

    def _everywhere(
        self, directory: str, parts: tuple[str, ...], rest: tuple[str, ...]
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        status, _ = self._stat(directory)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return
        place = ((status.st_dev, status.st_ino), len(rest))
        if place in self.entered:
            return
        self.entered.add(place)
        yield directory, rest
        self.scan.interests[directory].patterns.add("*")
        for name in self._listing(directory):
            if not name.startswith("."):
                yield os.path.join(directory, name), parts

    def _file(self, path: str, status: os.stat_result, *, is_link: bool) -> None:
        at(path)
        real = os.path.realpath(path) if is_link else ""
        self.scan.files[path] = Found.of(path, status, real)
        if real:
            self.scan.aliases[real] = path
            self._interest(os.path.dirname(real), ()).names.add(os.path.basename(real))

    def _listing(self, directory: str) -> list[str]:
        if directory not in self._listings:
            at(directory)
            try:
                self._listings[directory] = sorted(os.listdir(directory))
            except OSError as error:
                self._listings[directory] = []
                self._problem(directory, error)
        return self._listings[directory]

    def _stat(self, path: str) -> tuple[os.stat_result | None, bool]:
        """What is at a path, and whether that is a link: one call for what is none."""
        at(path)
        try:
            status = os.lstat(path)
            is_link = stat.S_ISLNK(status.st_mode)
            return os.stat(path) if is_link else status, is_link
        except OSError as error:
            self._problem(path, error)
            return None, False

    def _problem(self, path: str, error: OSError) -> None:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            self.scan.problems[path] = denied.reason(error)


def _is_named(pattern: re.Pattern[str] | None, name: str) -> bool:
    """`fnmatch` makes patterns that never try a star again: linear in the name for each of their characters."""
    return pattern is not None and pattern.match(name) is not None


def _parts(pattern: str) -> tuple[str, tuple[str, ...]]:
    """Root and names, with classes as `fnmatch` writes them; `**` behind `**` means nothing more."""
    root, parts = _split(pattern)
    kept = (part for before, part in pairwise(("", *parts)) if not before == part == "**")
    return root, tuple(_replaced(_negated, part) for part in kept)


def _replaced(by: str | Callable[[re.Match[str]], str], pattern: str) -> str:
    """With other classes; behind the last `]` is none, and each `[` there would be followed to the end."""
    head, closing, tail = pattern.rpartition("]")
    return _CLASS.sub(by, head + closing) + tail


def _negated(found: re.Match[str]) -> str:
    return f"[!{found[2]}]" if found[1] else found[0]


def _split(path: str) -> tuple[str, tuple[str, ...]]:
    drive, tail = os.path.splitdrive(path)
    parts = [part for part in re.split(r"[\\/]" if os.sep == "\\" else "/", tail) if part not in ("", ".")]
    return drive + os.sep, tuple(parts)
