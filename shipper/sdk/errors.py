"""The errors, and who must act on them.

| error | who must act |
|---|---|
| `PolicyError`      | the author of a policy: each `Problem` names the place and the remedy |
| `BadOption`        | the same, for an option of a plugin; it becomes a `Problem` |
| `CredentialError`  | the supplier of the secrets: one is missing, or an id names two secrets |
| `StartFailed`      | the operator of this host: a valid policy, but a part of it could not start (a port is taken) |
| `OptionError`      | the person at the command line |
| `StateLocked`      | the supervisor: these state keys do not open the directory |
| `StateBusy`        | the operator: another process owns the directory |
| `Later`            | nobody: the request is retried with the same ids |
| `Held`             | the operator of the backend: it refuses this credential or permission |
| `TooLarge`         | nobody: the lane halves the batch; a large event is a dead letter  |
| `Backpressure`     | the peer that sends to an input: there is no room now |
| `Outdated`         | the input: its stored positions are no longer what it expected |
| `PluginFault`      | the author of a plugin: it handed over what its contract does not allow |

Errors of libraries are translated: by plugins those of their client library, by `spool` those of SQLite and the file
system, by `policy` those of the YAML parser. Any other exception is a bug and is reported as one. No message ever
quotes a secret or the text of an event. Programs decide by `code`, never by a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from shipper.sdk.codes import Code, checked

Error = TypeVar("Error", bound=BaseException)


class ShipperError(Exception):
    """Base of all errors that are part of a contract; each has a code, by default that of its class.

    Raises ValueError for a malformed code (`codes.checked`).
    """

    code: str = Code.FAILED

    def __init__(self, *args: object, code: str | None = None) -> None:
        super().__init__(*args)
        if code is not None:
            self.code = checked(code)


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in a policy; `path` is dotted (`outputs.main.hosts[0]`); lines and columns count from 1."""

    path: str
    line: int
    column: int
    message: str
    file: str | None = None
    code: str = Code.INVALID

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.file else f"line {self.line}, column {self.column}"
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


class BadOption(ValueError):
    """An option of a plugin has an impossible value; `at` are the keys and positions that lead to it."""

    def __init__(self, message: str, *at: str | int) -> None:
        super().__init__(message)
        self.at = at


class PolicyError(ShipperError):
    """The policy is refused; `problems` are all that one reading has found."""

    code = Code.INVALID

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


class CredentialError(ShipperError):
    """A credential is missing or names two secrets; `reason` is the nack reason of the protocol.

    Its place is in the policy, or a path in the message that carried it. The code is that of the reason by default.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        path: str = "credentials",
        line: int = 1,
        column: int = 1,
        *,
        code: str | None = None,
    ) -> None:
        super().__init__(message, code=code or _OF_CREDENTIALS.get(reason, Code.CREDENTIAL_INVALID))
        self.reason = reason
        self.path, self.line, self.column = path, line, column


_OF_CREDENTIALS: dict[str, str] = {
    "credential_missing": Code.CREDENTIAL_MISSING,
    "credential_conflict": Code.CREDENTIAL_CONFLICT,
}


class StartFailed(ShipperError):
    """A valid policy could not start, for a cause outside of it; the previous one keeps running."""

    code = Code.START_FAILED


class OptionError(ShipperError):
    """A value of a command line option or of a configuration file is wrong (exit status 78)."""

    code = Code.BAD_OPTION


class StateLocked(ShipperError):
    """The state directory is sealed by keys that were not given; nothing was touched."""

    code = Code.LOCKED


class StateBusy(ShipperError):
    """Another process owns the state directory (exit status 75)."""

    code = Code.STATE_BUSY


class Later(ShipperError):
    """The whole request got no final answer (429, 5xx, timeout, a malformed or short answer): retry with the same ids.

    `retry_after` is in seconds, if the backend gave it.
    """

    code = Code.UNAVAILABLE

    def __init__(self, reason: str, retry_after: float | None = None, *, code: str | None = None) -> None:
        super().__init__(reason, code=code)
        self.retry_after = retry_after


class NotOrdered(ShipperError):
    """An order cannot be carried out; nothing was changed."""

    code = Code.NOTHING_TO_ORDER


class NotBegun(ShipperError):
    """A request was not begun, since `OutputContext.may_begin` returned False: neither an attempt nor an answer."""

    code = Code.UNAVAILABLE


class Held(ShipperError):
    """The backend refuses us (401, 403): events are kept, the lane is DEGRADED and probed gently."""

    code = Code.REFUSED


class TooLarge(ShipperError):
    """The request as a whole is over the backend's limit (413)."""

    code = Code.TOO_LARGE


class Backpressure(ShipperError):
    """There is no room in the spool, and the caller asked not to wait."""

    code = Code.QUEUE_FULL


class Outdated(ShipperError):
    """A stored position is not the one that the input expected; nothing was stored."""

    code = Code.OUTDATED

    def __init__(self, key: str) -> None:
        super().__init__("a stored position is not the expected one")
        self.key = key


class PluginFault(ShipperError):
    """A plugin broke its contract, for example by a batch with a wrong count."""

    code = Code.PLUGIN_FAULT


def raised_at(error: BaseException) -> str:
    """Returns type and line of code of an unexpected error; its text might quote an event or a secret."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" at {trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
    return f"{type(error).__name__}{where}"


def forget_frames(error: BaseException) -> None:
    """Lets an error, and those that led to it, forget the frames that they have passed.

    Call it where an error of a library becomes one of ours: libraries keep errors in variables of the frames that these
    pass. That is a cycle, and all that such frames hold, as the body of a request, waits for Python's collector.
    """
    chain, seen = [error], set[int]()
    while chain:
        one = chain.pop()
        if id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            chain += filter(None, (one.__cause__, one.__context__))


def anew(error: Error) -> Error:
    """Returns an equal error that has passed no frame, of one that is part of a contract; any other error itself.

    It is for an error that is kept, and raised elsewhere, perhaps by several: keep a new one, and raise a new one of
    that. An error that is raised from what its own frames hold is a cycle, see `forget_frames`. The frames of any other
    error say where the bug is.
    """
    if not isinstance(error, ShipperError):
        return error
    made = type(error).__new__(type(error), *error.args)
    made.__dict__.update(error.__dict__)
    return made
