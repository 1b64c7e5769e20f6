"""One member: a state directory with its ledger, a conversation, and the sidecar at its other end.

`Conversation` decides, on one event at a time under one lock, and the effects are performed in order before the next
event. So a `Save` that fails (a full disk) delays every later effect, and nothing is sent or revoked that is not in the
state. Meanwhile the sidecar continues to ship; other members are not affected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec
import trio

from shipper.protocol.messages import Error, Observed, Ready, Result
from shipper.sdk.codes import Code
from shipper.sdk.descriptors import in_words
from shipper.sdk.retry import backoff
from shipper.supervise import standing
from shipper.supervise.answers import Answer
from shipper.supervise.child import Child, Message, exit_in_words
from shipper.supervise.collected import Holding
from shipper.supervise.conversation import (
    HEARTBEAT,
    Accepted,
    Again,
    Conversation,
    Effect,
    Effects,
    Finish,
    Revoke,
    Save,
    Say,
    Send,
    Serving,
    Undelivered,
)
from shipper.supervise.launcher import RETRY_SECONDS, Launcher
from shipper.supervise.ledger import Kept, Ledger, Wait, Wanted
from shipper.supervise.once import lasting
from shipper.supervise.options import Options
from shipper.supervise.order_results import Orders, outcome, refused
from shipper.supervise.questions import Leave, Order, Question, Status
from shipper.supervise.secrets import hide
from shipper.supervise.standing import UNABLE, UNSAVED, UNSERVED, Troubles
from shipper.supervise.vault import Vault

_STABLE_SECONDS = 60.0
_WRONGLY_CALLED = (2, 78)
_SILENCE_SECONDS = 4 * HEARTBEAT
_SAVE_SECONDS = (0.1, 10.0)
_OVERTIME_SECONDS = 5.0
_KILLED_SECONDS = 1.0
_ANSWER_SECONDS = 1.0
_ASK_SECONDS = (10.0, 300.0)


class Around(Protocol):
    """The agent's interface for a member; no method waits."""

    def say(self, member: Member, what: str, fields: Mapping[str, Any]) -> None:
        """Reports an event."""
        ...

    def environment(self) -> Mapping[str, str]:
        """Returns the environment of a sidecar, without secrets."""
        ...

    def released(self, *, again: bool) -> None:
        """The member has released a credential; `again` if an earlier process reported it."""
        ...

    def answered(self, member: Member, answer: Answer) -> None:
        """A version of the policy has reached a stage."""
        ...

    def serving(self) -> None:
        """A policy is active for the first time."""
        ...

    def stopping(self) -> None:
        """The member has begun to stop."""
        ...

    def waiting(self) -> Mapping[str, Wait]:
        """Returns the released credentials that are not revoked yet, each with what it waits for."""
        ...

    async def revoke(self, id: str) -> Result:
        """Has a released credential revoked, whatever it waits for; returns the outcome for a person."""
        ...

    def status(self) -> Mapping[str, Any]:
        """Returns what the source of policies adds to the answer to `shipper status`."""
        ...

    async def leave(self) -> Result:
        """Stops every member, for ever, and tells those who share the policy; returns the outcome for a person."""
        ...


class _Offer(msgspec.Struct, frozen=True):
    """A policy that the member has not yet taken; a newer one replaces it."""

    wanted: Wanted
    asked: bool
    over: Mapping[str, Mapping[str, Any]]
    """Events to report with the revision, each with its fields."""


