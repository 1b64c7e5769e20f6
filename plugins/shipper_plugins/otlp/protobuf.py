"""Requests and answers of OTLP in protobuf. No I/O. Imports `opentelemetry-proto`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from msgspec.structs import replace
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.logs.v1.logs_pb2 import ScopeLogs

from shipper.plugin import Fields, join
from shipper_plugins.otlp.lines import OFFSET, Lines
from shipper_plugins.otlp.model import (
    LEAST_INTEGER,
    MOST_DEPTH,
    MOST_INTEGER,
    MOST_RECORDS,
    Decoded,
    Group,
    Record,
    Resource,
    Scope,
    Unfit,
    Value,
    check_depth,
    flattened,
    too_many,
)
from shipper_plugins.otlp.texts import mended
from shipper_plugins.otlp.views import Layer
from shipper_plugins.otlp.wire import LONGEST_VARINT, begun, bytes_field, fields, varints

CONTENT_TYPE = "application/x-protobuf"
_RECORDS = _BELOW = 2
"""Of the message about a resource, its scopes; of that about a scope, its records."""
_BODY, _ATTRIBUTES, _STRING = 5, 6, 1
_OF_INTEGER = b"\x18"
"""The key of an integer in a value."""
_NO_REQUEST = "the body is no ExportLogsServiceRequest in protobuf"


# -- reading -----------------------------------------------------------------------------------------------------------


def decoded(body: bytes) -> Decoded:
    """Returns the records of a request; raises Unfit for an invalid one."""
    check_count(body)
    request = _request(body)
    result = Decoded(groups=[])
    for of_resource in request.resource_logs:
        resource = resource_of(of_resource)
        for of_scope in of_resource.scope_logs:
            result.add(resource, scope_of(of_scope), of_scope.log_records, record_of)
    return result


def _request(body: bytes) -> Any:
    """Returns a request, in whose texts U+FFFD stands for what is no UTF-8; raises Unfit."""
    try:
        return ExportLogsServiceRequest.FromString(body)
    except DecodeError:
        pass
    try:
        return ExportLogsServiceRequest.FromString(mended(body, ExportLogsServiceRequest.DESCRIPTOR))
    except (DecodeError, ValueError):
        raise Unfit(_NO_REQUEST) from None


def check_count(body: bytes) -> None:
    """Raises Unfit for too many records, before an object is made for each; each takes two bytes at least."""
    if len(body) <= 2 * MOST_RECORDS:
        return
    try:
        resources = Layer.FromString(body).first
        count = len(resources)
        for of_resource in resources:
            scopes = Layer.FromString(of_resource).second
            count += len(scopes) + sum(len(Layer.FromString(of_scope).second) for of_scope in scopes)
            if count > MOST_RECORDS:
                raise too_many()
    except DecodeError:
        raise Unfit(_NO_REQUEST) from None


def resource_of(message: Any) -> Resource:
    resource = message.resource
    return Resource(
        attributes=attributes_of(resource.attributes),
        dropped=resource.dropped_attributes_count,
        schema_url=message.schema_url,
    )


def scope_of(message: Any) -> Scope:
    scope = message.scope
    return Scope(
        name=scope.name,
        version=scope.version,
        attributes=attributes_of(scope.attributes),
        dropped=scope.dropped_attributes_count,
        schema_url=message.schema_url,
    )


def record_of(message: Any) -> Record:
    return Record(
        time=message.time_unix_nano,
        observed=message.observed_time_unix_nano,
        severity=message.severity_number,
        severity_text=message.severity_text,
        body=value_of(message.body),
        attributes=attributes_of(message.attributes),
        dropped=message.dropped_attributes_count,
        flags=message.flags,
        trace_id=message.trace_id,
        span_id=message.span_id,
        event_name=message.event_name,
    )


def attributes_of(pairs: Iterable[Any], depth: int = 0) -> Fields:
    return {pair.key: (value := pair.value).string_value or value_of(value, depth) for pair in pairs}


def value_of(message: Any, depth: int = 0) -> Value:
    kind = message.WhichOneof("value")
    match kind:
        case "string_value" | "int_value" | "bool_value" | "double_value" | "bytes_value":
            return getattr(message, kind)
        case "kvlist_value" | "array_value":
            check_depth(depth)
            if kind == "kvlist_value":
                return attributes_of(message.kvlist_value.values, depth + 1)
            return [value_of(one, depth + 1) for one in message.array_value.values]
        case _:  # empty, or a kind of profiles only
            return None


def records_of(messages: Sequence[bytes], view: Any = ScopeLogs) -> list[Any]:
    """Returns records, each of which is a message by itself, as those of a view; raises DecodeError for an invalid
    one."""
    return list(view.FromString(Layer(second=messages).SerializeToString()).log_records)


# -- writing -----------------------------------------------------------------------------------------------------------


def encoded(groups: Iterable[Group]) -> bytes:
    """Returns a request with these records."""
    request = ExportLogsServiceRequest()
    for group in groups:
        records = records_below(request, group)
        for record in group.records:
            _add(records, record)
    body: bytes = request.SerializeToString()
    return body


def records_below(request: Any, group: Group) -> Any:
    """Adds the resource and the scope of a group to a request, and returns the list for its records, which is empty."""
    of_resource = request.resource_logs.add()
    resource, scope = group.resource, group.scope
    _fill(of_resource.resource.attributes, resource.attributes)
    of_resource.resource.dropped_attributes_count = resource.dropped
    of_resource.schema_url = resource.schema_url
    of_scope = of_resource.scope_logs.add()
    of_scope.scope.name, of_scope.scope.version = scope.name, scope.version
    _fill(of_scope.scope.attributes, scope.attributes)
    of_scope.scope.dropped_attributes_count = scope.dropped
    of_scope.schema_url = scope.schema_url
    return of_scope.log_records


def _add(records: Any, record: Record) -> None:
    message = records.add(
        time_unix_nano=record.time,
        observed_time_unix_nano=record.observed,
        severity_number=record.severity,
        severity_text=record.severity_text,
        dropped_attributes_count=record.dropped,
        flags=record.flags,
        trace_id=record.trace_id,
        span_id=record.span_id,
        event_name=record.event_name,
    )
    if record.body is not None:
        _set(message.body, record.body, 0)
    _fill(message.attributes, record.attributes)


def _fill(pairs: Any, attributes: Fields, depth: int = 0) -> None:
    for key, value in attributes.items():
        pair = pairs.add(key=key)
        _set(pair.value, value, depth)


def _set(message: Any, value: Value, depth: int) -> None:
    match value:
        case str():
            message.string_value = value
        case bool():
            message.bool_value = value
        case int():
            if LEAST_INTEGER <= value <= MOST_INTEGER:
                message.int_value = value
            else:
                message.string_value = str(value)
        case float():
            message.double_value = value
        case bytes():
            message.bytes_value = value
        case None:
            message.SetInParent()
        case _ if depth == MOST_DEPTH:
            message.string_value = flattened(value)
        case dict():
            message.kvlist_value.SetInParent()
            _fill(message.kvlist_value.values, value, depth + 1)
        case _:
            message.array_value.SetInParent()
            for one in value:
                _set(message.array_value.values.add(), one, depth + 1)


# -- writing by columns ------------------------------------------------------------------------------------------------


def encoded_lines(lines: Lines) -> bytes:
    """Returns what `encoded` returns for the same records."""
    texts = lines.body.split(b"\n")[:-1]
    rows, first = list[bytes](), 0
    for size in range(1, LONGEST_VARINT + 1):
        last = bisect_left(lines.offsets, 1 << 7 * size, first)
        if first < last:
            rows.append(_rows(lines, texts[first:last], lines.offsets[first:last], size))
        first = last
    return _enclosed(lines.group, b"".join(rows))


def _rows(lines: Lines, texts: Sequence[bytes], offsets: Sequence[int], size: int) -> bytes:
    """Returns the records of lines whose offsets take so many bytes each."""
    one = lines.record
    head = _fields(Record(time=one.time, severity=one.severity, severity_text=one.severity_text))
    between = _fields(Record(attributes=lines.before))
    tail = _fields(replace(one, time=0, severity=0, severity_text="", attributes=lines.after))
    key, value = bytes_field(1, OFFSET.encode()), bytes_field(2, _OF_INTEGER + bytes(size))
    between += bytes_field(_ATTRIBUTES, key + value)[:-size]
    heads = _Heads(head, len(between) + size + len(tail))
    return join(len(texts), [heads[len(text)] for text in texts], texts, between, varints(offsets), tail)


class _Heads(dict[int, bytes]):
    """What stands before a text in its record, by the length of the text: lengths, and the fields before the body."""

    def __init__(self, head: bytes, behind: int) -> None:
        self._head, self._behind = head, behind

    def __missing__(self, size: int) -> bytes:
        before = begun(_BODY, len(begun(_STRING, size)) + size) + begun(_STRING, size)
        inside = self._head + before
        self[size] = head = begun(_RECORDS, len(inside) + size + self._behind) + inside
        return head


def _fields(record: Record) -> bytes:
    """Returns the fields of a record, without its length."""
    message = ScopeLogs()
    _add(message.log_records, record)
    written: bytes = message.log_records[0].SerializeToString()
    return written


def _enclosed(group: Group, records: bytes) -> bytes:
    """Returns a request with written records, in the resource and the scope of a group without any."""
    of_resource = _messages(encoded([group]))[1]
    of_scope = _messages(of_resource)[_BELOW]
    return bytes_field(1, _with(of_resource, bytes_field(_BELOW, _with(of_scope, records))))


def _messages(message: bytes) -> dict[int, bytes]:
    """Returns the messages and texts of a message by their fields."""
    return {number: value for number, value in fields(message) if isinstance(value, bytes)}


def _with(message: bytes, below: bytes) -> bytes:
    """Returns a message about a resource or a scope, with other scopes or records in it."""
    parts = {number: bytes_field(number, value) for number, value in _messages(message).items()} | {_BELOW: below}
    return b"".join([parts[number] for number in sorted(parts)])


# -- answers -----------------------------------------------------------------------------------------------------------


def answer(count: int, message: str) -> bytes:
    """Returns the answer to an accepted request, with the number of its rejected records and the reason."""
    response = ExportLogsServiceResponse()
    if count or message:
        response.partial_success.rejected_log_records = count
        response.partial_success.error_message = message
    body: bytes = response.SerializeToString()
    return body


def rejected(body: bytes) -> int:
    """Returns the number of rejected records in an answer; raises Unfit for an invalid answer."""
    try:
        response = ExportLogsServiceResponse.FromString(body)
    except DecodeError:
        raise Unfit("the answer is no ExportLogsServiceResponse in protobuf") from None
    count: int = response.partial_success.rejected_log_records
    if count < 0:
        raise Unfit("the answer rejects a negative number of records")
    return count
