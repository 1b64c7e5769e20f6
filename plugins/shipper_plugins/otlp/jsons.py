"""Requests and answers of OTLP in JSON. No I/O.

The format is protobuf's JSON with exceptions: names in lowerCamelCase, ids in hex, enumerations as numbers, integers of
64 bits as text (or, when read, as numbers), bytes in base64, NaN and the infinities as texts. Unknown names are
ignored, and so are protobuf's own (`time_unix_nano`), as the specification demands.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import orjson
from msgspec.structs import replace

from shipper.plugin import Fields, join
from shipper.sdk.columns import escaped, numerals
from shipper.sdk.weights import values
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
    TooHeavy,
    Unfit,
    Value,
    check_depth,
    flattened,
    too_many,
)
from shipper_plugins.surrogates import mended

CONTENT_TYPE = "application/json"
MOST_VALUES = 2 << 20
"""Values that are loaded at once, of up to 128 bytes each, unless the body has more than four bytes for each."""

T = TypeVar("T")

_BYTES_OF_VALUE = 4
_MINUS_ZERO = re.compile(rb"-0[,}\]\s]")
_INTEGER = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_OFFSET = b'{"key":"%b","value":{"intValue":"' % OFFSET.encode()
_NO_OBJECT: Mapping[str, Any] = {}


# -- reading -----------------------------------------------------------------------------------------------------------


def decoded(body: bytes) -> Decoded:
    """Returns the records of a request; raises Unfit for an invalid one, and TooHeavy for one of too many values."""
    if values(body) > max(MOST_VALUES, len(body) // _BYTES_OF_VALUE):
        raise TooHeavy("the body has too many values: send fewer records at once")
    try:
        request = _loaded(body)
    except (ValueError, RecursionError):
        raise Unfit("the body is no JSON") from None
    result, count = Decoded(groups=[]), 0
    for of_resource in _objects(_object(request), "resourceLogs"):
        resource = _resource(of_resource)
        for of_scope in _objects(of_resource, "scopeLogs"):
            records = _list(of_scope, "logRecords")
            count += 1 + len(records)
            if count > MOST_RECORDS:
                raise too_many()
            result.add(resource, _scope(of_scope), records, _record)
    return result


def _loaded(body: bytes) -> Any:
    """Returns the JSON of a body; raises ValueError. The Collector writes -0.0 as `-0`, which orjson reads as 0.

    In a text, U+FFFD stands for what is no UTF-8 and for half of a surrogate pair.
    """
    try:
        found = orjson.loads(body)
    except ValueError:
        body = mended(body.decode(errors="replace").encode())
        found = orjson.loads(body)
    if _MINUS_ZERO.search(body) is None:
        return found
    return json.loads(body, parse_int=lambda digits: -0.0 if digits == "-0" else int(digits))


def _resource(message: Mapping[str, Any]) -> Resource:
    resource = _below(message, "resource")
    return Resource(
        attributes=_attributes(_list(resource, "attributes")),
        dropped=_integer(resource, "droppedAttributesCount", 0, (1 << 32) - 1),
        schema_url=_text(message, "schemaUrl"),
    )


def _scope(message: Mapping[str, Any]) -> Scope:
    scope = _below(message, "scope")
    return Scope(
        name=_text(scope, "name"),
        version=_text(scope, "version"),
        attributes=_attributes(_list(scope, "attributes")),
        dropped=_integer(scope, "droppedAttributesCount", 0, (1 << 32) - 1),
        schema_url=_text(message, "schemaUrl"),
    )


def _record(value: Any) -> Record:
    message = _object(value)
    return Record(
        time=_integer(message, "timeUnixNano", 0, (1 << 64) - 1),
        observed=_integer(message, "observedTimeUnixNano", 0, (1 << 64) - 1),
        severity=_integer(message, "severityNumber", -(1 << 31), (1 << 31) - 1),
        severity_text=_text(message, "severityText"),
        body=_value(message.get("body"), 0),
        attributes=_attributes(_list(message, "attributes")),
        dropped=_integer(message, "droppedAttributesCount", 0, (1 << 32) - 1),
        flags=_integer(message, "flags", 0, (1 << 32) - 1),
        trace_id=_hex(message, "traceId"),
        span_id=_hex(message, "spanId"),
        event_name=_text(message, "eventName"),
    )


def _attributes(pairs: Iterable[Any], depth: int = 0) -> Fields:
    return {_text(pair, "key"): _value(pair.get("value"), depth) for pair in map(_object, pairs)}


def _value(message: Any, depth: int) -> Value:
    if message is None:
        return None
    for kind, value in _object(message).items():
        if value is not None and kind in _READERS:
            return _READERS[kind](value, depth)
    return None


def _string(value: Any, depth: int) -> str:
    return _expected(value, str, "a stringValue is no text")


def _bool(value: Any, depth: int) -> bool:
    return _expected(value, bool, "a boolValue is neither true nor false")


def _int(value: Any, depth: int) -> int:
    return _number(value, LEAST_INTEGER, MOST_INTEGER)


def _double(value: Any, depth: int) -> float:
    if isinstance(value, str):
        try:
            return _NOT_FINITE[value] if value in _NOT_FINITE else float(value)
        except ValueError:
            raise Unfit("a doubleValue is no number") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit("a doubleValue is no number")
    return float(value)


def _bytes(value: Any, depth: int) -> bytes:
    text = _expected(value, str, "a bytesValue is no base64").replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise Unfit("a bytesValue is no base64") from None


def _array(value: Any, depth: int) -> list[Value]:
    check_depth(depth)
    return [_value(one, depth + 1) for one in _list(_object(value), "values")]


def _kvlist(value: Any, depth: int) -> Fields:
    check_depth(depth)
    return _attributes(_list(_object(value), "values"), depth + 1)


_READERS: Mapping[str, Callable[[Any, int], Value]] = {
    "stringValue": _string,
    "boolValue": _bool,
    "intValue": _int,
    "doubleValue": _double,
    "bytesValue": _bytes,
    "arrayValue": _array,
    "kvlistValue": _kvlist,
}


def _expected(value: Any, kind: type[T], otherwise: str) -> T:
    if not isinstance(value, kind):
        raise Unfit(otherwise)
    return value


def _object(value: Any) -> Mapping[str, Any]:
    return _expected(value, dict, "a value is no object where one is expected")


def _below(message: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = message.get(name)
    return _NO_OBJECT if value is None else _object(value)


def _list(message: Mapping[str, Any], name: str) -> list[Any]:
    value = message.get(name)
    return [] if value is None else _expected(value, list, f"{name} is no list")


def _objects(message: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [_object(one) for one in _list(message, name)]


def _text(message: Mapping[str, Any], name: str) -> str:
    value = message.get(name)
    return "" if value is None else _expected(value, str, f"{name} is no text")


def _integer(message: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = message.get(name)
    return 0 if value is None else _number(value, least, most)


def _number(value: Any, least: int, most: int) -> int:
    number = int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else value
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise Unfit("an integer is invalid, or out of its range")
    return number


def _hex(message: Mapping[str, Any], name: str) -> bytes:
    text = _text(message, name)
    if len(text) % 2 or not all(c in "0123456789abcdefABCDEF" for c in text):
        raise Unfit(f"{name} is not written in hex")
    return bytes.fromhex(text)


# -- writing -----------------------------------------------------------------------------------------------------------


def encoded(groups: Iterable[Group]) -> bytes:
    """Returns a request with these records."""
    written = [_of_group(group, [_of_record(record) for record in group.records]) for group in groups]
    return orjson.dumps({"resourceLogs": written})


def encoded_lines(lines: Lines) -> bytes:
    """Returns what `encoded` returns for the same records."""
    one = lines.record
    head = _of_record(
        Record(time=one.time, observed=one.observed, severity=one.severity, severity_text=one.severity_text)
    )
    tail = _of_record(replace(one, time=0, observed=0, severity=0, severity_text=""))
    rows = join(
        len(lines.offsets),
        orjson.dumps(head)[:-1] + (b"," if head else b"") + b'"body":{"stringValue":"',
        escaped(lines.body),
        b'"},"attributes":[' + b"".join([one + b"," for one in _written(lines.before)]) + _OFFSET,
        numerals(lines.offsets),
        b'"}}' + b"".join([b"," + one for one in _written(lines.after)]) + b"]",
        (b"," if tail else b"") + orjson.dumps(tail)[1:] + b",",
    )
    around = orjson.dumps({"resourceLogs": [_of_group(lines.group, orjson.Fragment(b"[]"))]})
    before, name, behind = around.partition(b'"logRecords":[')
    return b"".join((before, name, memoryview(rows)[:-1], behind))


def _written(attributes: Fields) -> list[bytes]:
    return list(map(orjson.dumps, _pairs(attributes, 0)))


def _of_group(group: Group, records: list[Fields] | orjson.Fragment) -> Fields:
    resource, scope = group.resource, group.scope
    of_scope = _without_empty(
        scope=_without_empty(
            name=scope.name,
            version=scope.version,
            attributes=_pairs(scope.attributes, 0),
            droppedAttributesCount=scope.dropped,
        ),
        logRecords=records,
        schemaUrl=scope.schema_url,
    )
    of_resource = _without_empty(attributes=_pairs(resource.attributes, 0), droppedAttributesCount=resource.dropped)
    return _without_empty(resource=of_resource, scopeLogs=[of_scope], schemaUrl=resource.schema_url)


def _of_record(record: Record) -> Fields:
    return _without_empty(
        timeUnixNano=str(record.time) if record.time else "",
        observedTimeUnixNano=str(record.observed) if record.observed else "",
        severityNumber=record.severity,
        severityText=record.severity_text,
        body=None if record.body is None else _any(record.body, 0),
        attributes=_pairs(record.attributes, 0),
        droppedAttributesCount=record.dropped,
        flags=record.flags,
        traceId=record.trace_id.hex(),
        spanId=record.span_id.hex(),
        eventName=record.event_name,
    )


def _without_empty(**fields: Any) -> Fields:
    return {name: value for name, value in fields.items() if value}


def _pairs(attributes: Fields, depth: int) -> list[Fields]:
    return [{"key": key, "value": _any(value, depth)} for key, value in attributes.items()]


def _any(value: Value, depth: int) -> Fields:
    match value:
        case str():
            return {"stringValue": value}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue" if LEAST_INTEGER <= value <= MOST_INTEGER else "stringValue": str(value)}
        case float():
            return {"doubleValue": value if value - value == 0 else _not_finite(value)}
        case bytes():
            return {"bytesValue": base64.b64encode(value).decode()}
        case None:
            return {}
        case _ if depth == MOST_DEPTH:
            return {"stringValue": flattened(value)}
        case dict():
            return {"kvlistValue": {"values": _pairs(value, depth + 1)}}
        case _:
            return {"arrayValue": {"values": [_any(one, depth + 1) for one in value]}}


def _not_finite(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


# -- answers -----------------------------------------------------------------------------------------------------------


def answer(count: int, message: str) -> bytes:
    """Returns the answer to an accepted request, with the number of its rejected records and the reason."""
    if not count and not message:
        return b"{}"
    return orjson.dumps({"partialSuccess": {"rejectedLogRecords": str(count), "errorMessage": message}})


def rejected(body: bytes) -> int:
    """Returns the number of rejected records in an answer; raises Unfit for an invalid answer."""
    try:
        partial = _below(_object(orjson.loads(body)), "partialSuccess")
    except ValueError:
        raise Unfit("the answer is no ExportLogsServiceResponse in JSON") from None
    return _integer(partial, "rejectedLogRecords", 0, MOST_INTEGER)
