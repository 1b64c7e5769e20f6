"""A stream: the content of a file, and how far it was read.

A file is known by device and inode, and its content by two fingerprints: of its first up to 1024 bytes (`head`, growing
while the file is shorter) and of the up to 256 bytes before the offset (`tail`). The tail is compared whenever the file
is read, so a reused inode, a truncation and a file truncated and written beyond the old offset are all noticed: the old
stream ends, and the file begins a new one. A stream has a key of its own, since it may outlive its file: a compressed
or copied file is recognised by what is known of the one that it was made from: the fingerprints, and a checksum of all
the bytes that were read of it (`crc`), so that files which differ in the middle are told apart.

The stored position holds hashes and sums only, never text. The checksum is CRC-32, which goes on over a restart and
costs 13 µs a MiB; a cryptographic one was refused, as it has no state that can be stored. It is compared for copies
only, which are read in full anyway: whether a file is still the same is asked at each start, for all of them, and the
first and last bytes have to do there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import msgspec

from shipper_plugins.inputs.tail.content import WINDOW, File
from shipper_plugins.inputs.tail.lines import Charset


def fingerprint(content: bytes) -> str:
    """128 bits of SHA-256, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()[:32]


def shown(path: str) -> str:
    """A path as text; bytes in it that are no UTF-8 are replaced."""
    return path.encode(errors="surrogateescape").decode(errors="replace")


NOTHING = fingerprint(b"")
NOWHERE = (0, 0)
"""Device and inode in the position of a stream whose file has other content now."""


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored of a stream."""

    path: str
    dev: int
    ino: int
    offset: int = 0
    head: str = NOTHING
    head_length: int = 0
    tail: str = NOTHING
    skipping: bool = False
    """Whether the offset is inside a line that was cut: what is left of it is skipped."""
    compressed: bool = False
    done: int | None = None
    """Of a compressed file that was read to its end: its size on disk."""
    behind: bool = False
    """Whether more than this was there to be read."""
    ended: bool = False
    """Whether the file was given up already; nobody needs to look for it."""
    since: int | None = None
    """Where reading began; None in a position that is older than this checksum."""
    crc: int = 0
    """The checksum of the bytes from there to the offset."""
    left: int = 0
    """Wall-clock nanoseconds at which its file was found to be gone or to have other content; 0 while it is there."""


@dataclass(eq=False, slots=True, kw_only=True)
class Stream:
    """A content that is followed, or remembered after its file is gone."""

    key: str
    path: str
    file: File | None
    offset: int = 0
    head: str = NOTHING
    head_length: int = 0
    tail: str = NOTHING
    skipping: bool = False
    compressed: bool = False
    done: int | None = None
    behind: bool = False
    ended: bool = False
    since: int = 0
    crc: int = 0
    left: int = 0

    former: str = ""
    """The key of the stream that its file was before: a plain file is no copy of what it was itself."""
    paths: list[str] = field(default_factory=list)
    """All the paths it was found at."""
    born: int = 0
    """The number of the scan that saw it first; 0 if it was known before."""
    seen: tuple[int, int] | None = None
    """Size and modification time on disk, when last scanned."""
    size: int = 0
    """Size on disk, when last looked at or scanned."""
    rested: int = 0
    """Size on disk up to which everything had been looked at when it last came to rest."""
    gone: float | None = None
    """When its file was first missed, or found to have other content."""
    missing: File | None = None
    """The file that was missed; it may come back."""
    detached: float | None = None
    """When the open file was seen to have left the globs, or to have grown after that."""
    original: Stream | None = None
    copies: set[Stream] = field(default_factory=set)
    settled: bool = False
    """Whether it was decided that this is no copy, or no longer one."""
    compared: int = -1
    """How far its original was read when they were last compared."""
    measured: int = -1
    """Size on disk when a comparison was last thought of."""
    charset: Charset | None = None

    moved: int | None = None
    """The scan after which another file was first there when this one was to be opened; None: it was opened since."""
    has_more: bool = False
    """Whether its file had more bytes than the last chunk."""
    slow: bool = False
    """Whether its file system took long when it was last looked at."""
    queued: bool = False
    busy: bool = False
    again: bool = False
    final: bool = False
    """Whether a last line without a newline is complete: the file was rotated."""
    pending: int = 0
    """Where the lines seen of an unfinished event of several lines end."""
    flush: bool = False
    """Whether that event is finished, as nothing came for a while."""

    @classmethod
    def restored(cls, key: str, stored: bytes) -> Stream:
        """Raises ValueError if that is no position."""
        try:
            p = msgspec.json.decode(stored, type=Position)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ValueError("not a position") from None
        return cls(
            key=key,
            path=p.path,
            file=(p.dev, p.ino) if (p.dev, p.ino) != NOWHERE else None,
            offset=p.offset,
            head=p.head,
            head_length=p.head_length,
            tail=p.tail,
            skipping=p.skipping,
            compressed=p.compressed,
            done=p.done,
            behind=p.behind,
            ended=p.ended,
            since=p.offset if p.since is None else p.since,
            crc=p.crc,
            left=p.left,
            settled=True,
        )

    def position(
        self, offset: int, tail: str, crc: int, *, skipping: bool = False, done: int | None = None, behind: bool = False
    ) -> bytes:
        """What to store when everything before `offset` is stored."""
        dev, ino = self.file or self.missing or NOWHERE
        stored = Position(
            path=shown(self.path),
            dev=dev,
            ino=ino,
            offset=offset,
            head=self.head,
            head_length=self.head_length,
            tail=tail,
            skipping=skipping,
            compressed=self.compressed,
            done=done,
            behind=behind,
            ended=self.ended,
            since=self.since,
            crc=crc,
            left=self.left,
        )
        return msgspec.json.encode(stored)

    def is_behind(self, size: int) -> bool:
        """Whether a file of this size on disk has bytes that were not looked at yet.

        A copy that was compared with its original as it is now is not behind: the original wakes it.
        """
        if size <= self.rested or size == self.done:
            return False
        return self.original is None or self.compared != self.original.offset

    @property
    def unread(self) -> int:
        """Bytes that are not read, by size and offset; of a compressed file all of them, or none."""
        if self.original is not None or self.size == self.done:
            return 0
        return self.size if self.compressed else max(0, self.size - self.offset)

    def matches(self, before: bytes, head: bytes) -> bool:
        """Whether these are the bytes before its offset, and (for a stream at offset 0) the first bytes."""
        if self.offset:
            return len(before) == min(self.offset, WINDOW) and fingerprint(before) == self.tail
        return len(head) >= self.head_length and fingerprint(head[: self.head_length]) == self.head
