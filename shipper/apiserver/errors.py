"""Errors of the API server, and who must act on them.

| error | who must act |
|---|---|
| `Unreachable`   | nobody: the call is made again; the effect of a write is unknown until a read has shown it |
| `Busy`          | nobody: the server wants fewer requests; nothing was done |
| `Unauthorized`  | the operator: the server knows no such token or certificate |
| `Forbidden`     | the administrator of the cluster: the text has the rule that a Role lacks |
| `NotFound`      | the caller: the object is gone, or its CustomResourceDefinition is not there |
| `Conflict`      | the caller: the object is another one than expected; read it and judge again |
| `AlreadyExists` | the caller: somebody else has created an object of this name |
| `Gone`          | the caller: the server has no longer all changes since this version; list |
| `Invalid`       | the author of what was written |

An error's text has the verb, the object's name and the server's own message; of Secrets no message, since it may quote
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shipper.process.log import printable
from shipper.sdk.codes import Code
from shipper.sdk.errors import ShipperError

_LONGEST_MESSAGE = 400


class ApiError(ShipperError):
    """A call to the API server failed; `status` is that of HTTP, or 0, and `reason` the server's own word for it."""

    code = Code.UNAVAILABLE

    def __init__(self, message: str, *, status: int = 0, reason: str = "", code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.status, self.reason = status, reason


class Unreachable(ApiError):
    """There was no answer within the time of the call, or none of the API server's; the effect of a write is
    unknown."""

    code = Code.UNREACHABLE


class Busy(ApiError):
    """The server refuses requests for now (429, 503); nothing was done. `retry_after` is in seconds."""

    code = Code.OVERLOADED
    retry_after: float = 0.0


class Unauthorized(ApiError):
    """The server does not know the credential, also after it was read anew (401)."""

    code = Code.UNAUTHORIZED


class Forbidden(ApiError):
    """The credential lacks a right (403)."""

    code = Code.FORBIDDEN


class NotFound(ApiError):
    """There is no such object (404)."""

    code = Code.REFUSED


class Conflict(ApiError):
    """The object is not the one that the write was for: another uid or resourceVersion (409)."""

    code = Code.CONFLICT


class AlreadyExists(ApiError):
    """An object of this name exists (409)."""

    code = Code.CONFLICT


class Gone(ApiError):
    """The server has not all changes since a version any more (410)."""

    code = Code.OUTDATED


class Invalid(ApiError):
    """The server refuses what was written, for a cause in it (400, 413, 422)."""

    code = Code.INVALID


class Asked(msgspec.Struct, frozen=True):
    """What was asked of a server, for the words of an error."""

    verb: str
    """As a Role has it."""
    resource: str
    """With the subresource: `shippermembers/status`."""
    group: str
    namespace: str
    name: str = ""
    is_secret: bool = False

    def __str__(self) -> str:
        named = f"{self.resource} {self.name}" if self.name else self.resource
        return f"{self.verb} {named} in namespace {self.namespace}"

    @property
    def is_read(self) -> bool:
        """Whether it may be asked twice."""
        return self.verb in ("get", "list", "watch")


class Cause(msgspec.Struct, frozen=True):
    """A field that was refused."""

    field: str = ""


class Details(msgspec.Struct, frozen=True):
    """What was refused."""

    causes: list[Cause] | None = None


class Status(msgspec.Struct, frozen=True):
    """The server's own answer of a failure; a stranger's has other fields, or none."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None

    @property
    def is_of_another(self) -> bool:
        """Whether the uid that was written is not the object's: with 422, not with 409 as a wrong version."""
        causes = (self.details and self.details.causes) or []
        return self.reason == "Invalid" and any(cause.field == "metadata.uid" for cause in causes)


_OF_REASON: Mapping[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Conflict": Conflict,
    "Expired": Gone,
    "Gone": Gone,
}
_OF_STATUS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: Busy,
    503: Busy,
}


def failure(status: int, body: bytes, asked: Asked, host: str) -> ApiError:
    """Returns the error of an answer that is not 2xx."""
    return refused(decoded(body), status, asked, host)


def decoded(body: bytes | msgspec.Raw) -> Status:
    """Returns the Status of a body; an empty one if it has none."""
    try:
        found = msgspec.json.decode(body, type=Status)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Status()
    return found if found.kind == "Status" else Status()


def refused(said: Status, status: int, asked: Asked, host: str) -> ApiError:
    """Returns the error of a Status; `status` is that of HTTP."""
    kind = Conflict if said.is_of_another else _OF_REASON.get(said.reason) or _OF_STATUS.get(status, Unreachable)
    if kind is Busy and not said.kind and status == 503:
        kind = Unreachable  # of a proxy, which has perhaps passed the request on
    return kind(_sentence(kind, said, status, asked, host), status=status, reason=_word(said.reason))


def _sentence(kind: type[ApiError], said: Status, status: int, asked: Asked, host: str) -> str:
    if kind is Forbidden:
        return f"{host}: no right to {asked}; {_rule(asked)}{_quoted(said, asked)}"
    if kind is Unauthorized:
        return f"{host}: the API server does not know this credential: {asked} was refused (401)"
    what = _quoted(said, asked) or (f" ({_word(said.reason)})" if said.reason else "")
    return f"{host}: {asked}: HTTP {status}{what}"


def _rule(asked: Asked) -> str:
    names = f', resourceNames: ["{asked.name}"]' if asked.is_secret and asked.name else ""
    return (
        f'grant a Role with apiGroups: ["{asked.group}"], resources: ["{asked.resource}"], verbs: ["{asked.verb}"]'
        f"{names} to it"
    )


def _quoted(said: Status, asked: Asked) -> str:
    if asked.is_secret or not said.message:
        return ""
    text = printable(said.message)
    half = _LONGEST_MESSAGE // 2  # of a field that is not valid, the server quotes the whole object before the reason
    return f": {text if len(text) <= _LONGEST_MESSAGE else f'{text[:half]} … {text[-half:]}'}"


def _word(reason: str) -> str:
    """The server's word, if it is one."""
    return reason if reason.isascii() and reason.isalnum() and len(reason) <= 40 else ""


def of_object(found: Any, asked: Asked, host: str) -> ApiError:
    """Returns the error of an ERROR event of a watch, which comes with HTTP 200."""
    try:
        said = msgspec.convert(found, Status)
    except msgspec.ValidationError:
        said = Status()
    return refused(said, said.code or 500, asked, host)