class Member:
    """`run` it once. `status` is its exit status; `killed` is whether the sidecar had to be killed."""

    def __init__(
        self, options: Options, vault: Vault, around: Around, *, is_shared: bool = False, is_leased: bool = False
    ) -> None:
        """`options.state` is the directory that the vault owns; for the rest see `Conversation`. Raises
        StateLocked."""
        ledger, existed = vault.load()
        for kept in ledger.kept.values():
            hide(kept.credential, kept.shapes)
        self.state = options.state
        self.troubles = Troubles(self._pass_on)
        self.status, self.killed = 0, False
        self._options, self._vault, self._around = options, vault, around
        self._conversation = Conversation(
            ledger,
            fresh=not existed,
            state_keys=options.config.state_keys if vault.is_taken_over else (),
            once=options.once,
            is_shared=is_shared,
            is_leased=is_leased,
        )
        self.ended = trio.Event()
        """Set when its sidecar has stopped for ever."""
        self._released = {kept.id for kept in ledger.pending}
        """Ids whose release is durable."""
        self._lock = trio.Lock()
        self._offer: _Offer | None = None
        self._offered = trio.Event()
        self._child: Child | None = None
        self._sent_supervision: Mapping[str, Any] | None = None
        """The last `supervision` that was sent to this sidecar."""
        self._asked: frozenset[str] = frozenset()
        """The credentials that this sidecar was asked about last."""
        self._orders = Orders()
        self._observed = trio.Event()
        self._phase = "starting"
        self._stopping = trio.Event()
        self._within = 0.0
        command = options.config.launch(options.state)
        self._launcher = Launcher(command, around.environment, self._stopping, self._launch_failed, options.spare)

    @property
    def name(self) -> str:
        """Its name for reports and sources of policies."""
        return str(self.state)

    @property
    def ledger(self) -> Ledger:
        return self._conversation.ledger

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def is_opening(self) -> bool:
        """Whether a sidecar runs that has not said yet that it is ready: it may have a large spool to look through."""
        return self._child is not None and not self._conversation.connected

    def touch(self) -> None:
        """Makes a change in its state directory durable. Blocks. Raises OSError."""
        self._vault.touch()

    @property
    def held(self) -> Undelivered:
        """What the sidecar held when it was heard last."""
        return self._conversation.held

    @property
    def observed(self) -> Observed | None:
        """The newest observation of the present sidecar."""
        return self._conversation.observed

    @property
    def http(self) -> str | None:
        """Where the sidecar answers over HTTP; None while it does not."""
        ready = self._conversation.ready
        return ready.http if self._child is not None and ready is not None else None

    async def stopped(self) -> None:
        """Returns when the member was told to stop."""
        await self._stopping.wait()

    async def run(self) -> None:
        """Keeps a sidecar running with the offered policy, until it is stopped."""
        try:
            await self._run()
        finally:
            self.ended.set()

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._end_in_time)
            await self._perform(self._conversation.begin())
            await self._adopt()
            nursery.start_soon(self._follow_offers)
            nursery.start_soon(self._ask_again)
            if self._options.once_timeout < math.inf:
                nursery.start_soon(self._watch_time)
            await self._keep_sidecar()
            self._phase = "ended"
            nursery.cancel_scope.cancel("the sidecar has stopped as asked")

    async def answer(self, question: Question) -> Mapping[str, Any]:
        """Returns the answer to a question of a person."""
        match question:
            case Status():
                return await self._status()
            case Order("revoke", params):
                return outcome(await self._around.revoke(str(params.get("credential", ""))))
            case Order(name, params):
                return self._with_waits(outcome(await self.order(name, params)))
            case Leave():
                return outcome(await self._around.leave())

    def _with_waits(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Adds which of the credentials that an order has released wait before they can be revoked."""
        released, waiting = answer["result"].get("released"), self._around.waiting()
        waits = [id for id in released if id in waiting] if isinstance(released, list) else []
        return {**answer, "result": {**answer["result"], "waits": waits}} if waits else answer

    async def order(self, name: str, params: Mapping[str, Any]) -> Result:
        """Gives an order to the sidecar; returns its result."""
        if self._child is None or not self._conversation.connected:
            return refused(f"the sidecar takes no order now ({self._phase})", Code.NOT_RUNNING)
        self._say("ordered", name=name, params=params)
        return await self._orders.give(self._child.send, name, params)

    def lease(self, until: float | None) -> None:
        """Lets the sidecar send until this instant of CLOCK_BOOTTIME; None ends the need for a lease. Never waits."""
        self._at_once(self._conversation.lease(until))

    def withdraw(self, ids: Iterable[str]) -> None:
        """Takes these secrets from the sidecar, before any later lease. Never waits; `save` it for later processes."""
        self._at_once(self._conversation.withdraw(ids))

    async def order_revocation(self, id: str) -> None:
        """Returns when it is durable that a person has ordered the revocation of a released credential."""
        await self._perform(self._conversation.order(id))

    async def save(self) -> None:
        """Returns when what was withdrawn is durable."""
        await self._perform(iter((Save(),)))

    def _at_once(self, effects: Iterable[Send]) -> None:
        """Sends what waits for no state to be saved."""
        for effect in effects:
            if self._child is not None:
                self._child.send(effect.message)

    async def _status(self) -> dict[str, Any]:
        """Returns the status, without secrets; with a new observation if the sidecar answers soon."""
        if self._child is not None:
            self._observe(self._child)
            with trio.move_on_after(_ANSWER_SECONDS):
                await self._observed.wait()
        pid = self._child.pid if self._child else None
        waiting = self._around.waiting()
        found = standing.status(
            self._conversation, self.troubles, self._phase, pid, self._restarts, waiting, self._options.paths
        )
        return {**found, **self._around.status()}

    def _say(self, what: str, **fields: Any) -> None:
        self._around.say(self, what, fields)

    # -- the policy ----------------------------------------------------------------------------------------------------

    def offer(self, wanted: Wanted, *, asked: bool, over: Mapping[str, Mapping[str, Any]]) -> None:
        """Makes this the policy as soon as the state can be saved; until then none of its credentials is released.

        If a person `asked`, an unchanged policy is reported. `over` are events to report with its revision.
        """
        before = self._offer
        if before is not None:
            asked, over = asked or before.asked, {**before.over, **over}
        self._offer = _Offer(wanted, asked, over)
        self._conversation.expect(wanted.credentials)
        self._offered.set()

    async def _follow_offers(self) -> None:
        while True:
            await self._offered.wait()
            await self._adopt()

    async def _adopt(self) -> None:
        async with self._lock:
            offer, self._offer = self._offer, None
            self._offered = trio.Event()
            if offer is None:
                return
            self._released -= offer.wanted.credentials.keys()
            for effect in self._conversation.wants(offer.wanted, asked=offer.asked):
                await self._effect(effect)
        self._around.released(again=False)  # what waited for the credentials of an offer that this one replaced goes on
        self._pass_on()
        for what, fields in offer.over.items():
            self._say(what, revision=str(self.ledger.at), **fields)

    async def forget(self, id: str, *, is_told: bool = True) -> None:
        """Removes a revoked credential; returns when that is durable. Unless `is_told`, no status names it any more."""
        if is_told and (kept := self.ledger.kept.get(id)) is not None:
            revoked = self._options.config.on_release is not None or kept.shared
            self.ledger.note_gone(standing.gone(kept, revoked=revoked))
        await self._perform(self._conversation.forget(id))
        self._released.discard(id)

    @property
    def released(self) -> list[Kept]:
        """Returns the credentials that this member never uses again, even after a crash now."""
        return [kept for id, kept in self.ledger.kept.items() if id in self._released]

    @property
    def live(self) -> list[Kept]:
        """Returns the credentials that it may still use, and those of a policy that it has not yet taken."""
        offered = self._offer.wanted.credentials.values() if self._offer is not None else ()
        return [*(kept for id, kept in self.ledger.kept.items() if id not in self._released), *offered]

    @property
    def holding(self) -> Holding:
        """Returns these, and the credentials that it may still use."""
        held = (kept.canonical for id, kept in self.ledger.kept.items() if id not in self._released)
        return Holding(frozenset(held), {kept.id: kept.canonical for kept in self.released})

    # -- effects -------------------------------------------------------------------------------------------------------

    async def _perform(self, effects: Effects) -> None:
        """Performs the effects of one event, before the next event."""
        async with self._lock:
            for effect in effects:
                await self._effect(effect)
        self._pass_on()

    async def _effect(self, effect: Effect) -> None:
        match effect:
            case Save():
                await self._save()
            case Send(message):
                for replaced in self._child.send(message) if self._child is not None else ():
                    for consequence in self._conversation.unsent(replaced):
                        await self._effect(consequence)
            case Say(what, fields):
                self._around.say(self, what, fields)
            case Answer():
                self._around.answered(self, effect)
            case Revoke(kept, again):
                self._released.add(kept.id)
                self._around.released(again=again)
            case Accepted():
                self._around.released(again=False)
            case Again():
                self._nursery.start_soon(self._again, effect)
            case Serving():
                self._around.serving()
            case Finish(status, grace):
                self.stop(status, grace)

    async def _save(self) -> None:
        for seconds in backoff(*_SAVE_SECONDS):
            try:
                await trio.to_thread.run_sync(self._vault.save, self.ledger)
                self.troubles.over(UNSAVED)
                return
            except OSError as error:
                self.troubles.begin(UNSAVED, [in_words(error)])
                self._say("save_failed", state="DEGRADED", message=in_words(error))
                await trio.sleep(seconds)

    async def _again(self, timer: Again) -> None:
        await trio.sleep(timer.seconds)
        await self._perform(self._conversation.due(timer))

    # -- the sidecar ---------------------------------------------------------------------------------------------------

    async def _keep_sidecar(self) -> None:
        """Launches the sidecar, and again when it ends, until the member stops."""
        waits = backoff(*RETRY_SECONDS)
        while not self._stopping.is_set():
            since = trio.current_time()
            reason = await self._one_sidecar()
            if self._stopping.is_set():
                return
            if self._conversation.failure is None and trio.current_time() - since > _STABLE_SECONDS:
                waits = backoff(*RETRY_SECONDS)
            seconds = next(waits)
            self._phase = f"restarting ({reason})"
            self._say("ended", reason=reason, seconds=seconds)
            with trio.move_on_after(seconds):
                await self._stopping.wait()

    async def _one_sidecar(self) -> str:
        """Runs one sidecar process; returns how it ended, in words."""
        child = self._child = await self._launcher.launch()
        if child is None:
            return ""
        self._say("launched", pid=child.pid)
        await self._perform(self._conversation.started())
        if self._stopping.is_set():
            self._ask_to_stop(child)
        else:
            self._phase = "running"
        try:
            code = await child.converse(self._receive, self._silence)
        finally:
            self._child = self._sent_supervision = None
            self._asked = frozenset()
        if child.silent:
            self._say("silent", seconds=_SILENCE_SECONDS)
        self._conversation.ended()
        self._orders.lost()
        if self._stopping.is_set():
            self.status = self.status or (1 if code else 0)
        elif code in _WRONGLY_CALLED or self._conversation.hopeless:
            self.stop(78)
        return exit_in_words(code)

    @property
    def _restarts(self) -> int:
        return max(0, self._launcher.launches - 1)

    def _pass_on(self) -> None:
        """Sends a changed `supervision` to the sidecar, if it has a status server, or a receiver, to show it to; asks
        it at once about credentials that others wait for."""
        ready = self._conversation.ready
        if self._child is None or ready is None:
            return
        is_shown = ready.http is not None or self._options.config.otlp is not None
        if self._awaited() - self._asked or (is_shown and self._sent_supervision != self._supervision()):
            self._observe(self._child)

    def _observe(self, child: Child) -> None:
        """Sends `observe` with all its fields, since it replaces one that is not yet written."""
        self._sent_supervision, self._asked = self._supervision(), self._awaited()
        asks = {"ask": sorted(self._asked)} if self._asked else {}
        child.send({"type": "observe", "supervisor": self._sent_supervision, **asks})

    def _awaited(self) -> frozenset[str]:
        """Returns the credentials that released ones wait for until a destination accepts them, as others may wait for
        each that is shared."""
        waits = [wait.id for wait in self._around.waiting().values() if wait.until == "accepted"]
        ledger = self.ledger
        shared = (ledger.kept[id] for id in ledger.ids if ledger.tells_accepted and id in ledger.kept)
        return frozenset([*waits, *(kept.id for kept in shared if kept.shared and kept.is_awaited)])

    async def _ask_again(self) -> None:
        """Has the sidecar ask the destinations of these credentials now and then, more and more seldom; runs for
        ever."""
        before, waits = self._awaited(), backoff(*_ASK_SECONDS)
        while True:
            await trio.sleep(next(waits))
            awaited = self._awaited()
            if awaited - before:
                waits = backoff(*_ASK_SECONDS)
            before = awaited
            if self._child is not None and self._conversation.connected and awaited:
                self._observe(self._child)

    def _supervision(self) -> dict[str, Any]:
        return standing.supervision(
            self._conversation,
            self.troubles,
            self._restarts,
            self.state,
            self._around.waiting(),
            self._options.paths,
        )

    def _launch_failed(self, reason: str, seconds: float) -> None:
        self.troubles.begin(UNABLE, [reason])
        self._say("launch_failed", state="DEGRADED", message=reason, seconds=seconds)

    async def _receive(self, message: Message | None) -> None:
        if message is None:
            self._say("garbled")
        else:
            await self._perform(self._conversation.received(message))
            if isinstance(message, Ready | Error):
                self._note_start()
            if isinstance(message, Result):
                self._orders.answered(message)
            if isinstance(message, Observed):
                self._observed.set()
                self._observed = trio.Event()

    def _note_start(self) -> None:
        """Updates the troubles after a start of the sidecar, or its end."""
        address, ready = self._options.config.http, self._conversation.ready
        if self._conversation.failure:
            self.troubles.begin(UNABLE, [self._conversation.failure])
        elif ready is not None:
            self.troubles.over(UNABLE)
            self.troubles.over(UNSERVED)
            if address is not None and ready.http is None:
                self.troubles.begin(UNSERVED, [f"{address} cannot be used, perhaps because another process uses it"])
                self._say("unserved", state="DEGRADED", address=address)

    def _silence(self) -> float:
        """Returns the seconds without a line after which a sidecar counts as dead; opening a large spool may take
        long."""
        return _SILENCE_SECONDS if self._conversation.connected else math.inf

    # -- the end -------------------------------------------------------------------------------------------------------

    def stop(self, status: int, grace: float | None = None) -> None:
        """Stops in order, once; `grace` in seconds replaces that of the options."""
        if self._stopping.is_set():
            return
        self.status = status
        self._phase = "stopping"
        self._stopping.set()
        self._conversation.stop()
        self._around.stopping()
        if self._child is not None or self._launcher.launching:
            self._within = self._options.grace if grace is None else grace
            self._say("stopping", seconds=self._within, waits=bool(self.held.events and self._within))
        if self._child is not None:
            self._ask_to_stop(self._child)

    def _ask_to_stop(self, child: Child) -> None:
        """Sends `stop`. Called again after `hello`, it sends one: the newer `stop` replaces one before `hello`."""
        child.send({"type": "stop", "within_seconds": self._within})

    async def _end_in_time(self) -> None:
        """Ends a sidecar that does not end in time, and then tasks that wait for a state that cannot be saved."""
        await self._stopping.wait()
        await trio.sleep(self._within + _OVERTIME_SECONDS)
        if self._child is not None:
            self._child.kill()
            await trio.sleep(_KILLED_SECONDS)
        reason = UNSAVED if UNSAVED in self.troubles else "the sidecar does not end"
        self.status, self.killed = 1, True
        self._say("killed", reason=reason)
        self._nursery.cancel_scope.cancel(reason)

    async def _watch_time(self) -> None:
        """Ends `--once` after `--once-timeout` of refusals by a destination, or without a sidecar that starts."""
        await lasting(self._options.once_timeout, self._hindered)
        self._say("waits", reason=self._conversation.waits_for)
        self.stop(1, grace=0.0)

    def _hindered(self) -> bool:
        """Whether a destination refuses, or no sidecar reports after a restart; the first may take long to start."""
        observed = self._conversation.observed
        return observed.state in ("DEGRADED", "FAILED") if observed else self._launcher.launches > 1
