"""Which files changed, and when to look at the directories again: inotify, and a clock beside it.

Every directory of interest has a watch; a written file is reported by its path in a directory whose files are read, and
any other change of a name that matters asks for a scan. In a directory on the way to others, such as `/var/log`, much
is written that is no concern of ours: a write there wakes nobody. To set a watch may hang, so a thread does; nothing
else here blocks. The kernel's queue may overflow, watches may run out, and some file systems (network, FUSE) report
nothing of what others do: so a scan is due every `SAFETY` seconds in any case, and every second or few where a
directory could not be watched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import msgspec
import trio

from shipper.sdk.inotify import Inotify, Mask
from shipper_plugins.tail.calls import Lent, at
from shipper_plugins.tail.discovery import Interest

SAFETY = 30.0
"""Seconds between scans where every directory is watched."""
POLL = (1.0, 5.0)
"""Seconds between scans where one is not: after a change, and after long rest."""

_SELF = int(Mask.DELETE_SELF | Mask.MOVE_SELF)
_NAMES = Mask.ATTRIB | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.CREATE | Mask.DELETE
_MASK = _NAMES | _SELF | Mask.ONLYDIR
_MODIFY, _WHOLE, _IGNORED = int(Mask.MODIFY), int(Mask.OVERFLOW) | _SELF, int(Mask.IGNORED)


class Changes(msgspec.Struct):
    """What happened."""

    paths: set[str] = msgspec.field(default_factory=set)
    """Files that were written."""
    scan: bool = False
    """Whether names may lead elsewhere now."""


class Watch:
    """Watches on directories; on systems without inotify it watches nothing, and says so."""

    def __init__(self) -> None:
        self.complete = False
        """Whether changes in all directories are noticed."""
        self._directories: dict[int, dict[str, Interest]] = {}
        try:
            self._inotify: Inotify | None = Inotify()
        except OSError:
            self._inotify = None
        self._lent = Lent(self._end)

    def follow(self, interests: Mapping[str, Interest]) -> bool:
        """Watch these directories and no others; those that do not exist are left out; blocking. Returns whether a
        watch is new: then something may have changed there before it.

        Not at the same time as `changes`. Every watch is set anew, for a path may lead to another directory than before
        (this costs 2 µs each).
        """
        if self._inotify is None:
            return False
        with self._lent:
            return self._follow(self._inotify, interests)

    def _follow(self, inotify: Inotify, interests: Mapping[str, Interest]) -> bool:
        before, self._directories, self.complete = self._directories.keys(), {}, True
        for path, interest in sorted(interests.items(), key=lambda item: item[1].has_files):
            at(path)
            try:  # of two paths to a directory the last one says what is told of it
                wd = inotify.add(path, _MASK | Mask.MODIFY if interest.has_files else _MASK)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                self.complete &= not interest.patterns
                continue
            self.complete &= inotify.hears_all(path)
            self._directories.setdefault(wd, {})[path] = interest
        for wd in before - self._directories.keys():
            inotify.remove(wd)
        return not self._directories.keys() <= before

    async def wait(self) -> None:
        """Wait until something happens, for ever where nothing is watched; a cancel loses nothing."""
        if self._inotify is None:
            await trio.sleep_forever()
        else:
            await self._inotify.wait()

    async def changes(self, seconds: float) -> Changes:
        """Wait until something happens, or for so long; returns what happened."""
        with trio.move_on_after(seconds):
            await self.wait()
        return self.now()

    def now(self) -> Changes:
        """Returns what happened, without waiting."""
        return Changes() if self._inotify is None else self._told(self._inotify.receive_nowait())

    def _told(self, events: Iterable[tuple[int, int, str]]) -> Changes:
        changes = Changes()
        for wd, mask, name in events:
            if mask & _WHOLE or (mask & _IGNORED and wd in self._directories):
                changes.scan = True
                continue
            for directory, interest in self._directories.get(wd, {}).items():
                if mask & _MODIFY:
                    changes.paths.add(os.path.join(directory, name))
                elif name in interest:
                    changes.scan = True
        return changes

    def close(self) -> None:
        """Remove all watches, once no thread sets one."""
        self._lent.close()

    def _end(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None
