"""The messages on standard input and standard output: frozen values, no I/O.

One JSON object a line (PROTOCOL, version 1). Unknown keys are ignored; an invalid line is one `ValueError` whose text
never quotes the line, since it may contain secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from shipper.sdk.codes import Code
from shipper.sdk.peers import Confirms
from shipper.values import (
    Change,
    Count,
    Counts,
    CredentialUse,
    DeadLetterFigures,
    DeadLetterReason,
    Reason,
    Receipt,
    Revision,
    Revisions,
    StateFigures,
)

VERSION = 1
MAX_LINE_BYTES = 4 << 20
LONGEST_STOP_SECONDS = 86400 * 365
Stage = Literal["received", "active", "drained"]
State = Literal["STARTING", "CONFIGURING", "HEALTHY", "DEGRADED", "FAILED", "STOPPING", "STOPPED"]


# -- supervisor → shipper ----------------------------------------------------------------------------------------------


class Inbound(msgspec.Struct, frozen=True, tag_field="type", tag=str.lower):
    """Base of a supervisor's messages."""


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
    """By id, a secret, or None to withdraw it."""

    def __repr__(self) -> str:
        return f"<credentials {list(self.credentials)}>"


class Lease(Inbound, frozen=True):
    until: float | None
    """An instant of CLOCK_BOOTTIME, in seconds, before which requests may begin; None ends the need for one."""


class Observe(Inbound, frozen=True):
    supervisor: Any = None
    """The state of the supervisor, a `Supervision`, for the HTTP server; anything else is ignored."""
    ask: Any = None
    """The ids of credentials whose destinations are to be asked where nothing is sent; see `accepted`."""

    @property
    def asked(self) -> frozenset[str]:
        return frozenset(id for id in self.ask if isinstance(id, str)) if isinstance(self.ask, list) else frozenset()


class Action(Inbound, frozen=True):
    id: Annotated[str, msgspec.Meta(max_length=1024)]
    name: str
    params: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Stop(Inbound, frozen=True):
    within_seconds: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_STOP_SECONDS)] = 20.0


TROUBLES = (
    *("policy", "secret", "state_key", "state", "sidecar", "http", "on_release", "askers", "fleet", "kubernetes"),
    "other",
)
"""Kinds of troubles of a supervisor."""
_MOST_TROUBLES = 100
_MOST_CREDENTIALS = 256


class Trouble(msgspec.Struct, frozen=True):
    """A trouble of a supervisor: its kind, one of TROUBLES, and cause and message in words."""

    kind: str
    cause: str
    message: str = ""


class Known(msgspec.Struct, frozen=True):
    """A credential as its supervisor knows it, without its secret and where that is read."""

    id: str
    name: str = ""
    units: Sequence[str] = ()
    """The inputs and outputs that use it."""
    released: bool = False
    """Whether nothing uses it any more: it can be revoked."""
    shared: bool = False
    """Whether other hosts use it, too, so that nobody can revoke it for what this one says."""
    revoked: bool = False
    """Whether `on_release` has revoked it, or others do that."""
    current: bool = True
    """Whether the newest revision uses it."""
    waits_for: str = ""
    """The id of the one for which it waits, before it can be revoked; empty if it waits for none."""
    waits_until: Literal["", "released", "accepted"] = ""
    """What must become of that one."""


class Supervision(msgspec.Struct, frozen=True):
    """A supervisor's statement about itself."""

    troubles: Sequence[Trouble] = ()
    restarts: int = 0
    """How often it has restarted the shipper."""
    unrevoked: int = 0
    """Released credentials that are not revoked yet."""
    version: str = ""
    pid: int = 0
    directory: str = ""
    """Its state directory, for commands to copy; empty if it takes none."""
    policy: Sequence[str] = ()
    """The paths of its policy, for commands to copy; none if it comes from elsewhere."""
    wanted: Sequence[int] | None = None
    """Epoch and number of the revision that it wants."""
    credentials: Sequence[Known] = ()

    @classmethod
    def understood(cls, said: Any) -> Supervision | None:
        """Returns the statement in a message, or None if it is not one."""
        try:
            one = msgspec.convert(said, cls)
        except msgspec.ValidationError:
            return None
        return msgspec.structs.replace(
            one,
            troubles=tuple(one.troubles[:_MOST_TROUBLES]),
            credentials=tuple(one.credentials[:_MOST_CREDENTIALS]),
        )


Message: TypeAlias = Hello | Policy | Credentials | Lease | Observe | Action | Stop

_DECODER: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_TYPES = ("hello", "policy", "credentials", "lease", "observe", "action", "stop")


class _Envelope(msgspec.Struct):
    type: str


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class NotUnderstood(ValueError):
    """A line is not a message; the text quotes only key names of it."""

    def __init__(self, message: str, code: Code = Code.MALFORMED) -> None:
        super().__init__(message)
        self.code = code


def parse(line: bytes) -> Message:
    """Returns the message of one line; raises NotUnderstood."""
    try:
        return _DECODER.decode(line.decode())  # msgspec does not check the parts that it skips
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
# Every `code` is one of `shipper.sdk.codes`, or a plugin's own; empty only from an older shipper.


