"""The form in which a batch is stored and relayed: a header in JSON, a line feed and the body, compressed. No I/O.

A few kilobytes can become a gigabyte: of bytes, since they are compressed, and of objects, since a header of 8 MiB can
be 3 million lists. So what is unpacked within a limit is measured first, by bytes and without an object for each value.
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
from isal import igzip_lib, isal_zlib

from shipper.sdk import weights
from shipper.sdk.errors import ShipperError
from shipper.sdk.state import Version

_IsalError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # its stub says instance

_VALUES_OF_NONE, _VALUES_OF_ONE = 64, 16
"""The most values of a header beside its shared fields: for itself, and for each event. Each column has one, a version
more, and a text may look like some."""
_VALUE_BYTES = 64
"""The most memory of such a value: fewer than a 64th of a limit do no harm."""


class Oversized(ShipperError):
    """A batch unpacks to more bytes than the limit."""


class Header(msgspec.Struct, array_like=True):
    """What is stored beside the body: fields of `Batch` of the same names, in the order in which they are written.

    Later ones were added later, each with a default: a header that was stored before ends earlier.
    """

    count: int
    offset: int | None
    gap: int
    route: str | None
    ids: list[str | None] | None
    items: list[int] | None
    shared: dict[str, Any]
    sizes: list[int] | None = None
    timestamps: list[int | None] | None = None
    keys: list[bytes | None] | None = None
    severities: list[int | None] | None = None
    versions: list[Version | None] | None = None
    origin: bytes | None = None
    """None: that of the spool which has stored it; so is `seq`."""
    seq: int = 0
    form: str | None = None


class _Outline(msgspec.Struct, array_like=True):
    """The head of a header, without an object for what is in it."""

    count: int
    offset: msgspec.Raw
    gap: msgspec.Raw
    route: msgspec.Raw
    ids: msgspec.Raw
    items: msgspec.Raw
    shared: msgspec.Raw


# Made here and not at the first call: msgspec 0.22 completes what it knows of a type while other threads see it, and
# they die by signal 11 where it has types of ours in it. Batches are unpacked in several threads at once.
_header_of = msgspec.json.Decoder(Header).decode
_outline_of = msgspec.json.Decoder(_Outline).decode


def packed(header: Header, body: bytes) -> bytes:
    """Returns both, compressed."""
    return isal_zlib.compress(msgspec.json.encode(header) + b"\n" + body, 0, -15)


def unpacked(packed: bytes, limit: int | None = None) -> tuple[Header, bytes]:
    """Returns the header and the body; raises ValueError for invalid bytes.

    Raises Oversized if they are larger than `limit` bytes, or the `size` of their batch is, before that takes more
    memory than that.
    """
    try:
        header, _, body = _inflated(packed, limit).partition(b"\n")
        if limit is not None:
            _check_size(header, len(body), limit)
        return _header_of(header), body
    except (_IsalError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError("not a packed batch") from error


def check(header: Header) -> None:
    """Raises ValueError or TypeError if a header cannot be packed and unpacked, or written as JSON."""
    try:
        orjson.dumps([header.shared, header.items])
        _header_of(msgspec.json.encode(header))
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError("not to be packed") from error


def _inflated(packed: bytes, limit: int | None) -> bytes:
    if limit is None:
        return isal_zlib.decompress(packed, -15)
    stream = isal_zlib.decompressobj(-15)
    plain = stream.decompress(packed, limit + 1)
    if len(plain) > limit:
        raise Oversized(f"a batch is larger than {limit} bytes")
    if not stream.eof:
        raise ValueError("not a packed batch")
    return plain


def _check_size(header: bytes, body: int, limit: int) -> None:
    """Raises Oversized if a header has more values than its events can have, or says that its batch is too large."""
    outline = _outline_of(header)
    shared = bytes(outline.shared)
    beside = weights.values(header) - weights.values(shared)
    permitted = _VALUES_OF_NONE + _VALUES_OF_ONE * min(outline.count, weights.MOST_EVENTS)
    most = max(permitted, limit // _VALUE_BYTES)
    if beside > most or weights.size(outline.count, shared, body) > limit:
        raise Oversized(f"a batch is larger than {limit} bytes")
