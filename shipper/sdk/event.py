"""PUBLIC: a batch: the unit of flow and of durability.

It has hundreds to thousands of events that enter together and are stored, sent and settled together. Their common
fields are kept once, in `shared`; the rest is one block of bytes, which is parsed only on demand:

    lines       body = text lines, as read; event i is {"message": line i, "log": {"offset": …}} + shared
    documents   body = one JSON object a line (NDJSON); event i is document i + shared
    typed       body = one MessagePack map after the other (`sizes` has their lengths); event i is map i + shared
    in a form   body = one message after the other of another format, `form`, which are read as typed events (`forms`)

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

Several batches that are sent in one request become one (`joining`). What each of them had for all its events, and the
others had not, stays once: `ways` has it for each event, by reference.

`route` is the target that a client named for all events, such as an index, a topic or a subject. Outputs define what it
means, and what fields mean. Of the columns, dead letters keep only the ids and the versions.

An event has its id by `origin`, `seq` and its item (`identity`). `packing` says how a batch is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import orjson

from shipper.sdk import forms, identity, packing, typed, weights
from shipper.sdk.columns import (
    Column,
    begun,
    begun_each,
    encoded,
    escaped,
    escaped_rows,
    join,
    line_count,
    numerals,
    offsets,
    rows,
)
from shipper.sdk.fields import Fields, merged
from shipper.sdk.state import Version
from shipper.sdk.table import Table, Unfit

T = TypeVar("T")

COLUMNS = ("ids", "timestamps", "keys", "severities", "versions", "ways")
"""What a batch has beside its body for each event, if it has it at all."""
OF_LINES = frozenset({"log", "message"})
"""Top-level fields with parts that differ from line to line."""


class Request(NamedTuple):
    """A request that stays the same (`Feeding.stable`)."""

    id: str
    """Of letters and digits; the same each time that these events are sent, and never that of other events."""


class Way(NamedTuple):
    """What all events of one batch have, in a request of several batches: their route, and fields that they share."""

    route: str | None
    shared: Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Events that entered together; immutable. Made by `Batch.lines`, `documents`, `ndjson`, `events` or `typed`."""

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
    complete: Set[str] = field(default=frozenset(), compare=False)
    """Of what an input emits: fields of the envelope that each document has itself, with all their members, so that
    nobody has to look for them (see `pipeline.intake.envelope`). What is made of the events does not say so."""
    form: str | None = None
    """The format of the messages that stand in the place of MessagePack maps."""
    is_relayed: bool = False
    """Whether `origin` and `seq` are those of another shipper, and stay wherever the batch is stored."""
    place: int = field(default=0, compare=False)
    """Of a batch of an output: that of its entry in the spool. It is `seq`, unless the batch was relayed."""
    request: Request | None = field(default=None, compare=False)
    """Of what `Sender.send` gets, if the output asks for requests that stay the same (`Feeding.stable`)."""
    _table: Table | None = field(default=None, init=False, compare=False, repr=False)
    """Its events by columns, if they were asked for or made so; then `body` may be missing until it is asked for."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> bytes:
            if name != "body":
                raise AttributeError(name)
            object.__setattr__(self, "body", self._table.body())
            return self.body

    _size: int | None = field(default=None, init=False, repr=False, compare=False)
    """Once it was asked for."""

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
    def ndjson(cls, text: bytes, *, complete: Set[str] = frozenset()) -> Batch:
        """Makes a batch of JSON objects as `documents`, each ended by a line feed.

        `complete` are fields that each of them is known to have with all members: `@timestamp`, and `host` with its
        name.
        """
        return cls(count=line_count(text), body=text, complete=complete)

    @classmethod
    def events(cls, events: Sequence[Fields], *, shared: Fields | None = None) -> Batch:
        """Makes a batch of nested fields; where they overlap with `shared`, an event's own value wins.

        They are documents, or typed if one of them contains bytes. Raises TypeError for unsupported values.
        """
        return cls(count=len(events), body=b"", shared=shared or {}).replace(events)

    @classmethod
    def typed(
        cls,
        events: Sequence[Fields],
        *,
        shared: Fields | None = None,
        timestamps: Sequence[int | None] | None = None,
        severities: Sequence[int | None] | None = None,
    ) -> Batch:
        """Makes a batch of nested fields whose values keep their types: bytes, text, integers of 64 bits, floats, and
        objects and lists of these. Where they overlap with `shared`, an event's own value wins.

        Raises TypeError or ValueError for unsupported values.
        """
        columns: dict[str, Any] = {"timestamps": _tuple(timestamps), "severities": _tuple(severities)}
        return cls(count=len(events), body=b"", shared=shared or {}, sizes=(), **columns).replace(events)

    @classmethod
    def formed(
        cls,
        messages: Sequence[bytes],
        form: str,
        *,
        shared: Fields,
        timestamps: Sequence[int | None],
        severities: Sequence[int | None],
    ) -> Batch:
        """Makes a batch of messages of a form, which are typed events for all that look into them.

        The columns are what the messages say; no field of `shared` is one of the form (`Form.names`).
        """
        return cls(
            count=len(messages),
            body=b"".join(messages),
            sizes=tuple(map(len, messages)),
            form=form,
            shared=shared,
            timestamps=tuple(timestamps),
            severities=tuple(severities),
        )

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
        batch = self if timestamps is severities is None else self.unformed()
        return replace(batch, **{name: tuple(column) for name, column in given.items() if column is not None})  # type: ignore[arg-type]

    def identified(self, origin: bytes, seq: int, items: Sequence[int] | None = None) -> Batch:
        """The same batch with the identity that another shipper gave it at its first acceptance.

        `items` are the places of its events in the batch as it was accepted (None: they stay as they are). Only an
        input that `relays` may emit such a batch.
        """
        return replace(self, origin=origin, seq=seq, items=self.items if items is None else items, is_relayed=True)

    def anew(self) -> Batch:
        """The same events as new ones, which get their identity where they are stored."""
        fresh: dict[str, Any] = {"origin": b"", "seq": 0, "items": None, "is_relayed": False}
        return replace(self, **fresh) if self.is_written else self._but(self.table(), **fresh)

    def stored(self, origin: bytes, place: int) -> Batch:
        """The same batch as the spool gives it back that has stored it at this place."""
        return replace(self, place=place) if self.is_relayed else replace(self, origin=origin, seq=place, place=place)

    def requested(self, id: str) -> Batch:
        """The same events as the request of this id."""
        return replace(self, request=Request(id))

    # -- by columns ------------------------------------------------------------------------------------------------

    def table(self) -> Table:
        """Returns the events without `shared` by columns; raises Unfit if they are too different, or typed."""
        if self._table is None:
            object.__setattr__(self, "_table", self._as_table())
        assert self._table is not None
        return self._table

    def _as_table(self) -> Table:
        if self.sizes is not None or not self.count:
            raise Unfit
        if self.offset is not None:
            return Table.of_lines(self.body, self.offset, self.gap)
        return Table.of_documents(self.body)

    def tabled(self, table: Table, shared: Fields) -> Batch:
        """Returns the same events, with ids and columns, as the documents of a table; they are written when `body` is
        read.

        Where their fields overlap with `shared`, an event's own value wins. Raises Unfit where that cannot be done by
        columns.
        """
        overlap = table.names() & shared.keys()
        if overlap:
            table = table.below({key: value for key, value in shared.items() if key in overlap})
            shared = {key: value for key, value in shared.items() if key not in overlap}
        encoded(list(table.odd.values()))  # what cannot be written must fail now
        form: dict[str, Any] = {"offset": None, "gap": 1, "sizes": None, "complete": frozenset(), "form": None}
        return self._but(table, shared=shared, **form)

    def _but(self, table: Table | None, **others: Any) -> Batch:
        """Returns the batch with other documents, which are not written yet."""
        made = object.__new__(Batch)
        for name in _FIELDS:
            object.__setattr__(made, name, others[name] if name in others else getattr(self, name))
        object.__setattr__(made, "_table", table)
        object.__setattr__(made, "_size", None)
        return made

    def lent(self) -> Batch:
        """Returns the batch with shared fields of its own, also the nested ones, which may be changed in place."""
        made = self._but(self._table, shared=_copied(self.shared))
        if self.is_written:
            object.__setattr__(made, "body", self.body)
        return made

    def written(self) -> Batch:
        """Returns the batch with its documents as bytes alone."""
        return self if self._table is None else replace(self)

    @property
    def is_written(self) -> bool:
        """Whether its documents are there as bytes."""
        try:
            _body_of(self)
        except AttributeError:
            return False
        return True

    # -- what it takes ---------------------------------------------------------------------------------------------

    @property
    def weight(self) -> int:
        """Returns the bytes of its events as they are written, each with all its fields (`sdk.weights`)."""
        return weights.weight(self.count, len(orjson.dumps(self.shared)), len(self.body))

    @property
    def size(self) -> int:
        """Returns the bytes that it takes from where memory is lent (`sdk.weights`)."""
        if self._size is None:
            size = weights.size(self.count, orjson.dumps(self.shared), len(self.body))
            object.__setattr__(self, "_size", size)
            return size
        return self._size

    def together_within(self, most: int) -> int:
        """Returns how many neighbouring events weigh at most about so many bytes; all, or at least one."""
        weight = self.weight
        return self.count if weight <= most else max(1, self.count * most // weight)

    # -- looking into it ------------------------------------------------------------------------------------------

    def own(self) -> list[Fields]:
        """Returns each event without `shared`, as new nested fields, which may be changed."""
        if self.sizes is not None:
            maps = self.messages()
            return typed.unpacked(maps) if self.form is None else forms.of(self.form).events(maps)
        if self.offset is None:
            return list(map(orjson.loads, rows(self.body)))
        if not self.count:
            return []
        texts = self.body[:-1].decode().split("\n")
        return [{"message": text, "log": {"offset": at}} for text, at in zip(texts, self.offsets(), strict=True)]

    def messages(self) -> list[bytes]:
        """Returns, for typed events, the bytes of each: a MessagePack map, or a message of the form."""
        return typed.slices(self.body, self.sizes or ())

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
        """Whether the body is MessagePack maps, or messages of a form."""
        return self.sizes is not None

    def unformed(self) -> Batch:
        """Returns the same events in MessagePack, if they are in a form."""
        return self if self.form is None else self.replace(self.own())

    def replace(self, events: Sequence[Fields], positions: Sequence[int] | None = None) -> Batch:
        """Returns the batch with other own fields; `positions` are those of the present events (None: all).

        Ids and columns stay with their events. Where an event's own fields overlap with `shared`, its own win. They are
        typed if they were, or if one contains bytes, otherwise documents. Raises ValueError if their number differs
        from that of the positions, TypeError for an unsupported value.
        """
        if len(events) != (self.count if positions is None else len(positions)):
            raise ValueError("other fields are for another number of events")
        overlap = {key for event in events for key in event if key in self.shared}
        moved = {key: value for key, value in self.shared.items() if key in overlap}
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
        return replace(self, body=body, sizes=sizes, shared=shared, offset=None, gap=1, complete=frozenset(), form=None)

    def rewritten(self, body: bytes, shared: Fields) -> Batch:
        """Returns the same events, with ids and columns, as other documents: `body` has one for each, as for
        `documents`.

        No top-level key of them is in `shared`, which replaces the present one.
        """
        return replace(self, body=body, shared=shared, offset=None, gap=1, sizes=None, complete=frozenset(), form=None)

    def pick(self, positions: Sequence[int]) -> Batch:
        """Returns the events at these ascending positions, with their ids; documents keep their bytes."""
        if self.is_lines and positions and positions[-1] - positions[0] == len(positions) - 1:
            return self._run(positions[0], len(positions))
        if positions if self.is_lines else self._table is not None:
            with suppress(Unfit):
                return self._picked(positions, self.table().pick(positions))
        if self.sizes is not None:
            maps = self.messages()
            sizes = tuple([self.sizes[i] for i in positions])
            return replace(self._subset(positions), body=b"".join([maps[i] for i in positions]), sizes=sizes)
        if self.offset is None:
            return replace(self._subset(positions), body=self._documents_at(positions))
        own = self.own() if positions else []
        return self.replace([own[i] for i in positions], positions)

    def _picked(self, positions: Sequence[int], table: Table) -> Batch:
        if self.is_lines:
            return self._subset(positions).tabled(table, self.shared)
        picked = self._subset(positions, table)
        if self.is_written:  # a number of many digits would be another one
            object.__setattr__(picked, "body", self._documents_at(positions))
        return picked

    def _documents_at(self, positions: Sequence[int]) -> bytes:
        documents = rows(self.body)
        return b"".join([documents[i] for i in positions])

    def _run(self, first: int, count: int) -> Batch:
        """Returns neighbouring lines, which stay lines."""
        lengths = list(map(len, rows(self.body)))
        begin = sum(lengths[:first])
        run = self._piece(begin, begin + sum(lengths[first : first + count]), first)
        return replace(run, items=list(run.items or ()))

    def _subset(self, positions: Sequence[int] | None, table: Table | None = None) -> Batch:
        """Returns the batch with what it has beside its documents at these positions, and with those of a table."""
        if positions is None:
            return self
        items = self.items if self.items is not None else range(self.count)
        columns: dict[str, Any] = {name: tuple([col[i] for i in positions]) for name, col in self.present_columns()}
        columns |= {"count": len(positions), "items": [items[i] for i in positions]}
        return (replace(self, **columns) if table is None else self._but(table, **columns))._settled()

    def _settled(self) -> Batch:
        """Returns the same batch, without `ways` if all its events go one way."""
        if not self.ways or any(way is not self.ways[0] for way in self.ways):
            return self
        route, shared = self.ways[0]
        return replace(self, ways=None, route=route, shared=self.shared | shared)

    def present_columns(self) -> list[tuple[str, Sequence[Any]]]:
        """Returns the present columns, by name."""
        return [(name, column) for name in COLUMNS if (column := getattr(self, name)) is not None]

    def pieces(self, size: int) -> Iterator[Batch]:
        """Yields the events, in order, in batches of at most `size` bytes of body, or of one event."""
        if 0 < len(self.body) <= size:
            yield self
            return
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
        columns = {name: column[first : first + count] for name, column in self.present_columns()}
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
        if self.form is not None:
            return not forms.of(self.form).names.isdisjoint(fields)
        if self.sizes is not None:
            return any(key.encode() in self.body for key in fields)
        if self.offset is None:
            escapes = b"\\u" in self.body or b"\\/" in self.body
            return escapes or any(orjson.dumps(key) in self.body for key in fields)
        log = fields.get("log", {})
        return "message" in fields or not isinstance(log, Mapping) or "offset" in log

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
        return (before, numerals(self.offsets()), b"}")

    def offsets(self) -> list[int]:
        """Returns, for text lines, the byte offset of each in its source."""
        if self.offset is None:
            raise ValueError("documents and typed events have no offsets")
        return offsets(self.body, self.offset, self.gap)

    def json_lines(self) -> bytes:
        """Returns the events as JSON objects, each ended by a line feed."""
        return join(self.count, *self.columns())

    def _documents(self) -> list[bytes]:
        """Returns the events without `shared`, as JSON, each with a line feed."""
        if self.form is not None:
            return rows(forms.of(self.form).documents(self.messages()))
        return rows(self.body) if self.sizes is None else [one + b"\n" for one in typed.as_json(self.own())]

    def _document_columns(self) -> tuple[Column, ...]:
        documents = self._documents()
        if self.ways is None:
            return begun(documents, orjson.dumps(self.shared)[:-1]) if self.shared else (documents,)
        fields = self.each_shared()
        texts = {id(shared): orjson.dumps(shared)[:-1] for shared in {id(one): one for one in fields}.values()}
        return begun_each(documents, [texts[id(shared)] for shared in fields])

    def id_columns(self) -> tuple[Column, ...]:
        """Returns columns whose rows, concatenated, are the events' ids, escaped for a JSON string."""
        return identity.columns(self.id_prefix(), self.count, self.items, self.ids)

    def id_texts(self) -> list[str]:
        """Returns the events' ids, in order."""
        return identity.texts(self.count, self.id_columns())

    def id_prefix(self) -> bytes:
        """Returns the common beginning of the ids of this batch."""
        return identity.prefix(self.origin, self.seq)

    # -- in the spool ----------------------------------------------------------------------------------------------

    def pack(self) -> bytes:
        """Returns everything except its place, and its identity unless it was relayed, compressed, for the spool to
        seal."""
        return packing.packed(self._header(), self.body)

    def check_header(self) -> None:
        """Raises ValueError or TypeError if the parts beside the body cannot be packed and unpacked, or written as
        JSON."""
        packing.check(self._header())

    def _header(self) -> packing.Header:
        return packing.Header(
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
            self.origin if self.is_relayed else None,
            self.seq if self.is_relayed else 0,
            self.form,
        )

    @classmethod
    def unpack(
        cls, packed: bytes, *, origin: bytes, seq: int, limit: int | None = None, is_relayed: bool = False
    ) -> Batch:
        """Returns the packed batch, stored at `seq` by the process `origin`; raises ValueError for invalid bytes.

        If it `is_relayed`, that is its identity, whatever it was packed with. Raises Oversized if it is larger than
        `limit` bytes, or its `size` is, before it takes more memory than that.
        """
        header, body = packing.unpacked(packed, limit)
        place = seq
        if header.origin is not None and not is_relayed:
            origin, seq, is_relayed = header.origin, header.seq, True
        return cls(
            count=header.count,
            body=body,
            shared=header.shared,
            offset=header.offset,
            gap=header.gap,
            route=header.route,
            ids=_tuple(header.ids),
            origin=origin,
            seq=seq,
            is_relayed=is_relayed,
            place=place,
            items=header.items,
            sizes=_tuple(header.sizes),
            timestamps=_tuple(header.timestamps),
            keys=_tuple(header.keys),
            severities=_tuple(header.severities),
            versions=_tuple(header.versions),
            form=header.form,
        )


_body_of = Batch.__dict__["body"].__get__


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


_FIELDS = tuple(one.name for one in fields(Batch) if one.init and one.name != "body")
"""What a batch has beside its documents."""


def _listed(column: Sequence[T] | None) -> list[T] | None:
    return None if column is None else list(column)


def _tuple(column: Sequence[T] | None) -> tuple[T, ...] | None:
    return None if column is None else tuple(column)
