"""Which files there are, and what has become of those that were there; blocking.

A file counts as removed only if its directory exists, can be read, and does not name it. A missing or unreadable
directory says nothing about its files: an unmounted disk is no empty one. (But the directory on which it was mounted
may be empty, and then looks as if everything was removed.)
"""

from __future__ import annotations

import glob
import os
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shipper.sdk.descriptors import in_words
from shipper_plugins.tail.calls import at
from shipper_plugins.tail.discovery import Found, Globs, Interest

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LOOKS = 3
"""Attempts in one look, while directories appear; the clock finds what is missed then."""
_NO_DIRECTORY = "there is no such directory"


@dataclass(slots=True)
class View:
    """What was seen."""

    began: int
    """When the look began, in nanoseconds of the clock of files."""
    files: Mapping[str, Found]
    removed: set[str] = field(default_factory=set)
    """Of the known files, those that were removed."""
    unclear: dict[str, str] = field(default_factory=dict)
    """And those that are not found, but not certainly removed: why."""
    absent: set[str] = field(default_factory=set)
    """Named directories that do not exist."""
    problems: dict[str, str] = field(default_factory=dict)
    """By path, why it cannot be looked at."""


class Viewer:
    """Looks at the files that the globs of one input name."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._globs = Globs(paths, ())
        self.covers = Globs((), paths).excludes
        """Whether a path is one that the globs name."""
        self._roots = sorted({_root(path) for path in paths})

    def look(self, known: Sequence[str], follow: Callable[[Mapping[str, Interest]], bool]) -> View:
        """Looks at all files, and at the places of the known ones that are not among them.

        With `follow`, the directories are watched; what happened in one before it was watched is seen, too.
        """
        for _ in range(_LOOKS):
            began = time.time_ns()
            scan = self._globs.scan()
            if not follow(scan.interests):
                break
        view = View(began, scan.files, problems=dict(scan.problems))
        view.problems |= dict.fromkeys(scan.directories, "a directory, and not a file: name what is in it, by /*.json")
        for root in self._roots:
            self._check(root, view)
        self._seek([path for path in known if path not in scan.files], view)
        return view

    def _check(self, root: str, view: View) -> None:
        if _hidden(root, view.problems):
            return
        at(root)
        try:
            if not stat.S_ISDIR(os.stat(root).st_mode):
                view.problems[root] = "not a directory"
        except (FileNotFoundError, NotADirectoryError):
            view.absent.add(root)
            view.problems[root] = _NO_DIRECTORY
        except OSError as error:
            view.problems[root] = in_words(error)

    def _seek(self, paths: Iterable[str], view: View) -> None:
        by_directory: defaultdict[str, list[str]] = defaultdict(list)
        for path in paths:
            if why := _hidden(path, view.problems):
                view.unclear[path] = why
            else:
                by_directory[os.path.dirname(path)].append(path)
        for directory, missing in by_directory.items():
            at(directory)
            try:
                opened = os.open(directory, _DIRECTORY)
            except (FileNotFoundError, NotADirectoryError):
                view.unclear |= dict.fromkeys(missing, "its directory is not there")
            except OSError as error:
                view.unclear |= dict.fromkeys(missing, f"its directory cannot be read: {in_words(error)}")
            else:
                try:
                    _seek_in(opened, missing, view)
                finally:
                    os.close(opened)


def _seek_in(directory: int, paths: Sequence[str], view: View) -> None:
    for path in paths:
        try:
            os.stat(os.path.basename(path), dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            view.removed.add(path)
        except OSError as error:
            view.unclear[path] = in_words(error)
        else:
            view.unclear[path] = _oddity(path)


def _oddity(path: str) -> str:
    """Returns why an existing name is no file; nothing is wrong with one that is no longer asked for."""
    try:
        return "" if stat.S_ISREG(os.stat(path).st_mode) else "not a regular file"
    except FileNotFoundError:
        return "a link that leads nowhere"
    except OSError as error:
        return in_words(error)


def _hidden(path: str, problems: Mapping[str, str]) -> str:
    """Returns why it cannot be seen whether a path exists: it, or a directory on the way, cannot be looked at."""
    while problems:
        if path in problems:
            return problems[path]
        path, before = os.path.dirname(path), path
        if path == before:
            break
    return ""


def _root(pattern: str) -> str:
    """Returns the directory that must exist for a glob to mean anything."""
    directory = os.path.dirname(os.path.normpath(pattern))
    while glob.has_magic(directory):
        directory = os.path.dirname(directory)
    return directory
