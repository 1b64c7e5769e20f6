"""A growing access log, as nginx writes it in its combined format.

Each line holds its own number in the query (`visit=…`), so that what arrives can be told line by line. A line costs
about half a microsecond: all but its time and number is drawn beforehand.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import BinaryIO

import trio

from shipper.sdk.errors import ShipperError

MARK = "visit="
_KINDS = 4096
_STEP_SECONDS = 0.02
_PATHS = (
    "/",
    "/cart",
    "/checkout",
    "/search",
    "/login",
    "/api/orders",
    "/api/stock",
    "/static/shop.css",
    "/products/{}",
)
_STATUSES = (200,) * 40 + (304,) * 6 + (301, 302, 404, 404, 403, 499, 500, 502)
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:138.0) Gecko/20100101 Firefox/138.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/137.0.0.0 Safari/537.36",
    "curl/8.14.1",
    "Googlebot/2.1 (+http://www.google.com/bot.html)",
)
_REFERRERS = ("-", "-", "https://shop.example/", "https://shop.example/search", "https://www.google.com/")


class AccessLog:
    """Writes lines to a file, numbered from 0; a context manager. Raises ShipperError where the disk takes no more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        """How many lines are in the file."""
        self._kinds = _drawn(random.Random())
        self._file: BinaryIO

    def __enter__(self) -> AccessLog:
        self._file = self.path.open("wb", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, count: int) -> None:
        """Append so many lines; blocks."""
        moment = time.strftime("%d/%b/%Y:%H:%M:%S %z")
        first, kinds = self.written, self._kinds
        lines = [
            f'{address} - {user} [{moment}] "{request}{n} {rest}\n'
            for n in range(first, first + count)
            for address, user, request, rest in (kinds[n * 2654435761 % _KINDS],)
        ]
        rest = memoryview("".join(lines).encode())
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise ShipperError(f"the demo's log cannot be written: {self.path}: {error.strerror}") from None
        self.written += count

    async def grow(self, rate: int) -> None:
        """Append `rate` lines a second until cancelled."""
        begun, already = trio.current_time(), self.written
        while True:
            await trio.sleep(_STEP_SECONDS)
            due = already + int(rate * (trio.current_time() - begun)) - self.written
            if due > 0:
                self.write(min(due, rate))


def number(line: str) -> int:
    """The number of a line that `AccessLog` wrote; raises ValueError for any other."""
    start = line.index(MARK) + len(MARK)
    return int(line[start : line.index(" ", start)])


def _drawn(draw: random.Random) -> list[tuple[str, str, str, str]]:
    return [_kind(draw) for _ in range(_KINDS)]


def _kind(draw: random.Random) -> tuple[str, str, str, str]:
    """Address, user, request up to the number, and what follows it."""
    address = f"{draw.choice(('198.51.100', '203.0.113'))}.{draw.randrange(1, 255)}"
    path = draw.choice(_PATHS).format(draw.randrange(10_000))
    method = "POST" if path in ("/login", "/checkout", "/api/orders") else "GET"
    size = draw.randrange(120, 48_000)
    rest = f'HTTP/1.1" {draw.choice(_STATUSES)} {size} "{draw.choice(_REFERRERS)}" "{draw.choice(_AGENTS)}"'
    user = draw.choice(("alice", "bob")) if draw.random() < 0.02 else "-"
    return address, user, f"{method} {path}?{MARK}", rest
