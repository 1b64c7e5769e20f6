"""Senders of syslog that are faster than the input: the same messages of RFC 5424 or RFC 3164 each time."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from itertools import islice

from tests.benchmarks.job import access_lines

_DIFFERENT = 20_000
_TURN = 0.005
_HOSTS = 20


def messages(count: int, form: str = "5424") -> Iterator[bytes]:
    """Messages of web servers, of about 240 bytes: of RFC 5424, or of RFC 3164 in rsyslog's format to forward."""
    heads = {"5424": "1 {time} web-{host} nginx {pid} - - ", "3164": "{time} web-{host} nginx[{pid}]: "}
    for number, line in enumerate(access_lines(count)):
        time = f"2026-01-01T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}.{number:06d}+00:00"
        host = number % _HOSTS
        yield b"<134>" + (heads[form].format(time=time, host=host, pid=8000 + host) + line.rstrip()).encode()


def stream(port: int, count: int, form: str = "5424", *, counted: bool = False) -> None:
    """Sends so many over a connection, as lines or counted, and waits until the other side has read them."""
    some = [b"%d %b" % (len(one), one) if counted else one + b"\n" for one in messages(min(count, _DIFFERENT), form)]
    block = b"".join(some)
    with socket.create_connection(("127.0.0.1", port)) as sender:
        for _ in range(count // len(some)):
            sender.sendall(block)
        sender.sendall(b"".join(islice(some, count % len(some))))
        sender.shutdown(socket.SHUT_WR)
        while sender.recv(1024):
            pass


def datagrams(port: int, rate: int, seconds: float) -> int:
    """Sends datagrams at a rate, in turns of some milliseconds; returns how many."""
    some = list(messages(_DIFFERENT))
    sent, begun = 0, time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", port))
        while (passed := time.monotonic() - begun) < seconds:
            due = int(rate * passed) - sent
            for number in range(sent, sent + due):
                sender.send(some[number % _DIFFERENT])
            sent += due
            time.sleep(_TURN)
    return sent
