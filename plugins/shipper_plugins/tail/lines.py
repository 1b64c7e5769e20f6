"""Bytes of a file become batches of lines.

The common case (UTF-8, no line too long) costs no Python per line: the last line feed is found, one decode checks the
encoding, and the block is a batch as it is. Events of several lines of such a block are cut out of it as JSON, for 1 µs
a line. Everything else (invalid bytes, other encodings, cut lines) takes a path with Python per line, some µs each,
with the true offsets of the source.

A line longer than `max_line_bytes` is cut and marked by `log.flags: [truncated]`; the rest of it is skipped, however
long, without keeping it.

NULs are filler, and no text: of a file that was truncated under a writer that goes on at its old offset, of one that
lost its last pages in a crash, of a sparse one. A hole ends a line, and an event of several lines, as a line end does,
and counts for no limit. It is a run of NULs where a line begins, or of at least `HOLE` within one; fewer there are a
separator of the program that wrote them (or text in an encoding other than `encoding`), and stay. Those before a line
end are taken off. A hole at the end of what is there waits for the text behind it, as a program may yet write into it,
unless it is longer than a line may be.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import accumulate, pairwise

import msgspec
import orjson
from msgspec.structs import replace

from shipper.plugin import Batch, Fields
from shipper.sdk.columns import escaped
from shipper_plugins.tail.filtering import Filter
from shipper_plugins.tail.multiline import Multiline

_BOMS = {"utf-8": codecs.BOM_UTF8, "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
_BOMS |= {"utf-32-le": codecs.BOM_UTF32_LE, "utf-32-be": codecs.BOM_UTF32_BE}

_NOTATIONS = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"})
"""Codecs from text to bytes that are not for files: host names, literals of Python."""
_NO_ENCODING = "there is no such encoding for text files; write one such as latin-1 or utf-16"
LONGEST_MARK = max(map(len, _BOMS.values()))
HOLE = 4
"""So many NULs within a line are no text: more than there are between two letters of UTF-32."""
_HERE = "\x7foffset"
"""Stands for an offset; no path is such a text."""
_HOLES = re.compile(rb"\0{%d,}|(?:\A|(?<=\n))\0+" % HOLE)


class Charset(msgspec.Struct, frozen=True):
    """The encoding of one file."""

    name: str
    newline: bytes
    width: int
    carriage: bytes
    bom: bytes = b""

    @classmethod
    def of(cls, encoding: str, head: bytes = b"") -> Charset:
        """The encoding of a file that begins with `head`; raises ValueError if there is no such encoding.

        `utf-16` and `utf-32` ask the byte order mark; without one, they are little-endian.
        """
        try:
            name = codecs.lookup(encoding).name.removesuffix("-sig")
            if name in ("utf-16", "utf-32"):
                name += "-be" if head.startswith(_BOMS[f"{name}-be"]) else "-le"
            newline = "\n".encode(name)
            b"".decode(name)
        except (LookupError, ValueError) as error:
            raise ValueError(_NO_ENCODING) from error
        if name in _NOTATIONS:
            raise ValueError(_NO_ENCODING)
        bom = _BOMS.get(name, b"")
        present = bom if bom and head.startswith(bom) else b""
        return cls(name, newline, len(newline), "\r".encode(name), present)

    def find(self, chunk: bytes, start: int = 0) -> int:
        """The index after the first line end from `start`, or 0."""
        at = chunk.find(self.newline, start)
        while at >= 0 and at % self.width:
            at = chunk.find(self.newline, at + 1)
        return at + self.width if at >= 0 else 0

    def rfind(self, chunk: bytes) -> int:
        """The index after the last line end, or 0."""
        at = chunk.rfind(self.newline)
        while at >= 0 and at % self.width:
            at = chunk.rfind(self.newline, 0, at + self.width - 1)
        return at + self.width if at >= 0 else 0

    def split(self, block: bytes) -> list[bytes]:
        """The lines of a block, each with its line end, if it has one."""
        if self.width == 1:
            lines = block.split(self.newline)
            return [line + self.newline for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        found = [m.end() for m in re.finditer(re.escape(self.newline), block) if m.start() % self.width == 0]
        edges = dict.fromkeys([0, *found, len(block)])
        return [block[a:b] for a, b in pairwise(edges)]

    def holes(self, chunk: bytes) -> Iterator[tuple[int, int]]:
        """Where filler begins and ends, in a chunk that begins with a line; a line end behind one belongs to it."""
        pattern = _HOLES if self.newline == b"\n" else re.compile(rb"\0{%d,}" % self.width)
        for match in pattern.finditer(chunk):
            start = match.start() + -match.start() % self.width
            end = match.end() - match.end() % self.width
            least = 1 if start == 0 or chunk.endswith(self.newline, 0, start) else HOLE
            if end - start >= least * self.width:
                yield start, self._line_end(chunk, end)

    def _line_end(self, chunk: bytes, at: int) -> int:
        behind = chunk[at : at + 2 * self.width]
        if behind == self.carriage:  # half of one
            return len(chunk)
        return at + next(
            (len(end) for end in (self.newline, self.carriage + self.newline) if behind.startswith(end)), 0
        )

    def text(self, line: bytes, limit: int) -> tuple[str, bool]:
        """A line without its end and filler before that, and whether it was cut to `limit` bytes, never inside a
        character."""
        body = line[: -self.width].removesuffix(self.carriage) if line.endswith(self.newline) else line
        if body.endswith(b"\0"):
            filler = len(body) - len(body.rstrip(b"\0"))
            body = body[: len(body) - filler // self.width * self.width]
        if len(body) <= limit:
            return body.decode(self.name, "replace"), False
        return codecs.getincrementaldecoder(self.name)("replace").decode(body[:limit], False), True


class Cut(msgspec.Struct, frozen=True):
    """What a chunk gave."""

    batches: tuple[Batch, ...] = ()
    consumed: int = 0
    """Bytes of the chunk that are in the batches, or were skipped."""
    skipping: bool = False
    """Whether the next byte is inside a line that was cut."""
    pending: int = 0
    """Bytes after those consumed that are whole lines of an unfinished event."""
    filtered: int = 0
    """Events that were left out of the batches."""

    def behind(self, batch: Batch | None, size: int) -> Cut:
        """What the chunk gave with so many bytes before it, which gave this batch."""
        before = () if batch is None else (batch,)
        return replace(self, batches=(*before, *self.batches), consumed=size + self.consumed)


class Cutter(msgspec.Struct, frozen=True):
    """How a file's chunks are cut: settings, encoding and the fields that its events share."""

    charset: Charset
    max_line_bytes: int
    multiline: Multiline | None
    shared: Fields
    filter: Filter | None = None

    @property
    def slow(self) -> bool:
        """Whether it takes Python per line: then it belongs into a thread."""
        return self.multiline is not None or self.charset.name != "utf-8" or self.filter is not None

    def cut(self, chunk: bytes, at: int, *, skipping: bool = False, final: bool = False, flush: bool = False) -> Cut:
        """Cut a chunk that was read at offset `at`.

        `final` says that nothing will follow: a last line without an end is a line. `flush` says that no line will
        join an unfinished event. A chunk longer than `max_line_bytes` and all line ends always gives something.
        """
        cut = self._cut(chunk, at, skipping=skipping, final=final, flush=flush)
        return cut if self.filter is None else _filtered(self.filter, cut)

    def _cut(self, chunk: bytes, at: int, *, skipping: bool, final: bool, flush: bool) -> Cut:
        if b"\0" not in chunk:
            return self._cut_text(chunk, at, skipping=skipping, final=final, flush=flush)
        events, done = list[bytes](), 0
        for start, end in self.charset.holes(chunk):
            if end == len(chunk) and not final and not self._is_passed(chunk, done, start):
                chunk = chunk[:start]
                break
            events += self._complete(chunk[done:start], at + done, skipping=skipping)
            skipping, done = False, end
        cut = self._cut_text(chunk[done:], at + done, skipping=skipping, final=final, flush=flush)
        return cut.behind(self._batch(events) if events else None, done)

    def _is_passed(self, chunk: bytes, done: int, start: int) -> bool:
        """Whether a hole at the end, with the beginning of a line before it, is longer than a line may be."""
        return len(chunk) - done - self.charset.rfind(chunk[done:start]) > self.max_line_bytes + self.charset.width

    def _complete(self, piece: bytes, at: int, *, skipping: bool) -> list[bytes]:
        """All events of what ends at a hole."""
        start = (self.charset.find(piece) or len(piece)) if skipping else self._begin(piece, at)
        lines, at = self.charset.split(piece[start:]), at + start
        if self.multiline is None or not lines:
            return self._events(lines, at)
        return self._grouped(self.multiline, lines, at, flush=True)[0]

    def _begin(self, chunk: bytes, at: int) -> int:
        """The length of the byte order mark at the beginning of a file."""
        return len(self.charset.bom) if at == 0 and self.charset.bom and chunk.startswith(self.charset.bom) else 0

    def _cut_text(self, chunk: bytes, at: int, *, skipping: bool, final: bool, flush: bool) -> Cut:
        start = self._begin(chunk, at)
        if skipping:
            start = self.charset.find(chunk)
            if not start:
                return Cut(consumed=len(chunk) - len(chunk) % self.charset.width, skipping=True)
        end = len(chunk) if final and self.multiline is not None else self.charset.rfind(chunk)
        if end > start:
            return self._block(chunk[start:end], at, start, flush or final)
        rest = chunk[start:]
        if len(rest) > self.max_line_bytes + self.charset.width:
            return self._long(rest, at, start)
        if final and rest:
            return Cut((self._batch(self._events([rest], at + start)),), len(chunk))
        return Cut(consumed=start if skipping else 0)

    def _block(self, block: bytes, at: int, start: int, flush: bool) -> Cut:
        """Whole lines."""
        at += start
        if self.multiline is not None:
            if self._is_plain(block) and b"\r" not in block and block.endswith(b"\n"):
                events, pending = self._grouped_plain(self.multiline, block, at, flush=flush)
            else:
                events, pending = self._grouped(self.multiline, self.charset.split(block), at, flush=flush)
            consumed = start + len(block) - pending if events else start
            return Cut((self._batch(events),) if events else (), consumed, pending=pending)
        fast = self._fast(block, at)
        batch = fast if fast is not None else self._batch(self._events(self.charset.split(block), at))
        return Cut((batch,), start + len(block))

    def _fast(self, block: bytes, at: int) -> Batch | None:
        """The block as it is, or None if its lines have to be looked at one by one."""
        if not self._is_plain(block):
            return None
        returns = block.count(b"\r\n") if b"\r" in block else 0
        if not returns:
            return Batch.lines(block, offset=at, shared=self.shared)
        if returns != block.count(b"\n"):
            return None
        return Batch.lines(block.replace(b"\r\n", b"\n"), offset=at, shared=self.shared, gap=2)

    def _is_plain(self, block: bytes) -> bool:
        """Whether its lines are text as they are, but for their ends."""
        if self.charset.name != "utf-8" or b"\0" in block or self._too_long(block):
            return False
        if not block.isascii():
            try:
                block.decode()
            except UnicodeDecodeError:
                return False
        return True

    def _too_long(self, block: bytes) -> bool:
        if len(block) <= self.max_line_bytes:
            return False
        return max(map(len, BytesIO(block))) > self.max_line_bytes + 1  # with its line feed

    def _long(self, rest: bytes, at: int, start: int) -> Cut:
        """The beginning of a line that is too long; the rest of it is skipped."""
        kept = self.max_line_bytes - self.max_line_bytes % self.charset.width
        event = self._event(*self.charset.text(rest[: kept + self.charset.width], kept), at + start)
        return Cut((self._batch([event]),), start + kept, skipping=True)

    def _events(self, lines: Sequence[bytes], at: int) -> list[bytes]:
        events = []
        for line in lines:
            events.append(self._event(*self.charset.text(line, self.max_line_bytes), at))
            at += len(line)
        return events

    def _grouped(
        self, multiline: Multiline, lines: Sequence[bytes], at: int, *, flush: bool
    ) -> tuple[list[bytes], int]:
        """Events of several lines, and the bytes of the last one if it is unfinished."""
        read = [self.charset.text(line, self.max_line_bytes) for line in lines]
        texts = [text for text, _ in read]
        ends = [at, *(end for end in _ends(lines, at))]
        raw = [text.encode(errors="replace") for text in texts]
        groups, pending = self._groups(multiline, raw, ends, flush=flush)
        events = []
        for first, last in groups:
            several = ["multiline"] if last - first > 1 else []
            cut = any(is_cut for _, is_cut in read[first:last])
            events.append(self._event("\n".join(texts[first:last]), cut, ends[first], several))
        return events, pending

    def _groups(
        self, multiline: Multiline, texts: Sequence[bytes], ends: Sequence[int], *, flush: bool
    ) -> tuple[list[tuple[int, int]], int]:
        groups = multiline.group(texts, ends, self.max_line_bytes)
        if flush or not multiline.unfinished(groups[-1], texts[-1]):
            return groups, 0
        first, last = groups.pop()
        return groups, ends[last] - ends[first]

    def _grouped_plain(self, multiline: Multiline, block: bytes, at: int, *, flush: bool) -> tuple[list[bytes], int]:
        """As `_grouped`, for lines of plain text: escaped by the block, and joined as JSON (1.3 µs a line of 100 bytes;
        8 one by one)."""
        ends = list(accumulate(map(len, BytesIO(block)), initial=at))
        groups, pending = self._groups(multiline, block[:-1].split(b"\n"), ends, flush=flush)
        texts = escaped(block)
        alone, joined = self._form(), self._form("multiline")
        events = [
            (alone if last - first == 1 else joined) % (b"\\n".join(texts[first:last]), ends[first])
            for first, last in groups
        ]
        return events, pending

    def _form(self, *flags: str) -> bytes:
        """A plain event with these flags, as a format of its text and its offset."""
        log = orjson.dumps(self._log(_HERE, flags)).replace(b"%", b"%%").replace(orjson.dumps(_HERE), b"%d")
        return b'{"message":"%%b","log":%b}' % log

    def _event(self, text: str, cut: bool, at: int, flags: Sequence[str] = ()) -> bytes:
        return orjson.dumps({"message": text, "log": self._log(at, [*flags, *(["truncated"] if cut else [])])})

    def _log(self, at: int | str, flags: Sequence[str]) -> Fields:
        return {**self.shared.get("log", {}), "offset": at, **({"flags": flags} if flags else {})}

    def _batch(self, events: Sequence[bytes]) -> Batch:
        return Batch.documents(events, shared={key: value for key, value in self.shared.items() if key != "log"})


def _filtered(filter: Filter, cut: Cut) -> Cut:
    kept = list(map(filter.kept, cut.batches))
    filtered = sum(before.count - after.count for before, after in zip(cut.batches, kept, strict=True))
    return replace(cut, batches=tuple([batch for batch in kept if batch.count]), filtered=filtered)


def _ends(lines: Sequence[bytes], at: int) -> Iterator[int]:
    for line in lines:
        at += len(line)
        yield at
