"""The supervisor's side of the protocol: a state machine without I/O.

Each method takes one event and returns effects, to be performed in their order. The order is the guarantee: `Save`
comes before the `Send` that refers to a new credential, and before the `Revoke` of a released one. Acks, nacks and
observations change only this object, so a supervisor may crash at any line: the next one recovers from the ledger and
`ready`.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from shipper import __version__
from shipper.policy.document import Node
from shipper.process.environment import boottime
from shipper.protocol import messages
from shipper.protocol.messages import Ack, Error, Nack, Observed, Ready, Released, Result, Stopped
from shipper.sdk.codes import Code
from shipper.sdk.retry import backoff
from shipper.sdk.unshown import Unshown
from shipper.supervise.answers import Answer, Versions
from shipper.supervise.changes import Changes
from shipper.supervise.ledger import Kept, Ledger, Wanted
from shipper.supervise.locations import located
from shipper.supervise.once import Once
from shipper.supervise.order_results import freed
from shipper.supervise.releases import Releases
from shipper.supervise.vault import key_name
from shipper.values import Revision

HEARTBEAT = 25.0
_ONCE_HEARTBEAT = 0.2  # an empty queue is no change of health, so no other observation shows it
_RENUMBERINGS = 3
_SUPPLY_SECONDS = 5.0
_RETRY_SECONDS = (1.0, 60.0)
_FENCED = ("lease", "withdraw")
"""The capabilities that a sidecar needs where it may send nothing without a lease."""
_TELLS = "accepted"
"""The capability of a sidecar that says which credentials a destination has accepted."""
_LASTING = (Code.STATE_NEWER, Code.STATE_UNUSABLE)
"""Causes of a failed start that a person must repair. A full disk, or a busy directory, may pass."""
_REMEDY = "; mend that, or give another --state (a newer format needs the shipper that wrote it)"


class Undelivered(NamedTuple):
    """Events that a sidecar holds."""

    events: int
    bytes: int
    oldest_seconds: float

    def but(self, events: int) -> Undelivered:
        """Returns these for another number of events; bytes and age are then those of the observation before."""
        return self._replace(events=events) if events else Undelivered(0, 0, 0.0)


class Save(msgspec.Struct, frozen=True):
    """Make the ledger durable, before any later effect."""


class Send(Unshown, frozen=True):
    """Send one message to the sidecar; a policy replaces one that was not yet written to the pipe."""

    message: Mapping[str, Any]


class Say(msgspec.Struct, frozen=True):
    """Report an event to people."""

    what: str
    fields: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Revoke(msgspec.Struct, frozen=True):
    """Revoke a released credential, when no other member holds it; then call `forget`."""

    kept: Kept
    again: bool = False
    """Whether an earlier process has reported it."""


class Accepted(msgspec.Struct, frozen=True):
    """A destination has accepted a credential for the first time: what waited for that may be revoked."""


class Again(msgspec.Struct, frozen=True):
    """Call `due` with this after `seconds`."""

    seconds: float


class Serving(msgspec.Struct, frozen=True):
    """Note that a policy is active for the first time in this process."""


class Finish(msgspec.Struct, frozen=True):
    """Stop the sidecar and exit with this status; `grace` in seconds replaces that of the options."""

    status: int
    grace: float | None = None


Effect: TypeAlias = Answer | Save | Send | Say | Revoke | Accepted | Again | Serving | Finish
Effects: TypeAlias = Iterator[Effect]


class Conversation:
    """The supervisor's side, over all restarts of its sidecar. Exhaust each returned iterator."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        fresh: bool,
        state_keys: Sequence[bytes] = (),
        once: bool = False,
        is_shared: bool = False,
        is_leased: bool = False,
        clock: Callable[[], float] = time.monotonic,
        boottime: Callable[[], float] = boottime,
    ) -> None:
        """`fresh`: there was no ledger before. `is_shared`: a first policy that the sidecar refuses is waited out.
        `is_leased`: the sidecar may send nothing without a lease."""
        self.ledger = ledger
        self.observed: Observed | None = None
        self.ready: Ready | None = None
        self.held = Undelivered(0, 0, 0.0)
        """What the sidecar held when it was heard last."""
        self._is_shared, self._is_leased = is_shared, is_leased
        self._began_leased = is_leased
        """Whether the sidecar process has begun without a lease, and needs one."""
        self._until: float | None = None
        """The end of the newest lease, by CLOCK_BOOTTIME."""
        self._boottime = boottime
        self._fresh = fresh
        self._state_keys = state_keys
        self._clock = clock
        self._releases = Releases()
        self._expected: frozenset[str] = frozenset()
        """The ids to which the next `wants` refers."""
        self._tree: Node | None = None
        """The tree of the valid files; None before that, while the policy of an earlier process runs."""
        self._once = Once() if once else None
        self.failure: str | None = None
        """Why the last sidecar process could not start; None once one has started."""
        self._failure_code = ""
        self._proven = False
        """Whether any sidecar process has started."""
        self._changes = Changes()
        self._versions = Versions()
        for at in (ledger.first, ledger.at):
            list(self._versions.carried(ledger.version, at))
        self._serving = False
        self._is_stopping = False
        self._nacked = False
        self._renumberings = 0
        self._stages: dict[Revision, list[str]] = {}
        self._drained = Revision(-1, -1)
        """The newest revision whose drain was reported, or had ended before the first sidecar was ready."""
        self._sent_at: dict[Revision, float] = {}
        self._supplied: dict[str, float] = {}
        self._unknown: frozenset[str] = frozenset()
        self._waits = backoff(*_RETRY_SECONDS)
        self._timer: Again | None = None
        """The timer that counts: a nack to a policy that was sent again for another reason must not start a second
        one."""

    @property
    def waits_for(self) -> str:
        """With `once`, the condition that is not yet met."""
        return self._once.waits_for if self._once else ""

    @property
    def connected(self) -> bool:
        """Whether a sidecar has sent `ready`."""
        return self.ready is not None

    @property
    def hopeless(self) -> bool:
        """Whether no sidecar ever started, for a lasting cause in its state directory."""
        return not self._proven and self.failure is not None and self._failure_code in _LASTING

    def begin(self) -> Effects:
        """The supervisor has started: revokes credentials that were released before."""
        for kept in self.ledger.pending:
            yield Revoke(kept, again=True)

    def stop(self) -> None:
        """The sidecar is asked to stop: no policy is sent any more."""
        self._is_stopping = True

    def expect(self, ids: Iterable[str]) -> None:
        """A policy that refers to these ids follows in `wants`: until then none of them is released."""
        self._expected = frozenset(ids)

    def wants(self, wanted: Wanted, *, asked: bool = False) -> Effects:
        """The files are valid, and perhaps unchanged, which is reported if a person `asked`."""
        before = self.ledger.at
        self._tree, self._expected = wanted.tree, frozenset()
        if self.ledger.adopt(wanted):
            yield Save()
        for kept in wanted.credentials.values():
            if any(one.canonical == kept.canonical for one in self.ledger.pending):
                yield Say("returned", {"credential": kept.id, "sources": kept.sources})
        yield from self._versions.carried(wanted.version, self.ledger.at)
        if self.ledger.at != before:
            self._renumberings, self._waits = 0, backoff(*_RETRY_SECONDS)
            yield from self._policy()
            yield from self._free()
        else:
            yield from self.again(asked=asked)

    def again(self, *, asked: bool = False) -> Effects:
        """Sends a nacked policy again, since the cause may be gone; if there is none and a person `asked`, reports
        that."""
        if self._nacked and self.connected:
            yield from self._policy()
        elif asked:
            yield Say("unchanged", {"revision": str(self.ledger.at)})

    def due(self, timer: Again) -> Effects:
        """A timer has expired; only the newest has an effect."""
        if timer is self._timer:
            self._timer = None
            yield from self.again()

    def started(self) -> Effects:
        """A sidecar process has started."""
        keys = [{"id": key_name(key), "key": base64.b64encode(key).decode()} for key in self._state_keys]
        hello: dict[str, Any] = {
            "type": "hello",
            "protocol": messages.VERSION,
            "supervisor": f"shipper/{__version__}",
            "heartbeat_seconds": _ONCE_HEARTBEAT if self._once else HEARTBEAT,
        }
        hello |= {"state_keys": keys} if keys else {}
        self._began_leased = self._is_leased
        yield Send(hello | ({"lease": True} if self._is_leased else {}))

    def ended(self) -> None:
        """The sidecar process has ended; unanswered messages are open."""
        self.ready, self.observed = None, None
        self._supplied.clear()
        self._stages.clear()
        self._changes.forget()

    def unsent(self, message: Mapping[str, Any]) -> Effects:
        """A message of `Send` was replaced by a newer one before its first byte was written."""
        if message["type"] == "policy" and (at := Revision(message["epoch"], message["revision"])) < self.ledger.at:
            self._releases.unsent(at)
            yield from self._free()

    def forget(self, id: str) -> Effects:
        """A released credential was revoked."""
        if self.ledger.forget(id) is not None:
            yield Save()

    def order(self, id: str) -> Effects:
        """A person has ordered the revocation of a released credential."""
        if (kept := self.ledger.kept.get(id)) is not None and kept.released and not kept.ordered:
            kept.ordered = True
            yield Save()

    def lease(self, until: float | None) -> Iterator[Send]:
        """Lets the sidecar send until this instant of CLOCK_BOOTTIME; None ends the need for a lease."""
        self._is_leased, self._until = until is not None, until
        if self.connected:
            yield Send({"type": "lease", "until": until})

    def withdraw(self, ids: Iterable[str]) -> Iterator[Send]:
        """Takes these secrets from the sidecar, and supplies them to no later one."""
        found = self.ledger.withdraw(ids)
        if found and self.connected:
            yield Send({"type": "credentials", "credentials": dict.fromkeys(found)})

    def received(self, message: messages.Outbound) -> Effects:
        """The sidecar sent a message."""
        match message:
            case Ready():
                yield from self._received_ready(message)
            case Ack():
                yield from self._received_ack(message)
            case Released():
                self._releases.released(message)
            case Nack():
                yield from self._received_nack(message)
            case Observed():
                yield from self._received_observed(message)
            case Error():
                yield from self._received_error(message)
            case Result():
                self._releases.released(Released(credentials=freed(message)))
                fields = {name: getattr(message, name) for name in ("id", "status", "message", "code")}
                yield Say("result", fields)
            case Stopped():  # pragma: no branch - the last one of all
                self.held = self.held.but(message.undelivered)
                yield Say("stopped", {"clean": message.clean, "undelivered": message.undelivered})
        yield from self._free()

    # -- received ------------------------------------------------------------------------------------------------------

    def _received_error(self, message: Error) -> Effects:
        """Before `ready` it is the reason of a failed start, reported once; later it is about a message of ours.

        A message that crosses the stop has no effect, as expected: that is no news.
        """
        if message.code == Code.STOPPING:
            return
        if self.connected:
            fields = {"line": message.line_number, "message": message.message, "code": message.code}
            yield Say("error", fields)
        elif message.message != self.failure:
            self.failure, self._failure_code = message.message, message.code
            consequence = _REMEDY if self.hopeless else ""
            yield Say("start_failed", {"message": message.message, "code": message.code, "consequence": consequence})

    def _received_ready(self, message: Ready) -> Effects:
        if not self._proven:
            self._drained = message.revisions.drained or self._drained
        self.ready, self.failure, self._proven = message, None, True
        self._releases.ready(message)
        yield Say("ready", {"pid": message.pid, "version": message.version, "http": message.http})
        if self._is_leased and (missing := [name for name in _FENCED if name not in message.capabilities]):
            self.ready = None
            yield Say("unfenced", {"version": message.version, "missing": missing, "code": Code.BAD_OPTION})
            yield Finish(78, grace=0.0)
            return
        if self._began_leased != self._is_leased or (self._until is not None and self._until > self._boottime()):
            yield Send({"type": "lease", "until": self._until})
        top = max((at for at in _revisions(message) if at is not None), default=None)
        if top is not None and (top > self.ledger.at or (self._fresh and top == self.ledger.at)):
            self._climb(top)
            yield Save()
        self._fresh = False
        if self.ledger.tells_accepted != (tells := _TELLS in message.capabilities):
            self.ledger.tells_accepted = tells
            yield Save()
            yield Accepted()
        yield from self._versions.stages(message.revisions)
        yield from self._supply(message.credentials_wanted)
        yield from self._policy()

    def _received_ack(self, message: Ack) -> Effects:
        at = Revision(message.epoch, message.revision)
        self._releases.ack(message)
        stages = self._stages.setdefault(at, [])
        if message.stage not in stages:
            stages.append(message.stage)
            yield Say("resumed" if self._is_old(at, message) else "ack", self._ack_fields(at, message))
        yield from self._versions.stage(message.stage, at, message.ledger)
        if at == self.ledger.at:
            self._nacked, self._renumberings = False, 0
        if message.stage != "received" and not self._serving:
            self._serving = True
            yield Serving()
        if message.stage == "drained":
            self._drained = max(self._drained, at)
            self._stages = {other: seen for other, seen in self._stages.items() if other >= at}
            self._sent_at = {other: since for other, since in self._sent_at.items() if other > at}

    def _is_old(self, at: Revision, message: Ack) -> bool:
        """Whether it repeats, after a restart, an earlier `drained`."""
        return message.stage == "drained" and at <= self._drained

    def _ack_fields(self, at: Revision, message: Ack) -> dict[str, Any]:
        fields: dict[str, Any] = {"revision": str(at), "stage": message.stage, "change": message.change}
        if at in self._sent_at:
            fields["milliseconds"] = round((self._clock() - self._sent_at[at]) * 1000)
        if message.ledger is not None:
            counts = message.ledger
            fields["ledger"] = {name: getattr(counts, name) for name in counts.__struct_fields__}
        return fields

    def _received_nack(self, message: Nack) -> Effects:
        at = Revision(message.epoch, message.revision)
        self._releases.nack(message)
        errors = [located(self._tree if at == self.ledger.at else None, error) for error in message.errors]
        yield Say("nack", {"revision": str(at), "reason": message.reason, "errors": errors})
        is_taken = message.reason in ("stale", "conflict", "superseded")
        if not is_taken:
            yield from self._versions.refused(at, message.reason, tuple(errors))
        if at != self.ledger.at:
            return
        self._nacked = True
        if is_taken:
            yield from self._renumbered()
        elif (
            not self._serving
            and not self._is_shared
            and self._tree is not None
            and (message.reason not in ("failed", "superseded") or self._once)
        ):
            yield Finish(1 if message.reason == "failed" else 78)
        elif message.reason == "failed":
            self._timer = Again(next(self._waits))
            yield self._timer

    def _renumbered(self) -> Effects:
        """Gives the policy a new number above those that the sidecar knows, since its number was taken."""
        if self._renumberings >= _RENUMBERINGS:
            yield Say("refused", {"revision": str(self.ledger.at)})
            return
        self._renumberings += 1
        known = self.observed or self.ready
        tops = [at for at in _revisions(known) if at is not None] if known else []
        self._climb(max([self.ledger.at, *tops]))
        yield Save()
        yield from self._policy()

    def _climb(self, above: Revision) -> None:
        before = self.ledger.at
        self.ledger.climb(above)
        self._versions.renumbered(before, self.ledger.at)

    def _received_observed(self, message: Observed) -> Effects:
        before, self.observed = self.observed, message
        queue = message.queue
        self.held = Undelivered(queue.events, queue.bytes, queue.oldest_seconds)
        crossed = self.ledger.supply(message.credentials_wanted).keys() >= set(message.credentials_wanted)
        yield from (Say("unit", fields) for fields in self._changes.of(message.units, crossed=crossed))
        if (before is None or before.state != message.state) and message.state == "FAILED":
            yield Say("failed", {"message": message.message, "code": message.code})
        if not self.connected and message.state == "FAILED":
            yield Finish(78)
            return
        self._releases.meets(message.credentials_in_use)
        if self.ledger.accept(message.credentials_accepted):
            yield Save()
            yield Accepted()
        yield from self._supply(message.credentials_wanted)
        if self._once and not self._once.has_begun:
            self._once.begin(message)
            yield from self._policy()
        elif self._once and message.revisions.active == self.ledger.at and self._once.done(self._inputs(), message):
            yield Say("done", {"failures": self._once.failures})
            yield Finish(1 if self._once.failures else 0)

    def _inputs(self) -> set[str]:
        inputs = self._tree.value.get("inputs") if self._tree and isinstance(self._tree.value, dict) else None
        return {f"inputs.{name}" for name in inputs.value} if inputs and isinstance(inputs.value, dict) else set()

    # -- sent ----------------------------------------------------------------------------------------------------------

    def _policy(self) -> Effects:
        if (
            not self.connected
            or not self.ledger.policy
            or self._is_stopping
            or (self._once and not self._once.has_begun)
        ):
            return
        self._nacked, at = False, self.ledger.at
        self._releases.sent(at, self.ledger.ids)
        self._sent_at.setdefault(at, self._clock())
        yield Say("sent", {"revision": str(at)})
        yield Send(
            {
                "type": "policy",
                "epoch": at.epoch,
                "revision": at.number,
                "sha256": hashlib.sha256(self.ledger.policy.encode()).hexdigest(),
                "policy": self.ledger.policy,
                "credentials": self.ledger.supply(self.ledger.ids),
            }
        )

    def _supply(self, wanted: Sequence[str]) -> Effects:
        """Answers `credentials_wanted`, but not again for an observation that crosses the answer."""
        now = self._clock()
        due = [id for id in wanted if now - self._supplied.get(id, -_SUPPLY_SECONDS) >= _SUPPLY_SECONDS]
        found = self.ledger.supply(due)
        unknown = frozenset(wanted) - self.ledger.supply(wanted).keys()
        if unknown - self._unknown:
            yield Say("unknown", {"credentials": sorted(unknown)})
        self._unknown = unknown
        if found:
            self._releases.meets(found)
            self._supplied |= dict.fromkeys(found, now)
            yield Say("supplied", {"credentials": sorted(found)})
            yield Send({"type": "credentials", "credentials": found})

    def _free(self) -> Effects:
        """Releases the credentials that may be revoked now."""
        held = [id for id, kept in self.ledger.kept.items() if not kept.released]
        free = self._releases.free(held, {*self.ledger.ids, *self._expected})
        for id in free:
            self.ledger.release(id)
            self._releases.forget(id)
        if free:
            yield Save()
        for id in free:
            yield Revoke(self.ledger.kept[id])


def _revisions(message: Ready | Observed) -> tuple[Revision | None, ...]:
    return message.revisions.received, message.revisions.active, message.revisions.drained
