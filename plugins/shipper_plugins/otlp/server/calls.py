"""Whole calls of gRPC, read and answered without h2, on a connection whose other frames h2 reads. No I/O.

h2 makes a stream of each call, with a state machine, windows and events; that costs more than all else of a small call.
A call that came whole (`frames.Call`) needs none of it. What both ways share stays in h2: the tables of HPACK, the
limit of headers, the settings of the peer, its window, and the number of the highest stream.

The first call of a connection goes by h2, whose state of the connection begins with it; so do calls whose headers are
unusual, and those of a client that takes only small answers. To h2, a stream of the short way is one that was closed:
it ends the connection for what would be too late on it, such as more data.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

from h2.connection import H2Connection
from h2.errors import ErrorCodes
from hpack import Decoder, Encoder, HeaderTuple, HPACKError, NeverIndexedHeaderTuple

from shipper_plugins.otlp.server.frames import Call

Headers = tuple[tuple[str, str], ...]

LEAST_WINDOW: Final = 16 << 10
"""Bytes of an answer that a client must be ready to take."""

_UPDATE: Final = 64 << 10
"""Bytes of data after which the client is told that they were read: its window is many times as large."""
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+", re.ASCII)
_VALUE = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?", re.ASCII)
_OF_REQUEST = {":method", ":scheme", ":authority", ":path"}
_OF_H2 = frozenset(
    ["connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade", "host", "content-length", "cookie"]
)
"""Headers that h2 refuses, compares or joins."""
_BROKEN = (HPACKError, IndexError, TypeError, UnicodeDecodeError)
_DATA, _HEADERS, _RESET, _WINDOW_UPDATE = 0, 1, 3, 8
_END_STREAM, _END_HEADERS = 1, 4
_NO_INDEX, _LONG_INDEX = 0x80, 0xFF
_MOST_KNOWN = 8


class Invalid(Exception):
    """The peer has sent something after which the connection ends."""


class Calls:
    """The whole calls of a connection."""

    def __init__(self, h2: H2Connection) -> None:
        self.open: set[int] = set()
        """Streams that are not answered yet."""
        self._h2 = h2
        self._out = b""
        """Frames to send, with those that h2 had written before them."""
        self._read = 0
        """Bytes of data of which the client was not told that they were read."""
        self._ordinary: tuple[object, dict[str, str] | None] = None, None
        """Headers as they were decoded, and as a call has them."""
        h2.decoder = self._decoder = _Decoder.of(h2.decoder)
        h2.encoder = self._encoder = _Encoder()

    def begin(self, call: Call, most: int) -> dict[str, str] | bytes:
        """Returns the headers of a call that is answered here; else the frames that h2 is to read in its place.

        At most so many streams may be open, with those of h2. Raises Invalid.
        """
        if not self._is_of_here(call):
            return call.raw
        if len(self.open) + self._h2.open_inbound_streams >= most:
            raise Invalid
        found = self._decoded(call.headers)
        if (headers := self._of(found)) is None:
            return _stateless(call, found)
        self._h2.highest_inbound_stream_id = call.stream
        self.open.add(call.stream)
        self._tell_of(len(call.body))
        return headers

    def _is_of_here(self, call: Call) -> bool:
        last, is_odd = self._h2.highest_inbound_stream_id, call.stream % 2
        if not (last and is_odd and last < call.stream < 1 << 31):
            return False
        return self._h2.remote_settings.initial_window_size >= LEAST_WINDOW

    def _decoded(self, block: bytes) -> Sequence[HeaderTuple]:
        try:
            return self._decoder.decode(block, raw=True)
        except _BROKEN:
            raise Invalid from None

    def _of(self, found: Sequence[HeaderTuple]) -> dict[str, str] | None:
        if self._ordinary[0] is not found:
            self._ordinary = found, _ordinary(found)
        return self._ordinary[1]

    def answer(self, stream: int, head: Headers, message: bytes, trailers: Headers) -> None:
        """Writes the answer of a call, or resets its stream if the client's window is too small.

        Without a message, `trailers` follow `head` in the same frame.
        """
        self.open.discard(stream)
        self._out = self.data_to_send()
        if not message:
            self._out += self._headers(stream, head + trailers, _END_STREAM)
        elif len(message) > min(self._h2.outbound_flow_control_window, self._h2.remote_settings.initial_window_size):
            self._out += _frame(_RESET, 0, stream, ErrorCodes.ENHANCE_YOUR_CALM.to_bytes(4))
        else:
            self._h2.outbound_flow_control_window -= len(message)
            self._out += self._headers(stream, head, 0) + _frame(_DATA, 0, stream, message)
            self._out += self._headers(stream, trailers, _END_STREAM)

    def data_to_send(self) -> bytes:
        """Returns the frames of both ways in the order in which they were written."""
        data, self._out = self._out + self._h2.data_to_send(), b""
        return data

    def _headers(self, stream: int, headers: Headers, flags: int) -> bytes:
        return _frame(_HEADERS, _END_HEADERS | flags, stream, self._encoder.encoded(headers))

    def _tell_of(self, read: int) -> None:
        self._read += read
        if self._read >= _UPDATE:
            self._out = self.data_to_send() + _frame(_WINDOW_UPDATE, 0, 0, self._read.to_bytes(4))
            self._read = 0


class _Decoder(Decoder):
    """A decoder that keeps the last headers, if they are nothing but indices: the same bytes are the same headers then,
    until others come. So a client that repeats itself is read once."""

    def __init__(self, max_header_list_size: int) -> None:
        super().__init__(max_header_list_size)
        self._block, self._headers = b"", list[HeaderTuple]()

    @classmethod
    def of(cls, decoder: Decoder) -> Self:
        made = cls(decoder.max_header_list_size)
        made.max_allowed_table_size = decoder.max_allowed_table_size
        return made

    def decode(self, data: bytes, raw: bool = False) -> list[HeaderTuple]:
        if not self._block or data != self._block:
            self._block = b""
            self._headers = list(super().decode(data, raw))
            self._block = bytes(data) if _are_indices(data) else b""
        return self._headers


class _Encoder(Encoder):
    """An encoder that keeps what it has made, as long as that is nothing but indices of a table that stays the same."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[Headers, bytes] = {}

    def encode(self, headers: Any, huffman: bool = True) -> bytes:
        block = super().encode(headers, huffman)
        if not _are_indices(block):
            self._known.clear()
        return block

    def encoded(self, headers: Headers) -> bytes:
        """Returns what `encode` does."""
        if (known := self._known.get(headers)) is not None and not self.table_size_changes:
            return known
        block = self.encode(headers)
        if _are_indices(block) and len(self._known) < _MOST_KNOWN:
            self._known[headers] = block
        return block


