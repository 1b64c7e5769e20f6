"""What etcd's JSON gateway answers: numbers are strings, and what is false, zero or empty is absent. No I/O.

An error's text is quoted only if it has the shape of etcd's own: what answers may be a proxy, or hostile.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeVar

import msgspec

from shipper.fleet.store import Compacted, LeaseEnded, StoreError, StoreRefused, StoreUnreachable

T = TypeVar("T")
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""Of etcd; anything beyond is not its own."""


class NotDone(StoreUnreachable):
    """The host has certainly not carried out the call, so that another host may be asked."""


class CertificateRefused(StoreRefused):
    """The host has refused the connection; another one may not."""


class TokenRefused(StoreRefused):
    """The call needs a token, or a newer one."""


class AuthenticationOff(StoreRefused):
    """A token was asked for, and this etcd knows no users."""


class Header(msgspec.Struct, frozen=True):
    """Of each answer; `revision` is the store's."""

    cluster_id: str = ""
    revision: Number = 0
    raft_term: Number = 0


class KeyValue(msgspec.Struct, frozen=True):
    key: bytes = b""
    value: bytes = b""
    create_revision: Number = 0
    mod_revision: Number = 0
    lease: int = 0


class Range(msgspec.Struct, frozen=True):
    header: Header = Header()
    kvs: list[KeyValue] = []
    more: bool = False


class Response(msgspec.Struct, frozen=True):
    """Of one operation in a transaction."""

    response_range: Range | None = None


class Txn(msgspec.Struct, frozen=True):
    header: Header = Header()
    succeeded: bool = False
    responses: list[Response] = []


class Grant(msgspec.Struct, frozen=True):
    id: Number = msgspec.field(default=0, name="ID")
    ttl: Number = msgspec.field(default=0, name="TTL")


class Renewal(msgspec.Struct, frozen=True):
    result: Grant = Grant()


class Token(msgspec.Struct, frozen=True):
    token: str = ""


class Nothing(msgspec.Struct, frozen=True):
    """An answer of which nothing is needed."""


class Event(msgspec.Struct, frozen=True):
    kv: KeyValue
    type: str = "PUT"


class Watched(msgspec.Struct, frozen=True):
    header: Header = Header()
    created: bool = False
    canceled: bool = False
    cancel_reason: str = ""
    compact_revision: Number = 0
    events: list[Event] = []


class Line(msgspec.Struct, frozen=True):
    """One line of the answer to a watch."""

    result: Watched | None = None
    error: msgspec.Raw = msgspec.Raw(b"")


class _Error(msgspec.Struct, frozen=True):
    message: str = ""
    code: int = 0
    grpc_code: int = 0
    error: msgspec.Raw = msgspec.Raw(b"")
    """Of a call whose answer is a stream: an object with all that."""


_TEXT = re.compile(r"etcdserver: [A-Za-z ,:()'-]{1,120}")
_OF_CANCEL = re.compile(r"rpc error: code = \w+ desc = (.*)")
_CODES_OF_SERVERS = frozenset({1, 2, 4, 10, 13, 14})
"""gRPC: canceled, unknown, deadline exceeded, aborted, internal, unavailable; the effect of the call is unknown."""
_NEEDS_TOKEN = frozenset(
    {
        "etcdserver: invalid auth token",
        "etcdserver: user name is empty",
        "etcdserver: revision of auth store is old",
    }
)
_NOT_PROPOSED = frozenset({"etcdserver: no leader", "etcdserver: too many requests"})
"""Each is decided before a call is carried out; `no leader` since each call requires one (`hasleader`)."""


def decoded(raw: bytes, type: type[T], host: str) -> T:
    """Returns an answer; raises StoreUnreachable if it is not one of etcd's."""
    try:
        return msgspec.json.decode(raw, type=type, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise StoreUnreachable(f"{host}: an answer that is not etcd's") from None


def failed(raw: bytes, host: str, status: int, purpose: str) -> StoreError:
    """Returns the error of an answer that is not 200; `purpose`: what was asked, as in `read /shipper/prod/head`."""
    try:
        error = msgspec.json.decode(raw, type=_Error, strict=False)
        if not error.message:
            error = msgspec.json.decode(error.error, type=_Error, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return StoreUnreachable(f"{host}: an answer that is not etcd's (HTTP {status}) to: {purpose}")
    return problem(error.message, error.code or error.grpc_code, host, purpose)


def canceled(reason: str, host: str, purpose: str) -> StoreError:
    """Returns the error of a watch that etcd has canceled."""
    match = _OF_CANCEL.fullmatch(reason)
    message = match[1] if match else reason
    return problem(message, 7 if message == "etcdserver: permission denied" else 14, host, purpose)


def problem(message: str, code: int, host: str, purpose: str) -> StoreError:
    """Returns the error for etcd's message and its code of gRPC."""
    said = message.removeprefix("etcdserver: ") if _TEXT.fullmatch(message) else f"error {code}"
    where = f"{host}: {purpose}: {said}"
    error = _special(message, code, where)
    if error is not None:
        return error
    return StoreUnreachable(where) if code in _CODES_OF_SERVERS else StoreRefused(where)


def _special(message: str, code: int, where: str) -> StoreError | None:
    if code == 16 or message in _NEEDS_TOKEN:
        return TokenRefused(f"{where}; etcd asks for a user and a password, also where it checks certificates")
    if message in _NOT_PROPOSED:
        return NotDone(where)
    if code == 7:
        return StoreRefused(f"{where}; grant `readwrite` for this key or prefix to a role of this user in etcd")
    if message == "etcdserver: requested lease not found":
        return LeaseEnded(where)
    if message == "etcdserver: mvcc: database space exceeded":
        return StoreRefused(f"{where}; compact and defragment etcd or raise its quota, then `etcdctl alarm disarm`")
    if message.startswith("etcdserver: mvcc: required revision"):
        return Compacted(where)
    if message == "etcdserver: authentication is not enabled":
        return AuthenticationOff(where)
    return None
