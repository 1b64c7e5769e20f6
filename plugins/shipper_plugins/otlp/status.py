"""`google.rpc.Status`: what both transports answer where a request was refused. No I/O, and no library.

Status     { int32 code = 1; string message = 2; repeated Any details = 3; }
Any        { string type_url = 1; bytes value = 2; }
RetryInfo  { Duration retry_delay = 1; }
Duration   { int64 seconds = 1; int32 nanos = 2; }
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import orjson

_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"
_VARINT, _BYTES = 0, 2
LONGEST_WAIT = 3600.0


class Grpc(IntEnum):
    """The codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


HTTP_OF = {
    Grpc.OK: 200,
    Grpc.CANCELLED: 499,
    Grpc.UNKNOWN: 500,
    Grpc.INVALID_ARGUMENT: 400,
    Grpc.DEADLINE_EXCEEDED: 504,
    Grpc.NOT_FOUND: 404,
    Grpc.ALREADY_EXISTS: 409,
    Grpc.PERMISSION_DENIED: 403,
    Grpc.RESOURCE_EXHAUSTED: 429,
    Grpc.FAILED_PRECONDITION: 400,
    Grpc.ABORTED: 409,
    Grpc.OUT_OF_RANGE: 400,
    Grpc.UNIMPLEMENTED: 501,
    Grpc.INTERNAL: 500,
    Grpc.UNAVAILABLE: 503,
    Grpc.DATA_LOSS: 500,
    Grpc.UNAUTHENTICATED: 401,
}
"""The status of HTTP that says the same, by `google/rpc/code.proto`."""


def written(code: int, message: str, retry_after: float | None = None) -> bytes:
    """A Status in protobuf, with a RetryInfo where `retry_after` is given, in seconds."""
    status = _number(1, code) + _bytes(2, message.encode())
    if retry_after is not None:
        seconds, nanos = divmod(round(retry_after * 1e9), 1_000_000_000)
        info = _bytes(1, _number(1, seconds) + _number(2, nanos))
        status += _bytes(3, _bytes(1, _RETRY_INFO.encode()) + _bytes(2, info))
    return status


def written_as_json(code: int, message: str) -> bytes:
    return orjson.dumps({"code": int(code), "message": message})


def is_status(body: bytes, content_type: str) -> bool:
    """Whether an answer comes from who understood the request: a Status with a code or a message."""
    if content_type.partition(";")[0].strip().lower() == "application/json":
        try:
            status = orjson.loads(body)
        except ValueError:
            return False
        return isinstance(status, dict) and (type(status.get("code")) is int or isinstance(status.get("message"), str))
    if content_type.partition(";")[0].strip().lower() not in ("application/x-protobuf", "application/protobuf"):
        return False
    try:
        return any(number in (1, 2) for number, _ in _fields(body))
    except ValueError:
        return False


def message_of(body: bytes, content_type: str) -> str:
    """The message of a Status, foreign text; empty where there is none."""
    try:
        if content_type.partition(";")[0].strip().lower() == "application/json":
            status = orjson.loads(body)
            text = status.get("message") if isinstance(status, dict) else None
            return text if isinstance(text, str) else ""
        found = next((value for number, value in _fields(body) if number == 2 and isinstance(value, bytes)), b"")
        return found.decode(errors="replace")
    except ValueError:
        return ""


def retry_delay(status: bytes) -> float | None:
    """Seconds of the RetryInfo in a Status, at most an hour; None if it has none, or cannot be read."""
    try:
        for number, detail in _fields(status):
            if number == 3 and isinstance(detail, bytes):
                any_ = dict(_fields(detail))
                if any_.get(1) == _RETRY_INFO.encode() and isinstance(any_.get(2, b""), bytes):
                    return _duration(any_.get(2, b""))  # type: ignore[arg-type]
    except ValueError:
        pass
    return None


def _duration(info: bytes) -> float:
    delay = dict(_fields(info)).get(1, b"")
    parts = dict(_fields(delay)) if isinstance(delay, bytes) else {}
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int) or seconds >> 63:  # negative
        return 0.0
    return min(seconds + nanos / 1e9, LONGEST_WAIT)


# -- protobuf ----------------------------------------------------------------------------------------------------------


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    result.append(value)
    return bytes(result)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The number and the value of each field; raises ValueError for what is no message."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        if key >> 3 == 0:
            raise ValueError("a field without a number")
        match key & 7:
            case 0:
                value, at = _read_varint(message, at)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, at = _read_varint(message, at)
            case 5:
                size = 4
            case _:
                raise ValueError("a field of an unknown type")
        if at + size > len(message):
            raise ValueError("a field that ends too early")
        yield key >> 3, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at == len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number that does not end")