def _are_indices(block: bytes) -> bool:
    """Whether a block of HPACK only repeats what is in the table, and leaves that as it is."""
    return bool(block) and min(block) > _NO_INDEX and max(block) < _LONG_INDEX


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">BHBBI", len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def _ordinary(headers: Iterable[HeaderTuple]) -> dict[str, str] | None:
    """Returns headers that h2 would take as they are; None of all others."""
    found: dict[str, str] = {}
    for raw, content in headers:
        name, value = raw.decode("latin-1"), content.decode("latin-1")
        if name in found or not _VALUE.fullmatch(value):
            return None
        if name in _OF_REQUEST:
            if len(found) >= len(_OF_REQUEST) or not value:
                return None
        elif not found.keys() >= _OF_REQUEST or name in _OF_H2 or not _NAME.fullmatch(name):
            return None
        found[name] = value
    if not found.keys() >= _OF_REQUEST or found.get("te", "trailers") != "trailers":
        return None
    return found if found[":method"] == "POST" else None


def _stateless(call: Call, headers: Iterable[HeaderTuple]) -> bytes:
    """Returns the frames of a call whose headers were read, written so that they change no table of who reads them."""
    block = Encoder().encode([NeverIndexedHeaderTuple(name, value) for name, value in headers], huffman=False)
    head = _frame(_HEADERS, _END_HEADERS, call.stream, block)
    return head + _frame(_DATA, _END_STREAM, call.stream, call.body)
