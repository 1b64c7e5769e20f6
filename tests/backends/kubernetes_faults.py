"""What a proxy before an API server does to requests, and which of them it means."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

EXPIRED = "The resourceVersion for the provided watch is too old."


@dataclass(eq=False)
class Request:
    """A request as the proxy has read it."""

    method: str
    path: str
    query: Mapping[str, str]
    agent: str
    """The header User-Agent."""
    at: float
    """When it came, by trio's clock."""
    status: int | None = None
    """What the server or the proxy has answered; None while there is no answer."""
    lost: bool = False
    """The server has answered, and the proxy has cut the connection instead of passing the answer on."""

    @property
    def watch(self) -> bool:
        return self.query.get("watch") in ("true", "1")


def read(method: str, target: str, agent: str, at: float) -> Request:
    parts = urlsplit(target)
    return Request(method, parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)), agent, at)


@dataclass(frozen=True)
class Match:
    """Which requests are meant: those for which all holds that is given."""

    path: str = ""
    """A regular expression, found anywhere in the path."""
    method: str = ""
    agent: str = ""
    """A part of the user agent."""
    watch: bool | None = None
    status: int | None = None

    def holds(self, request: Request | None) -> bool:
        """Without a request: whether a connection that has none yet is meant, which is so if everything is."""
        if request is None:
            return self == Match()
        return (
            re.search(self.path, request.path) is not None
            and self.method in ("", request.method)
            and self.agent in request.agent
            and self.watch in (None, request.watch)
            and self.status in (None, request.status)
        )


@dataclass(eq=False)
class Fault:
    """A fault of some requests, until `end` or until the end of `with`, or as many `times` as it has left."""

    match: Match
    changed: Callable[[Fault], None] = field(repr=False)
    """Called at its end."""
    times: int | None = None
    over: bool = False

    def end(self) -> None:
        """Heals it; what waits goes on."""
        if not self.over:
            self.over = True
            self.changed(self)

    def meets(self, request: Request | None) -> bool:
        return not self.over and self.match.holds(request)

    def use(self) -> None:
        """Counts one use."""
        if self.times is not None:
            self.times -= 1
            if self.times == 0:
                self.end()

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None) -> None:
        self.end()


@dataclass(eq=False)
class Silence(Fault):
    """Nothing is passed on in either direction, and no connection is cut."""


@dataclass(eq=False)
class Refusal(Fault):
    """Connections are closed as soon as they are accepted."""


@dataclass(eq=False)
class Loss(Fault):
    """Requests reach the server, and instead of its answer the client sees the end of the connection."""


@dataclass(eq=False)
class Delay(Fault):
    """Each piece of an answer is passed on so many seconds after it came."""

    seconds: float = 0.0


@dataclass(eq=False)
class Reply(Fault):
    """The proxy answers, and the server gets no request."""

    status: int = 500
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def failure(code: int, reason: str, message: str) -> dict[str, Any]:
    """The object by which an API server says that it refuses."""
    kind = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**kind, "message": message, "reason": reason, "code": code}


def expired_event() -> bytes:
    """What an API server says in a watch whose version is too old."""
    return json.dumps({"type": "ERROR", "object": failure(410, "Expired", EXPIRED)}).encode() + b"\n"
