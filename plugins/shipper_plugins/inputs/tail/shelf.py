"""Open files, at most so many; the ones used longest ago are closed, and opened again when they change."""

from __future__ import annotations

from shipper_plugins.inputs.tail.content import Content, open_content
from shipper_plugins.inputs.tail.stream import Stream

OPEN_FILES = 256


class Shelf:
    """The open files of an input."""

    def __init__(self, room: int = OPEN_FILES) -> None:
        self._room = room
        self._open: dict[Stream, Content] = {}

    def __contains__(self, stream: Stream) -> bool:
        return stream in self._open

    def open(self, stream: Stream) -> Content:
        """The content of a stream; raises Moved if its path leads elsewhere now, or OSError."""
        content = self._open.pop(stream, None)
        if content is None:
            assert stream.file is not None
            content = open_content(stream.path, stream.file)
        self._open[stream] = content
        if len(self._open) > self._room:
            idle = next((s for s in self._open if not s.busy), None)
            if idle is not None:
                self.close(idle)
        return content

    def close(self, stream: Stream) -> None:
        content = self._open.pop(stream, None)
        if content is not None:
            content.close()

    def clear(self) -> None:
        for stream in list(self._open):
            self.close(stream)
