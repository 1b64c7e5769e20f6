"""How files are packed, known by their first bytes: gzip, xz and bzip2 are read, the others are never taken for text.

zstd is not read: of the libraries for it none is in Python before 3.14, and a wheel of 5 MB for what few rotate by was
refused. A file that is packed so stays unread, and that is told.

What a packed file becomes is bounded: a decoder gives at most `PIECE` bytes at once (that of gzip what 16 KiB become,
16 MiB). One for xz or bzip2 takes up to `MEMORY` bytes, so there are `AT_ONCE` of them in a process, and other files
wait.
"""

from __future__ import annotations

import bz2
import errno
import lzma
import threading
from collections.abc import Callable
from typing import Protocol

import msgspec
from isal import isal_zlib

PIECE = 1 << 20
MEMORY = 80 << 20
"""As `xz -9` needs it."""
AT_ONCE = 4

_IsalError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # the stubs call it an instance
_room = threading.BoundedSemaphore(AT_ONCE)


class Corrupt(OSError):
    """The bytes are not what the first ones say."""


class NotRead(OSError):
    """A file that is packed in a way that is not read."""


class Crowded(OSError):
    """As many files as may be are unpacked at present; counts as a want of descriptors, so that it is tried again."""


class Decoder(Protocol):
    """Unpacks one member of a file."""

    eof: bool
    unused_data: bytes

    @property
    def needs_input(self) -> bool:
        """Whether all was given of what it has."""
        ...

    def decompress(self, piece: bytes) -> bytes:
        """What the next piece becomes, or a part of it; raises Corrupt."""
        ...

    def close(self) -> None:
        """It is not needed any more."""
        ...


class Packing(msgspec.Struct, frozen=True):
    """A way to pack files."""

    name: str
    ending: str
    starts: tuple[bytes, ...]
    """With one of these a member begins."""
    decoder: Callable[[], Decoder] | None = None
    """Makes one for a member, or raises Crowded; None if files are not read that are packed so."""
    is_heavy: bool = False
    """Whether there are only so many decoders."""

    def begins(self, piece: bytes) -> bool:
        """Whether another member seems to begin here."""
        return bool(piece) and self.starts[0].startswith(piece[:1])


class _Gzip:
    """Without a limit of its output: it would leave some inside."""

    needs_input = True

    def __init__(self) -> None:
        self._engine = isal_zlib.decompressobj(31)
        self.eof, self.unused_data = False, b""

    def decompress(self, piece: bytes) -> bytes:
        try:
            found = self._engine.decompress(piece)
        except _IsalError as error:
            raise Corrupt(errno.EILSEQ, "not a valid gzip file") from error
        self.eof, self.unused_data = self._engine.eof, self._engine.unused_data
        return found

    def close(self) -> None:
        pass


class _Heavy:
    """By the standard library."""

    def __init__(self, name: str, engine: Callable[[], lzma.LZMADecompressor | bz2.BZ2Decompressor]) -> None:
        if not _room.acquire(blocking=False):
            raise Crowded(errno.EMFILE, "other files are unpacked first")
        self._name, self._engine = name, engine()
        self._is_open = True
        self.eof, self.unused_data = False, b""

    @property
    def needs_input(self) -> bool:
        return self._engine.needs_input

    def decompress(self, piece: bytes) -> bytes:
        try:
            found = self._engine.decompress(piece, PIECE)
        except (lzma.LZMAError, OSError, EOFError) as error:
            raise Corrupt(errno.EILSEQ, f"not a valid {self._name} file, or one for more memory than it may") from error
        self.eof, self.unused_data = self._engine.eof, self._engine.unused_data
        return found

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            _room.release()


def _xz() -> Decoder:
    return _Heavy("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, MEMORY))


def _bzip2() -> Decoder:
    return _Heavy("bzip2", bz2.BZ2Decompressor)


_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
"""With these the first block of bzip2 begins, or the end."""

PACKINGS = (
    Packing("gzip", ".gz", (b"\x1f\x8b\x08",), _Gzip),
    Packing("xz", ".xz", (b"\xfd7zXZ\0",), _xz, is_heavy=True),
    Packing("bzip2", ".bz2", tuple(b"BZh%d" % n + it for n in range(1, 10) for it in _BLOCKS), _bzip2, is_heavy=True),
    Packing("zstd", ".zst", (b"\x28\xb5\x2f\xfd", *(bytes([n]) + b"*M\x18" for n in range(0x50, 0x60)))),
    Packing("lz4", ".lz4", (b"\x04\x22\x4d\x18", b"\x02\x21\x4c\x18")),
    Packing("lzip", ".lz", (b"LZIP\x01",)),
    Packing("lzop", ".lzo", (b"\x89LZO\0\r\n\x1a\n",)),
    Packing("compress", ".Z", (b"\x1f\x9d",)),
    Packing("snappy", ".sz", (b"\xff\x06\0\0sNaPpY",)),
    Packing("zip", ".zip", (b"PK\x03\x04",)),
    Packing("7-Zip", ".7z", (b"7z\xbc\xaf\x27\x1c",)),
)
LONGEST_START = max(len(start) for packing in PACKINGS for start in packing.starts)
_BEGINNINGS = frozenset(
    start[:size] for packing in PACKINGS for start in packing.starts for size in range(1, len(start) + 1)
)
READ = tuple(packing.ending for packing in PACKINGS if packing.decoder is not None)
ENDINGS = tuple(packing.ending for packing in PACKINGS)
"""Of the names of packed files."""


def packing_of(head: bytes) -> Packing | None:
    """How a file with these first bytes is packed; None if it is plain."""
    return next((packing for packing in PACKINGS if head.startswith(packing.starts)), None)


def may_become_packed(head: bytes) -> bool:
    """Whether these first bytes of a file are a part of those of a packed one."""
    return head in _BEGINNINGS


def refuse(packing: Packing) -> NotRead:
    """What is told of a file that is not read."""
    return NotRead(
        errno.EILSEQ,
        f"packed by {packing.name}, which is not read: leave it out by exclude: ['*{packing.ending}'], "
        "or let it be packed by gzip, xz or bzip2",
    )
