"""Open files, at most so many; the ones used longest ago are closed, and opened again when they change.

All inputs of a process share half of the descriptors that it may have, in equal parts: the other half is for
connections, the spool and whatever else there is. Where these leave less, half of the idle files are closed for one
that is to be read. A file that left the globs is closed last, since it may have no name any more by which it could be
opened again.
"""

from __future__ import annotations

import resource
from typing import ClassVar

from shipper.plugin import is_short
from shipper_plugins.inputs.tail.content import Content, open_content
from shipper_plugins.inputs.tail.stream import Stream

OPEN_FILES = 256
"""Open files of an input, at most."""


def _shared() -> int:
    """Files that all inputs together may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft // 2


class Shelf:
    """The open files of an input."""

    _in_use: ClassVar[dict[Shelf, None]] = {}

    def __init__(self) -> None:
        self._open: dict[Stream, Content] = {}

    def __contains__(self, stream: Stream) -> bool:
        return stream in self._open

    def open(self, stream: Stream) -> Content:
        """The content of a stream; raises Moved if its path leads elsewhere now, or OSError."""
        content = self._open.pop(stream, None)
        if content is None:
            content = self._opened(stream)
        self._open[stream] = content
        if self not in self._in_use:
            self._in_use[self] = None
        room = min(OPEN_FILES, _shared() // len(self._in_use))
        for shelf in list(self._in_use):
            shelf._shrink(room)
        return content

    def _opened(self, stream: Stream) -> Content:
        assert stream.file is not None
        try:
            return open_content(stream.path, stream.file)
        except OSError as error:
            if not is_short(error):
                raise
        for shelf in list(self._in_use):
            shelf._shrink(len(shelf._open) // 2)
        return open_content(stream.path, stream.file)

    def _shrink(self, room: int) -> None:
        """Close idle files until so many are left."""
        surplus = len(self._open) - room
        if surplus > 0:
            idle = sorted((s for s in self._open if not s.busy), key=lambda s: s.detached is not None)
            for stream in idle[:surplus]:
                self.close(stream)

    def close(self, stream: Stream) -> None:
        content = self._open.pop(stream, None)
        if content is not None:
            content.close()

    def clear(self) -> None:
        self._in_use.pop(self, None)
        for stream in list(self._open):
            self.close(stream)
