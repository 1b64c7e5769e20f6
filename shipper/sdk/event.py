"""A batch: the unit of flow and of durability.

Some hundreds to thousands of events that entered together and are stored, sent and settled together. What they have in
common is held once, in `shared`; the rest is one block of bytes that is looked into only if something asks for it:

    lines       body = text lines, as read; event i is {"message": line i, "log": {"offset": …}} + shared
    documents   body = one JSON object a line (NDJSON); event i is document i + shared

No top-level key of `shared` occurs in a document, except that `shared["log"]` and a line's `log.offset` are one object:
so both halves of an event can be joined as bytes. On this depends the speed of the program: a file's lines reach the
wire by one JSON escape of the whole block, two splits and one join, all in C (`columns`: about 0.4 µs a line; an object
for each event costs 5 to 10 times that).

An event's id is (`origin`, `seq`, item): a random 128-bit id of the process that accepted the batch, the batch's place
in that process's spool, and the item's place in the batch as it was accepted. It is stored with the batch, so a retry
after a crash carries the same id, and a copied or restored state directory, whose processes have other origins, can
never give the id of one event to another (the backend would answer "duplicate", and the event would be lost silently).
"""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import orjson
from isal import igzip_lib, isal_zlib

from shipper.sdk.columns import Column, encoded, escaped, join, line_count, numerals, offsets, quoted
from shipper.sdk.errors import ShipperError


class Oversized(ShipperError):
    """A batch unpacks to more bytes than there is room for."""


Fields = dict[str, Any]
"""Nested fields of an event, as JSON has them."""

_IsalError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # its stub says instance
_NUMERALS = numerals(range(8192))

STREAM_TYPE = r"^[a-z]+(?!\n)$"
"""What the type of a data stream looks like (`$` alone would let a line feed behind it pass)."""
STREAM_PART = r'^[^-A-Z\\/*?"<>| ,#:\x00-\x1f\x7f]+(?!\n)$'
"""The same of its dataset and its namespace."""
LONGEST_PART = 100
"""Of these, in characters."""


