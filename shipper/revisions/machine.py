"""The decisions in the life of a revision: a state machine without I/O.

Each method takes one thing that happened and returns steps: a generator of effects (`effects`), to be performed in
their order. It gets the answer of an effect by `send`, and an error that is part of a contract (`ShipperError`) by
`throw`. While an effect takes its time, the steps of other events may run; each decides from what is known by then.
What is within one `InOrder` runs beside no other `InOrder`: from a commit until what it makes true was said.

    policy ─> Read, Check ─> Store: received ─> Open, Settle ─> Cut, Switch: active ─> Advance: drained, released
              │ any doubt: refused              │ StartFailed: refused; the old pipeline runs on

The machine knows what is on its way, what is stored as of the last `Look`, which inputs still close, and which
statements were delivered. Ids of credentials are all that it needs of secrets; those pass through it unseen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from shipper.pipeline.keyring import is_id
from shipper.pipeline.plan import Plan, digest
from shipper.revisions.effects import (
    Activated,
    Advance,
    Changed,
    Check,
    Close,
    Cut,
    Forget,
    ForgetCredentials,
    ForgetRevision,
    GiveUp,
    InOrder,
    Keep,
    Look,
    Open,
    Read,
    Release,
    Say,
    Settle,
    Start,
    Steps,
    Store,
    Switch,
    Withdraw,
)
from shipper.revisions.offer import (
    Candidate,
    Offer,
    check_ids,
    check_same,
    out_of_order,
    refusal,
    some_errors,
    without_secrets,
)
from shipper.revisions.statements import Active, Received, Refused, Released, Statement
from shipper.sdk.codes import Code
from shipper.sdk.credentials import Credential
from shipper.sdk.errors import CredentialError, PolicyError, Problem, StartFailed
from shipper.spool.credentials import Before
from shipper.spool.revisions import Known
from shipper.values import Reason, Receipt, Revision, Revisions

FULL = 64
"""Revisions that were replaced before they were stored."""
FULL_CHARACTERS = 1 << 20
"""Of their texts. What a policy is in memory may be many times its text."""


class Closing(Protocol):
    """Of an input: the ids that it uses until it is closed."""

    @property
    def credentials(self) -> Collection[str]: ...
    @property
    def is_closed(self) -> bool: ...


class Machine:
    """The revisions of one process. Run the steps that it returns to their end, or close them."""

    def __init__(self) -> None:
        self.stages = Revisions()
        self.in_use: list[str] = []
        self.known: dict[Revision, Known] = {}
        self.plan: Plan | None = None
        """What runs."""
        self.pending: list[Candidate] = []
        """On their way, the newest last: at most one that resumes, one that is decided, and one more."""
        self.spent: list[Candidate] = []
        """Replaced before they were stored; they are stored with the one that replaced them."""
        self._arriving: frozenset[str] = frozenset()
        """Credentials that came with the policy that is being looked at."""
        self._closing: list[tuple[Revision, Closing]] = []
        self._said = 0
        """The number of the last statement."""
        self._last_drained: int | None = None
        """The number of the last receipt that this process has said."""
        self._delivered = 0
        """The highest number of a statement that was delivered."""

    @property
    def next(self) -> Candidate | None:
        """What is to be brought up."""
        return self.pending[0] if self.pending else None

    @property
    def active(self) -> Known | None:
        return None if self.stages.active is None else self.known.get(self.stages.active)

    @property
    def is_full(self) -> bool:
        """Whether very much waits to be stored, as while the disk hangs."""
        return len(self.spent) >= FULL or sum(len(old.plan.text) for old in self.spent) >= FULL_CHARACTERS

    def delivered(self, number: int) -> None:
        """A statement was written to those that it is for."""
        self._delivered = max(self._delivered, number)

    def look(self) -> Steps[None]:
        """Learn what is stored."""
        since = self.stages.active
        stored, self.stages, self.in_use = yield Look(self._still_used(), since)
        older = {at: known for at, known in self.known.items() if since is not None and at < since and stored.has(at)}
        self.known = older | {revision.at: revision for revision in stored.known}

    def _say(self, statement: Statement) -> Say:
        self._said += 1
        return Say(self._said, statement)

    # -- offered -------------------------------------------------------------------------------------------------------

    def offered(self, offer: Offer) -> Steps[None]:
        """A policy came: put it on its way, or refuse it."""
        self._arriving = frozenset(offer.carried)
        try:
            yield from self._look_at(offer)
        finally:
            self._arriving = frozenset()

    def _look_at(self, offer: Offer) -> Steps[None]:
        sha256 = digest(offer.text)
        if offer.sha256 is not None and offer.sha256.lower() != sha256:
            problem = Problem("sha256", 1, 1, "sha256 is not that of the policy's text", code=Code.SHA256_MISMATCH)
            yield self._refuse(offer, sha256, "invalid", [problem])
            return
        misplaced = self._misplaced(offer, sha256)
        if misplaced is not None:
            yield misplaced
            return
        try:
            plan, taken = yield Read(offer, self._planned(offer.at, sha256))
            check_ids(plan.credentials, {*self.in_use, *self._pending_use()})
            check_same(taken, (*self.pending, *self.spent))
            offered = {id: secret for id, secret in taken.items() if id in plan.credentials}
            yield Check(plan, offered)
        except (PolicyError, CredentialError) as error:
            yield self._refuse(offer, sha256, *refusal(error))
            return
        misplaced = self._misplaced(offer, sha256)  # a newer one may have become active while this one was planned
        if misplaced is not None:
            yield misplaced
            return
        yield from self._accept(plan, offered)

    def _planned(self, at: Revision, sha256: str) -> Plan | None:
        """What is on its way, or runs, is not planned anew: a file that it names may be gone."""
        plans = (*(candidate.plan for candidate in self.pending), self.plan)
        return next((plan for plan in plans if plan is not None and (plan.at, plan.sha256) == (at, sha256)), None)

    def _misplaced(self, offer: Offer, sha256: str) -> Say | None:
        """Its refusal, if a policy may not come under its number."""
        newest = self.pending[-1] if self.pending else None
        found = out_of_order(offer.at, sha256, self.known, self.stages.active, newest)
        if found is None:
            return None
        reason, text = found
        return self._refuse(offer, sha256, reason, [Problem("revision", 1, 1, text, code=reason)])

    def _accept(self, plan: Plan, offered: Mapping[str, Credential]) -> Steps[None]:
        same = next((candidate for candidate in self.pending if candidate.plan.at == plan.at), None)
        if same is not None:
            same.withdrawn.difference_update(offered)
        resumes = plan.at == self.stages.active and plan.at in self.known  # else its row was lost, and it comes anew
        if same is not None and not same.resumes:
            if same.change is not None:
                yield self._say(Received(plan.at, plan.sha256, same.change))
            return
        if same is not None or (resumes and self.plan is not None):
            yield from self.supplied(offered)
            yield self._say(self._highest(plan.at))
            return
        candidate = Candidate(plan, offered, resumes)
        if resumes:
            self.pending.insert(0, candidate)
        else:
            yield from self._supersede()
            self.pending.append(candidate)
        yield Start()
        yield Changed()

    def _supersede(self) -> Steps[None]:
        """A newer revision arrived: what is not active yet will not be, unless it is the active one that resumes."""
        for old in [old for old in self.pending if not (old.decided or old.resumes)]:
            old.superseded = True
            self.pending.remove(old)
            self.spent.append(old)
            yield GiveUp(old)

    def _refuse(self, offer: Offer, sha256: str, reason: Reason, problems: Iterable[Problem]) -> Say:
        """Refuse what was not stored."""
        replaced = {id for old in self.spent for id in old.plan.credentials}  # their own refusals are yet to come
        kept = {*self.in_use, *self._pending_use(), *replaced}
        forgotten = sorted(id for id in set(offer.carried).difference(kept) if is_id(id))
        return self._refused(offer.at, sha256, reason, without_secrets(problems, offer.credentials), forgotten)

    def _refused(
        self, at: Revision, sha256: str, reason: Reason, problems: Iterable[Problem], released: Sequence[str]
    ) -> Say:
        return self._say(Refused(at, sha256, reason, tuple(some_errors(problems)), tuple(released)))

    # -- secrets -------------------------------------------------------------------------------------------------------

    def supplied(self, offered: Mapping[str, Credential]) -> Steps[None]:
        """Secrets came."""
        for candidate in self.pending:
            candidate.withdrawn.difference_update(offered)
        yield Keep(offered)

    def withdrawn(self, ids: Collection[str]) -> Steps[None]:
        """Secrets were withdrawn; see `check_known`."""
        for candidate in self.pending:
            candidate.withdrawn.update(ids)
        at = self.stages.active
        closing = yield Withdraw(ids)
        self._closing += [(at, one) for one in closing if at is not None]

    def check_known(self, ids: Iterable[str]) -> None:
        """Raises CredentialError for one that nothing refers to."""
        known = {*self.in_use, *self._pending_use()}
        for id in sorted(ids):
            if id not in known:
                named = f"`{id}`" if is_id(id) else f"with an id of {len(id)} characters"
                raise CredentialError("invalid", f"credential {named} is not in use; nothing was withdrawn")

    # -- received, and the cut -----------------------------------------------------------------------------------------

    def bring_up(self, candidate: Candidate) -> Steps[None]:
        """Make a candidate active, or refuse it; call `ended` then, also when these steps were given up."""
        if candidate.resumes and candidate.plan.at != self.stages.active:
            yield from self._overtaken(candidate)
            return
        try:
            if not candidate.resumes:
                yield InOrder(self._receive(candidate))
            yield Keep(candidate.offered, frozenset(candidate.withdrawn))
            yield from self.look()
            prepared = yield Open(candidate.plan)
        except StartFailed as error:
            if not candidate.superseded:  # else its refusal says so
                candidate.decided = True
                yield InOrder(self._fail(candidate, error))
            return
        if candidate.superseded:
            yield Close(prepared)
            return
        candidate.decided = True
        yield Settle(candidate.plan)
        yield InOrder(self._activate(candidate, prepared))

    def ended(self, candidate: Candidate) -> Steps[None]:
        """It is on its way no longer."""
        if candidate in self.pending:
            self.pending.remove(candidate)
            yield Changed()

    def _overtaken(self, candidate: Candidate) -> Steps[None]:
        """A newer revision became active while the one before it waited to resume."""
        yield from self.ended(candidate)
        at, released = candidate.plan.at, set(candidate.offered).difference(self.in_use, self._pending_use())
        text = f"revision {at} is older than revision {self.stages.active}"
        problem = Problem("revision", 1, 1, text, code=Code.STALE)
        yield self._refused(at, candidate.plan.sha256, "stale", [problem], sorted(released))

    def _receive(self, candidate: Candidate) -> Steps[None]:
        """Durable, then said; those that it replaced are refused first."""
        if candidate.superseded:  # it is among the spent ones, and was never stored
            return
        spent, self.spent = self.spent, []
        change, superseded = yield Store(candidate, self.active, spent)
        yield from self.look()
        for old in superseded:
            released = yield from self._forget(old.credentials)
            yield self._refused(old.at, old.sha256, "superseded", (), released)
        candidate.change = change
        yield self._say(Received(candidate.plan.at, candidate.plan.sha256, change))
        yield Changed()

    def _fail(self, candidate: Candidate, cause: StartFailed) -> Steps[None]:
        """The number is not spent; the old pipeline runs on."""
        if not candidate.resumes:
            yield ForgetRevision(candidate.plan.at)
        yield from self.ended(candidate)
        yield from self.look()
        released = yield from self._forget(candidate.plan.credentials)
        problem = Problem("", 1, 1, str(cause), code=cause.code)
        yield self._refused(candidate.plan.at, candidate.plan.sha256, "failed", [problem], released)

    def _forget(self, ids: Collection[str]) -> Steps[list[str]]:
        """After a refusal; `look` before, and say what is returned at once."""
        forgotten = yield ForgetCredentials(ids, self._still_used())
        released = self._unneeded(forgotten.released)
        yield Forget(released)
        yield Forget(self._unneeded(forgotten.never_used), entirely=True)
        return released

    def _activate(self, candidate: Candidate, prepared: object) -> Steps[None]:
        plan = candidate.plan
        cut = yield Cut(plan, candidate.resumes)
        closing = yield Switch(plan, self.plan, cut, prepared)
        self._closing += [(plan.at, one) for one in closing]
        self.plan = plan
        yield from self.look()
        yield from self.ended(candidate)  # until it is known as active, its being on its way makes older ones stale
        yield self._say(self._highest(plan.at))
        yield Activated()

    def _highest(self, at: Revision) -> Active | Receipt:
        known = self.known[at]
        return known.drained if known.drained is not None else Active(at, known.sha256, known.change)

    # -- drained, released ---------------------------------------------------------------------------------------------

    def settle(self) -> Steps[None]:
        """Barriers may be settled, or inputs closed: say what has become true."""
        yield InOrder(self._settle())

    def _settle(self) -> Steps[None]:
        self._closing = [(at, closing) for at, closing in self._closing if not closing.is_closed]
        closing = min((at for at, _ in self._closing), default=None)
        receipt, free = yield Advance(closing, self._still_used(), self._listed_before())
        yield from self.look()
        free = self._unneeded(free)
        if receipt is not None:
            yield Forget(self._unneeded(receipt.credentials.released))
            said = self._say(receipt)
            self._last_drained = said.number
            yield said
        yield from self._released(free)
        if receipt is not None or free:
            yield Changed()

    def _released(self, ids: Sequence[str], *, told: Collection[str] = ()) -> Steps[None]:
        """These are free; those of them that are `told` otherwise need no statement."""
        yield Forget(ids)
        others = [id for id in ids if id not in told]
        if others:
            yield self._say(Released(others))

    def _listed_before(self) -> Before:
        """What became of the ids that receipts have listed; of another process's receipts nobody knows."""
        if self._last_drained is None:
            return "released"
        return "reported" if self._last_drained <= self._delivered else "listed"

    def release(self, ids: Collection[str]) -> Steps[list[str]]:
        """An order ended: which of the ids nothing refers to any more; its result tells of these."""
        yield InOrder(self._release(ids))
        return [id for id in ids if id not in self.in_use]

    def _release(self, ids: Collection[str]) -> Steps[None]:
        free = yield Release(self._still_used())
        yield from self.look()
        yield from self._released(self._unneeded(free), told=ids)
        yield Changed()

    def _unneeded(self, ids: Iterable[str]) -> list[str]:
        """Those that no revision refers to that has come meanwhile, perhaps the one that was refused."""
        needed = {*self.in_use, *self._pending_use(), *self._arriving}
        return [id for id in ids if id not in needed]

    def _still_used(self) -> set[str]:
        """Credentials of replaced inputs, or of changed ones, that are not closed, and of revisions on their way."""
        return {id for _, closing in self._closing for id in closing.credentials} | self._pending_use()

    def _pending_use(self) -> set[str]:
        return {id for candidate in self.pending for id in candidate.plan.credentials}
