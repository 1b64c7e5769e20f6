"""What the sidecar of a member runs, and what it is to run next: the target, what precedes its offer, and the answers.

    a change ── Judge ──> target ── written (announced) ── Confirm (read again) ──> ready: saved, then Offer
                                     └── only what is used for the first time ──┘

An answer of the sidecar, or a release, only changes what the next step is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Literal

from msgspec.structs import replace

from shipper.apiserver.objects import Event, Listing, Object
from shipper.kubernetes.kinds import MemberStatus, PolicyReport
from shipper.kubernetes.member.choosing import Choosing, Target, key_of
from shipper.kubernetes.member.contents import Contents
from shipper.kubernetes.member.entries import Entries
from shipper.kubernetes.member.introducing import Introducing
from shipper.kubernetes.member.losses import directory_of
from shipper.kubernetes.member.memory import Entry, Memory, Part
from shipper.kubernetes.member.policies import Policies
from shipper.kubernetes.member.proving import Proving
from shipper.kubernetes.member.refusals import Refusals, blamed
from shipper.kubernetes.member.reporting import reports
from shipper.kubernetes.member.secrets import Secrets
from shipper.kubernetes.member.standing import Standing
from shipper.kubernetes.member.steps import Confirm, Facts, Judge, Judgement, Offer, Reread, SecretFound, Vector
from shipper.kubernetes.member.using import Usage
from shipper.kubernetes.member.vectors import Vectors, named, number_of
from shipper.membership.steps import Forget, Withdraw
from shipper.policy.registry import Registry
from shipper.sdk.errors import Problem
from shipper.supervise.answers import Stage


class Running:
    """See the module."""

    def __init__(self, memory: Memory, registry: Registry, standing: Standing) -> None:
        self.memory = memory
        """What is durable."""
        self._standing = standing
        self.policies, self.seen = Policies(), Secrets()
        self._contents, self._entries, self._vectors = Contents(memory), Entries(memory), Vectors(memory)
        self.usage = Usage(self._contents, memory.proven)
        self.usage.withdrawn |= set(memory.withdrawn)
        self._introducing, self._refusals = Introducing(), Refusals()
        self._choosing = Choosing(registry, self.policies, self.seen, self._contents, self.usage, self._refusals)
        self._proving = Proving(self._contents, self.usage, self.seen)
        self._target: Target | None = None
        self.is_stale = True
        """Whether something has changed since the target was chosen."""
        self.retry_at = inf
        """When to choose again if nothing changes."""
        self._to_offer: Vector | None = None
        self._active_here = 0
        """The newest vector that the sidecar was said to run to this process."""
        self._released: set[str] = set()
        self._now = 0.0

    # -- what others ask -----------------------------------------------------------------------------------------------

    @property
    def secrets(self) -> frozenset[str]:
        """The names of the Secrets to watch now; empty before the registration."""
        if not self._standing.follows:
            return frozenset()
        running, own = self._choosing.names(self._vectors.running.values()), self._standing.own
        selected = self._choosing.names_of(self.policies.selected(own.labels)) if own.object else frozenset()
        return running | selected

    @property
    def kept(self) -> Vector | None:
        """The vector of an earlier process, which may run without the API server; None for a new member, or one that
        has left."""
        if not self.memory.number or self.memory.left or self._standing.follows:
            return None
        vector = self._vector()
        return vector if len(vector.contents) == len({id for part in vector.parts for id in part.contents}) else None

    @property
    def waits(self) -> Sequence[tuple[str, str]]:
        """What keeps policies from being run as they are: name and a sentence, for people."""
        if self._target is None:
            return ()
        nacks = [(name, f"{nack.path}: {nack.message}") for name, nack in self._target.nacks.values()]
        return [*nacks, *self._target.waits]

    def reports(self) -> tuple[PolicyReport, ...]:
        """Returns what the status says of each policy."""
        draft = self._draft
        nacks = self._target.nacks if self._target is not None else {}
        self._entries.finish(keep=nacks)
        return reports(self._entries, self._vectors.running, draft.parts if draft else (), self._contents, nacks)

    def ids(self, facts: Facts) -> frozenset[str]:
        """Returns the contents that are used, or may be from now on."""
        running = {id for part in self._vectors.running.values() for id in part.contents}
        draft = self._draft.contents if self._draft is not None else frozenset()
        return self.usage.ids(facts.using, running | draft)

    def is_settled(self) -> bool:
        """Whether the sidecar runs what is to be run, as far as it is known."""
        if self.is_stale or self._to_offer is not None or self._judge() is not None:
            return False
        if self._draft is not None or self._proving.is_open:
            return False
        return self._active_here >= self.memory.number

    # -- the target ----------------------------------------------------------------------------------------------------

    def settle(self, now: float, facts: Facts) -> None:
        """Chooses the target anew if something has changed, and forgets what nothing needs."""
        self._now = now
        self.is_stale = self.is_stale or now >= self.retry_at
        if self.is_stale and self._may_decide():
            self._decide(now)
        used = self.ids(facts)
        self._proving.retain(used | facts.using, facts.using)
        kept = used | self._refusals.ids
        self._contents.retain(kept | {id for part in self._vectors.good.values() for id in part.contents})

    def _may_decide(self) -> bool:
        standing = self._standing
        is_in = standing.follows and standing.place == "ours" and standing.own.object is not None
        return is_in and self.policies.synced

    def _decide(self, now: float) -> None:
        selected = self.policies.selected(self._standing.own.labels)
        self._target = self._choosing.choose(selected, self._vectors.running, self._vectors.good, now)
        uids = {one.uid for one in selected}
        self._refusals.retain(uids)
        self._vectors.retain(uids | self._vectors.running.keys())
        again = self._refusals.again_at(now), self.policies.again_at(now), self.seen.again_at(self.secrets)
        self.retry_at, self.is_stale = min(again), False

    @property
    def _draft(self) -> Target | None:
        """What is to be run, if it is something else than what was offered."""
        target = self._target
        if target is None or self._standing.is_leaving or target.keys == [key_of(part) for part in self.memory.parts]:
            return None
        return target

    def _newcomers(self) -> list[Part]:
        """Returns the parts of the draft whose policies this member does not run yet."""
        entries, draft = self._entries.by_uid, self._draft
        parts = draft.parts if draft is not None else ()
        return [part for part in parts if part.uid not in entries or entries[part.uid].removed]

    def _vector(self) -> Vector:
        """Returns the newest durable vector."""
        memory = self.memory
        found = self._contents.of(id for part in memory.parts for id in part.contents)
        tree = self._choosing.merged(memory.parts).tree
        name = named(memory.directory, memory.number)
        usable = {one.id: one for one in found if one.id not in self.usage.withdrawn}
        return Vector(memory.number, name, tree, memory.parts, usable)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self, facts: Facts) -> Offer | Withdraw | Forget | Judge | None:
        """Returns the next step without the API server; None if there is none."""
        if self._to_offer is not None:
            return Offer(self._to_offer)
        if ids := self._proving.to_withdraw(facts.using, self.ids(facts)):
            return Withdraw(tuple(sorted(ids)))
        if ids := self._released - self.ids(facts):
            return Forget(tuple(sorted(ids)))
        return self._judge()

    def _judge(self) -> Judge | None:
        if not self._may_decide():
            return None
        return self.policies.unjudged(self.policies.selected(self._standing.own.labels), self._now)

    def ready(self, facts: Facts) -> Memory | None:
        """Returns what is to be durable before the draft is offered; None if there is none that may be."""
        draft = self._draft
        if self._standing.place != "ours" or draft is None:
            return None
        contents, known = self._contents.of(draft.contents), self.policies.known
        is_proven = all(map(self.usage.is_usable, contents))
        if not is_proven or not all(self._introducing.is_ready(part, known) for part in self._newcomers()):
            return None
        number = self.memory.number + 1
        return self._remembered(facts, number, draft.parts, self._entries.with_vector(number, draft.parts).values())

    def remembered(self, facts: Facts) -> Memory:
        """Returns what must be durable before the next write."""
        return self._remembered(facts, self.memory.number, self.memory.parts, self._entries.by_uid.values())

    def _remembered(self, facts: Facts, number: int, parts: tuple[Part, ...], entries: Iterable[Entry]) -> Memory:
        ids = self.ids(facts)
        return replace(
            self.memory,
            number=number,
            drawn=self._contents.drawn,
            parts=parts,
            good=self._vectors.replaced,
            contents=tuple(self._contents.of(sorted(ids))),
            proven=tuple(sorted(self.usage.proven & ids)),
            withdrawn=tuple(sorted(self.usage.withdrawn & facts.using)),
            entries=tuple(sorted(entries, key=lambda entry: entry.uid)),
            reached=dict(self._entries.reached),
        )

    def is_announced(self, facts: Facts) -> bool:
        """Whether the status has all that comes before a use."""
        used = self._contents.of(self.ids(facts))
        return all(self.usage.is_announced(one) or self.usage.is_usable(one) for one in used) and all(
            map(self._introducing.is_announced, self._newcomers())
        )

    def confirm(self, facts: Facts) -> Confirm | None:
        """Returns the reads that come between the announcement and the use, and those that were refused and are to be
        repeated; None if none is needed."""
        used = self._contents.of(self.ids(facts))
        names = {one.secret for one in used if not self.usage.is_usable(one) and not self._proving.has_failed(one)}
        names |= self.seen.due(self._now) & self.secrets
        known = self.policies.known
        new = [part for part in self._newcomers() if not self._introducing.is_ready(part, known)]
        if not names and not new:
            return None
        self._begin_reading()
        return Confirm(frozenset(names), frozenset(part.name for part in new))

    def reread(self, facts: Facts) -> Reread:
        """Returns the step that reads all policies and Secrets again."""
        self._begin_reading()
        used = {one.secret for one in self._contents.of(self.ids(facts))}
        return Reread(self.secrets | used)

    def _begin_reading(self) -> None:
        self.policies.reading.begin()
        self.seen.reading.begin()

    def _end_reading(self) -> None:
        self.policies.reading.end()
        self.seen.reading.end()

    # -- the status and the memory -------------------------------------------------------------------------------------

    def writing(self, ids: frozenset[str], uids: frozenset[str]) -> None:
        """A status that has these contents, and says of these policies that they are run, is about to be written."""
        self.usage.writing(ids)
        self._introducing.writing(uids)

    def wrote(self, ids: frozenset[str], uids: frozenset[str]) -> None:
        """The API server has such a status."""
        self.usage.wrote(ids)
        self._introducing.wrote(uids)

    def doubt(self, status: MemberStatus) -> None:
        """Keeps as proven only what the API server has had an entry for: this is the status there."""
        directory = self.memory.directory
        if directory_of(status.process) == directory:
            there = status.using
        else:
            there = tuple(use for one in status.lost if directory_of(one.process) == directory for use in one.using)
        self.usage.check(there)
        self._introducing.doubt()
        self._proving.begin_anew()

    def heed(self, bounds: Mapping[str, str]) -> None:
        """The Lease has these bounds."""
        if self.usage.bounds != bounds:
            self.usage.bounds = bounds
            self._proving.begin_anew()
            self.is_stale = True

    def saved(self, memory: Memory) -> None:
        """The memory is durable."""
        before, self.memory = self.memory, memory
        if memory.directory != before.directory:
            self._contents.renamed(memory.directory)
            self.usage.doubt()
            self._introducing.doubt()
            self._to_offer = self._vector() if memory.number else None
        if memory.number > before.number:
            self._vectors.saved(memory.number, memory.parts)
            self._entries.by_uid = {one.uid: one for one in memory.entries}
            self._to_offer = self._vector()

    # -- outcomes and events -------------------------------------------------------------------------------------------

    def read_again(self, policies: Listing, secrets: Mapping[str, SecretFound]) -> bool:
        """All policies, and each Secret of a `Reread`; returns whether that is what is known now."""
        self.policies.listed(policies)
        unclear = [name for name, found in secrets.items() if not self._read(name, found)]
        self._end_reading()
        return not unclear

    def judged(self, step: Judge, judgement: Judgement, *, now: float) -> None:
        """A generation was judged."""
        self.policies.judged(step, judgement, now)
        self.is_stale = True

    def confirmed(self, secrets: Mapping[str, SecretFound], policies: Mapping[str, Object | None]) -> None:
        """Each Secret and policy of a `Confirm`, read after the step was given."""
        self._proving.confirmed({name for name, found in secrets.items() if self._read(name, found)})
        for name, policy in policies.items():
            if self.policies.read(name, policy) and (known := self.policies.at(name)) is not None:
                self._introducing.confirmed(known.uid, known.generation)
        self._end_reading()
        self.is_stale = True

    def offered(self, vector: Vector) -> None:
        """The agent reads this vector from now on."""
        self.usage.offered(vector.contents, vector.number)
        self._to_offer = None

    def withdrew(self, ids: Iterable[str]) -> None:
        """The sidecar has these contents no more."""
        self.usage.withdrew(ids)
        self._proving.withdrew(ids)
        self.is_stale = True

    def forgot(self, ids: Iterable[str]) -> None:
        """The ledger has these contents no more."""
        self._released -= set(ids)
        self.usage.forgot(ids)

    def released(self, id: str) -> None:
        """Every sidecar here has released a content (`PolicySource.released`)."""
        self._released.add(id)

    def saw_policy(self, event: Event) -> None:
        """An event of the watch of policies, SYNCED included, in order."""
        self.policies.saw(event)
        self.seen.hasten()
        self.is_stale = True

    def saw_secret(self, name: str, event: Event) -> None:
        """An event of the watch of one Secret, SYNCED included: without an object before it there is none."""
        if (found := self.seen.saw(name, event)) is not None:
            self._contents.saw(found)
        self.is_stale = True

    def unwatched(self, name: str) -> None:
        """The watch of a Secret has ended, since nothing refers to it; the next one shows it anew."""
        self.seen.forget(name)
        self.is_stale = True

    def denied(self, name: str, why: str) -> None:
        """The watch of a Secret is refused (401, 403)."""
        self.seen.denied(name, why)
        self.is_stale = True

    def answered(
        self, version: str, stage: Stage | Literal["refused"], reason: str = "", problems: Sequence[Problem] = ()
    ) -> None:
        """The sidecar, or the source's own reading, has answered to a vector by its name. Paths of the problems are
        those of `Vector.tree`; names of other vectors are ignored."""
        number = number_of(version, self.memory.directory)
        if number is None or number > self.memory.number:
            return
        self.usage.answered(number)
        if stage != "refused":
            self._entries.answered(number, stage)
            if stage != "received":
                self._runs(number)
        elif number == self.memory.number:
            self._refuse(reason, problems)

    def _runs(self, number: int) -> None:
        self._active_here = max(self._active_here, number)
        self._vectors.active(number)
        if number == self.memory.number:
            self._refusals.accepted(self.memory.parts)

    def _refuse(self, reason: str, problems: Sequence[Problem]) -> None:
        parts = self.memory.parts
        merge = self._choosing.merged(parts)
        found = blamed(parts, self._vectors.good, merge, problems)
        self._refusals.refuse(found, merge, reason, problems, len(parts) > 1, self._now)
        self.is_stale = True

    def _read(self, name: str, found: SecretFound) -> bool:
        """Takes what a read of a Secret has found; returns whether that is what is known now."""
        is_known = self.seen.read(name, found, self._now)
        if (present := self.seen.present(name)) is not None:
            self._contents.saw(present)
        self.is_stale = True
        return is_known
