"""The envelope: what every event has, whichever input it came from.

    @timestamp   when it happened, by its input (`Batch.timestamps`), else when it came
    host, agent  this host and this program, unless the input forwards events of other programs
    data_stream  that of the input, unless a client named where the events go (`Batch.route`)

All of it lies below the event's own fields: the members of two objects are joined, and the event's win. Lines have no
such fields, nor do most documents, so the envelope goes into the shared fields. A document with such a field keeps it,
and its neighbours get what they lack. Searching documents for a field takes a third of the time of loading them; but
most clients write the time first, and seeing that takes a tenth.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from operator import attrgetter
from typing import Any

import msgspec
import orjson

from shipper import __version__
from shipper.plugin import Input
from shipper.sdk import forms
from shipper.sdk.columns import join
from shipper.sdk.event import Batch
from shipper.sdk.fields import Fields, merged

TIME = "@timestamp"
_TIME_FIRST = b'{"@timestamp":'
_TYPED_TIME, _SMALL_MAP = msgspec.msgpack.encode(TIME), 0x80
_BAD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Members(msgspec.Struct, gc=False):
    """The fields of the envelope that a document may have itself."""

    time: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name=TIME)
    host: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    agent: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_stream: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_members = msgspec.json.Decoder(_Members).decode
_all_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ATTRIBUTES = {TIME: "time", "host": "host", "agent": "agent", "data_stream": "data_stream"}
_NO_JSON = _Members(*[msgspec.Raw(b"null")] * len(_ATTRIBUTES))
"""A document that is not JSON stays unchanged, as if it had every field."""

_ESCAPED_LETTER = re.compile(rb"\\u00[4-7]")
"""As a name may be written that is one of these fields: of letters, `@` and `_`."""
Own = Sequence[msgspec.Raw | msgspec.UnsetType]
"""The values of one field, by document."""


class Envelope(msgspec.Struct, frozen=True):
    """The envelope of an input under one revision."""

    fields: Fields = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, settings: Input) -> Envelope:
        """Returns the envelope of the input with these settings."""
        host = socket.gethostname()
        maker: Fields = {"host": {"name": host}, "agent": {"name": host, "type": "shipper", "version": __version__}}
        stream = {"data_stream": msgspec.to_builtins(settings.data_stream)}
        return cls(stream if settings.forwards else maker | stream)

    def on(self, batch: Batch, arrived: datetime) -> Batch:
        """Returns a checked batch with the envelope; it passes the door again."""
        fields = dict(self.fields) if TIME in batch.shared else {TIME: written(arrived), **self.fields}
        if batch.route is not None:
            fields.pop("data_stream", None)
        if batch.complete:
            fields = {name: value for name, value in fields.items() if name not in batch.complete}
            batch = replace(batch, complete=frozenset())
        elif _begin_with_time(batch):
            fields.pop(TIME, None)
        is_timed = TIME in fields and TIME not in batch.shared and batch.timestamps is not None
        times = _times(batch.timestamps or (), fields[TIME]) if is_timed else None
        if times is not None and batch.is_lines:
            batch = _as_documents(batch)
        if batch.is_lines or not (times or _may_have(batch, fields.keys() - batch.shared.keys())):
            shared = merged(fields, batch.shared)
            return batch if shared == batch.shared else replace(batch, shared=shared)
        below: dict[str, Sequence[Any]] = {name: [value] * batch.count for name, value in fields.items()}
        if times is not None:
            below[TIME] = times
        held = _typed_held(batch, below) if batch.is_typed else _held(batch, below)
        if times is not None:
            held.setdefault(TIME, [msgspec.UNSET] * batch.count)
        shared = merged({name: value for name, value in fields.items() if name not in held}, batch.shared)
        if batch.is_typed:
            return _with_values(batch, shared, {name: below[name] for name in held})
        return _with_members(batch, shared, below, held)


def written(moment: datetime) -> str:
    """Returns a time as events have it: UTC, in milliseconds."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _times(timestamps: Sequence[int | None], arrived: str) -> list[str]:
    return [arrived if ns is None else written(_EPOCH + timedelta(microseconds=ns // 1000)) for ns in timestamps]


def _as_documents(batch: Batch) -> Batch:
    shared = {name: value for name, value in batch.shared.items() if name != "log"}
    return batch.rewritten(join(batch.count, b"{", *batch.line_columns(), b"}\n"), shared)


def _begin_with_time(batch: Batch) -> bool:
    """Whether each event begins with its time, as most clients write them; then they need not be searched. In a form,
    each has one."""
    if batch.form is not None:
        return True
    if batch.sizes is not None:
        body, begins = batch.body, accumulate(batch.sizes[:-1], initial=0)
        return bool(body) and all(
            body.startswith(_TYPED_TIME, at + 1) and body[at] & 0xF0 == _SMALL_MAP for at in begins
        )
    if batch.is_lines or not batch.body.startswith(_TIME_FIRST):
        return False
    return batch.body.count(b"\n" + _TIME_FIRST) == batch.count - 1


def _may_have(batch: Batch, names: Collection[str]) -> bool:
    """Whether some document or typed event may have one of these fields."""
    if batch.form is not None:
        return not forms.of(batch.form).names.isdisjoint(names)
    if batch.is_typed:
        return any(name.encode() in batch.body for name in names)
    is_escaped = bool(names) and b"\\u00" in batch.body and _ESCAPED_LETTER.search(batch.body) is not None
    return is_escaped or any(b'"%b"' % name.encode() in batch.body for name in names)


def _held(batch: Batch, names: Collection[str]) -> dict[str, Own]:
    """Returns the fields of these that some document has."""
    documents = batch.body.split(b"\n")[:-1]
    try:
        members = list(map(_members, documents))
    except _BAD:
        members = [_members_of(document) for document in documents]
    columns = {name: list(map(attrgetter(_ATTRIBUTES[name]), members)) for name in names if name not in batch.shared}
    return {name: own for name, own in columns.items() if own.count(msgspec.UNSET) < len(own)}


def _members_of(document: bytes) -> _Members:
    try:
        return _members(document)
    except _BAD:
        return _NO_JSON


def _typed_held(batch: Batch, names: Collection[str]) -> dict[str, Own]:
    own = set[str]().union(*batch.own())
    return {name: () for name in names if name in own}


def _with_values(batch: Batch, shared: Fields, below: Mapping[str, Sequence[Any]]) -> Batch:
    """Returns the typed events with the fields that they lack."""
    lacking = [dict(zip(below, values, strict=True)) for values in zip(*below.values(), strict=True)]
    events = [merged(fields, own) for fields, own in zip(lacking, batch.own(), strict=True)] if below else batch.own()
    return replace(batch, shared=shared).replace(events)


def _with_members(batch: Batch, shared: Fields, below: Mapping[str, Sequence[Any]], held: Mapping[str, Own]) -> Batch:
    """Returns the documents, each with the fields that it lacks of those that some have; their own stay as written."""
    wanting = {name: own for name, own in held.items() if msgspec.UNSET in own or isinstance(below[name][0], dict)}
    if not wanting:
        return replace(batch, shared=shared)
    documents = batch.body.split(b"\n")[:-1]
    for name, own in wanting.items():
        if isinstance(below[name][0], dict):
            documents = _joined(documents, name, below[name][0], own)
        if msgspec.UNSET in own:
            rows = zip(documents, below[name], own, strict=True)
            documents = [_inserted(row, name, value) if has is msgspec.UNSET else row for row, value, has in rows]
    return batch.rewritten(b"".join([row + b"\n" for row in documents]), shared)


def _inserted(document: bytes, name: str, value: Any) -> bytes:
    return orjson.dumps({name: value})[:-1] + (b"}" if document == b"{}" else b"," + document[1:])


def _joined(documents: Sequence[bytes], name: str, below: Fields, own: Own) -> list[bytes]:
    """Returns the documents; those in which this field is an object get what it lacks."""
    raw = [b"" if one is msgspec.UNSET else bytes(one) for one in own]
    whole = {text: _whole(text, below) for text in set(raw)}
    return [
        row if whole[text] == text else msgspec.json.encode(_all_members(row) | {name: msgspec.Raw(whole[text])})
        for row, text in zip(documents, raw, strict=True)
    ]


def _whole(text: bytes, below: Fields) -> bytes:
    """Returns an object as JSON with what it lacks; anything else unchanged."""
    try:
        value = orjson.loads(text)
        whole = merged(below, value) if isinstance(value, dict) else value
        return text if whole == value else orjson.dumps(whole)
    except (ValueError, TypeError, RecursionError):  # the door does not look into documents
        return text
