"""`google.rpc.Status`: the body of a refusal in both transports. No I/O, and no library.

Status     { int32 code = 1; string message = 2; repeated Any details = 3; }
Any        { string type_url = 1; bytes value = 2; }
RetryInfo  { Duration retry_delay = 1; }
Duration   { int64 seconds = 1; int32 nanos = 2; }
"""

from __future__ import annotations

from enum import IntEnum

import orjson

from shipper_plugins.otlp.wire import bytes_field, fields, number_field

_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"
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
"""The equivalent status of HTTP, from `google/rpc/code.proto`."""


def written(code: int, message: str, retry_after: float | None = None) -> bytes:
    """Returns a Status in protobuf, with a RetryInfo if `retry_after` is given, in seconds."""
    status = number_field(1, code) + bytes_field(2, message.encode())
    if retry_after is not None:
        seconds, nanos = divmod(round(retry_after * 1e9), 1_000_000_000)
        info = bytes_field(1, number_field(1, seconds) + number_field(2, nanos))
        status += bytes_field(3, bytes_field(1, _RETRY_INFO.encode()) + bytes_field(2, info))
    return status


def written_as_json(code: int, message: str) -> bytes:
    return orjson.dumps({"code": int(code), "message": message})


def is_status(body: bytes, content_type: str) -> bool:
    """Returns whether a body is a Status with a code or a message, as only a receiver of OTLP sends it."""
    if content_type.partition(";")[0].strip().lower() == "application/json":
        try:
            status = orjson.loads(body)
        except ValueError:
            return False
        return isinstance(status, dict) and (type(status.get("code")) is int or isinstance(status.get("message"), str))
    if content_type.partition(";")[0].strip().lower() not in ("application/x-protobuf", "application/protobuf"):
        return False
    try:
        return any(number in (1, 2) for number, _ in fields(body))
    except ValueError:
        return False


def message_of(body: bytes, content_type: str) -> str:
    """Returns the message of a Status, which is untrusted text, or an empty text."""
    try:
        if content_type.partition(";")[0].strip().lower() == "application/json":
            status = orjson.loads(body)
            text = status.get("message") if isinstance(status, dict) else None
            return text if isinstance(text, str) else ""
        found = next((value for number, value in fields(body) if number == 2 and isinstance(value, bytes)), b"")
        return found.decode(errors="replace")
    except ValueError:
        return ""


def retry_delay(status: bytes) -> float | None:
    """Returns the seconds of the RetryInfo in a Status, at most an hour; None without a valid one."""
    try:
        for number, detail in fields(status):
            if number == 3 and isinstance(detail, bytes):
                any_ = dict(fields(detail))
                if any_.get(1) == _RETRY_INFO.encode() and isinstance(any_.get(2, b""), bytes):
                    return _duration(any_.get(2, b""))  # type: ignore[arg-type]
    except ValueError:
        pass
    return None


def _duration(info: bytes) -> float:
    delay = dict(fields(info)).get(1, b"")
    parts = dict(fields(delay)) if isinstance(delay, bytes) else {}
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int) or seconds >> 63:  # negative
        return 0.0
    return min(seconds + nanos / 1e9, LONGEST_WAIT)
