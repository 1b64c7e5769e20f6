"""Framing of unary gRPC calls in HTTP/2, for both sides. No I/O."""

from __future__ import annotations

import struct
from urllib.parse import quote, unquote

from shipper_plugins.otlp.model import Unfit

PATH = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
SERVICES = "/opentelemetry.proto.collector."
CONTENT_TYPE = "application/grpc"
PREFIX = struct.Struct(">BI")


def framed(message: bytes, *, compressed: bool = False) -> bytes:
    """Returns a message with its prefix, as the body of a request or an answer."""
    return PREFIX.pack(compressed, len(message)) + message


def message_of(body: bytes) -> tuple[bytes, bool]:
    """Returns the one message of a body, and whether it is compressed; raises Unfit."""
    if len(body) < PREFIX.size:
        raise Unfit("the body has no message")
    flag, size = PREFIX.unpack_from(body)
    if flag > 1 or size != len(body) - PREFIX.size:
        raise Unfit("the body is not one message")
    return body[PREFIX.size :], bool(flag)


def quoted(message: str) -> str:
    """Returns a text in the encoding of the header `grpc-message`."""
    return quote(message, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")


def unquoted(message: str) -> str:
    return unquote(message, errors="replace")
