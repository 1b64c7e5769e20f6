"""Sends the program's own metrics and log to a receiver of OpenTelemetry: OTLP over HTTP, in JSON.

    Logger ──> Lines (bounded) ──> POST ENDPOINT/v1/logs         as soon as there are some, a second apart
    status ──────────────────────> POST ENDPOINT/v1/metrics      every OTEL_METRIC_EXPORT_INTERVAL

It is an option: shipping never waits for it. Of the log, at most 2,048 lines wait while the receiver is away; then the
oldest are dropped, and counted. Metrics are not kept: the next request says more. What it meets is logged when it
begins and when it is over, not for each request. At the end of the process, the last lines and numbers are sent within
two seconds.

The variables are those of OpenTelemetry's specification (`settings`).
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

import trio

from shipper import __version__
from shipper.process import log
from shipper.process.environment import Environment, ToLoop
from shipper.sdk.aio import Asyncio
from shipper.sdk.errors import Later, OptionError, raised_at
from shipper.sdk.http_answer import address
from shipper.sdk.tls import ClientTls, Material, client_context
from shipper.status import telemetry

if TYPE_CHECKING:
    from shipper.sdk.http import Client

MOST_LINES = 2048
AT_ONCE = 512
"""Lines of one request."""
PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
REQUEST_SECONDS = 10.0
LAST_SECONDS = 2.0
_HEADERS, _CERTIFICATE = "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_CERTIFICATE"
_INTERVAL, _ATTRIBUTES, _SERVICE = "OTEL_METRIC_EXPORT_INTERVAL", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME"
_LONGEST_INTERVAL = 86_400_000
_AGAIN = (408, 429, 502, 503, 504)
"""Answers after which OTLP has the same sent again."""
_SECRET_FROM = 16
"""Characters of a header's value from which on it is hidden in the log: shorter ones are words."""

Kind = Literal["metrics", "logs"]

_log = log.get(__name__)


class Settings(NamedTuple):
    """Where to send to, and as what. `headers` may hold a secret, and are in no message."""

    endpoint: str
    headers: Mapping[str, str]
    tls: ssl.SSLContext | Literal[False]
    interval: float
    """Seconds between two requests with metrics."""
    resource: Mapping[str, str]


def settings(endpoint: str, state: Path, environment: Mapping[str, str]) -> Settings:
    """Returns the settings for an address such as `http://127.0.0.1:4318`, and for the variables of OpenTelemetry.

    The instance is this host with the state directory, so that it stays the same when the process is started again.
    `OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_RESOURCE_ATTRIBUTES` are `name=value,name=value`, percent-encoded;
    `OTEL_METRIC_EXPORT_INTERVAL` is in milliseconds, `OTEL_EXPORTER_OTLP_CERTIFICATE` a file of authorities to trust in
    place of those of the system. Raises OptionError; its text has no value of a header.
    """
    endpoint = check_endpoint(endpoint)
    interval = environment.get(_INTERVAL) or "60000"
    if not (interval.isascii() and interval.isdigit() and 0 < int(interval) <= _LONGEST_INTERVAL):
        raise OptionError(f"${_INTERVAL}: a number of milliseconds is expected, such as 60000")
    host = socket.gethostname()
    resource = {"service.name": "shipper", "service.version": __version__, "host.name": host}
    resource |= {"service.instance.id": f"{host}:{state.absolute()}"} | _pairs(_ATTRIBUTES, environment)
    if environment.get(_SERVICE):
        resource["service.name"] = environment[_SERVICE]
    return Settings(
        endpoint,
        _pairs(_HEADERS, environment),
        _tls(environment.get(_CERTIFICATE)) if urlsplit(endpoint).scheme == "https" else False,
        int(interval) / 1000,
        resource,
    )


def check_endpoint(text: str) -> str:
    """Returns the address without a slash at its end; raises OptionError if it is no URL of HTTP with a host."""
    try:
        url = urlsplit(text)
        is_url = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        is_url = False
    if not is_url or url.query or url.fragment:
        raise OptionError("a receiver of OTLP is a URL of HTTP, such as http://127.0.0.1:4318")
    if url.username is not None:
        raise OptionError(f"the URL of a receiver must not hold a password; put a header into ${_HEADERS}")
    return text.rstrip("/")


def _tls(certificate: str | None) -> ssl.SSLContext:
    try:
        return client_context(ClientTls(ca=Material.read(certificate) if certificate else None))
    except ValueError as error:
        raise OptionError(f"${_CERTIFICATE}: {error}") from None


def _pairs(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in environment.get(name, "").split(",") if pair.strip()]
    found = {unquote(key.strip()): unquote(value.strip()) for key, _, value in pairs}
    texts = [*found, *found.values()]
    if not all(equals and key.strip() for key, equals, _ in pairs) or not all(text.isprintable() for text in texts):
        raise OptionError(f"${name}: name=value,name=value is expected, with %XX for other characters")
    return found


