"""Who may ask about the fleet at an address of a member, and what is answered to others.

An address that is not loopback needs TLS and a token: `Authorization: Bearer …`, or the password of `Basic …` with any
name. On loopback nothing is needed where no token is configured.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from shipper.sdk.hosts import is_loopback


@dataclass(frozen=True, slots=True)
class Request:
    """A question about the fleet."""

    path: str
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer in JSON."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(Exception):
    """A request is refused, since it is no question that is answered here."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def refusal(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Returns an answer that says why there is no other one; programs decide by `code`."""
    return Answer(status, msgspec.json.encode({"code": code, "message": message}), headers or {})


@dataclass(frozen=True, slots=True)
class Door:
    """Who may ask about the fleet."""

    host: str
    """The host of the address, as it is configured."""
    tls: ssl.SSLContext | None = None
    tokens: Sequence[bytes] = field(default=(), repr=False)

    def admit(self, authorization: str, *, is_tls: bool) -> bool:
        """Returns whether the request has a token, False where none is needed; raises Refused."""
        if not self.tokens:
            if not is_loopback(self.host):
                raise Refused(refusal(403, "closed", "questions about the fleet need TLS and a token here"))
            return False
        if not is_loopback(self.host) and not is_tls:
            raise Refused(refusal(403, "tls_needed", "questions about the fleet need TLS here"))
        given = _token(authorization)
        if given is None or not any(hmac.compare_digest(given, one) for one in self.tokens):
            raise Refused(refusal(401, "unauthorized", "no known token", {"WWW-Authenticate": "Bearer"}))
        return True


def _token(authorization: str) -> bytes | None:
    """Returns the token that a request gives: itself, or as the password of any name."""
    scheme, _, rest = authorization.partition(" ")
    given = rest.strip().encode("latin-1", "replace")
    if scheme.lower() == "bearer":
        return given
    try:
        return base64.b64decode(given, validate=True).partition(b":")[2] if scheme.lower() == "basic" else None
    except binascii.Error:
        return None
