"""Records as the bytes that came: from a request to a batch in the form `otlp`, and from it to a request. No I/O.

A request is checked and cut in C (`views`); a record becomes an object when somebody looks into it. What is odd is left
to `protobuf` and `events`, which know about each record: a request with an invalid record or a broken text, records
without a time, values of many levels, resources that JSON cannot hold. So are records that are larger than a batch: two
bytes can be a value, which takes many times the memory as an object of protobuf, whenever somebody looks into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import or_
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from shipper.plugin import Batch, Fields
from shipper.sdk.typed import as_json
from shipper_plugins.otlp import events, protobuf
from shipper_plugins.otlp.documents import documents
from shipper_plugins.otlp.events import Filled
from shipper_plugins.otlp.model import Group
from shipper_plugins.otlp.views import Checked, Cut

FORM = "otlp"
_FEW = 8
"""Records from which on columns are faster than an object for each."""
_NO_RECORD = "not a record of OTLP"
_KEPT = frozenset({"resource", "scope", "data_stream"})
"""Shared fields that no record gets as attributes."""


class Records:
    """The form of records; see `shipper.sdk.forms`."""

    names = events.NAMES

    def events(self, messages: Sequence[bytes]) -> list[Fields]:
        try:
            return [events.event_of(protobuf.record_of(record)) for record in protobuf.records_of(messages)]
        except DecodeError:
            raise ValueError(_NO_RECORD) from None

    def documents(self, messages: Sequence[bytes]) -> bytes:
        if len(messages) < _FEW:
            return b"".join([one + b"\n" for one in as_json(self.events(messages))])
        try:
            return documents(messages)
        except DecodeError:
            raise ValueError(_NO_RECORD) from None


# -- requests to batches -----------------------------------------------------------------------------------------------


def batches(body: bytes) -> list[Batch] | None:
    """Returns what `events.batches` returns for the same request, in the form; None for an odd one.

    Raises TooHeavy and Unfit as it does.
    """
    try:
        protobuf.check_count(body)
        cut, checked = Cut.FromString(body), Checked.FromString(body)
    except DecodeError:
        return None
    if not checked.IsInitialized():
        return None
    filled, columns = list[Filled[bytes]](), list[_Columns]()
    for group, messages, records in _groups(cut, checked):
        if (column := _columns(records)) is None or len(filled) == events.MOST_GROUPS:
            return None
        if max(map(len, messages)) > events.BATCH_BYTES:
            return None
        filled.append(Filled(events.fields_of(group), messages))
        columns.append(column)
    events.check_weight(filled)
    if not all(events.is_exact(one.fields) for one in filled):
        return None
    return [piece for pair in zip(filled, columns, strict=True) for piece in _pieces(*pair)]


def _groups(cut: Any, checked: Any) -> Iterator[tuple[Group, Sequence[bytes], Sequence[Any]]]:
    """Yields groups that have records, these as they came, and as they were checked."""
    for of_resource, checked_resource in zip(cut.resource_logs, checked.resource_logs, strict=True):
        resource = protobuf.resource_of(of_resource)
        for of_scope, checked_scope in zip(of_resource.scope_logs, checked_resource.scope_logs, strict=True):
            if of_scope.log_records:
                group = Group(resource=resource, scope=protobuf.scope_of(of_scope))
                yield group, of_scope.log_records[:], checked_scope.log_records[:]


class _Columns(NamedTuple):
    timestamps: Sequence[int | None]
    severities: Sequence[int | None]


def _columns(records: Sequence[Any]) -> _Columns | None:
    """Returns the columns of records; None if one is invalid or has no time."""
    times = [record.time_unix_nano for record in records]
    observed = [record.observed_time_unix_nano for record in records]
    ids = [record.trace_id for record in records] + [record.span_id for record in records]
    if (
        not all(map(or_, times, observed))
        or max(max(times), max(observed)) >= events.MOST_TIME
        or len(max(ids, key=len)) > events.LONGEST_ID
    ):
        return None
    severities = [record.severity_number for record in records]
    return _Columns([time or None for time in times], [one if one in events.SEVERITIES else None for one in severities])


def _pieces(filled: Filled[bytes], columns: _Columns) -> Iterator[Batch]:
    batch = Batch.formed(filled.records, FORM, shared=filled.fields, **columns._asdict())
    return batch.pieces(events.BATCH_BYTES)


# -- batches to requests -----------------------------------------------------------------------------------------------


def encoded(batch: Batch) -> bytes | None:
    """Returns a request with the records as they came; None if they came otherwise, or something was added to them."""
    shared = batch.each_shared() if batch.form == FORM else []
    apart = {id(fields): fields for fields in shared}
    if not apart or not all(fields.keys() <= _KEPT and events.is_by_otlp(fields) for fields in apart.values()):
        return None
    messages = batch.messages()
    by_source = dict[int, list[bytes]]()
    for fields, message in zip(shared, messages, strict=True):
        by_source.setdefault(id(fields), []).append(message)
    request = Cut()
    for key, records in by_source.items():
        resource, scope = events.source_of(apart[key])
        protobuf.records_below(request, Group(resource=resource, scope=scope)).extend(records)
    body: bytes = request.SerializeToString()
    return body