class Lines:
    """The lines of the log that wait; any thread may add one."""

    def __init__(self, soon: ToLoop) -> None:
        """`soon` calls a function in the event loop."""
        self.dropped = 0
        self._soon = soon
        self._waiting: deque[bytes] = deque(maxlen=MOST_LINES)
        self._some = trio.Event()
        self._is_told = False

    def take(self, line: bytes) -> None:
        """Keeps a line; without room, the oldest is dropped."""
        self.dropped += len(self._waiting) == MOST_LINES
        self._waiting.append(line)
        if not self._is_told:
            self._is_told = True
            self._soon(self._wake)

    def _wake(self) -> None:
        self._is_told = False
        self._some.set()

    async def some(self) -> None:
        """Waits until there is a line."""
        while not self._waiting:
            self._some = trio.Event()
            if not self._waiting:  # one may have come meanwhile, from another thread
                await self._some.wait()

    def first(self) -> list[bytes]:
        """Takes out the oldest lines, for one request."""
        return [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]

    def put_back(self, lines: list[bytes]) -> None:
        """Puts lines back that were not sent, as far as there is room."""
        lost = max(0, len(lines) + len(self._waiting) - MOST_LINES)
        self.dropped += lost
        self._waiting.extendleft(reversed(lines[lost:]))


@asynccontextmanager
async def exporting(to: Settings, aio: Asyncio, environment: Environment) -> AsyncIterator[Exporter]:
    """Sends the log while the block runs, metrics from `begin` on, and what is left at its end.

    A block that is cancelled ends at once.
    """
    from shipper.sdk.http import open_client

    lines = Lines(environment.to_loop())
    for value in to.headers.values():
        if len(value) >= _SECRET_FROM:
            log.hide(value)
    async with open_client(aio, to.headers, to.tls, connections=2, seconds=REQUEST_SECONDS) as client:
        exporter = Exporter(client, to, lines, environment)
        with log.followed(lines.take):
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(exporter.send_logs)
                    nursery.start_soon(exporter.send_metrics)
                    yield exporter
                    nursery.cancel_scope.cancel("the shipper stops")
            finally:
                if trio.current_effective_deadline() > -inf:
                    with trio.move_on_after(LAST_SECONDS):
                        await exporter.end()


class Exporter:
    """Made by `exporting`."""

    def __init__(self, client: Client, to: Settings, lines: Lines, environment: Environment) -> None:
        self._client, self._to, self._lines = client, to, lines
        self._status: Callable[[], Mapping[str, Any]] | None = None
        self._has_status = trio.Event()
        self._wall, self._in_thread = environment.wall, environment.in_thread
        self._began = _nanoseconds(self._wall())
        self._problems: set[Kind] = set()

    def begin(self, status: Callable[[], Mapping[str, Any]]) -> None:
        """Sends metrics from now on; `status` is called in trio, and must not block."""
        self._status = status
        self._has_status.set()

    async def send_logs(self) -> None:
        """Sends lines as they come; while the receiver is away, with growing pauses."""
        pause = PAUSE_SECONDS
        while True:
            await self._lines.some()
            pause = PAUSE_SECONDS if await self._send_lines() else min(2 * pause, LONGEST_PAUSE_SECONDS)
            await trio.sleep(pause)

    async def send_metrics(self) -> None:
        """Sends all metrics again and again."""
        await self._has_status.wait()
        while True:
            await self._send_metrics()
            await trio.sleep(self._to.interval)

    async def end(self) -> None:
        """Sends what there is, once; nothing of a kind that is not taken now."""
        if self._status is not None and "metrics" not in self._problems:
            await self._send_metrics()
        if "logs" not in self._problems:
            await self._send_lines()

    async def _send_metrics(self) -> None:
        """They are encoded in a thread: a principal may have thousands of edges."""
        assert self._status is not None
        try:
            status, now = self._status(), _nanoseconds(self._wall())
            body = await self._in_thread(telemetry.metrics, status, self._to.resource, self._began, now)
            await self._post("metrics", body)
        except Exception as error:  # it shows what plugins made, and must not end the shipper
            self._note("metrics", raised_at(error))

    async def _send_lines(self) -> bool:
        """Sends the oldest lines; returns whether they are gone."""
        if not (lines := self._lines.first()):
            return True
        try:
            is_gone = await self._post("logs", telemetry.logs(lines, self._to.resource))
        except Exception as error:  # no receiver will get them; nor may they end the shipper
            self._lines.dropped += len(lines)
            self._note("logs", raised_at(error))
            return True
        except BaseException:
            self._lines.put_back(lines)
            raise
        if not is_gone:
            self._lines.put_back(lines)
        return is_gone

    async def _post(self, kind: Kind, body: bytes) -> bool:
        """Returns False if the same may be taken later."""
        headers = {"Content-Type": "application/json"}
        try:
            response = await self._client.post(self._to.endpoint, f"/v1/{kind}", [body], headers=headers)
        except Later as error:
            self._note(kind, str(error))
            return False
        is_taken = 200 <= response.status < 300
        self._note(kind, None if is_taken else f"{address(self._to.endpoint)} answers {response.status}")
        return response.status not in _AGAIN

    def _note(self, kind: Kind, problem: str | None) -> None:
        """Logs a problem that is new, and its end."""
        if problem is not None and kind not in self._problems:
            self._problems.add(kind)
            _log.warning(f"own {kind} cannot be exported", reason=problem)
        elif problem is None and kind in self._problems:
            self._problems.remove(kind)
            _log.info(f"own {kind} are exported again", dropped_lines=self._lines.dropped)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1000) * 1_000_000
