"""Open files, at most so many; the ones used longest ago are closed, and opened again when they change.

All inputs of a process share half of the descriptors that it may have, in equal parts: the other half is for
connections, the spool and whatever else there is. Where these leave less, half of the idle files are closed for one
that is to be read. A file that left the globs is closed last, since it may have no name any more by which it could be
opened again.

To open and to close may hang, so a thread opens, and closes what has to give way to it. What is closed for another
cause is closed by a thread of its own, and counts as open until that is done.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from errno import EMFILE
from itertools import islice
from os import strerror
from typing import ClassVar

import trio

from shipper.sdk.descriptors import is_short
from shipper_plugins.tail.calls import Lent
from shipper_plugins.tail.content import Content, File, open_content
from shipper_plugins.tail.stream import Stream

OPEN_FILES = 1024
"""Open files of an input, at most."""
_MOMENT = 0.1
"""Seconds for which the files of other inputs are waited for."""


def _shared() -> int:
    """Files that all inputs together may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft // 2


class _Opened(Lent):
    def __init__(self, content: Content) -> None:
        super().__init__(content.close)
        self.content = content


class OpenFiles:
    """The open files of an input. Any thread may use it; only `use` blocks."""

    _in_use: ClassVar[dict[OpenFiles, None]] = {}
    _lock: ClassVar[threading.RLock] = threading.RLock()
    """Of all shelves; never held in a call that may hang."""

    def __init__(self, is_detached: Callable[[Stream], bool]) -> None:
        self._is_detached = is_detached
        """Whether a file has left the globs; any thread may ask."""
        self._open: dict[Stream, _Opened] = {}
        self._closing = 0
        """How many are being closed."""
        self._to_close: list[tuple[Sequence[_Opened], threading.Event]] = []
        """Those among them for a thread that has not begun."""
        self._is_over = False

    def streams(self) -> Set[Stream]:
        """The streams whose files are open."""
        with self._lock:
            return set(self._open)

    def at_hand(self, stream: Stream) -> Content | None:
        """What is open of a busy stream, in the thread that closes such ones: nobody closes it before that goes on."""
        with self._lock:
            opened = self._open.pop(stream, None)
            if opened is None:
                return None
            self._open[stream] = opened
        return opened.content

    @contextmanager
    def use(self, stream: Stream, path: str, file: File) -> Iterator[tuple[Content, bool]]:
        """The content of a stream, and whether it was open already; blocking.

        Raises Moved if its path leads elsewhere now, or OSError.
        """
        with self._lock:
            opened = self._open.pop(stream, None)
            if was_open := opened is not None:
                self._open[stream] = opened
        if opened is None:
            opened = _Opened(self._opened(path, file))
        with opened:
            for other in self._put(stream, opened):
                other.close()
            yield opened.content, was_open

    def _opened(self, path: str, file: File) -> Content:
        if self._closing >= OPEN_FILES:
            raise OSError(EMFILE, strerror(EMFILE))
        try:
            return open_content(path, file)
        except OSError as error:
            if not is_short(error):
                raise
        with self._lock:
            idle = {open_files: open_files._surplus(len(open_files._open) // 2) for open_files in self._in_use}
            others = [open_files._close(those) for open_files, those in idle.items() if open_files is not self]
        for one in idle.get(self, ()):
            one.close()
        for closed in others:
            closed.wait(_MOMENT)
        return open_content(path, file, is_needed=not self._open)  # strangers must not stop an input for ever

    def _put(self, stream: Stream, opened: _Opened) -> Sequence[_Opened]:
        """Take over an open file; the idle ones of this input that are closed for it."""
        with self._lock:
            if self._is_over:
                return [opened]
            self._open[stream] = opened
            self._in_use[self] = None
            room = min(OPEN_FILES, _shared() // len(self._in_use))
            for open_files in self._in_use:
                if open_files is not self:
                    open_files._close(open_files._surplus(room))
            return self._surplus(room, but=stream)

    def _surplus(self, room: int, but: Stream | None = None) -> list[_Opened]:
        """Idle files to be closed until so many are left; they are off the open_files."""
        surplus = len(self._open) - room
        if surplus <= 0:
            return []
        closed: list[_Opened] = []
        for may_be_detached in (False, True):
            idle = (s for s in self._open if not s.turn.busy and s is not but)
            those = islice((s for s in idle if may_be_detached or not self._is_detached(s)), surplus - len(closed))
            closed += [self._open.pop(stream) for stream in list(those)]
        return closed

    def close(self, *streams: Stream) -> None:
        """Close their files, each once no thread reads it; those that are closed together take one thread."""
        with self._lock:
            self._close([self._open.pop(stream) for stream in dict.fromkeys(streams) if stream in self._open])

    def clear(self) -> threading.Event:
        """Close all files; none stays open any more. The event says that they are closed."""
        with self._lock:
            self._is_over = True
            self._in_use.pop(self, None)
            closed = self._close(list(self._open.values()))
            self._open.clear()
        return closed

    def _close(self, these: Sequence[_Opened]) -> threading.Event:
        """By a thread of its own, which nobody has to wait for; it also closes what comes until it begins."""
        closed = threading.Event()
        if not these:
            closed.set()
            return closed
        self._closing += len(these)
        self._to_close.append((these, closed))
        if len(self._to_close) == 1:
            try:
                trio.lowlevel.start_thread_soon(self._close_all, lambda _: None, "close files")
            except RuntimeError:  # no thread can be started, so the input cannot go on
                self._close_all()
        return closed

    def _close_all(self) -> None:
        with self._lock:
            ended, self._to_close = self._to_close, []
        for these, closed in ended:
            for opened in these:
                opened.close()
                with self._lock:
                    self._closing -= 1
            closed.set()
