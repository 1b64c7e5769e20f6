"""Requests and answers of OTLP in protobuf. No I/O. Imports `opentelemetry-proto`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

from shipper.plugin import Fields
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
from shipper_plugins.otlp.wire import fields

CONTENT_TYPE = "application/x-protobuf"
_NO_REQUEST = "the body is no ExportLogsServiceRequest in protobuf"


# -- reading -----------------------------------------------------------------------------------------------------------


def decoded(body: bytes) -> Decoded:
    """Returns the records of a request; raises Unfit for an invalid one."""
    _check_count(body)
    request = _request(body)
    result = Decoded(groups=[])
    for of_resource in request.resource_logs:
        resource = _resource(of_resource)
        for of_scope in of_resource.scope_logs:
            result.add(resource, _scope(of_scope), of_scope.log_records, _record)
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


def _check_count(body: bytes) -> None:
    """Raises Unfit for too many records, before an object is made for each; each takes two bytes at least."""
    if len(body) <= 2 * MOST_RECORDS:
        return
    count = 0
    try:
        for of_resource in _messages(memoryview(body), 1):
            for of_scope in _messages(of_resource, 2):
                for _ in _messages(of_scope, 2):
                    count += 1
                    if count > MOST_RECORDS:
                        raise too_many()
                count += 1
            count += 1
            if count > MOST_RECORDS:
                raise too_many()
    except Unfit:
        raise
    except ValueError:
        raise Unfit(_NO_REQUEST) from None


def _messages(message: memoryview, field: int) -> Iterator[memoryview]:
    return (value for number, value in fields(message) if number == field and isinstance(value, memoryview))


def _resource(message: Any) -> Resource:
    resource = message.resource
    return Resource(
        attributes=_attributes(resource.attributes),
        dropped=resource.dropped_attributes_count,
        schema_url=message.schema_url,
    )


def _scope(message: Any) -> Scope:
    scope = message.scope
    return Scope(
        name=scope.name,
        version=scope.version,
        attributes=_attributes(scope.attributes),
        dropped=scope.dropped_attributes_count,
        schema_url=message.schema_url,
    )


def _record(message: Any) -> Record:
    return Record(
        time=message.time_unix_nano,
        observed=message.observed_time_unix_nano,
        severity=message.severity_number,
        severity_text=message.severity_text,
        body=_value(message.body, 0),
        attributes=_attributes(message.attributes),
        dropped=message.dropped_attributes_count,
        flags=message.flags,
        trace_id=message.trace_id,
        span_id=message.span_id,
        event_name=message.event_name,
    )


def _attributes(pairs: Iterable[Any], depth: int = 0) -> Fields:
    return {pair.key: _value(pair.value, depth) for pair in pairs}


def _value(message: Any, depth: int) -> Value:
    kind = message.WhichOneof("value")
    match kind:
        case "string_value" | "int_value" | "bool_value" | "double_value" | "bytes_value":
            return getattr(message, kind)
        case "kvlist_value" | "array_value":
            check_depth(depth)
            if kind == "kvlist_value":
                return _attributes(message.kvlist_value.values, depth + 1)
            return [_value(one, depth + 1) for one in message.array_value.values]
        case _:  # empty, or a kind of profiles only
            return None


# -- writing -----------------------------------------------------------------------------------------------------------


def encoded(groups: Iterable[Group]) -> bytes:
    """Returns a request with these records."""
    request = ExportLogsServiceRequest()
    for group in groups:
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
        for record in group.records:
            _add(of_scope.log_records, record)
    body: bytes = request.SerializeToString()
    return body


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