def encoded(value: object) -> bytes:
    """Returns the value as JSON; replaces characters that are not UTF-8 (in a file name, for example)."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode("utf-8", "replace")


class Outbound(msgspec.Struct, frozen=True, tag_field="type", tag=str.lower):
    """Base of the shipper's messages."""

    def line(self) -> bytes:
        """Returns the message as one line of the protocol."""
        return encoded(self._fields()) + b"\n"

    def _fields(self) -> Any:
        return self


CAPABILITIES = ("lease", "withdraw", "state", "accepted")
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
    capabilities: Sequence[str] = ()
    """What it can do beyond the first version; an older shipper names nothing."""
    confirms: Confirms | None = None
    """What a confirmation of the outputs is worth, as far as is known; None where there are none."""


class Ack(Outbound, frozen=True, kw_only=True, omit_defaults=True):
    epoch: int
    revision: int
    sha256: str
    stage: Stage
    change: Change
    credentials: CredentialUse | None = None
    ledger: Counts | None = None
    confirms: Confirms | None = None
    """Of `drained`: what the final answers are worth; None where nothing that it waited for ever had one."""

    @classmethod
    def drained(cls, receipt: Receipt) -> Ack:
        """Returns the message that a revision is drained."""
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
    """The unit's own figures (`Source.figures`, `meters`); absent if it has none."""
    code: str = ""
    failing: Failing | msgspec.UnsetType = msgspec.UNSET
    """Of an output: the batch that everything else of a lane waits for."""


class Waiting(msgspec.Struct, frozen=True):
    """The drain of one output."""

    events: int
    reason: str
    credentials: Sequence[str] = ()
    """The ids of its credentials."""
    held: bool = False
    """Whether it waits for a person: refused, or a secret is missing."""
    rebind_to: str | None = None
    """The id that the output now uses for the same destination."""
    rebind_from: Sequence[str] = ()
    """The ids that the output no longer uses for that destination."""
    forward: bool = False
    """Whether an order `forward` could deliver it to the current destination of the output."""
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
    """The sums of the newest drains, which `draining` does not list."""

    revisions: int = 0
    events: int = 0
    bytes: int = 0


class QueueFigures(msgspec.Struct, frozen=True):
    events: int
    bytes: int
    limit_bytes: int
    oldest_seconds: float
    disk_bytes: int


class EdgeFigures(msgspec.Struct, frozen=True):
    """Another shipper that an input relays from; see `shipper.sdk.peers.Edge`."""

    input: str
    name: str
    connected_seconds: float | None
    """None: it is not connected."""
    heard_seconds: float | None
    """Since its last request; None: there was none since the start of this process."""
    waiting_events: int
    """Log events that wait there, as it said in its last request."""
    versions_behind: int
    """Versions of its keys that wait there, as it said in its last request."""
    keys: int
    """Keys that are stored here, without those that are deleted."""
    bytes: int
    """What the versions of these keys take here."""


class PrincipalFigures(msgspec.Struct, frozen=True):
    """The shipper that an output relays to; see `shipper.sdk.peers.Principal`."""

    output: str
    host: str
    """Empty while the output is not open."""
    connected_seconds: float | None
    """None: it is not connected."""
    reason: str
    """Why it is not connected."""
    confirms: Confirms | None
    """None: it was not reached since the output was opened."""
    unconfirmed_events: int
    unconfirmed_keys: int
    oldest_seconds: float
    """The age of the oldest of these; 0 if there are none."""


class Observed(Outbound, frozen=True, kw_only=True, omit_defaults=True):
    """Its lists are bounded, except those of credentials: an omitted id would count as released."""

    state: State
    message: str
    code: str = ""
    """The code of the message, that of the worst problem."""
    revisions: Revisions
    draining: Sequence[Draining]
    draining_left_out: DrainsLeftOut = DrainsLeftOut()
    units: Sequence[Unit]
    units_left_out: int = 0
    queue: QueueFigures
    dead_letters: DeadLetterFigures
    dead_letter_reasons: Sequence[DeadLetterReason] = ()
    """Those of the newest letters, a few."""
    credentials_in_use: Sequence[str]
    credentials_wanted: Sequence[str]
    credentials_accepted: Sequence[str] = ()
    """Those of the active outputs that each of their destinations has accepted in this process: it took an event, or
    was asked (`observe`)."""
    keyed: StateFigures | msgspec.UnsetType = msgspec.UNSET
    """Left out where there is none."""
    edges: Sequence[EdgeFigures] = ()
    """Of the inputs that relay, by input and name."""
    edges_left_out: int = 0
    principals: Sequence[PrincipalFigures] = ()
    """Of the outputs that relay."""
    principals_left_out: int = 0
    confirms: Confirms | None = None
    """What a confirmation of the active outputs is worth: the weakest of them; left out where there are none."""
    lease_seconds: float | msgspec.UnsetType | None = msgspec.UNSET
    """The seconds left of the lease, 0 when it has lapsed; None where none is needed."""


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
