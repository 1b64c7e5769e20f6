"""Everything that can be said on standard input and standard output: frozen values, no I/O.

One JSON object a line (PROTOCOL, version 1). Unknown keys are ignored; what does not fit is one `ValueError` whose text
never quotes the line, since a line may hold secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from shipper.sdk.codes import Code
from shipper.values import Change, Count, Counts, CredentialUse, DeadLetterFigures, Reason, Receipt, Revision, Revisions

VERSION = 1
MAX_LINE_BYTES = 4 << 20
LONGEST_STOP_SECONDS = 86400 * 365
Stage = Literal["received", "active", "drained"]
State = Literal["STARTING", "CONFIGURING", "HEALTHY", "DEGRADED", "FAILED", "STOPPING", "STOPPED"]


# -- supervisor → shipper ----------------------------------------------------------------------------------------------


class Inbound(msgspec.Struct, frozen=True, tag_field="type", tag=str.lower):
    """Base of what a supervisor says."""


class StateKeyText(msgspec.Struct, frozen=True):
    id: str
    key: str

    def __repr__(self) -> str:
        return f"<state key {self.id}>"


class Hello(Inbound, frozen=True):
    protocol: int
    supervisor: str = ""
    state_keys: Sequence[StateKeyText] | None = None
    heartbeat_seconds: Annotated[float, msgspec.Meta(gt=0, le=86400)] = 25.0
    lease: bool = False
    """Whether nothing may be sent before there is a lease."""


class Policy(Inbound, frozen=True):
    revision: Count
    policy: str
    epoch: Count = 0
    sha256: str | None = None
    credentials: Any = msgspec.field(default_factory=dict)

    @property
    def at(self) -> Revision:
        return Revision(self.epoch, self.revision)

    def __repr__(self) -> str:
        return f"<policy {self.at}>"


class Credentials(Inbound, frozen=True):
    credentials: Mapping[str, Any]
    """By id, a secret, or None for one that is withdrawn."""

    def __repr__(self) -> str:
        return f"<credentials {list(self.credentials)}>"


class Lease(Inbound, frozen=True):
    until: float | None
    """An instant of CLOCK_BOOTTIME, in seconds, before which requests may begin; None ends the need for one."""


class Observe(Inbound, frozen=True):
    supervisor: Any = None
    """How its supervisor stands, as `Supervision`, for those who look by HTTP; what does not fit is ignored."""


class Action(Inbound, frozen=True):
    id: Annotated[str, msgspec.Meta(max_length=1024)]
    name: str
    params: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Stop(Inbound, frozen=True):
    within_seconds: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_STOP_SECONDS)] = 20.0


TROUBLES = ("policy", "secret", "state_key", "state", "sidecar", "http", "on_release", "askers", "other")
"""Kinds of what may hinder a supervisor."""
_MOST_TROUBLES = 100


class Trouble(msgspec.Struct, frozen=True):
    """What hinders a supervisor: its kind, one of TROUBLES, and in words what and why."""

    kind: str
    cause: str
    message: str = ""


class Supervision(msgspec.Struct, frozen=True):
    """How a supervisor stands, as it says itself."""

    troubles: Sequence[Trouble] = ()
    restarts: int = 0
    """How often it has started the shipper again."""
    unrevoked: int = 0
    """Credentials that may be revoked, and are not yet."""

    @classmethod
    def understood(cls, said: Any) -> Supervision | None:
        """What somebody said of that, or None where it is something else."""
        try:
            one = msgspec.convert(said, cls)
        except msgspec.ValidationError:
            return None
        return msgspec.structs.replace(one, troubles=tuple(one.troubles[:_MOST_TROUBLES]))


Message: TypeAlias = Hello | Policy | Credentials | Lease | Observe | Action | Stop

_DECODER: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_TYPES = ("hello", "policy", "credentials", "lease", "observe", "action", "stop")


class _Envelope(msgspec.Struct):
    type: str


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class NotUnderstood(ValueError):
    """A line is no message; the text quotes nothing of it but key names."""

    def __init__(self, message: str, code: Code = Code.MALFORMED) -> None:
        super().__init__(message)
        self.code = code


def parse(line: bytes) -> Message:
    """The message of one line; raises NotUnderstood."""
    try:
        return _DECODER.decode(line.decode())  # what msgspec skips, it does not look at
    except RecursionError:
        raise NotUnderstood("the line is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise _complaint(line, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise NotUnderstood("the line is not a JSON object in UTF-8") from None


def _complaint(line: bytes, text: str) -> NotUnderstood:
    try:
        kind = _ENVELOPE.decode(line).type
    except (msgspec.DecodeError, RecursionError):
        return NotUnderstood(f"the line is not an object with a `type`; types are {', '.join(_TYPES)}")
    if kind not in _TYPES:
        shown = f" `{kind}`" if re.fullmatch(r"[a-z_]{1,30}", kind) else ""
        return NotUnderstood(f"unknown message type{shown}; types are {', '.join(_TYPES)}", Code.UNKNOWN_TYPE)
    return NotUnderstood(f"{kind}: {re.sub(r'value .*? - at', 'value - at', text)}")


# -- shipper → supervisor ----------------------------------------------------------------------------------------------
#
# Every `code` is one of `shipper.sdk.codes`, or a plugin's own; empty only where an older shipper said nothing of it.


def encoded(value: object) -> bytes:
    """The value as JSON; what is no text (a file name, say) is replaced in it."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode("utf-8", "replace")