class _Header(msgspec.Struct, array_like=True):
    count: int
    offset: int | None
    gap: int
    index: str | None
    ids: list[str | None] | None
    items: list[int] | None
    shared: Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Events that entered together; immutable. Make one with `Batch.lines` or `Batch.documents`."""

    count: int
    body: bytes
    shared: Fields = field(default_factory=dict)
    offset: int | None = None
    gap: int = 1
    index: str | None = None
    ids: tuple[str | None, ...] | None = None
    origin: bytes = b""
    seq: int = 0
    items: Sequence[int] | None = None

    @classmethod
    def lines(cls, text: bytes, *, offset: int, shared: Fields, gap: int = 1) -> Batch:
        """Text lines, each ended by a line feed; `text` is valid UTF-8.

        `offset` is the byte offset of the first line in its source, `gap` the number of bytes that ended each line
        there (2 where the source has CR LF and `text` has LF alone).
        """
        return cls(count=line_count(text), body=text, shared=shared, offset=offset, gap=gap)

    @classmethod
    def documents(
        cls,
        documents: Sequence[bytes],
        *,
        shared: Fields | None = None,
        ids: Sequence[str | None] | None = None,
        index: str | None = None,
    ) -> Batch:
        """JSON objects as bytes, compact (no white space after `{`, no line feed); none of their keys is in `shared`.

        `ids` are the ids that a client gave (None: the event gets ours), `index` the index it named where that is no
        data stream.
        """
        body = b"\n".join(documents) + b"\n" if documents else b""
        kept = tuple(ids) if ids is not None and any(ids) else None
        return cls(count=len(documents), body=body, shared=shared or {}, ids=kept, index=index)

    @classmethod
    def events(cls, events: Sequence[Fields], *, shared: Fields | None = None) -> Batch:
        """Events as nested fields; where they overlap with `shared`, an event's own value wins."""
        return cls(count=len(events), body=b"", shared=shared or {}).replace(events)

    # -- looking into it ------------------------------------------------------------------------------------------

    def own(self) -> list[Fields]:
        """What each event has beside `shared`, as new nested fields; changing them changes nothing here."""
        if self.offset is None:
            return [orjson.loads(document) for document in self._documents()]
        if not self.count:
            return []
        texts = self.body[:-1].decode().split("\n")
        places = offsets(self.body, self.offset, self.gap)
        return [{"message": text, "log": {"offset": at}} for text, at in zip(texts, places, strict=True)]

    def whole(self) -> list[Fields]:
        """Each event with everything, as new nested fields."""
        return [merged(self.shared, own) for own in self.own()]

    def replace(self, events: Sequence[Fields], positions: Sequence[int] | None = None) -> Batch:
        """The same batch with other own fields; `positions` says which of the present events they were (None: all).

        Ids stay with their events. Where an event's own fields overlap with `shared`, its own win. Raises ValueError
        if there are more or fewer of them than positions.
        """
        if len(events) != (self.count if positions is None else len(positions)):
            raise ValueError("other fields are for another number of events")
        overlap = {key for event in events for key in event if key in self.shared}
        moved = {key: self.shared[key] for key in overlap}
        shared = {key: value for key, value in self.shared.items() if key not in overlap}
        documents = encoded([merged(moved, event) for event in events] if moved else events)
        return self._subset(positions).rewritten(b"".join([document + b"\n" for document in documents]), shared)

    def rewritten(self, body: bytes, shared: Fields) -> Batch:
        """The same events, ids and all, as other documents: `body` has one for each, as `documents` wants them.

        No top-level key of them is in `shared`, which takes the place of what was there.
        """
        return replace(self, body=body, shared=shared, offset=None, gap=1)

    def pick(self, positions: Sequence[int]) -> Batch:
        """The events at these positions (rising), with their ids."""
        if self.offset is None:
            documents = self._documents()
            body = b"".join([documents[i] + b"\n" for i in positions])
            return replace(self._subset(positions), body=body)
        own = self.own()
        return self.replace([own[i] for i in positions], positions)

    def _subset(self, positions: Sequence[int] | None) -> Batch:
        if positions is None:
            return self
        items = self.items if self.items is not None else range(self.count)
        ids = tuple(self.ids[i] for i in positions) if self.ids is not None else None
        return replace(self, count=len(positions), items=[items[i] for i in positions], ids=ids)

    def pieces(self, size: int) -> Iterator[Batch]:
        """The same events, in order, in batches of at most `size` bytes of body, or of one event."""
        begin = first = 0
        while begin < len(self.body):
            end = self.body.rfind(b"\n", begin, begin + size) + 1 or self.body.find(b"\n", begin) + 1
            piece = self._piece(begin, end, first) if end - begin < len(self.body) else self
            yield piece
            begin, first = end, first + piece.count

    def _piece(self, begin: int, end: int, first: int) -> Batch:
        body = self.body[begin:end]
        count = line_count(body)
        items = self.items if self.items is not None else range(self.count)
        return replace(
            self,
            body=body,
            count=count,
            offset=None if self.offset is None else self.offset + begin + first * (self.gap - 1),
            items=items[first : first + count],
            ids=None if self.ids is None else self.ids[first : first + count],
        )

    def share(self, fields: Mapping[str, Any]) -> Batch:
        """The same batch, with `fields` (nested) set in every event, over what was there."""
        shared = replace(self, shared=merged(self.shared, fields))
        return shared.replace([merged(own, fields) for own in self.own()]) if self._has_own(fields) else shared

    def _has_own(self, fields: Mapping[str, Any]) -> bool:
        """Whether some event may have one of these fields of its own."""
        if self.offset is None:
            escapes = b"\\u" in self.body or b"\\/" in self.body
            return escapes or any(orjson.dumps(key) in self.body for key in fields)
        log = fields.get("log", {})
        return "message" in fields or not isinstance(log, Mapping) or "offset" in log

    def data_streams(self) -> str | list[str] | None:
        """The data stream `type-dataset-namespace`: one for all, one for each event, or None where none has one."""
        if "data_stream" in self.shared:
            return _stream_name(self.shared["data_stream"])
        if b'"data_stream"' not in self.body:
            return None
        return [_stream_name(own.get("data_stream")) for own in self.own()]

    def way(self) -> object:
        """What says where the events go beside themselves; equal for batches that may be sent `together`."""
        return self.index, self.shared.get("data_stream")

    # -- on the wire -----------------------------------------------------------------------------------------------

    def columns(self) -> tuple[Column, ...]:
        """Columns whose rows, concatenated, are the events as JSON objects, each ended by a line feed.

        An output that needs more than `json_lines` puts its own columns before them and joins all with `join`.
        """
        if self.offset is None:
            return self._document_columns()
        shared = {key: value for key, value in self.shared.items() if key != "log"}
        before = orjson.dumps(shared)[:-1] + (b"," if shared else b"")
        return (before, *self.line_columns(), b"}\n")

    def line_columns(self) -> tuple[Column, ...]:
        """Of text lines: columns whose rows, concatenated, are the members `"log":{…},"message":"…"` of each event."""
        return (*self.log_columns(), b',"message":"', escaped(self.body), b'"')

    def log_columns(self) -> tuple[Column, ...]:
        """Of text lines: columns whose rows, concatenated, are the member `"log":{…}` of each event, the shared part
        and the offset."""
        if self.offset is None:
            raise ValueError("documents have no columns of lines")
        log = orjson.dumps(self.shared.get("log", {}))[:-1]
        before = b'"log":' + log + (b"" if log == b"{" else b",") + b'"offset":'
        return (before, numerals(offsets(self.body, self.offset, self.gap)), b"}")

    def json_lines(self) -> bytes:
        """The events as JSON objects, each ended by a line feed."""
        return join(self.count, *self.columns())

    def _document_columns(self) -> tuple[Column, ...]:
        if not self.shared:
            return (self._documents(), b"\n")
        before = orjson.dumps(self.shared)[:-1]
        if self.body.startswith(b"{}\n") or b"\n{}\n" in self.body:
            return (before, [b"," + own[1:] if own != b"{}" else b"}" for own in self._documents()], b"\n")
        return (before + b",", self.body[1:-1].split(b"\n{") if self.count else [], b"\n")

    def id_columns(self) -> tuple[Column, ...]:
        """Columns whose rows, concatenated, are the events' ids, escaped to stand inside a JSON string."""
        prefix = self.id_prefix()
        if self.items is None:
            places = _NUMERALS[: self.count] if self.count <= len(_NUMERALS) else numerals(range(self.count))
        else:
            places = numerals(self.items)
        if self.ids is None:
            return (prefix, places)
        given = quoted([id or "" for id in self.ids])
        return ([id or prefix + place for id, place in zip(given, places, strict=True)],)

    def id_texts(self) -> list[str]:
        """The events' ids, in order."""
        ids: list[str] = orjson.loads(b"[%b]" % join(self.count, b'"', *self.id_columns(), b'",')[:-1])
        return ids

    def id_prefix(self) -> bytes:
        """What the ids of this batch begin with."""
        return base64.urlsafe_b64encode(self.origin).rstrip(b"=") + b"-%d-" % self.seq

    def _documents(self) -> list[bytes]:
        return self.body.split(b"\n")[:-1]

    # -- in the spool ----------------------------------------------------------------------------------------------

    def pack(self) -> bytes:
        """Everything but `origin` and `seq`, compressed; what the spool seals."""
        return isal_zlib.compress(self._header() + b"\n" + self.body, 0, -15)

    def check_header(self) -> None:
        """Raises ValueError if what is beside the body could not be packed and unpacked, or not be written as JSON."""
        try:
            orjson.dumps([self.shared, self.items if isinstance(self.items, list) else []])
            msgspec.json.decode(self._header(), type=_Header)
        except (TypeError, msgspec.DecodeError, RecursionError) as error:
            raise ValueError("not to be packed") from error

    def _header(self) -> bytes:
        items = None if self.items is None else list(self.items)
        ids = None if self.ids is None else list(self.ids)
        return msgspec.json.encode(_Header(self.count, self.offset, self.gap, self.index, ids, items, self.shared))

    @classmethod
    def unpack(cls, packed: bytes, *, origin: bytes, seq: int, limit: int | None = None) -> Batch:
        """The batch that was packed; raises ValueError if the bytes are none.

        Raises Oversized if it is larger than `limit` bytes, and has not taken more memory then.
        """
        try:
            header_bytes, _, body = _inflated(packed, limit).partition(b"\n")
            header = msgspec.json.decode(header_bytes, type=_Header)
        except (_IsalError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError("not a packed batch") from error
        return cls(
            count=header.count,
            body=body,
            shared=header.shared,
            offset=header.offset,
            gap=header.gap,
            index=header.index,
            ids=None if header.ids is None else tuple(header.ids),
            origin=origin,
            seq=seq,
            items=header.items,
        )


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


def together(batches: Sequence[Batch]) -> Batch:
    """One batch of the events of several that go the same way (`Batch.way`), each with the id it had."""
    if len(batches) == 1:
        return batches[0]
    stream = {key: value for key, value in batches[0].shared.items() if key == "data_stream"}
    ids: list[str | None] = []
    items: list[int] = []
    bodies = []
    for batch in batches:
        own = {key: value for key, value in batch.shared.items() if key != "data_stream"}
        bodies.append(replace(batch, shared=own).json_lines())
        ids += batch.id_texts()
        items += batch.items if batch.items is not None else range(batch.count)
    return replace(
        batches[0],
        count=len(items),
        body=b"".join(bodies),
        shared=stream,
        offset=None,
        gap=1,
        ids=tuple(ids),
        items=items,
    )


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Fields:
    """New nested fields: those of `below`, where `above` says nothing else."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def nested(flat: Mapping[str, Any]) -> Fields:
    """Dotted names as nested fields: {"service.name": "shop"} is {"service": {"name": "shop"}}."""
    result: Fields = {}
    for name, value in flat.items():
        *above, last = name.split(".")
        at = result
        for key in above:
            if not isinstance(at.get(key), dict):
                at[key] = {}
            at = at[key]
        old = at.get(last)
        at[last] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


_here = threading.local()


def tagged(event: Fields, message: str) -> Fields:
    """The event, marked with an error that something met on its way; it goes on with what it has."""
    _here.tagged = tagged_here() + 1
    old = event.get("tags")
    tags = [*(old if isinstance(old, list) else [] if old is None else [old]), "processor_error"]
    error = event.get("error")
    return {**event, "tags": tags, "error": {**(error if isinstance(error, dict) else {}), "message": message}}


def tagged_here() -> int:
    """How often an event was `tagged` in this thread."""
    return getattr(_here, "tagged", 0)


def _stream_name(stream: object) -> str:
    """A name in any case: a part that is missing or cannot be one is that of logs-generic-default."""
    parts = stream if isinstance(stream, Mapping) else {}
    return "-".join([_stream_part(parts.get(key), otherwise, like) for key, otherwise, like in _STREAM_PARTS])


def _stream_part(said: object, otherwise: str, like: re.Pattern[str]) -> str:
    return said if isinstance(said, str) and len(said) <= LONGEST_PART and like.match(said) else otherwise


_STREAM_PARTS = (
    ("type", "logs", re.compile(STREAM_TYPE)),
    ("dataset", "generic", re.compile(STREAM_PART)),
    ("namespace", "default", re.compile(STREAM_PART)),
)
