"""The life of a revision: performs the effects of the `Machine`.

One task, `run`, makes the newest offered revision active: a revision that arrives before its predecessor is active
replaces it (`superseded`). A second task, `watch`, sends `drained` and `released` as barriers are settled. `offer`
never waits for the disk or for an earlier revision.

Make before break: all steps that can fail precede the cut, the cut is one transaction, and the steps after it are
synchronous. This path and the data path share only the writer of the spool, where this one goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, TypeVar

import orjson
import trio

from shipper.pipeline.delivery.delivery import Delivery
from shipper.pipeline.intake.intake import Closing, Intake
from shipper.pipeline.keyring import Keyring
from shipper.pipeline.libraries import load_all
from shipper.pipeline.plan import Plan, contacts, make
from shipper.plugin import Output
from shipper.policy.policy import restore_output
from shipper.policy.registry import Registry
from shipper.process import log
from shipper.process.environment import REAL, InThread
from shipper.process.signal import Signal
from shipper.protocol import bounds
from shipper.revisions import effects
from shipper.revisions.effects import Effect, Immediate, Steps
from shipper.revisions.machine import Machine
from shipper.revisions.offer import Candidate, Offer, check_credentials
from shipper.revisions.statements import Refused, Statement
from shipper.sdk.credentials import Credential
from shipper.sdk.errors import ShipperError, anew
from shipper.spool.lane_settings import LaneSettings
from shipper.spool.parts.revisions import Revisions
from shipper.spool.revisions import Cut, Known
from shipper.values import Change
from shipper.values import Revisions as Stages

_log = log.get(__name__)

_MOST_IDS = 20
"""The most credentials that one line of the log names."""

T = TypeVar("T")
Say = Callable[[Statement, Callable[[], None]], None]
"""Takes a statement, and a function to call once it is written."""


class Rollout:
    """The revisions of this process.

    `say` takes statements, `on_change` is called at every progress, `on_active` at each revision that becomes active.
    """

    def __init__(
        self,
        *,
        revisions: Revisions,
        keyring: Keyring,
        registry: Registry,
        intake: Intake,
        delivery: Delivery,
        settled: Signal,
        say: Say,
        on_change: Callable[[], None],
        on_active: Callable[[], None] = lambda: None,
        in_thread: InThread = REAL.in_thread,
    ) -> None:
        self.settled = settled
        self._machine = Machine()
        self._revisions, self._keyring, self._registry = revisions, keyring, registry
        self._intake, self._delivery = intake, delivery
        self._say, self._on_change, self._on_active = say, on_change, on_active
        self._in_thread = in_thread
        self._spare: frozenset[str] = frozenset()
        """The credentials of the last policy that nothing referred to."""
        self._stored = Signal()
        self._offered = Signal()
        self._under_way: tuple[Candidate, trio.CancelScope] | None = None
        self._in_order = trio.Lock()
        """Held from a commit to its statement, so that statements have the order of their commits."""

    @property
    def stages(self) -> Stages:
        return self._machine.stages

    @property
    def in_use(self) -> list[str]:
        """The ids of credentials that anything refers to."""
        return self._machine.in_use

    @property
    def plan(self) -> Plan | None:
        """The running plan."""
        return self._machine.plan

    @property
    def is_configuring(self) -> bool:
        return self._machine.next is not None

    def wanted(self) -> list[str]:
        """Returns the missing ids that queued events, or only inputs of the active revision, need.

        Withdrawn ids are among them, as long as anything refers to them.
        """
        of_outputs = {id for lane in self._delivery.lanes.values() if lane.active for id in lane.key.credentials}
        active = self._machine.active
        of_inputs = () if active is None else set(active.credentials).difference(of_outputs)
        withdrawn = self._keyring.withdrawn.intersection(self.in_use)
        return sorted(id for id in self._delivery.pool.needed().union(of_inputs, withdrawn) if id not in self._keyring)

    @property
    def is_full(self) -> bool:
        """Whether too many replaced revisions wait to be stored, as while the disk hangs."""
        return self._machine.is_full

    async def has_room(self) -> None:
        """Waits while it is full, so that a supervisor cannot fill the memory with policies."""
        while self.is_full:
            await self._stored.wait()

    # -- events --------------------------------------------------------------------------------------------------------

    async def restore(self) -> None:
        """Reads the revisions of the spool, before the first offer."""
        await self._perform(self._machine.look())

    async def offer(self, offer: Offer) -> None:
        """Checks a policy; accepts or refuses it."""
        await self._perform(self._machine.offered(offer))

    async def supply(self, credentials: Mapping[str, object]) -> None:
        """Takes supplied secrets; None withdraws one.

        Raises CredentialError. In a conflict none is kept, otherwise the usable ones are; with a withdrawal, all or
        none.
        """
        withdrawn = {id for id, secret in credentials.items() if secret is None}
        supplied = self._keyring.parse({id: secret for id, secret in credentials.items() if id not in withdrawn})
        refused = await self._keyring.unusable(supplied)
        for error in refused.values() if withdrawn else ():
            raise anew(error)
        self._machine.check_known(withdrawn)
        usable = {id: secret for id, secret in supplied.items() if id not in refused}
        self._keyring.check(usable)
        await self._perform(self._machine.supplied({id: usable[id] for id in usable if id in self.in_use}))
        await self._perform(self._machine.withdrawn(withdrawn))
        self._on_change()
        for error in refused.values():
            raise anew(error)

    async def run(self) -> None:
        """Makes offered revisions active, one at a time."""
        while True:
            await self._offered.wait()
            while (candidate := self._machine.next) is not None:
                await self._bring_up(candidate)

    async def _bring_up(self, candidate: Candidate) -> None:
        with trio.CancelScope() as scope:
            self._under_way = candidate, scope
            await self._perform(self._machine.bring_up(candidate))
        self._under_way = None
        await self._perform(self._machine.ended(candidate))

    async def watch(self) -> None:
        """Sends `drained` and `released` as soon as they are true and durable."""
        while True:
            await self.settled.wait()
            await self.advance()

    async def advance(self) -> None:
        """Sends `drained` and `released` if they have become true."""
        await self._perform(self._machine.settle())

    async def release_now(self, *ids: str) -> list[str]:
        """Returns the ids that nothing refers to after an order; the order's result releases them."""
        return await self._perform(self._machine.release(ids))

    async def texts(self, most_bytes: int) -> tuple[dict[str, str], int]:
        """Returns the texts of stored revisions, without secrets, and how many are left out.

        The active one comes first, then the newest; together they have at most `most_bytes` as JSON.
        """
        texts: dict[str, str] = {}
        newest_first = sorted(self._machine.known, key=lambda at: (at == self.stages.active, at), reverse=True)
        for n, at in enumerate(newest_first):
            text = await self._revisions.policy_text(at)
            if text is None:  # the revision was forgotten meanwhile
                continue
            most_bytes -= len(orjson.dumps(text))
            if most_bytes < 0:
                return texts, len(newest_first) - n
            texts[str(at)] = text
        return texts, 0

    # -- effects -------------------------------------------------------------------------------------------------------

    async def _perform(self, steps: Steps[T]) -> T:
        """Performs effects in their order; returns the result of the steps."""
        with closing(steps):
            answer: Any = None
            error: ShipperError | None = None
            while True:
                try:
                    effect = steps.send(answer) if error is None else steps.throw(error)
                except StopIteration as end:
                    result: T = end.value
                    return result
                answer = error = None
                try:
                    answer = await self._do(effect)
                except ShipperError as raised:
                    error = raised

    async def _do(self, effect: Effect) -> Any:
        match effect:
            case effects.InOrder(steps):
                await self._do_in_order(steps)
            case effects.Read(offer, plan):
                return await self._read(offer, plan)
            case effects.Look(still_used, since):
                return await self._revisions.standing(still_used, since)
            case effects.Store(candidate, active, skipped):
                return await self._store(candidate, active, skipped)
            case effects.Open(plan):
                await load_all({name: output.spec.config for name, output in plan.outputs.items()})
                return await self._intake.prepare(plan)
            case effects.Settle(plan):
                await self._intake.settle(plan)
            case effects.Cut(plan, resumes):
                try:
                    return await (self._resume(plan) if resumes else self._cut(plan))
                except BaseException:
                    self._intake.resume()
                    raise
            case effects.ForgetRevision(at):
                await self._revisions.forget(at)
            case effects.ForgetCredentials(ids, still_used):
                return await self._revisions.forget_credentials(ids, still_used)
            case effects.Advance(oldest, still_used, before, since):
                return await self._revisions.advance(oldest, still_used, before, bounds.IDS_BYTES, since)
            case effects.Release(still_used):
                return await self._revisions.release(still_used)
            case _:
                return self._do_at_once(effect)
        return None

    def _do_at_once(self, effect: Immediate) -> Any:
        match effect:
            case effects.Say(number, statement):
                self._send(number, statement)
            case effects.Check(plan, offered):
                check_credentials(plan, offered, self._keyring)
            case effects.Start():
                self._offered.set()
            case effects.GiveUp(candidate):
                self._give_up(candidate)
            case effects.Keep(offered, withdrawn):
                self._delivery.pool.supplied(self._keyring.keep(offered, withdrawn=withdrawn))
                self._intake.resupply()
            case effects.Withdraw(ids):
                return self._withdraw(ids)
            case effects.Forget(ids, entirely):
                self._keyring.forget(ids, entirely=entirely)
            case effects.Close(prepared):
                self._intake.withdraw(prepared)
            case effects.Switch():
                return self._switch(effect)
            case effects.Changed():
                self._on_change()
            case effects.Activated():  # pragma: no branch - the last one of all
                self.settled.set()
                self._on_active()
                self._on_change()
        return None

    async def _do_in_order(self, steps: Steps[Any]) -> None:
        with trio.CancelScope(shield=True):
            async with self._in_order:
                await self._perform(steps)
        await trio.lowlevel.checkpoint_if_cancelled()

    def _send(self, number: int, statement: Statement) -> None:
        if isinstance(statement, Refused):
            errors = [problem.message for problem in statement.problems]
            _log.warning("a policy was refused", revision=str(statement.at), reason=statement.reason, errors=errors)
        self._say(statement, partial(self._machine.delivered, number))

    async def _read(self, offer: Offer, plan: Plan | None) -> tuple[Plan, dict[str, Credential]]:
        if plan is None:
            plan = await self._in_thread(make, offer.at, offer.text, self._registry)
        taken = await self._keyring.take(offer.credentials)
        self._tell_spare(frozenset(taken).difference(plan.credentials, self.in_use), plan)
        return plan, taken

    def _tell_spare(self, ids: frozenset[str], plan: Plan) -> None:
        """Logs the credentials that nothing refers to, once; they are not kept."""
        new = sorted(ids - self._spare)
        self._spare = ids
        if new:
            text = "credentials came that neither the policy nor a queued event refers to; send a policy without them"
            _log.warning(text, revision=str(plan.at), credentials=new[:_MOST_IDS])

    def _give_up(self, candidate: Candidate) -> None:
        if self._under_way is not None and self._under_way[0] is candidate:
            self._under_way[1].cancel("a newer revision arrived")

    def _withdraw(self, ids: Collection[str]) -> list[Closing]:
        self._keyring.withdraw(ids)
        self._delivery.pool.withdrawn(ids)
        return self._intake.resupply()

    async def _store(
        self, candidate: Candidate, active: Known | None, skipped: Sequence[Candidate]
    ) -> tuple[Change, list[Known]]:
        self._stored.set()
        lanes = [lane.key for lane in self._delivery.lanes.values() if lane.active]
        change = candidate.plan.change(None if active is None else active.meaning, lanes)
        marks = self._keyring.fingerprints(candidate.offered)
        texts = [old.plan.stored("none") for old in skipped]
        return change, await self._revisions.receive(candidate.plan.stored(change), marks, texts)

    async def _cut(self, plan: Plan) -> Cut:
        wanted = [(key, output.settings) for output in plan.outputs.values() for key in output.keys]
        asked = {name: contacts(output.spec) for name, output in plan.outputs.items()}
        return await self._revisions.cut(plan.at, wanted, plan.limits, asked, plan.state)

    async def _resume(self, plan: Plan) -> Cut:
        """Returns the stored lanes after a restart, even if files that the policy names have changed since.

        Cuts if a lane was lost to damage, or if an earlier version needed none for keyed state.
        """
        rows = [row for row in await self._revisions.lanes() if row.active]
        wanted = {(key.output, key.state) for output in plan.outputs.values() for key in output.keys}
        if wanted - {(row.key.output, row.key.state) for row in rows}:
            return await self._cut(plan)
        await self._revisions.take_over(plan.limits)
        return Cut(0, rows, frozenset())

    def _switch(self, switch: effects.Switch) -> list[Closing]:
        plan, cut = switch.plan, switch.cut
        outputs = {row.key.output: self._output(plan, row.key.output, row.settings) for row in cut.lanes}
        self._delivery.take_over(cut.lanes, outputs, cut.retired)
        queue = plan.policy.queue
        retired = queue.retired_max_bytes
        self._intake.entrance.max_bytes = int(queue.max_bytes)
        self._intake.entrance.retired_max_bytes = int(queue.max_bytes if retired is None else retired)
        log.set_level(plan.policy.log_level)
        lanes = {(row.key.output, row.key.state): self._delivery.lanes[row.id] for row in cut.lanes}
        closing = self._intake.switch(plan, switch.prepared, lanes)
        _warn(plan, switch.before)
        return closing

    def _output(self, plan: Plan, name: str, settings: LaneSettings | None) -> Output:
        """Returns the stored output if it differs from the planned one (a file that the policy names has changed)."""
        planned = plan.outputs[name]
        if settings is not None and planned.settings != settings:
            with suppress(ShipperError):
                return restore_output(planned.spec.type, settings.values, self._registry)
        return planned.spec.config


def _warn(plan: Plan, before: Plan | None) -> None:
    """Logs the warnings of a plan that the one before did not have, so that a rotation repeats none."""
    for name, warning in sorted(plan.warnings - (before.warnings if before is not None else frozenset())):
        _log.warning(f"output {name}: {warning}", revision=str(plan.at))
