"""Admission to the bulk server (the door), and its words for what `shipper.sdk.bodies` refuses. No I/O.

The door is one immutable value that a change of the policy replaces as a whole. Its keys are digests of credentials,
compared in constant time, so that it holds no secret, and the time of an answer reveals none.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from base64 import b64decode
from collections.abc import Collection
from dataclasses import dataclass

from shipper.plugin import DataStream
from shipper.sdk.bodies import BodyRefused
from shipper_plugins.elasticsearch.server.answer import RequestRefused

# -- the door ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Door:
    """The settings of one revision for requests."""

    keys: tuple[bytes, ...] | None
    """`fingerprint` of each permitted Authorization header; None: no header is needed."""
    tls: ssl.SSLContext | None
    stream: DataStream
    max_body_bytes: int
    max_decompressed_bytes: int


def recognized(authorization: str, keys: Collection[bytes]) -> bytes | None:
    """Returns the `fingerprint` of a header if it is one of the keys, else None; takes the same time for each key."""
    shown = fingerprint(authorization)
    return shown if sum([hmac.compare_digest(shown, key) for key in keys]) else None


def fingerprint(authorization: str) -> bytes:
    """Returns a digest that is equal for all spellings of a secret (case of the scheme, padding)."""
    scheme, _, token = authorization.strip().partition(" ")
    try:
        secret = token.strip().encode() if scheme.lower() == "bearer" else b64decode(token.strip().rstrip("=") + "==")
    except ValueError:
        secret = b""
    return hashlib.sha256(scheme.lower().encode(errors="replace") + b"\0" + secret).digest() if secret else b""


# -- what is refused ---------------------------------------------------------------------------------------------------

_TYPES = {400: "illegal_argument_exception", 408: "timeout_exception", 413: "content_too_long_exception"}


def of_body(why: BodyRefused) -> RequestRefused:
    """Returns the refusal of a body in the words of Elasticsearch."""
    return busy(why.reason) if why.status == 429 else RequestRefused(why.status, _TYPES[why.status], why.reason)


def busy(reason: str) -> RequestRefused:
    return RequestRefused(429, "es_rejected_execution_exception", reason)
