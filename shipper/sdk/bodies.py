"""PUBLIC: the bodies of requests, for inputs that are asked: bounds of size, memory and time, decompression. No I/O.

    memory = Memory()                                    # of all requests of an input
    with memory.share(owner) as share:                   # its key, or its address
        body = Body(max_body_bytes, share, begun=trio.current_time(), declared=content_length)
        while block := …:                                # the next bytes, waited for until body.deadline
            body.add(block, trio.current_time())
        plain = decompressed(body.whole(), encoding, max_decompressed_bytes)

| what | bound | refused with |
|---|---|---|
| the declared and the received size | `limit` | 413 |
| the decompressed size | its own limit, watched in steps of 256 KiB | 413 |
| the bodies of all requests | 64 MiB, of one owner half of what others leave; one larger body beside | 429 |
| time | 30 s of waiting, and 1 s for each KiB that comes, but never more than 30 s at once | 408 |
| gzip and deflate | whole, and valid | 400 |

An input that reads a body while it arrives, and keeps none, counts it as an `Arrival` and unpacks it by `Inflation`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Final, Literal, Self

from isal import igzip_lib, isal_zlib

from shipper.sdk.units import Size

ENCODINGS: Final = ("identity", "gzip", "deflate")
"""Of a body, as `Content-Encoding` names them."""
MOST_HELD: Final = 64 << 20
PATIENCE_SECONDS: Final = 30.0
BYTES_PER_SECOND: Final = 1024
SMALL: Final = 4 << 10
"""Bytes of a body, received and decompressed, up to which it is read in the event loop: that takes some tens of µs, at
worst 20 ms, and a worker thread and back 150 µs."""

_STEP = 1 << 18
_BLOCK = 16 << 10
_BROKEN: Any = igzip_lib.IsalError  # isal's stubs declare it as an instance


class BodyRefused(Exception):
    """The body is refused; `status` is that of HTTP, and `reason` quotes nothing of the body."""

    def __init__(self, status: Literal[400, 408, 413, 429], reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def too_large(limit: int) -> BodyRefused:
    return BodyRefused(413, f"the body is larger than {Size(limit)}")


def too_slow() -> BodyRefused:
    return BodyRefused(408, "the body comes too slowly")


# -- memory ------------------------------------------------------------------------------------------------------------


class Memory:
    """The memory of all requests together, divided among their owners: a key, or where there is none an address.

    The requests of an owner hold at most `of_one` bytes (by default half of the limit), and at most half of what other
    owners leave: so a few that hold much leave room for the next one. Beside all that, one request at a time may be
    larger than `of_one`: the only one of its owner.
    """

    def __init__(self, limit: int = MOST_HELD, of_one: int | None = None) -> None:
        self.limit = limit
        self.of_one = limit // 2 if of_one is None else of_one
        self.held = 0
        """Bytes of all requests but the large one."""
        self.large: Share | None = None
        """The request that is larger than `of_one`."""
        self._held_by: dict[Hashable, int] = {}

    def share(self, owner: Hashable) -> Share:
        """Returns the share of one request, which is released at the end of its block."""
        return Share(self, owner)

    def has_room(self, owner: Hashable, size: int = 1) -> bool:
        """Whether an owner may hold so many bytes more."""
        own = self._held_by.get(owner, 0)
        return own + size <= min(self.of_one, (self.limit - self.held + own) // 2)

    def held_by(self, owner: Hashable) -> int:
        return self._held_by.get(owner, 0)

    def count(self, owner: Hashable, size: int) -> None:
        """Counts so many bytes more, or less, of an owner."""
        self.held += size
        own = self._held_by.pop(owner, 0) + size
        if own:
            self._held_by[owner] = own


class Share:
    """The memory of one request."""

    def __init__(self, memory: Memory, owner: Hashable) -> None:
        self._memory, self.owner = memory, owner
        self._expected = 0
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def expect(self, size: int) -> None:
        """Raises BodyRefused (429) if so many bytes would not fit now. Reserves nothing: a peer declares what it
        likes."""
        self._expected = size
        if not (self._fits(size) or self._may_be_large(size)):
            raise _no_room()

    def resize(self, size: int) -> None:
        """Changes the share to `size` bytes. Raises BodyRefused (429) if they do not fit."""
        if self._memory.large is not self:
            if self._fits(size):
                self._memory.count(self.owner, size - self.size)
            elif self._may_be_large(size):
                self.release()
                self._memory.large = self
            else:
                raise _no_room()
        self.size = size

    def release(self) -> None:
        """Gives all back."""
        if self._memory.large is self:
            self._memory.large = None
        else:
            self._memory.count(self.owner, -self.size)
        self.size = 0

    def _fits(self, size: int) -> bool:
        return size <= self.size or self._memory.has_room(self.owner, size - self.size)

    def _may_be_large(self, size: int) -> bool:
        is_free = self._memory.large in (None, self)
        is_only_one = self._memory.held_by(self.owner) == self.size
        return is_free and is_only_one and max(size, self._expected) > self._memory.of_one


def _no_room() -> BodyRefused:
    return BodyRefused(429, "too many bytes of requests are under way")


# -- arrival -----------------------------------------------------------------------------------------------------------


class Arrival:
    """A body while it arrives: its size and its pace."""

    def __init__(self, limit: int, *, begun: float, declared: int = 0, framing: int = 0) -> None:
        """`begun` is a time of the clock of `deadline`, `declared` the size that the peer has promised, or 0.

        Raises BodyRefused (413) for more than `limit` bytes, beside those of the `framing`.
        """
        self._limit, self._framing = limit, framing
        self._since, self._patience = begun, PATIENCE_SECONDS
        self.received = 0
        if declared > limit + framing:
            raise too_large(limit)

    @property
    def deadline(self) -> float:
        """The time until which more has to come; it moves with what comes. Nothing is saved by a fast beginning, so a
        peer cannot send most of a body at once and the rest hours later."""
        return self._since + self._patience

    def wait(self, now: float) -> None:
        """From now on more is waited for: what this side did before is not held against the peer."""
        self._since = now

    def add(self, block: bytes, now: float) -> None:
        """Counts the next bytes, for which the peer was waited until now. Raises BodyRefused (413)."""
        patience = self._patience - (now - self._since) + len(block) / BYTES_PER_SECOND
        self._since, self._patience = now, min(PATIENCE_SECONDS, patience)
        self.received += len(block)
        if self.received > self._limit + self._framing:
            raise too_large(self._limit)


class Body(Arrival):
    """A body that is kept while it arrives, in the memory of its share."""

    def __init__(self, limit: int, share: Share, *, begun: float, declared: int = 0, framing: int = 0) -> None:
        """See `Arrival`; raises BodyRefused too (429) if what is declared does not fit into memory now."""
        super().__init__(limit, begun=begun, declared=declared, framing=framing)
        self._share = share
        self._bytes = bytearray()  # a list of blocks would take 30 times as much for tiny chunks
        share.expect(declared)

    def add(self, block: bytes, now: float) -> None:
        """Keeps the next bytes. Raises BodyRefused (413, 429), after which the body must not be used."""
        super().add(block, now)
        self._share.resize(self.received)
        self._bytes += block

    def whole(self) -> bytes:
        """Returns what has come."""
        return bytes(self._bytes)

    def clear(self) -> None:
        """Forgets what has come; the share stays as it is."""
        self._bytes.clear()


# -- decompression -----------------------------------------------------------------------------------------------------


def decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Returns a whole body, decompressed; one of the encoding identity as it is. Raises BodyRefused (400, 413)."""
    if encoding == "identity":
        return body
    inflation = Inflation(encoding, limit)
    plain = b"".join(inflation.pieces(body))
    inflation.finish()
    return plain


