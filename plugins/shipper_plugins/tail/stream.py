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

A stream is made of values, and each has one owner. Everybody reads them; a value is changed, or replaced, by its owner:

    identity    `registry`    its file, and its first bytes
    place       `followed`    how far it was read
    sighting    `sighting`    what was last seen of its file
    assembly    `assembly`    what bytes become lines
    kinship     `stream`      the file that it is a copy of, and its copies
    turn        `queue`       whether it waits for a turn, or has one
"""

from __future__ import annotations

import msgspec

from shipper_plugins.tail.assembly import Assembly
from shipper_plugins.tail.content import File
from shipper_plugins.tail.identity import NOWHERE, Identity, Remembered
from shipper_plugins.tail.place import BEGINNING, NOTHING, Place
from shipper_plugins.tail.queue import Turn
from shipper_plugins.tail.sighting import Sighting


def shown(path: str) -> str:
    """A path as text; bytes in it that are no UTF-8 are replaced."""
    return path.encode(errors="surrogateescape").decode(errors="replace")


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
    target: str = ""
    """Where the file really is, if its path is a link."""
    born: int = 0
    """When the file was made, in nanoseconds."""
    written: int = 0
    """When the file was last written, in nanoseconds, if all of it was read; 0 if not, or where that is not known."""


class Kinship(msgspec.Struct, eq=False):
    """Which streams have a common beginning, as one was made as a copy of the other."""

    original: Stream | None = None
    copies: set[Stream] = msgspec.field(default_factory=set)
    settled: bool = False
    """Whether it was decided that this is no copy, or no longer one."""
    compared: int = -1
    """How far its original was read when they were last compared."""
    measured: int = -1
    """Size on disk when a comparison was last thought of."""

    def settle(self) -> None:
        """It is no copy, or no longer one."""
        self.settled = True

    def compare(self, offset: int) -> None:
        """It is compared with its original, which was read so far."""
        self.compared = offset

    def measure(self, size: int) -> bool:
        """Returns whether it has had this size on disk for a while."""
        before, self.measured = self.measured, size
        return before == size


class Stream(msgspec.Struct, eq=False):
    """A content that is followed, or remembered after its file is gone."""

    key: str
    identity: Identity
    place: Place = BEGINNING
    born: int = 0
    """The number of the scan that saw it first; 0 if it was known before."""
    first_seen: int = 0
    """When a scan saw it first, in nanoseconds; 0 if it was known before, or has its file from another one."""
    former: str = ""
    """The key of the stream that its file was before: a plain file is no copy of what it was itself."""
    sighting: Sighting = msgspec.field(default_factory=Sighting)
    assembly: Assembly = msgspec.field(default_factory=Assembly)
    kinship: Kinship = msgspec.field(default_factory=Kinship)
    turn: Turn = msgspec.field(default_factory=Turn)

    @classmethod
    def restored(cls, key: str, stored: bytes) -> Stream:
        """Raises ValueError if that is no position."""
        try:
            p = msgspec.json.decode(stored, type=Position)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ValueError("not a position") from None
        file = (p.dev, p.ino) if (p.dev, p.ino) != NOWHERE else None
        since = p.offset if p.since is None else p.since
        return cls(
            key,
            Identity(
                p.path, file, p.head, p.head_length, p.compressed, p.target, ended=p.ended, left=p.left, born=p.born
            ),
            Place(p.offset, p.tail, p.crc, since, p.skipping, p.done),
            sighting=Sighting(behind=p.behind, whole=(p.offset, p.written) if p.written else None),
            kinship=Kinship(settled=True),
        )

    def position(self, place: Place, *, behind: bool = False, written: int | None = None) -> bytes:
        """What to store when everything before this place is stored; `written` is when its file was, which ends there,
        or 0 (None: as far as that is known)."""
        if written is None:
            size, at = self.sighting.whole or (0, 0)
            written = at if size == place.offset else 0
        it = self.identity
        dev, ino = it.file or it.missing or NOWHERE
        stored = Position(
            path=shown(it.path),
            dev=dev,
            ino=ino,
            offset=place.offset,
            head=it.head,
            head_length=it.head_length,
            tail=place.tail,
            skipping=place.skipping,
            compressed=it.compressed,
            done=place.done,
            behind=behind,
            ended=it.ended,
            since=place.since,
            crc=place.crc,
            left=it.left,
            target=shown(it.target),
            born=it.born,
            written=written,
        )
        return msgspec.json.encode(stored)

    def remembered(self) -> Remembered:
        """As it is now."""
        return Remembered(self.key, self.identity, self.place)

    @property
    def path(self) -> str:
        """The path at which it is read."""
        return self.identity.path

    @property
    def file(self) -> File | None:
        """None once it is gone, or has other content."""
        return self.identity.file

    @property
    def offset(self) -> int:
        """How far it was read."""
        return self.place.offset

    def is_behind(self, size: int) -> bool:
        """Whether a file of this size on disk has bytes that were not looked at yet.

        A copy that was compared with its original as it is now is not behind: the original wakes it.
        """
        if size <= self.sighting.rested or size == self.place.done:
            return False
        original = self.kinship.original
        return original is None or self.kinship.compared != original.offset

    @property
    def unread(self) -> int:
        """Bytes that are not read, by size and offset; of a compressed file all of them, or none."""
        size = self.sighting.size
        if self.kinship.original is not None or size == self.place.done:
            return 0
        return size if self.identity.compressed else max(0, size - self.offset)

    def matches(self, before: bytes, head: bytes) -> bool:
        """Whether these are the bytes before its offset, and (for a stream at offset 0) the first bytes."""
        return self.place.follows(before) if self.offset else self.identity.begins(head)

    def link(self, original: Stream) -> None:
        """It may be a copy of this one."""
        self.kinship.original = original
        original.kinship.copies.add(self)

    def unlink(self) -> None:
        """It is no copy of another one, as far as is known."""
        if self.kinship.original is not None:
            self.kinship.original.kinship.copies.discard(self)
            self.kinship.original = None
