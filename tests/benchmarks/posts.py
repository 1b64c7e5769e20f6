"""Clients that post a little: a few events a request, each on its own connection, asking again once it is answered.

The bytes of a request are made before the clock runs, but for the numbers of its events, which have seven digits each.
So a client does little but `send` and `recv`, outside of the interpreter's lock: over gRPC too, it names its headers
once, and repeats them by their indices then, as the libraries of gRPC do. A request that is turned away (429, 503)
comes again.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

from hpack import Decoder, Encoder
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tests.benchmarks.producer import Schedule

CLIENTS = 8
RECORDS = 5
_PAUSE = 0.01
_NUMBER = "#######"
_TEXT = f'10.1.2.3 - - "GET /~probe:{_NUMBER} HTTP/1.1" 200 1234 "-" "curl/8.5.0"'


Asks = Callable[[bytes], int]


class Refused(Exception):
    """A request was not taken, and would not be."""


@dataclass(frozen=True)
class Request:
    """What clients post: the head, and the body around the numbers of its events."""

    head: bytes
    body: list[bytes]

    @classmethod
    def of(cls, path: str, kind: str, body: bytes) -> Request:
        """`body` has a place for a number where an event has one."""
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        return cls(head.encode(), body.split(_NUMBER.encode()))

    @property
    def events(self) -> int:
        return len(self.body) - 1

    def numbered(self, first: int) -> bytes:
        """The body, its events numbered from `first` on."""
        numbers = [b"%07d" % (first + number) for number in range(self.events)]
        return b"".join(part for pair in zip(self.body, [*numbers, b""], strict=True) for part in pair)

    def asks(self, connection: socket.socket) -> Asks:
        """What sends a request with this body on a connection, and returns the status of its answer."""
        return lambda body: _answer(connection, self.head + body)


class Call(Request):
    """A request over gRPC; `head` is its path."""

    @classmethod
    def of(cls, path: str, kind: str, body: bytes) -> Call:
        """See `Request.of`."""
        return cls(path.encode(), (b"\0" + len(body).to_bytes(4) + body).split(_NUMBER.encode()))

    def asks(self, connection: socket.socket) -> Asks:
        """See `Request.asks`."""
        return _Calls(connection, self.head.decode())


class _Calls:
    """The calls of one connection of HTTP/2, one after the other."""

    def __init__(self, connection: socket.socket, path: str) -> None:
        self._connection, self._path = connection, path
        self._encoder, self._decoder = Encoder(), Decoder()
        self._streams = count(1, 2)
        self._come = b""
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, b""))

    def __call__(self, body: bytes) -> int:
        stream = next(self._streams)
        head = _frame(_HEADERS, _END_HEADERS, stream, self._encoder.encode({**_CALLED, ":path": self._path}))
        self._connection.sendall(head + _frame(_DATA, _END_STREAM, stream, body))
        while True:
            kind, flags, payload = self._next()
            if kind == _SETTINGS and not flags:
                self._connection.sendall(_frame(_SETTINGS, _ACK, 0, b""))
            trailers = dict(self._decoder.decode(payload)) if kind == _HEADERS else {}
            if flags & _END_STREAM and kind == _HEADERS:
                return {"0": 200, "8": 429}.get(trailers["grpc-status"], 500)

    def _next(self) -> tuple[int, int, bytes]:
        length, kind, flags = struct.unpack(">HBB", self._read(9)[1:5])
        return kind, flags, self._read(length)

    def _read(self, size: int) -> bytes:
        while len(self._come) < size:
            more = self._connection.recv(65536)
            if not more:
                raise Refused("a connection was closed before its answer")
            self._come += more
        found, self._come = self._come[:size], self._come[size:]
        return found


_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_ACK = _END_STREAM = 1
_END_HEADERS = 4
_CALLED = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "",
    ":authority": "127.0.0.1",
    "content-type": "application/grpc",
    "user-agent": "benchmark",
    "te": "trailers",
    "grpc-accept-encoding": "gzip",
}


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">BHBBI", 0, len(payload), kind, flags, stream) + payload


@dataclass
class Posted(Schedule):
    """What was posted: `due` is when a request with an event was first sent."""

    answered: list[float] = field(default_factory=list)
    """Seconds from the first sending of each request to its answer."""


def one_event() -> Request:
    """A JSON object for an endpoint of events."""
    return Request.of("/events", "application/json", b'{"message":"%b"}' % _TEXT.replace('"', '\\"').encode())


def one_document() -> Request:
    """A bulk request of Elasticsearch."""
    text = _TEXT.replace('"', '\\"')
    document = f'{{"@timestamp":"2026-11-28T10:00:00.000Z","message":"{text}"}}'
    return Request.of("/_bulk", "application/x-ndjson", f'{{"create":{{"_index":"logs-a-b"}}}}\n{document}\n'.encode())


def five_records() -> Request:
    """Logs of OpenTelemetry in protobuf, over HTTP."""
    return Request.of("/v1/logs", "application/x-protobuf", _five_records())


def five_called() -> Request:
    """The same over gRPC."""
    return Call.of("/opentelemetry.proto.collector.logs.v1.LogsService/Export", "", _five_records())


def _five_records() -> bytes:
    message = ExportLogsServiceRequest()
    resource = message.resource_logs.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    records = resource.scope_logs.add().log_records
    for _ in range(RECORDS):
        record = records.add(time_unix_nano=time.time_ns(), severity_number=9, severity_text="INFO")  # type: ignore[arg-type]
        record.body.string_value = _TEXT
    return message.SerializeToString()


def post(port: int, request: Request, seconds: float) -> Posted:
    """Eight clients post for so long, each once at least; raises `Refused`."""
    posted, numbers, until = Posted(), count(), time.monotonic() + seconds
    with ThreadPoolExecutor(CLIENTS) as pool:
        for client in [pool.submit(_post, port, request, numbers, until, posted) for _ in range(CLIENTS)]:
            client.result()
    posted.lines = len(posted.due)
    return posted


def _post(port: int, request: Request, numbers: Iterator[int], until: float, posted: Posted) -> None:
    with _connected(port) as connection:
        ask = request.asks(connection)
        while True:
            first = next(numbers) * request.events
            body, due = request.numbered(first), time.monotonic()
            posted.due.update(dict.fromkeys(range(first, first + request.events), due))
            while (status := ask(body)) in (429, 503):
                time.sleep(_PAUSE)
            if not 200 <= status < 300:
                raise Refused(f"a request was answered {status}")
            posted.answered.append(time.monotonic() - due)
            if time.monotonic() > until:
                return


@contextmanager
def _connected(port: int) -> Iterator[socket.socket]:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            yield connection
    except OSError as error:
        raise Refused(str(error)) from error


def _answer(connection: socket.socket, request: bytes) -> int:
    """The status of the answer, read to its end."""
    connection.sendall(request)
    answer = b""
    while not (parted := answer.partition(b"\r\n\r\n"))[1] or len(parted[2]) < _length(parted[0]):
        more = connection.recv(65536)
        if not more:
            raise Refused("a connection was closed before its answer")
        answer += more
    return int(answer.split(None, 2)[1])


def _length(head: bytes) -> int:
    return next((int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"), 0)
