"""Who may send at a relay's door, by what a connection shows; and what is said to requests that are refused. No I/O."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shipper_plugins.relay.state import NOTHING, Limits


class Refused(Exception):
    """The answer to a request that was not accepted; nothing was stored. `code` is for programs."""

    def __init__(self, status: int, code: str, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.status, self.code, self.reason, self.retry_after = status, code, reason, retry_after


def busy(reason: str) -> Refused:
    """The request may come again after a second."""
    return Refused(429, "busy", reason, 1.0)


def over() -> Refused:
    """The session of the request has ended."""
    return Refused(409, "session_over", "another session has begun; begin a new one")


@dataclass(frozen=True, slots=True)
class Door:
    """The settings of one revision for requests."""

    keys: Mapping[bytes, str]
    """By `fingerprint` of an Authorization header, its edge."""
    names: Mapping[str, str]
    """By name in a certificate, in small letters, its edge."""
    tls: ssl.SSLContext | None
    max_part_bytes: int
    limits: Mapping[str, Limits] = field(default_factory=dict)
    """By edge that may have keyed state, its limits."""
    takes_events: bool = True
    relaying: frozenset[str] = frozenset()
    """The edges that may send events of other shippers."""
    awaits: bool = False
    """Whether events are confirmed when the outputs have answered, not when they are stored."""

    def limits_of(self, edge: str) -> Limits:
        """Returns the limits of an edge for keyed state."""
        return self.limits.get(edge, NOTHING)

    def edge(self, shown: bytes, certified: Sequence[str]) -> str:
        """Returns the edge of this fingerprint (empty: no header) and certificate names. Raises Refused."""
        by_key = self.keys.get(shown)
        by_name = {self.names[name.lower()] for name in certified if name.lower() in self.names}
        if shown and by_key is None:
            raise Refused(401, "unauthorized", "no edge has this credential")
        edges = by_name | ({by_key} if by_key is not None else set())
        if not edges:
            code = ("forbidden", "no edge has this certificate") if certified else ("unauthorized", "who is it?")
            raise Refused(403 if certified else 401, *code)
        if len(edges) > 1:
            raise Refused(403, "forbidden", "the credential and the certificate are not of one edge")
        return edges.pop()