class Outbound(msgspec.Struct, frozen=True, tag_field="type", tag=str.lower):
    """Base of what the shipper says."""

    def line(self) -> bytes:
        """The message as one line of the protocol."""
        return encoded(self._fields()) + b"\n"

    def _fields(self) -> Any:
        return self


CAPABILITIES = ("lease", "withdraw", "state")
"""What a shipper can do beyond the first version of the protocol."""


class Ready(Outbound, frozen=True, kw_only=True):
    protocol: int = VERSION
    version: str
    pid: int
    instance: str
    max_line_bytes: int = MAX_LINE_BYTES
    http: str | None
    revisions: Revisions
    credentials_in_use: Sequence[str]
    credentials_wanted: Sequence[str]
    capabilities: Sequence[str] = CAPABILITIES


class Ack(Outbound, frozen=True, kw_only=True, omit_defaults=True):
    epoch: int
    revision: int
    sha256: str
    stage: Stage
    change: Change
    credentials: CredentialUse | None = None
    ledger: Counts | None = None

    @classmethod
    def drained(cls, receipt: Receipt) -> Ack:
        """The message that a revision is drained."""
        return cls(stage="drained", **msgspec.structs.asdict(receipt))

    def _fields(self) -> Any:
        fields = msgspec.to_builtins(self)
        return fields if self.ledger is None else {**fields, "ledger": msgspec.structs.asdict(self.ledger)}


class Released(Outbound, frozen=True, kw_only=True):
    credentials: Sequence[str]


class NackError(msgspec.Struct, frozen=True):
    path: str
    line: int
    column: int
    message: str
    code: str = ""


class Nack(Outbound, frozen=True, kw_only=True):
    epoch: int
    revision: int
    sha256: str
    reason: Reason
    errors: Sequence[NackError] = ()
    released: Sequence[str] = ()


class Failing(msgspec.Struct, frozen=True):
    """A batch that fails again and again; `dead_letter` or `drop` of this `batch` of the output ends it."""

    batch: int
    seconds: float


class Unit(msgspec.Struct, frozen=True):
    id: str
    kind: Literal["input", "output"]
    type: str
    state: State
    message: str = ""
    figures: Mapping[str, int] | msgspec.UnsetType = msgspec.UNSET
    """What a unit says of itself in numbers (`Source.figures`, `meters`); absent where it says nothing."""
    code: str = ""
    failing: Failing | msgspec.UnsetType = msgspec.UNSET
    """Of an output: the batch that everything else of a lane waits for."""


class Waiting(msgspec.Struct, frozen=True):
    """What drains of one output."""

    events: int
    reason: str
    credentials: Sequence[str] = ()
    """The ids that it is bound to."""
    held: bool = False
    """Whether it waits for a person: refused, or a secret is missing."""
    rebind_to: str | None = None
    """The id with which the output goes to the same place now."""
    rebind_from: Sequence[str] = ()
    """The ids that it goes there with no longer."""
    forward: bool = False
    """Whether an order of that name would have it delivered to where the output goes now."""
    code: str = ""


class Draining(msgspec.Struct, frozen=True, omit_defaults=True):
    epoch: int
    revision: int
    events: int
    bytes: int
    oldest_seconds: float
    outputs: Mapping[str, Waiting]
    outputs_left_out: int = 0


class DrainsLeftOut(msgspec.Struct, frozen=True):
    """What is not listed in `draining`, the newest drains."""

    revisions: int = 0
    events: int = 0
    bytes: int = 0


class QueueFigures(msgspec.Struct, frozen=True):
    events: int
    bytes: int
    limit_bytes: int
    oldest_seconds: float
    disk_bytes: int


class Observed(Outbound, frozen=True, kw_only=True, omit_defaults=True):
    """Its lists are bounded, but for those of credentials: what is left out there would count as released."""

    state: State
    message: str
    code: str = ""
    """That of the message: of what is worst."""
    revisions: Revisions
    draining: Sequence[Draining]
    draining_left_out: DrainsLeftOut = DrainsLeftOut()
    units: Sequence[Unit]
    units_left_out: int = 0
    queue: QueueFigures
    dead_letters: DeadLetterFigures
    credentials_in_use: Sequence[str]
    credentials_wanted: Sequence[str]
    lease_seconds: float | msgspec.UnsetType | None = msgspec.UNSET
    """What is left of the lease, 0 when it lapsed; None where none is needed."""


class Result(Outbound, frozen=True, kw_only=True):
    id: str
    status: Literal["SUCCESS", "FAILED"]
    message: str = ""
    result: Mapping[str, Any] = msgspec.field(default_factory=dict)
    code: str = ""


class Error(Outbound, frozen=True, kw_only=True):
    line_number: int = msgspec.field(name="line")
    message: str
    code: str = ""


class Stopped(Outbound, frozen=True, kw_only=True):
    clean: bool
    undelivered: int
