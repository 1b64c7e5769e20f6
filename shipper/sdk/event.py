"""A batch: the unit of flow and of durability.

It has hundreds to thousands of events that enter together and are stored, sent and settled together. Their common
fields are kept once, in `shared`; the rest is one block of bytes, which is parsed only on demand:

    lines       body = text lines, as read; event i is {"message": line i, "log": {"offset": …}} + shared
    documents   body = one JSON object a line (NDJSON); event i is document i + shared
    typed       body = one MessagePack map after the other (`sizes` has their lengths); event i is map i + shared

`shared` is nested fields with JSON values, lists and objects of any kind: the fields of a container or a resource are
kept there once. No top-level key of it occurs in a document or map, except that `shared["log"]` and a line's
`log.offset` are one object: so both halves of an event can be joined as bytes. The speed of the program depends on
this: a file's lines become a request by one JSON escape of the whole block, two splits and one join, all in C
(`columns`: about 0.4 µs a line; an object for each event costs 5 to 10 times that).

Typed events keep the types of bytes, integers and floats, for outputs that support them. For all others, `columns` and
`json_lines` write bytes as base64 text and NaN or an infinity as null (`typed`); they succeed for every batch that was
checked at intake.

Beside the body there may be columns, each with a value or None for each event; they stay with their events:

    ids          the id that a client gave
    timestamps   when it happened, in nanoseconds since the epoch
    keys         by which a destination distributes events: bytes, such as the key of a Kafka record
    severities   the severity number of OTLP, 1 to 24 (0: not said)
    versions     of keyed state (`state`): which version of which key it is; a batch has it of all events, or of none

Several batches that are sent in one request become one (`together`). What each of them had for all its events, and
the others had not, stays once: `ways` has it for each event, by reference.

`route` is the target that a client named for all events, such as an index, a topic or a subject. Outputs define what it
means, and what fields mean. Of the columns, dead letters keep only the ids and the versions.

An event's id is (`origin`, `seq`, item): a 128-bit id that the process drew which accepted the batch, the batch's place
in that process's spool, and the item's place in the batch as it was accepted. It is stored with the batch, so a retry
after a crash carries the same id. A copied or restored state directory never gives the id of one event to another,
since its processes have other origins. (Otherwise the backend would answer "duplicate", and the event would be lost
silently.) A batch of another shipper keeps the identity of its first acceptance (`identified`): it is packed with the
batch, and takes precedence over that of the spool.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgspec
import orjson
from isal import igzip_lib, isal_zlib

from shipper.sdk import typed, weights
from shipper.sdk.columns import (
    Column,
    encoded,
    escaped,
    escaped_rows,
    join,
    line_count,
    numerals,
    offsets,
    quoted,
    rows,
)
from shipper.sdk.errors import ShipperError
from shipper.sdk.state import Version


class Oversized(ShipperError):
    """A batch unpacks to more bytes than the limit."""


T = TypeVar("T")
Fields = dict[str, Any]
"""Nested fields of an event, with values of JSON."""

_IsalError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # its stub says instance
_NUMERALS = numerals(range(8192))
_EMPTY = b"{}\n"

_COLUMNS = ("ids", "timestamps", "keys", "severities", "versions", "ways")
"""What a batch has beside its body for each event, if it has it at all."""
_ERROR_TAG = "processor_error"
_OF_LINES = frozenset({"log", "message"})
"""Top-level fields with parts that differ from line to line."""


class _Outline(msgspec.Struct, array_like=True):
    """The head of a header, without an object for what is in it."""

    count: int
    offset: msgspec.Raw
    gap: msgspec.Raw
    route: msgspec.Raw
    ids: msgspec.Raw
    items: msgspec.Raw
    shared: msgspec.Raw


class Way(NamedTuple):
    """What all events of one batch have, in a request of several batches: their route, and fields that they share."""

    route: str | None
    shared: Fields


class _Header(msgspec.Struct, array_like=True):
    count: int
    offset: int | None
    gap: int
    route: str | None
    ids: list[str | None] | None
    items: list[int] | None
    shared: Fields
    sizes: list[int] | None = None
    timestamps: list[int | None] | None = None
    keys: list[bytes | None] | None = None
    severities: list[int | None] | None = None
    versions: list[Version | None] | None = None
    origin: bytes | None = None
    seq: int = 0


# Made here and not at the first call: msgspec 0.22 completes what it knows of a type while other threads see it, and
# they die by signal 11 where it has types of ours in it. Batches are unpacked in several threads at once.
_header_of = msgspec.json.Decoder(_Header).decode
_outline_of = msgspec.json.Decoder(_Outline).decode

_VALUES_OF_NONE, _VALUES_OF_ONE = 64, 16
"""The most values of a header beside its shared fields: for itself, and for each event. Each column has one, a version
more, and a text may look like some."""
_VALUE_BYTES = 64
"""The most memory of such a value: fewer than a 64th of a limit do no harm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Events that entered together; immutable. Make one with `Batch.lines`, `documents`, `events` or `typed`."""

    count: int
    body: bytes
    shared: Fields = field(default_factory=dict)
    offset: int | None = None
    gap: int = 1
    route: str | None = None
    ids: Sequence[str | None] | None = None
    origin: bytes = b""
    seq: int = 0
    items: Sequence[int] | None = None
    sizes: Sequence[int] | None = None
    timestamps: Sequence[int | None] | None = None
    keys: Sequence[bytes | None] | None = None
    severities: Sequence[int | None] | None = None
    versions: Sequence[Version | None] | None = None
    ways: Sequence[Way] | None = None
    """For each event, what its batch had alone, where several are sent in one request (`Feeding.mixes`): fields that
    the event has beside its own ones and `shared`, and its route. None: `shared` and `route` are those of all."""
    is_relayed: bool = False
    """Whether `origin` and `seq` are those of another shipper, and stay wherever the batch is stored."""
    place: int = field(default=0, compare=False)
    """Of a batch of an output: that of its entry in the spool. It is `seq`, unless the batch was relayed."""

    @classmethod
    def lines(cls, text: bytes, *, offset: int, shared: Fields, gap: int = 1) -> Batch:
        """Makes a batch of text lines, each ended by a line feed; `text` is valid UTF-8.

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
        route: str | None = None,
    ) -> Batch:
        """Makes a batch of JSON objects as bytes, compact (no white space after `{`, no line feed), without keys of
        `shared`.

        `ids` are the ids that a client gave (None: the event gets ours), `route` the target that it named.
        """
        body = b"\n".join(documents) + b"\n" if documents else b""
        batch = cls(count=len(documents), body=body, shared=shared or {}, route=route)
        return batch.with_columns(ids=ids) if ids is not None and any(ids) else batch

    @classmethod
    def events(cls, events: Sequence[Fields], *, shared: Fields | None = None) -> Batch:
        """Makes a batch of nested fields; where they overlap with `shared`, an event's own value wins.

        They are documents, or typed if one of them contains bytes. Raises TypeError for unsupported values.
        """
        return cls(count=len(events), body=b"", shared=shared or {}).replace(events)

    @classmethod
    def typed(cls, events: Sequence[Fields], *, shared: Fields | None = None) -> Batch:
        """Makes a batch of nested fields whose values keep their types: bytes, text, integers of 64 bits, floats, and
        objects and lists of these. Where they overlap with `shared`, an event's own value wins.

        Raises TypeError or ValueError for unsupported values.
        """
        return cls(count=len(events), body=b"", shared=shared or {}, sizes=()).replace(events)

    def with_columns(
        self,
        *,
        ids: Sequence[str | None] | None = None,
        timestamps: Sequence[int | None] | None = None,
        keys: Sequence[bytes | None] | None = None,
        severities: Sequence[int | None] | None = None,
        versions: Sequence[Version | None] | None = None,
    ) -> Batch:
        """Returns the batch with these columns; others are unchanged.

        Each has one value for each event, or None for an event that has none.
        """
        given = {"ids": ids, "timestamps": timestamps, "keys": keys, "severities": severities, "versions": versions}
        return replace(self, **{name: tuple(column) for name, column in given.items() if column is not None})  # type: ignore[arg-type]

    def identified(self, origin: bytes, seq: int, items: Sequence[int] | None = None) -> Batch:
        """The same batch with the identity that another shipper gave it at its first acceptance.

        `items` are the places of its events in the batch as it was accepted (None: they stay as they are). Only an
        input that `relays` may emit such a batch.
        """
        return replace(self, origin=origin, seq=seq, items=self.items if items is None else items, is_relayed=True)

    def anew(self) -> Batch:
        """The same events as new ones, which get their identity where they are stored."""
        return replace(self, origin=b"", seq=0, items=None, is_relayed=False)

    def stored(self, origin: bytes, place: int) -> Batch:
        """The same batch as the spool gives it back that has stored it at this place."""
        return replace(self, place=place) if self.is_relayed else replace(self, origin=origin, seq=place, place=place)

    # -- what it takes ---------------------------------------------------------------------------------------------

    @property
    def weight(self) -> int:
        """Returns the bytes of its events as they are written, each with all its fields (`sdk.weights`)."""
        return weights.weight(self.count, len(orjson.dumps(self.shared)), len(self.body))

    @property
    def size(self) -> int:
        """Returns the bytes that it takes from where memory is lent (`sdk.weights`)."""
        return weights.size(self.count, orjson.dumps(self.shared), len(self.body))

    def together_within(self, most: int) -> int:
        """Returns how many neighbouring events weigh at most about so many bytes; all, or at least one."""
        weight = self.weight
        return self.count if weight <= most else max(1, self.count * most // weight)

    # -- looking into it ------------------------------------------------------------------------------------------

    def own(self) -> list[Fields]:
        """Returns each event without `shared`, as new nested fields, which may be changed."""
        if self.sizes is not None:
            return typed.unpacked(self.body, self.sizes)
        if self.offset is None:
            return list(map(orjson.loads, rows(self.body)))
        if not self.count:
            return []
        texts = self.body[:-1].decode().split("\n")
        places = offsets(self.body, self.offset, self.gap)
        return [{"message": text, "log": {"offset": at}} for text, at in zip(texts, places, strict=True)]

    def whole(self) -> list[Fields]:
        """Returns each event with `shared`, as new nested fields."""
        return [merged(shared, own) for shared, own in zip(self.each_shared(), self.own(), strict=True)]

    def each_shared(self) -> list[Fields]:
        """Returns the fields that each event shares with others, the same object where they are the same."""
        if self.ways is None:
            return [self.shared] * self.count
        fields = {id(way): self.shared | way.shared for way in self.ways}
        return [fields[id(way)] for way in self.ways]

    def each_route(self) -> list[str | None]:
        """Returns the route of each event."""
        return [self.route] * self.count if self.ways is None else [way.route for way in self.ways]

    def plain(self) -> list[Fields]:
        """Returns each event with `shared`, in types of JSON: bytes of typed events are base64 text."""
        if self.sizes is None:
            return self.whole()
        return list(map(orjson.loads, rows(self.json_lines())))

    @property
    def is_lines(self) -> bool:
        """Whether the body is text lines."""
        return self.offset is not None

    @property
    def is_typed(self) -> bool:
        """Whether the body is MessagePack maps."""
        return self.sizes is not None

    def replace(self, events: Sequence[Fields], positions: Sequence[int] | None = None) -> Batch:
        """Returns the batch with other own fields; `positions` are those of the present events (None: all).

        Ids and columns stay with their events. Where an event's own fields overlap with `shared`, its own win. They are
        typed if they were, or if one contains bytes, otherwise documents. Raises ValueError if their number differs
        from that of the positions, TypeError for an unsupported value.
        """
        if len(events) != (self.count if positions is None else len(positions)):
            raise ValueError("other fields are for another number of events")
        overlap = {key for event in events for key in event if key in self.shared}
        moved = {key: self.shared[key] for key in overlap}
        shared = {key: value for key, value in self.shared.items() if key not in overlap}
        events = [merged(moved, event) for event in events] if moved else events
        return self._subset(positions)._with_events(events, shared)

    def _with_events(self, events: Sequence[Fields], shared: Fields) -> Batch:
        if self.sizes is None:
            try:
                documents = encoded(events)
            except TypeError:
                if not typed.holds_bytes(events):
                    raise
            else:
                return self.rewritten(b"".join([document + b"\n" for document in documents]), shared)
        body, sizes = typed.packed(events)
        return replace(self, body=body, sizes=sizes, shared=shared, offset=None, gap=1)

    def rewritten(self, body: bytes, shared: Fields) -> Batch:
        """Returns the same events, with ids and columns, as other documents: `body` has one for each, as for
        `documents`.

        No top-level key of them is in `shared`, which replaces the present one.
        """
        return replace(self, body=body, shared=shared, offset=None, gap=1, sizes=None)

    def pick(self, positions: Sequence[int]) -> Batch:
        """Returns the events at these ascending positions, with their ids."""
        if self.sizes is not None:
            maps = typed.slices(self.body, self.sizes)
            sizes = tuple([self.sizes[i] for i in positions])
            return replace(self._subset(positions), body=b"".join([maps[i] for i in positions]), sizes=sizes)
        if self.offset is None:
            documents = rows(self.body)
            body = b"".join([documents[i] for i in positions])
            return replace(self._subset(positions), body=body)
        own = self.own()
        return self.replace([own[i] for i in positions], positions)

    def rejoined(self, positions: Sequence[int], changed: Batch) -> Batch:
        """Returns the batch with `changed` in the place of its events at these ascending positions.

        `changed` is what a processor has made of `pick(positions)`, perhaps with fewer events; all keep their order.
        Raises ValueError if its events have lost their places.
        """
        if changed.count and changed.items is None:
            raise ValueError("the events have lost their places in the batch")
        items = self.items if self.items is not None else range(self.count)
        place = {items[at]: at for at in positions}
        left = [place[item] for item in changed.items or ()]
        chosen = frozenset(positions)
        others = [at for at in range(self.count) if at not in chosen]
        unchanged = self.pick(others)
        if not left or not others:
            return changed if left else unchanged
        order = sorted([*others, *left])
        shared = changed.shared
        same = {key: value for key, value in unchanged.shared.items() if key in shared and shared[key] == value}
        events, columns = dict[int, Fields](), dict[str, dict[int, Any]]()
        for batch, places in ((unchanged, others), (changed, left)):
            beside = {key: value for key, value in batch.shared.items() if key not in same}
            events |= zip(places, [merged(beside, own) for own in batch.own()], strict=True)
            for name, column in batch._columns():
                columns.setdefault(name, {}).update(zip(places, column, strict=True))
        whole = replace(self.pick(order), shared=same).replace([events[at] for at in order])
        return whole.with_columns(**{name: [column.get(at) for at in order] for name, column in columns.items()})

    def _subset(self, positions: Sequence[int] | None) -> Batch:
        if positions is None:
            return self
        items = self.items if self.items is not None else range(self.count)
        columns = {name: tuple([column[i] for i in positions]) for name, column in self._columns()}
        return replace(self, count=len(positions), items=[items[i] for i in positions], **columns)._settled()  # type: ignore[arg-type]

    def _settled(self) -> Batch:
        """Returns the same batch, without `ways` if all its events go one way."""
        if not self.ways or any(way is not self.ways[0] for way in self.ways):
            return self
        route, shared = self.ways[0]
        return replace(self, ways=None, route=route, shared=self.shared | shared)

    def _columns(self) -> list[tuple[str, Sequence[Any]]]:
        """Returns the present columns, by name."""
        return [(name, column) for name in _COLUMNS if (column := getattr(self, name)) is not None]

    def pieces(self, size: int) -> Iterator[Batch]:
        """Yields the events, in order, in batches of at most `size` bytes of body, or of one event."""
        if self.sizes is not None:
            yield from self._typed_pieces(self.sizes, size)
            return
        begin = first = 0
        while begin < len(self.body):
            end = self.body.rfind(b"\n", begin, begin + size) + 1 or self.body.find(b"\n", begin) + 1
            piece = self._piece(begin, end, first) if end - begin < len(self.body) else self
            yield piece
            begin, first = end, first + piece.count

    def _typed_pieces(self, sizes: Sequence[int], size: int) -> Iterator[Batch]:
        begin = 0
        for part in typed.cuts(sizes, size):
            mine = tuple(sizes[part.start : part.stop])
            end = begin + sum(mine)
            piece = replace(self._subset(part), body=self.body[begin:end], sizes=mine)
            yield piece if piece.count < self.count else self
            begin = end

    def _piece(self, begin: int, end: int, first: int) -> Batch:
        body = self.body[begin:end]
        count = line_count(body)
        items = self.items if self.items is not None else range(self.count)
        columns = {name: column[first : first + count] for name, column in self._columns()}
        return replace(
            self,
            body=body,
            count=count,
            offset=None if self.offset is None else self.offset + begin + first * (self.gap - 1),
            items=items[first : first + count],
            **columns,  # type: ignore[arg-type]
        )._settled()

    def share(self, fields: Mapping[str, Any]) -> Batch:
        """Returns the batch with `fields` (nested) set in every event, over present values."""
        shared = replace(self, shared=merged(self.shared, fields))
        return shared.replace([merged(own, fields) for own in self.own()]) if self._has_own(fields) else shared

    def _has_own(self, fields: Mapping[str, Any]) -> bool:
        """Whether some event may have one of these fields of its own."""
        if self.sizes is not None:
            return any(key.encode() in self.body for key in fields)
        if self.offset is None:
            escapes = b"\\u" in self.body or b"\\/" in self.body
            return escapes or any(orjson.dumps(key) in self.body for key in fields)
        log = fields.get("log", {})
        return "message" in fields or not isinstance(log, Mapping) or "offset" in log

    def way(self, grouping: Sequence[str] = (), *, mixes: bool = False) -> object:
        """Returns a key, to be hashed, that is equal for batches that may be sent `together` to an output with this
        `grouping`.

        They have one kind of body, and keyed state goes with keyed state only; unless the output `mixes`, they have one
        route too, and the same shared values of these fields. Of text lines, `log` and `message` differ from line to
        line, so that a batch that is grouped by one of them goes alone.
        """
        tops = _tops(grouping)
        if self.offset is not None and not _OF_LINES.isdisjoint(tops):
            return object()
        kind = self.is_typed, self.versions is None
        if mixes and self.versions is None:
            return kind
        return kind, *self._way(tops)

    def _way(self, tops: Sequence[str]) -> tuple[object, ...]:
        """Returns a key of its route, and of the values that it shares of these fields."""
        values = [
            orjson.dumps(self.shared[top], option=orjson.OPT_SORT_KEYS) if top in self.shared else None for top in tops
        ]
        return self.route, *values

    # -- on the wire -----------------------------------------------------------------------------------------------

    def columns(self) -> tuple[Column, ...]:
        """Returns columns whose rows, concatenated, are the events as JSON objects, each ended by a line feed.

        An output that needs more than `json_lines` puts its own columns before them and joins all with `join`.
        """
        if self.offset is None:
            return self._document_columns()
        shared = {key: value for key, value in self.shared.items() if key != "log"}
        before = orjson.dumps(shared)[:-1] + (b"," if shared else b"")
        return (before, *self.log_columns(), b',"message":"', escaped_rows(self.body, b'"}\n'))

    def line_columns(self) -> tuple[Column, ...]:
        """Returns, for text lines, columns whose rows, concatenated, are `"log":{…},"message":"…"` of each event."""
        return (*self.log_columns(), b',"message":"', escaped(self.body), b'"')

    def log_columns(self) -> tuple[Column, ...]:
        """Returns, for text lines, columns whose rows, concatenated, are `"log":{…}` of each event, the shared part and
        the offset."""
        if self.offset is None:
            raise ValueError("documents and typed events have no columns of lines")
        log = orjson.dumps(self.shared.get("log", {}))[:-1]
        before = b'"log":' + log + (b"" if log == b"{" else b",") + b'"offset":'
        return (before, numerals(offsets(self.body, self.offset, self.gap)), b"}")

    def json_lines(self) -> bytes:
        """Returns the events as JSON objects, each ended by a line feed."""
        return join(self.count, *self.columns())

    def _document_columns(self) -> tuple[Column, ...]:
        documents = self._documents()
        if self.ways is not None:
            return self._way_columns(documents)
        if not self.shared:
            return (documents,)
        before = orjson.dumps(self.shared)[:-1]
        if _EMPTY in documents:
            return (before, [b"," + own[1:] if own != _EMPTY else b"}\n" for own in documents])
        return (before + b",", [own[1:] for own in documents])

    def _way_columns(self, documents: Sequence[bytes]) -> tuple[Column, ...]:
        """Returns the columns of documents that do not all share the same."""
        fields = self.each_shared()
        texts = {id(shared): orjson.dumps(shared)[:-1] for shared in {id(one): one for one in fields}.values()}
        before = [texts[id(shared)] for shared in fields]
        if _EMPTY in documents or b"{" in texts.values():
            return ([_begun(text, own) for text, own in zip(before, documents, strict=True)],)
        return (before, [b"," + own[1:] for own in documents])

    def id_columns(self) -> tuple[Column, ...]:
        """Returns columns whose rows, concatenated, are the events' ids, escaped for a JSON string."""
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
        """Returns the events' ids, in order."""
        ids: list[str] = orjson.loads(b"[%b]" % join(self.count, b'"', *self.id_columns(), b'",')[:-1])
        return ids

    def id_prefix(self) -> bytes:
        """Returns the common beginning of the ids of this batch."""
        return base64.urlsafe_b64encode(self.origin).rstrip(b"=") + b"-%d-" % self.seq

    def _documents(self) -> list[bytes]:
        """Returns the events without `shared`, as JSON, each with a line feed."""
        return rows(self.body) if self.sizes is None else [one + b"\n" for one in typed.as_json(self.own())]

    # -- in the spool ----------------------------------------------------------------------------------------------

    def pack(self) -> bytes:
        """Returns everything except its place, and its identity unless it was relayed, compressed, for the spool to
        seal."""
        return isal_zlib.compress(self._header() + b"\n" + self.body, 0, -15)

    def check_header(self) -> None:
        """Raises ValueError if the parts beside the body cannot be packed and unpacked, or written as JSON."""
        try:
            orjson.dumps([self.shared, self.items if isinstance(self.items, list) else []])
            _header_of(self._header())
        except (TypeError, msgspec.DecodeError, RecursionError) as error:
            raise ValueError("not to be packed") from error

    def _header(self) -> bytes:
        return msgspec.json.encode(
            _Header(
                self.count,
                self.offset,
                self.gap,
                self.route,
                _listed(self.ids),
                _listed(self.items),
                self.shared,
                _listed(self.sizes),
                _listed(self.timestamps),
                _listed(self.keys),
                _listed(self.severities),
                _listed(self.versions),
                *((self.origin, self.seq) if self.is_relayed else ()),
            )
        )

    @classmethod
    def unpack(cls, packed: bytes, *, origin: bytes, seq: int, limit: int | None = None) -> Batch:
        """Returns the packed batch, stored at `seq` by the process `origin`; raises ValueError for invalid bytes.

        Raises Oversized if it is larger than `limit` bytes, or its `size` is, before it takes more memory than that.
        """
        try:
            header_bytes, _, body = _inflated(packed, limit).partition(b"\n")
            if limit is not None:
                _check_size(header_bytes, len(body), limit)
            header = _header_of(header_bytes)
        except (_IsalError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError("not a packed batch") from error
        return cls(
            count=header.count,
            body=body,
            shared=header.shared,
            offset=header.offset,
            gap=header.gap,
            route=header.route,
            ids=_tuple(header.ids),
            origin=origin if header.origin is None else header.origin,
            seq=seq if header.origin is None else header.seq,
            is_relayed=header.origin is not None,
            place=seq,
            items=header.items,
            sizes=_tuple(header.sizes),
            timestamps=_tuple(header.timestamps),
            keys=_tuple(header.keys),
            severities=_tuple(header.severities),
            versions=_tuple(header.versions),
        )


def _listed(column: Sequence[T] | None) -> list[T] | None:
    return None if column is None else list(column)


def _tuple(column: Sequence[T] | None) -> tuple[T, ...] | None:
    return None if column is None else tuple(column)


def _begun(before: bytes, document: bytes) -> bytes:
    """Returns a document that begins with other fields; `before` is these, up to the last brace."""
    if document == _EMPTY:
        return before + b"}\n"
    return document if before == b"{" else before + b"," + document[1:]


def _tops(grouping: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([name.partition(".")[0] for name in grouping]))


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


def together(batches: Sequence[Batch], grouping: Sequence[str] = ()) -> Batch:
    """Returns one batch of the events of several with equal `Batch.way`, each with its id and its columns.

    The fields of `grouping` stay shared, by all events or in `ways`; for a dotted name, its whole top-level field.
    """
    if len(batches) == 1:
        return batches[0]
    tops, first = _tops(grouping), batches[0]
    ways = _ways(batches, tops)
    alone = ways[0] if all(way is ways[0] for way in ways) else Way(None, {})
    each = [repeat(way, batch.count) for way, batch in zip(ways, batches, strict=True)]
    bare = [replace(batch, shared={k: v for k, v in batch.shared.items() if k not in tops}) for batch in batches]
    if first.is_typed:
        body, sizes = typed.packed([event for batch in bare for event in batch.whole()])
    else:
        body, sizes = b"".join([batch.json_lines() for batch in bare]), None
    return replace(
        first,
        count=sum(batch.count for batch in batches),
        body=body,
        sizes=sizes,
        route=alone.route,
        shared=alone.shared,
        ways=None if alone is ways[0] else list(chain.from_iterable(each)),
        offset=None,
        gap=1,
        is_relayed=False,
        items=[item for batch in batches for item in batch.items or range(batch.count)],
        ids=tuple([id for batch in batches for id in batch.id_texts()]),
        timestamps=_strung([(batch.count, batch.timestamps) for batch in batches]),
        keys=_strung([(batch.count, batch.keys) for batch in batches]),
        severities=_strung([(batch.count, batch.severities) for batch in batches]),
        versions=_strung([(batch.count, batch.versions) for batch in batches]),
    )


def _ways(batches: Sequence[Batch], tops: Sequence[str]) -> list[Way]:
    """Returns what each batch keeps for itself: the same object where that is the same."""
    known = dict[object, Way]()
    keys = [batch._way(tops) for batch in batches]
    for key, batch in zip(keys, batches, strict=True):
        if key not in known:
            known[key] = Way(batch.route, {top: batch.shared[top] for top in tops if top in batch.shared})
    return [known[key] for key in keys]


def _strung(columns: Sequence[tuple[int, Sequence[T | None] | None]]) -> tuple[T | None, ...] | None:
    """Returns a column of several batches; None where no batch has it."""
    if all(column is None for _, column in columns):
        return None
    return tuple([value for count, column in columns for value in ([None] * count if column is None else column)])


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Fields:
    """Returns new nested fields: those of `below`, overridden by `above`."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def nested(flat: Mapping[str, Any]) -> Fields:
    """Returns dotted names as nested fields: {"service.name": "shop"} becomes {"service": {"name": "shop"}}."""
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


def tagged(event: Fields, message: str, shared: Mapping[str, Any] = MappingProxyType({})) -> Fields:
    """Returns the event with an error tag, and the reason; its other fields are unchanged.

    An event that has the tag already keeps its first reason. `shared` are the fields that its batch shares: tags among
    them stay.
    """
    _here.tagged = tagged_here() + 1
    old = event.get("tags", shared.get("tags"))
    before = old if isinstance(old, list) else [] if old is None else [old]
    if _ERROR_TAG in before:
        return event
    tags = [*before, _ERROR_TAG]
    error = event.get("error")
    return {**event, "tags": tags, "error": {**(error if isinstance(error, dict) else {}), "message": message}}


@contextmanager
def attempt() -> Iterator[None]:
    """If the block raises, and the events are read in another way, what it has `tagged` does not count."""
    before = tagged_here()
    try:
        yield
    except BaseException:
        _here.tagged = before
        raise


def tagged_here() -> int:
    """Returns how often an event was `tagged` in this thread."""
    return getattr(_here, "tagged", 0)
