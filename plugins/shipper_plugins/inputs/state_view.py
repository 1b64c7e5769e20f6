"""What there is of files, and what has become of those that were there; blocking.

A file counts as removed only where its directory is there, can be read, and does not name it. A directory that is not
there, or does not let itself be read, says nothing about what is in it: an unmounted disk is no empty one. (But the
directory on which it was mounted may be one, and then looks as if all was removed.)
"""

from __future__ import annotations

import glob
import os
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shipper.plugin import in_words
from shipper_plugins.inputs.tail.calls import at
from shipper_plugins.inputs.tail.discovery import Found, Globs, Interest

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LOOKS = 3
"""At once, while directories appear; what is missed then is seen by the clock."""
_NO_DIRECTORY = "there is no such directory"


@dataclass(slots=True)
class View:
    """What was seen."""

    began: int
    """When the look began, in nanoseconds of the clock of files."""
    files: Mapping[str, Found]
    removed: set[str] = field(default_factory=set)
    """Of the files that were known: those that were removed."""
    unclear: dict[str, str] = field(default_factory=dict)
    """And those that are not found, and not removed for sure: why."""
    absent: set[str] = field(default_factory=set)
    """Directories that were named, and are not there."""
    problems: dict[str, str] = field(default_factory=dict)
    """Path → why it cannot be looked at."""


class Viewer:
    """Looks at what the globs of one input name."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._globs = Globs(paths, ())
        self.covers = Globs((), paths).excludes
        """Whether a path is one that the globs name."""
        self._roots = sorted({_root(path) for path in paths})

    def look(self, known: Sequence[str], follow: Callable[[Mapping[str, Interest]], bool]) -> View:
        """Look at all files, and at where the known ones were that are not among them.

        `follow` has the directories watched; what happened in one before it was watched is seen, too.
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
    """Why a name that is there is none of a file; nothing is wrong with one that is no longer asked for."""
    try:
        return "" if stat.S_ISREG(os.stat(path).st_mode) else "not a regular file"
    except FileNotFoundError:
        return "a link that leads nowhere"
    except OSError as error:
        return in_words(error)


def _hidden(path: str, problems: Mapping[str, str]) -> str:
    """Why it cannot be seen whether a path is there: it, or a directory that leads there, cannot be looked at."""
    while problems:
        if path in problems:
            return problems[path]
        path, before = os.path.dirname(path), path
        if path == before:
            break
    return ""


def _root(pattern: str) -> str:
    """The directory that has to be there for a glob to say anything."""
    directory = os.path.dirname(os.path.normpath(pattern))
    while glob.has_magic(directory):
        directory = os.path.dirname(directory)
    return directory
