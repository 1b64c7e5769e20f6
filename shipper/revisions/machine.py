"""The decisions in the life of a revision: a state machine without I/O.

Each method takes one event and returns steps: a generator of effects (`effects`) to perform in their order. It gets the
answer of an effect by `send`, and an error that is part of a contract (`ShipperError`) by `throw`. During an effect,
the steps of other events may run; each decides by the state of that moment. The steps of one `InOrder`, from a commit
to its statement, never run concurrently with those of another.

    policy ─> Read, Check ─> Store: received ─> Open, Settle ─> Cut, Switch: active ─> Advance: drained, released
              │ any error: refused              │ StartFailed: refused; the old pipeline runs on

The machine knows the pending candidates, the stored revisions as of the last `Look`, the inputs that still close, and
the delivered statements. It uses the ids of credentials only; secrets pass through it.
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
from shipper.spool.parts.revisions import Standing
from shipper.spool.revisions import Known
from shipper.values import Reason, Receipt, Revision, Revisions

FULL = 64
"""The limit of revisions that were replaced before they were stored."""
FULL_CHARACTERS = 1 << 20
"""The limit of their texts. In memory a policy may take many times its text."""


class Closing(Protocol):
    """An input that closes, and the ids that it uses until then."""

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
        """The running plan."""
        self.pending: list[Candidate] = []
        """The candidates, the newest last: at most one that resumes, one that is decided, and one more."""
        self.spent: list[Candidate] = []
        """Candidates that were replaced before they were stored; they are stored with their replacement."""
        self._arriving: frozenset[str] = frozenset()
        """Credentials that came with the policy that is being checked."""
        self._closing: list[tuple[Revision, Closing]] = []
        self._said = 0
        """The number of the last statement."""
        self._last_drained: int | None = None
        """The number of the last receipt of this process."""
        self._delivered = 0
        """The highest number of a delivered statement."""

    @property
    def next(self) -> Candidate | None:
        """The next candidate to bring up."""
        return self.pending[0] if self.pending else None

    @property
    def active(self) -> Known | None:
        return None if self.stages.active is None else self.known.get(self.stages.active)

    @property
    def is_full(self) -> bool:
        """Whether too many replaced revisions wait to be stored, as while the disk hangs."""
        return len(self.spent) >= FULL or sum(len(old.plan.text) for old in self.spent) >= FULL_CHARACTERS

    def delivered(self, number: int) -> None:
        """Records that a statement was written to its recipients."""
        self._delivered = max(self._delivered, number)

    def look(self) -> Steps[None]:
        """Reads the stored revisions."""
        since = self.stages.active
        self._see((yield Look(self._still_used(), since)), since)

    def _see(self, standing: Standing, since: Revision | None) -> None:
        """The revisions from `since` on, as they are stored."""
        stored, self.stages, self.in_use = standing
        older = {at: known for at, known in self.known.items() if since is not None and at < since and stored.has(at)}
        self.known = older | {revision.at: revision for revision in stored.known}

    def _say(self, statement: Statement) -> Say:
        self._said += 1
        return Say(self._said, statement)

    # -- offered -------------------------------------------------------------------------------------------------------

    def offered(self, offer: Offer) -> Steps[None]:
        """Checks an offered policy; accepts or refuses it."""
        self._arriving = frozenset(offer.carried)
        try:
            yield from self._check(offer)
        finally:
            self._arriving = frozenset()

    def _check(self, offer: Offer) -> Steps[None]:
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
        """Returns the plan of a pending or the running revision: a new plan could miss a file that was removed."""
        plans = (*(candidate.plan for candidate in self.pending), self.plan)
        return next((plan for plan in plans if plan is not None and (plan.at, plan.sha256) == (at, sha256)), None)

    def _misplaced(self, offer: Offer, sha256: str) -> Say | None:
        """Returns the refusal of an offer whose number is not allowed, or None."""
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
        resumes = plan.at == self.stages.active and plan.at in self.known  # otherwise its row was lost, and it is new
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
        """Supersedes pending candidates by a newer revision, except for decided ones and the active one that
        resumes."""
        for old in [old for old in self.pending if not (old.decided or old.resumes)]:
            old.superseded = True
            self.pending.remove(old)
            self.spent.append(old)
            yield GiveUp(old)

    def _refuse(self, offer: Offer, sha256: str, reason: Reason, problems: Iterable[Problem]) -> Say:
        """Refuses an offer that was not stored."""
        replaced = {id for old in self.spent for id in old.plan.credentials}  # their refusals release them later
        kept = {*self.in_use, *self._pending_use(), *replaced}
        forgotten = sorted(id for id in set(offer.carried).difference(kept) if is_id(id))
        return self._refused(offer.at, sha256, reason, without_secrets(problems, offer.credentials), forgotten)

    def _refused(
        self, at: Revision, sha256: str, reason: Reason, problems: Iterable[Problem], released: Sequence[str]
    ) -> Say:
        return self._say(Refused(at, sha256, reason, tuple(some_errors(problems)), tuple(released)))

    # -- secrets -------------------------------------------------------------------------------------------------------

    def supplied(self, offered: Mapping[str, Credential]) -> Steps[None]:
        """Takes supplied secrets."""
        for candidate in self.pending:
            candidate.withdrawn.difference_update(offered)
        yield Keep(offered)

    def withdrawn(self, ids: Collection[str]) -> Steps[None]:
        """Withdraws secrets; see `check_known`."""
        for candidate in self.pending:
            candidate.withdrawn.update(ids)
        at = self.stages.active
        closing = yield Withdraw(ids)
        self._closing += [(at, one) for one in closing if at is not None]

    def check_known(self, ids: Iterable[str]) -> None:
        """Raises CredentialError for an id that nothing refers to."""
        known = {*self.in_use, *self._pending_use()}
        for id in sorted(ids):
            if id not in known:
                named = f"`{id}`" if is_id(id) else f"with an id of {len(id)} characters"
                raise CredentialError("invalid", f"credential {named} is not in use; nothing was withdrawn")

    # -- received, and the cut -----------------------------------------------------------------------------------------

    def bring_up(self, candidate: Candidate) -> Steps[None]:
        """Makes a candidate active, or refuses it; call `ended` afterwards, even if these steps were cancelled."""
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
            if not candidate.superseded:  # otherwise it is refused as superseded
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
        """Removes a candidate from the pending ones."""
        if candidate in self.pending:
            self.pending.remove(candidate)
            yield Changed()

    def _overtaken(self, candidate: Candidate) -> Steps[None]:
        """Refuses a candidate that waited to resume while a newer revision became active."""
        yield from self.ended(candidate)
        at, released = candidate.plan.at, set(candidate.offered).difference(self.in_use, self._pending_use())
        text = f"revision {at} is older than revision {self.stages.active}"
        problem = Problem("revision", 1, 1, text, code=Code.STALE)
        yield self._refused(at, candidate.plan.sha256, "stale", [problem], sorted(released))

    def _receive(self, candidate: Candidate) -> Steps[None]:
        """Stores a candidate; then refuses the ones that it replaced, and acknowledges it."""
        if candidate.superseded:  # it is in `spent`, and was never stored
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
        """Refuses a candidate whose inputs did not open; its number stays free, and the old pipeline runs on."""
        if not candidate.resumes:
            yield ForgetRevision(candidate.plan.at)
        yield from self.ended(candidate)
        yield from self.look()
        released = yield from self._forget(candidate.plan.credentials)
        problem = Problem("", 1, 1, str(cause), code=cause.code)
        yield self._refused(candidate.plan.at, candidate.plan.sha256, "failed", [problem], released)

    def _forget(self, ids: Collection[str]) -> Steps[list[str]]:
        """Forgets ids of a refused revision; returns those to release at once. Call `look` before."""
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
        yield from self.ended(candidate)  # only after `look`: until then older offers are stale because it is pending
        yield self._say(self._highest(plan.at))
        yield Activated()

    def _highest(self, at: Revision) -> Active | Receipt:
        known = self.known[at]
        return known.drained if known.drained is not None else Active(at, known.sha256, known.change)

    # -- drained, released ---------------------------------------------------------------------------------------------

    def settle(self) -> Steps[None]:
        """Reports a drained revision and released credentials, after barriers were settled or inputs closed."""
        yield InOrder(self._settle())

    def _settle(self) -> Steps[None]:
        self._closing = [(at, closing) for at, closing in self._closing if not closing.is_closed]
        closing = min((at for at, _ in self._closing), default=None)
        since = self.stages.active
        receipt, free, standing = yield Advance(closing, self._still_used(), self._listed_before(), since)
        self._see(standing, since)
        free = self._unneeded(free)
        if receipt is not None:
            yield Forget(self._unneeded(receipt.credentials.released))
            drained = self._say(receipt)
            self._last_drained = drained.number
            yield drained
        yield from self._released(free)
        yield Changed()

    def _released(self, ids: Sequence[str], *, reported: Collection[str] = ()) -> Steps[None]:
        """Releases these ids; those that are `reported` otherwise need no statement."""
        yield Forget(ids)
        others = [id for id in ids if id not in reported]
        if others:
            yield self._say(Released(others))

    def _listed_before(self) -> Before:
        """Returns the state of ids that receipts have listed; that of an earlier process's receipts is unknown."""
        if self._last_drained is None:
            return "released"
        return "reported" if self._last_drained <= self._delivered else "listed"

    def release(self, ids: Collection[str]) -> Steps[list[str]]:
        """Returns the ids that nothing refers to after an order, for the order's result."""
        yield InOrder(self._release(ids))
        return [id for id in ids if id not in self.in_use]

    def _release(self, ids: Collection[str]) -> Steps[None]:
        free = yield Release(self._still_used())
        yield from self.look()
        yield from self._released(self._unneeded(free), reported=ids)
        yield Changed()

    def _unneeded(self, ids: Iterable[str]) -> list[str]:
        """Returns the ids that no stored, pending or arriving revision needs."""
        needed = {*self.in_use, *self._pending_use(), *self._arriving}
        return [id for id in ids if id not in needed]

    def _still_used(self) -> set[str]:
        """Returns the credentials of replaced or changed inputs that are not closed, and of pending revisions."""
        return {id for _, closing in self._closing for id in closing.credentials} | self._pending_use()

    def _pending_use(self) -> set[str]:
        return {id for candidate in self.pending for id in candidate.plan.credentials}