def small(body: bytes, encoding: str, limit: int) -> bytes | None:
    """Returns a body, decompressed, that is read where it came, as `SMALL` says; None of a larger or an invalid one."""
    if len(body) > SMALL:
        return None
    try:
        return decompressed(body, encoding, min(limit, SMALL))
    except BodyRefused:
        return None


class Inflation:
    """Decompresses one body in bounded steps, up to `limit` bytes; consecutive members are one body."""

    def __init__(self, encoding: str, limit: int) -> None:
        """`encoding` is one of `ENCODINGS`."""
        self._encoding, self._limit = encoding, limit
        self._size = 0
        self._stream: Any = None

    def pieces(self, block: bytes) -> Iterator[bytes]:
        """Yields the decompressed block in pieces of at most 256 KiB, or a block of identity as it is; raises
        BodyRefused (400, 413)."""
        for piece in (block,) if self._encoding == "identity" else self._inflated(block):
            self._size += len(piece)
            if self._size > self._limit:
                raise too_large(self._limit)
            yield piece

    def _inflated(self, block: bytes) -> Iterator[bytes]:
        for at in range(0, len(block), _BLOCK):  # what is left of a block is copied after each member
            yield from self._pieces(block[at : at + _BLOCK])

    def _pieces(self, block: bytes) -> Iterator[bytes]:
        while block:
            if self._stream is None:
                self._stream = isal_zlib.decompressobj(self._window(block[0]))
            try:
                piece = self._stream.decompress(block, _STEP)
            except _BROKEN:
                raise BodyRefused(400, "the body cannot be decompressed") from None
            block = self._stream.unconsumed_tail
            if self._stream.eof:
                block, self._stream = self._stream.unused_data, None
            if piece:
                yield piece

    def finish(self) -> None:
        """Raises BodyRefused (400) if the body ended too early."""
        if self._stream is not None:
            raise BodyRefused(400, "the compressed body ends too early")

    def _window(self, first: int) -> int:
        if self._encoding == "gzip":
            return 31
        return 15 if first & 15 == 8 else -15  # `deflate` is zlib's format, but some send it without its header
