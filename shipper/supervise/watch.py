"""Watches a set of paths for possible changes.

Directories are watched, not files. So three changes are one event of one entry: a file that is renamed over, a file
that did not exist, and the symlink `..data` that Kubernetes swaps above a mounted ConfigMap or Secret. Every directory
on the way through a path's symlinks is watched, each for the relevant names in it.

An event is a hint to read again. A file that is being written causes an event when it is closed, or at once if it has
bytes when its name appears. There is no debounce: a half-written policy is reported as invalid, and the next change
causes the next event. Where there is no inotify, the paths are polled once a second.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import trio

from shipper.sdk.inotify import Event, Inotify, Mask

POLL_SECONDS = 1.0
_MASK = (
    Mask.CLOSE_WRITE
    | Mask.CREATE
    | Mask.MOVED_TO
    | Mask.MOVED_FROM
    | Mask.DELETE
    | Mask.DELETE_SELF
    | Mask.MOVE_SELF
    | Mask.ATTRIB
)
_WHOLE = Mask.OVERFLOW | Mask.IGNORED | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.UNMOUNT
_MOST_LINKS = 40
ANY = "*"


def entries(path: Path) -> set[tuple[Path, str]]:
    """Returns every directory and name that determine `path`: its own, those of symlinks on the way, and of their
    targets.

    The nearest existing parent represents a directory that does not exist. For a directory, ANY of its entries counts.
    """
    found: set[tuple[Path, str]] = set()
    parts = list(reversed(path.absolute().parts[1:]))
    at = Path(path.absolute().anchor)
    links = 0
    while parts:
        name = parts.pop()
        if name == "..":
            at = at.parent
            continue
        step = at / name
        if links < _MOST_LINKS and (target := _target(step)) is not None:
            links += 1
            found.add((at, name))
            parts += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            at = Path(target.anchor) if target.is_absolute() else at
        elif not parts or not os.path.isdir(step):
            found.add((at, name))
            return found | ({(step, ANY)} if os.path.isdir(step) else set())
        else:
            at = step
    return found | {(at, ANY)}


class Watch:
    """Watches paths; a context manager. `method` is the mechanism."""

    def __init__(self, *, poll: bool = False) -> None:
        self._paths: frozenset[Path] = frozenset()
        self._watches: dict[int, tuple[Path, set[str]]] = {}
        self._looked: dict[Path, tuple[int, ...]] = {}
        try:
            self._inotify = None if poll else Inotify()
        except OSError:
            self._inotify = None

    @property
    def method(self) -> str:
        return "polling" if self._inotify is None else "inotify"

    def follow(self, paths: Iterable[Path]) -> bool:
        """Watches these paths from now on; returns whether any is watched newly, so that it must be read again."""
        self._paths = frozenset(paths)
        if self._inotify is None:
            before, self._looked = self._looked, self._look()
            return before.keys() != self._looked.keys()
        names: dict[Path, set[str]] = {}
        for directory, name in {entry for path in self._paths for entry in entries(path)}:
            names.setdefault(directory, set()).add(name)
        return self._rewatch(self._inotify, names)

    async def changed(self) -> None:
        """Returns when something may have changed; a cancel loses no change that `follow` would not find."""
        if self._inotify is None:
            while self._looked == (now := self._look()):  # noqa: ASYNC110 (no event exists)
                await trio.sleep(POLL_SECONDS)
            self._looked = now
            return
        while not any(self._matters(event) for event in await self._inotify.receive()):
            pass

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rewatch(self, inotify: Inotify, names: dict[Path, set[str]]) -> bool:
        """Adds new watches before it removes old ones, so that a directory in both is never unwatched."""
        before = {(directory, name) for directory, known in self._watches.values() for name in known}
        watches: dict[int, tuple[Path, set[str]]] = {}
        for directory, wanted in names.items():
            try:
                watch = inotify.add(directory, _MASK)
            except OSError:
                continue
            known = watches.setdefault(watch, (directory, set()))
            known[1].update(wanted)
        for watch in self._watches.keys() - watches.keys():
            inotify.remove(watch)
        new = set(watches) - set(self._watches)
        self._watches = watches
        return bool(new) or not {(d, n) for d, known in watches.values() for n in known} <= before

    def _matters(self, event: Event) -> bool:
        watch, mask, name = event
        if mask & Mask.OVERFLOW:
            return True
        if watch not in self._watches:
            return False
        directory, names = self._watches[watch]
        if mask & _WHOLE:
            return True
        if name not in names and not (ANY in names and name.endswith((".yaml", ".yml"))):
            return False
        return not mask & Mask.CREATE or not _just_opened(directory / name)

    def _look(self) -> dict[Path, tuple[int, ...]]:
        looked: dict[Path, tuple[int, ...]] = {}
        for path in self._paths:
            for one in [path, *_inside(path)]:
                try:
                    seen = one.stat()
                    looked[one] = (seen.st_mtime_ns, seen.st_size, seen.st_ino, seen.st_dev, seen.st_mode)
                except OSError:
                    looked[one] = ()
        return looked


def _inside(path: Path) -> list[Path]:
    """Returns the entries of a directory; none if it is no directory, or unreadable."""
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def _target(path: Path) -> Path | None:
    """Returns the target of a symlink, or None if it is no symlink."""
    try:
        return Path(os.readlink(path))
    except OSError:
        return None


def _just_opened(path: Path) -> bool:
    """Whether a new name is a file without content: the close by its writer is another event."""
    try:
        seen = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1 and seen.st_size == 0
