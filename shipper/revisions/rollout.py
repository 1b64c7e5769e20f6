"""The life of a revision.

    policy ─> checked, planned ─> received ─> new inputs opened ─> cut ─> active ─> retired lanes drain ─> drained
              │ any doubt: nack; nothing changed                  │ failed: nack; the old pipeline runs on

`offer` checks and plans, in the order of the lines, and decides at once; it never waits for the disk or for an earlier
revision. One task, `run`, makes the newest offered revision active: a revision that arrives before its predecessor is
active replaces it (`superseded`). A second task, `watch`, says `drained` and `released` as barriers are settled.

Make before break: whatever can fail is done before the cut, the cut is one transaction, and what follows it is
synchronous. This path shares with the data path the writer of the spool, where it goes first, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import orjson
import trio

from shipper.pipeline.delivery import Delivery
from shipper.pipeline.intake import Closing, Intake, Running
from shipper.pipeline.keyring import Keyring, is_id, unusable
from shipper.pipeline.libraries import load_all
from shipper.pipeline.plan import Plan, digest, make
from shipper.plugin import Output
from shipper.policy.policy import restore_output
from shipper.policy.registry import Registry
from shipper.process import log
from shipper.process.signal import Signal
from shipper.protocol import bounds
from shipper.protocol.bounds import parts
from shipper.protocol.messages import Ack, Nack, NackError, Outbound, Policy, Reason, Released
from shipper.revisions.offer import (
    Candidate,
    check_credentials,
    check_ids,
    check_same,
    out_of_order,
    refusal,
    some_errors,
    without_secrets,
)
from shipper.sdk.codes import Code
from shipper.sdk.credentials import Credential
from shipper.sdk.errors import CredentialError, PolicyError, ShipperError, StartFailed
from shipper.spool.credentials import Before
from shipper.spool.revisions import Cut, Known
from shipper.spool.spool import Spool
from shipper.values import Revision, Revisions

_log = log.get(__name__)

FULL = 64
"""Revisions that were replaced before they were stored."""
FULL_CHARACTERS = 1 << 20
"""Of their texts. What a policy is in memory may be many times its text."""


class Rollout:
    """The revisions of this process.

    `say` takes what is to be written, `is_written` knows whether it was, `on_change` is told of every progress,
    `on_active` of each revision that has become active.
    """

    def __init__(
        self,
        *,
        spool: Spool,
        keyring: Keyring,
        registry: Registry,
        intake: Intake,
        delivery: Delivery,
        settled: Signal,
        say: Callable[[Outbound], None],
        is_written: Callable[[Outbound], bool],
        on_change: Callable[[], None],
        on_active: Callable[[], None] = lambda: None,
    ) -> None:
        self.stages = Revisions()
        self.in_use: list[str] = []
        self.plan: Plan | None = None
        self.settled = settled
        self._spool, self._keyring, self._registry = spool, keyring, registry
        self._intake, self._delivery = intake, delivery
        self._say, self._is_written = say, is_written
        self._on_change, self._on_active = on_change, on_active
        self._drained: Ack | None = None
        """The last `drained` that this process has said."""
        self._known: dict[Revision, Known] = {}
        self._pending: list[Candidate] = []
        """On their way, the newest last: at most one that resumes, one that is decided, and one more."""
        self._spent: list[Candidate] = []
        """Replaced before they were stored; they are stored with the one that replaced them."""
        self._stored = Signal()
        self._arriving: frozenset[str] = frozenset()
        """Credentials that came with the policy that is being looked at."""
        self._offered = Signal()
        self._closing: list[tuple[Revision, Closing]] = []
        self._in_order = trio.Lock()
        """Held from a commit until its ack is said, so that acks are said in the order of their commits."""

    async def restore(self) -> None:
        """What the spool knows, before anything is offered."""
        await self._refresh()

    @property
    def is_configuring(self) -> bool:
        return bool(self._pending)

    @property
    def _active(self) -> Known | None:
        return None if self.stages.active is None else self._known.get(self.stages.active)

    def wanted(self) -> list[str]:
        """Ids that queued events, or inputs of the active revision alone, need and that are not held.

        Also those that were withdrawn, as long as anything refers to them.
        """
        of_outputs = {lane.key.credential for lane in self._delivery.lanes.values() if lane.active}
        of_inputs = () if self._active is None else set(self._active.credentials).difference(of_outputs)
        withdrawn = self._keyring.withdrawn.intersection(self.in_use)
        return sorted(id for id in self._delivery.needed().union(of_inputs, withdrawn) if id not in self._keyring)

    @property
    def is_full(self) -> bool:
        """Whether very much waits to be stored, as while the disk hangs."""
        return len(self._spent) >= FULL or sum(len(old.plan.text) for old in self._spent) >= FULL_CHARACTERS

    async def has_room(self) -> None:
        """Wait while it is full: so a supervisor that goes on sending policies cannot fill our memory with them."""
        while self.is_full:
            await self._stored.wait()

    # -- offered -------------------------------------------------------------------------------------------------------

    async def offer(self, message: Policy) -> None:
        """Check a policy and put it on its way, or nack it."""
        self._arriving = frozenset(message.carried)
        try:
            await self._look_at(message)
        finally:
            self._arriving = frozenset()

    async def _look_at(self, message: Policy) -> None:
        sha256 = digest(message.policy)
        if message.sha256 is not None and message.sha256.lower() != sha256:
            error = NackError("sha256", 1, 1, "sha256 is not that of the policy's text", Code.SHA256_MISMATCH)
            return self._refuse(message, sha256, "invalid", [error])
        if self._is_out_of_order(message, sha256):
            return None
        try:
            plan = await self._plan(message, sha256)
            taken = await self._keyring.take(message.credentials)
            check_ids(plan.credentials, {*self.in_use, *self._pending_use()})
            check_same(taken, (*self._pending, *self._spent))
            offered = {id: secret for id, secret in taken.items() if id in plan.credentials}
            check_credentials(plan, offered, self._keyring)
        except (PolicyError, CredentialError) as error:
            return self._refuse(message, sha256, *refusal(error))
        if self._is_out_of_order(message, sha256):  # a newer one may have become active while this one was planned
            return None
        return self._accept(plan, offered)

    async def _plan(self, message: Policy, sha256: str) -> Plan:
        """What is on its way, or runs, is not made anew: a file that it names may be gone. Raises PolicyError."""
        for plan in (*(candidate.plan for candidate in self._pending), self.plan):
            if plan is not None and (plan.at, plan.sha256) == (message.at, sha256):
                return plan
        return await trio.to_thread.run_sync(make, message.at, message.policy, self._registry)

    def _is_out_of_order(self, message: Policy, sha256: str) -> bool:
        """Whether a policy may not come under its number; it is nacked then."""
        newest = self._pending[-1] if self._pending else None
        found = out_of_order(message.at, sha256, self._known, self.stages.active, newest)
        if found is not None:
            reason, text = found
            self._refuse(message, sha256, reason, [NackError("revision", 1, 1, text, reason)])
        return found is not None

    async def supply(self, credentials: Mapping[str, object]) -> None:
        """Secrets that were asked for, and with None those that are withdrawn.

        Raises CredentialError: in a conflict none is kept, else what can be used is; with one that is withdrawn, all
        or nothing.
        """
        withdrawn = {id for id, secret in credentials.items() if secret is None}
        supplied = self._keyring.parse({id: secret for id, secret in credentials.items() if id not in withdrawn})
        refused = await unusable(supplied)
        for error in refused.values() if withdrawn else ():
            raise error
        self._check_known(withdrawn)
        usable = {id: secret for id, secret in supplied.items() if id not in refused}
        self._keyring.check(usable)
        self._keep({id: secret for id, secret in usable.items() if id in self.in_use})
        self._withdraw(withdrawn)
        self._on_change()
        for error in refused.values():
            raise error

    def _check_known(self, ids: Iterable[str]) -> None:
        """Raises CredentialError for one that nothing refers to."""
        known = {*self.in_use, *self._pending_use()}
        for id in sorted(ids):
            if id not in known:
                named = f"`{id}`" if is_id(id) else f"with an id of {len(id)} characters"
                raise CredentialError("invalid", f"credential {named} is not in use; nothing was withdrawn")

    def _keep(self, offered: Mapping[str, Credential]) -> None:
        """Hold these secrets; who misses one of them goes on."""
        for candidate in self._pending:
            candidate.withdrawn.difference_update(offered)
        self._supplied(self._keyring.keep(offered))

    def _supplied(self, missing: Collection[str]) -> None:
        self._delivery.supplied(missing)
        self._intake.resupply()

    def _withdraw(self, ids: Collection[str]) -> None:
        """Hold these secrets no longer; what uses them ends, or goes on without."""
        self._keyring.withdraw(ids)
        for candidate in self._pending:
            candidate.withdrawn.update(ids)
        self._delivery.withdrawn(ids)
        at = self.stages.active
        self._closing += [(at, closing) for closing in self._intake.resupply() if at is not None]

    def _accept(self, plan: Plan, offered: Mapping[str, Credential]) -> None:
        same = next((candidate for candidate in self._pending if candidate.plan.at == plan.at), None)
        if same is not None:
            same.withdrawn.difference_update(offered)
        resumes = plan.at == self.stages.active and plan.at in self._known  # else its row was lost, and it comes anew
        if same is not None and not same.resumes:
            if same.said is not None:
                self._say(same.said)
            return
        if same is not None or (resumes and self.plan is not None):
            self._keep(offered)
            self._say(self._highest(plan.at))
            return
        candidate = Candidate(plan, offered, resumes)
        if resumes:
            self._pending.insert(0, candidate)
        else:
            self._supersede()
            self._pending.append(candidate)
        self._offered.set()
        self._on_change()

    def _supersede(self) -> None:
        """A newer revision arrived: what is not active yet will not be, unless it is the active one that resumes."""
        for old in [old for old in self._pending if not (old.decided or old.resumes)]:
            old.scope.cancel("a newer revision arrived")
            self._pending.remove(old)
            self._spent.append(old)

    def _refuse(self, message: Policy, sha256: str, reason: Reason, errors: Iterable[NackError] = ()) -> None:
        kept = {*self.in_use, *self._pending_use()}
        told = without_secrets(errors, message.credentials)
        forgotten = sorted(id for id in set(message.carried).difference(kept) if is_id(id))
        self._nack(message.at, sha256, reason, told, forgotten)

    def _nack(
        self, at: Revision, sha256: str, reason: Reason, errors: Iterable[NackError], released: Iterable[str]
    ) -> None:
        told = some_errors(errors)
        _log.warning("a policy was refused", revision=str(at), reason=reason, errors=[e.message for e in told])
        some, *others = list(parts(list(released))) or [()]
        self._say(Nack.of(at, sha256, reason, told, some))
        for more in others:
            self._say(Released(credentials=more))

    # -- received, and the cut -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Make offered revisions active, one at a time."""
        while True:
            await self._offered.wait()
            while self._pending:
                candidate = self._pending[0]
                with candidate.scope:
                    await self._bring_up(candidate)
                self._done(candidate)

    def _done(self, candidate: Candidate) -> None:
        if candidate in self._pending:
            self._pending.remove(candidate)
            self._on_change()

    async def _bring_up(self, candidate: Candidate) -> None:
        plan = candidate.plan
        if candidate.resumes and plan.at != self.stages.active:
            self._overtaken(candidate)
            return
        try:
            if not candidate.resumes:
                await self._receive(candidate)
            self._supplied(self._keyring.keep(candidate.offered, withdrawn=candidate.withdrawn))
            await self._refresh()
            await load_all({name: output.spec.config for name, output in plan.outputs.items()})
            prepared = await self._intake.prepare(plan)
        except StartFailed as error:
            if not candidate.scope.cancel_called:  # else its nack says `superseded`
                await self._fail(candidate, error)
            return
        if candidate.scope.cancel_called:
            self._intake.withdraw(prepared)
            return
        candidate.decided = True
        with trio.CancelScope(shield=True):
            async with self._in_order:
                cut = await self._resume(plan) if candidate.resumes else await self._cut(plan)
                self._switch(plan, cut, prepared)
                await self._refresh()
                self._done(candidate)  # until it is known as active, its being on its way makes older ones stale
                self._say(self._highest(plan.at))
        self.settled.set()
        self._on_active()
        self._on_change()

    def _overtaken(self, candidate: Candidate) -> None:
        """A newer revision became active while the one before it waited to resume."""
        self._done(candidate)
        at, released = candidate.plan.at, set(candidate.offered).difference(self.in_use, self._pending_use())
        text = f"revision {at} is older than revision {self.stages.active}"
        error = NackError("revision", 1, 1, text, Code.STALE)
        self._nack(at, candidate.plan.sha256, "stale", [error], sorted(released))

    async def _receive(self, candidate: Candidate) -> None:
        """Durable, then said; those that it replaced are nacked first."""
        plan = candidate.plan
        with trio.CancelScope(shield=True):
            async with self._in_order:
                if not candidate.scope.cancel_called:  # else it is among the spent ones, and was never stored
                    candidate.said = await self._store(plan, candidate)
                    self._say(candidate.said)
        await trio.lowlevel.checkpoint_if_cancelled()
        self._on_change()

    async def _store(self, plan: Plan, candidate: Candidate) -> Ack:
        active = [lane.key for lane in self._delivery.lanes.values() if lane.active]
        change = plan.change(None if self._active is None else self._active.meaning, active)
        spent, self._spent = self._spent, []
        self._stored.set()
        marks = self._keyring.fingerprints(candidate.offered)
        skipped = [old.plan.stored("none") for old in spent]
        superseded = await self._spool.receive(plan.stored(change), marks, skipped)
        await self._refresh()
        for old in superseded:
            self._nack(old.at, old.sha256, "superseded", (), await self._forget(old.credentials))
        return Ack(epoch=plan.at.epoch, revision=plan.at.number, sha256=plan.sha256, stage="received", change=change)

    async def _fail(self, candidate: Candidate, cause: StartFailed) -> None:
        """The number is not spent; the old pipeline runs on."""
        candidate.decided = True
        with trio.CancelScope(shield=True):
            async with self._in_order:
                if not candidate.resumes:
                    await self._spool.forget(candidate.plan.at)
                self._done(candidate)
                await self._refresh()
                released = await self._forget(candidate.plan.credentials)
        error = NackError("", 1, 1, str(cause), cause.code)
        self._nack(candidate.plan.at, candidate.plan.sha256, "failed", [error], released)

    async def _forget(self, ids: Collection[str]) -> list[str]:
        """After a nack; call `_refresh` before, and say what is returned at once."""
        forgotten = await self._spool.forget_credentials(ids, self._still_used())
        released = self._unneeded(forgotten.released)
        self._keyring.forget(released)
        self._keyring.forget(self._unneeded(forgotten.never_used), entirely=True)
        return released

    def _unneeded(self, ids: Iterable[str]) -> list[str]:
        """Those that no revision refers to that has come meanwhile, perhaps the one that was nacked."""
        needed = {*self.in_use, *self._pending_use(), *self._arriving}
        return [id for id in ids if id not in needed]

    async def _cut(self, plan: Plan) -> Cut:
        wanted = [(output.key, output.settings) for output in plan.outputs.values()]
        telling = [name for name, output in plan.outputs.items() if output.spec.config.tells_of_answers]
        return await self._spool.cut(plan.at, wanted, plan.limits, telling)

    async def _resume(self, plan: Plan) -> Cut:
        """After a restart: the lanes as they were stored, whatever files that the policy names have become since.

        If damage took one of them, there is a cut.
        """
        rows = [row for row in await self._spool.lanes() if row.active]
        if plan.outputs.keys() - {row.key.output for row in rows}:
            return await self._cut(plan)
        await self._spool.take_over(plan.limits)
        return Cut(0, rows, frozenset())

    def _switch(self, plan: Plan, cut: Cut, prepared: Mapping[str, Running]) -> None:
        outputs = {row.key.output: self._output(plan, row.key.output, row.settings) for row in cut.lanes}
        self._delivery.take_over(cut.lanes, outputs, cut.retired)
        queue = plan.policy.queue
        retired = queue.retired_max_bytes
        self._intake.max_bytes = int(queue.max_bytes)
        self._intake.retired_max_bytes = int(queue.max_bytes if retired is None else retired)
        log.set_level(plan.policy.log_level)
        lanes = {row.key.output: self._delivery.lanes[row.id] for row in cut.lanes}
        self._closing += [(plan.at, closing) for closing in self._intake.switch(plan, prepared, lanes)]
        self._warn(plan)
        self.plan = plan

    def _warn(self, plan: Plan) -> None:
        """Say what a plan hardly means and the one before did not say: a rotation repeats nothing."""
        for name, warning in sorted(plan.warnings - (self.plan.warnings if self.plan else frozenset())):
            _log.warning(f"output {name}: {warning}", revision=str(plan.at))

    def _output(self, plan: Plan, name: str, settings: Mapping[str, object] | None) -> Output:
        """The planned output, or the stored one where it differs (a file that the policy names has changed since)."""
        planned = plan.outputs[name]
        if settings is not None and planned.settings != settings:
            with suppress(ShipperError):
                return restore_output(planned.spec.type, settings, self._registry)
        return planned.spec.config

    def _highest(self, at: Revision) -> Ack:
        known = self._known[at]
        if known.drained is not None:
            return Ack.drained(known.drained)
        return Ack(epoch=at.epoch, revision=at.number, sha256=known.sha256, stage="active", change=known.change)

    # -- drained, released ---------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Say `drained` and `released` as soon as they are true and durable."""
        while True:
            await self.settled.wait()
            await self.advance()

    async def advance(self) -> None:
        """Say what has become true; see `watch`."""
        with trio.CancelScope(shield=True):
            async with self._in_order:
                await self._say_what_is_settled()

    async def _say_what_is_settled(self) -> None:
        self._closing = [(at, closing) for at, closing in self._closing if not closing.closed.is_set()]
        closing = min((at for at, _ in self._closing), default=None)
        receipt, free = await self._spool.advance(closing, self._still_used(), self._listed_before(), bounds.IDS_BYTES)
        await self._refresh()
        free = self._unneeded(free)
        if receipt is not None:
            self._keyring.forget(self._unneeded(receipt.credentials.released))
            self._drained = Ack.drained(receipt)
            self._say(self._drained)
        self._keyring.forget(free)
        self._say_released(free)
        if receipt is not None or free:
            self._on_change()

    def _say_released(self, ids: Sequence[str]) -> None:
        for some in parts(ids):
            self._say(Released(credentials=some))

    def _listed_before(self) -> Before:
        """What became of the ids that acks have listed as released; of another process's acks nobody knows."""
        if self._drained is None:
            return "released"
        return "reported" if self._is_written(self._drained) else "listed"

    async def release_now(self, *ids: str) -> list[str]:
        """After an order: those of the ids that nothing refers to any more; released by the order's result."""
        async with self._in_order:
            free = await self._spool.release(self._still_used())
            await self._refresh()
        free = self._unneeded(free)
        self._keyring.forget(free)
        self._say_released([other for other in free if other not in ids])
        self._on_change()
        return [id for id in ids if id not in self.in_use]

    async def texts(self, most_bytes: int) -> tuple[dict[str, str], int]:
        """The texts of stored revisions, and how many are left out; they hold no secrets.

        The active one comes first, then the newest; all together have at most so many bytes as JSON.
        """
        texts: dict[str, str] = {}
        newest_first = sorted(self._known, key=lambda at: (at == self.stages.active, at), reverse=True)
        for n, at in enumerate(newest_first):
            text = await self._spool.policy_text(at)
            if text is None:  # it was given up meanwhile
                continue
            most_bytes -= len(orjson.dumps(text))
            if most_bytes < 0:
                return texts, len(newest_first) - n
            texts[str(at)] = text
        return texts, 0

    def _still_used(self) -> set[str]:
        """Credentials of replaced inputs, or of changed ones, that are not closed, and of revisions on their way."""
        return {id for _, closing in self._closing for id in closing.credentials} | self._pending_use()

    def _pending_use(self) -> set[str]:
        return {id for candidate in self._pending for id in candidate.plan.credentials}

    async def _refresh(self) -> None:
        since = self.stages.active
        stored, self.stages, self.in_use = await self._spool.standing(self._still_used(), since)
        older = {at: known for at, known in self._known.items() if since is not None and at < since and stored.has(at)}
        self._known = older | {revision.at: revision for revision in stored.known}
