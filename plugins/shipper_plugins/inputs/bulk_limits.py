"""Limits of the bulk server: admission (the door), memory, decompression. No I/O.

The door is one immutable value that a change of the policy replaces as a whole. Its keys are digests of credentials,
compared in constant time, so that it holds no secret, and the time of an answer reveals none.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from isal import igzip_lib, isal_zlib

from shipper.plugin import DataStream
from shipper_plugins.inputs.bulk_answer import RequestRefused

MOST_HELD = 64 << 20
_STEP = 1 << 18
_BLOCK = 16 << 10
_BROKEN: Any = igzip_lib.IsalError  # isal's stubs declare it as an instance


# -- the door ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Door:
    """The settings of one revision for requests."""

    keys: tuple[bytes, ...] | None
    """`fingerprint` of each permitted Authorization header; None: no header is needed."""
    tls: ssl.SSLContext | None
    stream: DataStream
    max_body_bytes: int
    max_decompressed_bytes: int

    def opens_to(self, authorization: str) -> bool:
        """Returns whether a request with this header is permitted; takes the same time for each key."""
        if self.keys is None:
            return True
        shown = fingerprint(authorization)
        return sum([hmac.compare_digest(shown, key) for key in self.keys]) > 0


def fingerprint(authorization: str) -> bytes:
    """Returns a digest that is equal for all spellings of a secret (case of the scheme, padding)."""
    scheme, _, token = authorization.strip().partition(" ")
    try:
        secret = token.strip().encode() if scheme.lower() == "bearer" else b64decode(token.strip().rstrip("=") + "==")
    except ValueError:
        secret = b""
    return hashlib.sha256(scheme.lower().encode(errors="replace") + b"\0" + secret).digest() if secret else b""


# -- memory ------------------------------------------------------------------------------------------------------------


class Memory:
    """The memory of all requests together."""

    def __init__(self, limit: int = MOST_HELD) -> None:
        self.limit = limit
        self.held = 0

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Yields the share of one request; releases it at the end of the block."""
        share = Share(self)
        try:
            yield share
        finally:
            self.held -= share.size


class Share:
    """The memory of one request."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.size = 0

    def check(self, size: int) -> None:
        """Raises RequestRefused (429) if `size` bytes do not fit in addition to the other requests."""
        others = self._memory.held - self.size
        if others and others + size > self._memory.limit:
            raise busy("too many bytes of bulk requests are under way")

    def resize(self, size: int) -> None:
        """Changes the share to `size` bytes; raises as `check` does."""
        self.check(size)
        self._memory.held += size - self.size
        self.size = size


def busy(reason: str) -> RequestRefused:
    return RequestRefused(429, "es_rejected_execution_exception", reason)


# -- bodies ------------------------------------------------------------------------------------------------------------


class Inflation:
    """Decompresses one body in bounded steps; consecutive members are one body."""

    def __init__(self, encoding: str) -> None:
        self._gzip = encoding == "gzip"
        self._stream: Any = None

    def pieces(self, block: bytes) -> Iterator[bytes]:
        """Yields the decompressed block in pieces of at most 256 KiB; raises RequestRefused (400)."""
        for at in range(0, len(block), _BLOCK):  # what is left of a block is copied after each member
            yield from self._pieces(block[at : at + _BLOCK])

    def _pieces(self, block: bytes) -> Iterator[bytes]:
        while block:
            if self._stream is None:
                self._stream = isal_zlib.decompressobj(self._window(block[0]))
            try:
                piece = self._stream.decompress(block, _STEP)
            except _BROKEN:
                raise RequestRefused(400, "illegal_argument_exception", "the body cannot be decompressed") from None
            block = self._stream.unconsumed_tail
            if self._stream.eof:
                block, self._stream = self._stream.unused_data, None
            if piece:
                yield piece

    def finish(self) -> None:
        """Raises RequestRefused if the body ended too early."""
        if self._stream is not None:
            raise RequestRefused(400, "illegal_argument_exception", "the compressed body ends too early")

    def _window(self, first: int) -> int:
        if self._gzip:
            return 31
        return 15 if first & 15 == 8 else -15  # `deflate` is zlib's format, but some send it without its header
