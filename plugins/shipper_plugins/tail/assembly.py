"""How the bytes of a stream become lines: its encoding, and when its last line or event is complete."""

from __future__ import annotations

import msgspec

from shipper_plugins.tail.lines import LONGEST_MARK, Charset, Cutter
from shipper_plugins.tail.options import Options


class Assembly(msgspec.Struct, eq=False):
    """Changed by its own methods only."""

    charset: Charset | None = None
    final: bool = False
    """Whether a last line without a newline is complete: the file was rotated."""
    pending: int = 0
    """Where the lines seen of an unfinished event of several lines end."""
    flush: bool = False
    """Whether that event is finished, as nothing came for a while."""

    def cutter(self, options: Options, path: str, offset: int, head: bytes) -> Cutter:
        """What cuts the chunks of a file with these first bytes; they matter until its encoding is known."""
        shared = {"log": {"file": {"path": path}}, **options.fields(path)}
        charset = self._charset(options.encoding, offset, head)
        return Cutter(charset, options.max_line_bytes, options.multiline, shared, options.filter)

    def _charset(self, encoding: str, offset: int, head: bytes) -> Charset:
        """Settled once the bytes are there that may be a byte order mark."""
        if self.charset is not None:
            return self.charset
        charset, known = Charset.of(encoding), LONGEST_MARK
        if not offset or charset.width > 1:
            charset, known = Charset.of(encoding, head), len(head)
        if known >= LONGEST_MARK:
            self.charset = charset
        return charset

    def complete(self) -> None:
        """Nothing will follow: the last line needs no newline."""
        self.final = True

    def finish(self) -> None:
        """Nothing came for a while: the last event is complete."""
        self.flush = True

    def rest(self, *, final: bool) -> None:
        """The end of what is there was looked at; `final` says that it was taken as complete."""
        self.flush = False
        self.final = self.final and not final

    def wait(self, end: int) -> bool:
        """An unfinished event ends at this offset; returns whether that is news."""
        before, self.pending = self.pending, end
        return before != end
