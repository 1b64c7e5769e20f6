"""The envelope: what every event has, whichever input it came from.

    @timestamp   when it happened, as its input says (`Batch.timestamps`), else when it came
    host, agent  this host and this program, unless the input forwards what others made
    data_stream  that of the input, unless a client named where the events go (`Batch.route`)

All of it is put below what the event has: of two objects the members are joined, and the event's own win. Lines have
none of it of their own, nor do most documents, so that the envelope goes into the shared fields; a document that has
some of it keeps it, and its neighbours get what they lack. To look for that takes 0.4 µs a document, where one has it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import orjson

from shipper import __version__
from shipper.plugin import Input
from shipper.sdk.columns import join
from shipper.sdk.event import Batch, Fields, merged

TIME = "@timestamp"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Members(msgspec.Struct):
    """What a document may have of the envelope."""

    time: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name=TIME)
    host: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    agent: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_stream: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_members = msgspec.json.Decoder(_Members).decode
_all_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ATTRIBUTES = {TIME: "time", "host": "host", "agent": "agent", "data_stream": "data_stream"}

Own = Sequence[Mapping[str, Any] | None]
"""What each event has of the envelope, by name; None for a document that is no JSON, which stays as it is."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The envelope of an input under one revision."""

    fields: Fields = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Input) -> Envelope:
        """The one of an input with these settings."""
        host = socket.gethostname()
        maker: Fields = {"host": {"name": host}, "agent": {"name": host, "type": "shipper", "version": __version__}}
        stream = {"data_stream": msgspec.to_builtins(settings.data_stream)}
        return cls(stream if settings.forwards else maker | stream)

    def on(self, batch: Batch, arrived: datetime) -> Batch:
        """The batch with the envelope; the door has seen it, and lets it pass again."""
        fields = {TIME: written(arrived), **self.fields}
        if batch.route is not None:
            fields.pop("data_stream", None)
        times = None if TIME in batch.shared or batch.timestamps is None else _times(batch.timestamps, fields[TIME])
        if times is not None and batch.is_lines:
            batch = _as_documents(batch)
        asked = [name for name in fields if name not in batch.shared]
        own = _own(batch, asked, always=times is not None)
        held = {TIME} if times is not None else set[str]()
        held |= {name for one in own or () for name in one or ()}
        shared = merged({name: value for name, value in fields.items() if name not in held}, batch.shared)
        if own is None or not held:
            return replace(batch, shared=shared)
        below = {name: value for name, value in fields.items() if name in held}
        lacking = [below] * batch.count if times is None else [below | {TIME: time} for time in times]
        return _filled(batch, shared, own, lacking)


def written(moment: datetime) -> str:
    """A time of UTC as events have it, in milliseconds."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _times(timestamps: Sequence[int | None], arrived: str) -> list[str]:
    return [arrived if ns is None else written(_EPOCH + timedelta(microseconds=ns // 1000)) for ns in timestamps]


def _as_documents(batch: Batch) -> Batch:
    shared = {name: value for name, value in batch.shared.items() if name != "log"}
    return batch.rewritten(join(batch.count, b"{", *batch.line_columns(), b"}\n"), shared)


def _own(batch: Batch, asked: Sequence[str], *, always: bool) -> Own | None:
    """None if no event has any of it, unless `always`."""
    if batch.is_typed:
        if always or any(name.encode() in batch.body for name in asked):
            return [{name: event[name] for name in asked if name in event} for event in batch.own()]
        return None
    if batch.is_lines or not (always or _may_have(batch.body, asked)):
        return None
    return [_own_of(document, asked) for document in batch.body.split(b"\n")[:-1]]


def _may_have(body: bytes, asked: Sequence[str]) -> bool:
    return b"\\u" in body or any(b'"%b"' % name.encode() in body for name in asked)


def _own_of(document: bytes, asked: Sequence[str]) -> Mapping[str, Any] | None:
    try:
        members = _members(document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    said = {name: getattr(members, _ATTRIBUTES[name]) for name in asked}
    return {name: value for name, value in said.items() if value is not msgspec.UNSET}


def _filled(batch: Batch, shared: Fields, own: Own, lacking: Sequence[Fields]) -> Batch:
    """The events with what they lack of the envelope."""
    if batch.is_typed:
        events = [merged(below, event) for below, event in zip(lacking, batch.own(), strict=True)]
        return replace(batch, shared=shared).replace(events)
    documents = batch.body.split(b"\n")[:-1]
    rows = [_row(document, below, has) for document, below, has in zip(documents, lacking, own, strict=True)]
    return batch.rewritten(b"".join([row + b"\n" for row in rows]), shared)


def _row(document: bytes, below: Fields, own: Mapping[str, Any] | None) -> bytes:
    """A document with what it lacks; what it has stays as it was written."""
    if own is None:
        return document
    groups = [name for name in own if isinstance(below[name], dict)]
    if groups:
        with suppress(ValueError, TypeError, RecursionError):  # the door does not look into documents
            document = _joined(document, {name: below[name] for name in groups})
    lacks = {name: value for name, value in below.items() if name not in own}
    if not lacks:
        return document
    return orjson.dumps(lacks)[:-1] + (b"}" if document == b"{}" else b"," + document[1:])


def _joined(document: bytes, below: Mapping[str, Fields]) -> bytes:
    """A document whose objects have the members of these that they lack."""
    members = _all_members(document)
    said = {name: orjson.loads(bytes(members[name])) for name in below}
    whole = {name: merged(below[name], value) for name, value in said.items() if isinstance(value, dict)}
    if all(whole[name] == said[name] for name in whole):
        return document
    return msgspec.json.encode(members | {name: msgspec.Raw(orjson.dumps(value)) for name, value in whole.items()})
