"""One process of one member: which step is next, and what outcomes and events change. See the package.

Instants (`now`, `began`, `until`) are seconds of CLOCK_BOOTTIME.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Literal

from msgspec.structs import replace

from shipper.apiserver.objects import Event, Listing, Object
from shipper.kubernetes.kinds import MemberStatus
from shipper.kubernetes.member.choosing import Choosing, Target, key_of
from shipper.kubernetes.member.claim import Name
from shipper.kubernetes.member.contents import Contents
from shipper.kubernetes.member.entries import Entries
from shipper.kubernetes.member.fencing import Fencing
from shipper.kubernetes.member.introducing import Introducing
from shipper.kubernetes.member.losses import directory_of, losses, saves_of
from shipper.kubernetes.member.memory import Memory, Part
from shipper.kubernetes.member.own import Own
from shipper.kubernetes.member.policies import Policies
from shipper.kubernetes.member.proving import Proving
from shipper.kubernetes.member.refusals import Refusals, blamed
from shipper.kubernetes.member.registering import adjusted, created
from shipper.kubernetes.member.reporting import Reporting, patch, reports
from shipper.kubernetes.member.secrets import Secrets
from shipper.kubernetes.member.steps import (
    Adjust,
    Confirm,
    Create,
    Facts,
    Forget,
    Found,
    Hold,
    Judge,
    Judgement,
    Look,
    Offer,
    Reread,
    Rest,
    Save,
    SecretFound,
    Step,
    Terms,
    Vector,
    Withdraw,
    Write,
)
from shipper.kubernetes.member.using import Usage
from shipper.kubernetes.member.vectors import Vectors, named, number_of
from shipper.policy.registry import Registry
from shipper.sdk.errors import Problem
from shipper.supervise.answers import Stage

Place = Literal["unknown", "taken", "apart", "ours", "out"]

_SOON = 1.0
"""Seconds before another attempt where somebody else was faster."""


class Member:
    """A member; the caller performs the steps that `next` returns, one after the other, and tells what happens.

    Events may come between a step and its outcome.
    """

    def __init__(self, terms: Terms, memory: Memory, registry: Registry) -> None:
        """`memory` is durable."""
        self.terms, self.memory = terms, memory
        self.place: Place = "unknown"
        self.why = ""
        """Why it is taken, apart or out, in a sentence."""
        self.own, self.policies, self.seen = Own(), Policies(), Secrets()
        self.name = Name(terms)
        self.fencing = Fencing(terms.lease)
        self._contents, self._entries, self._vectors = Contents(memory), Entries(memory), Vectors(memory)
        self.usage = Usage(self._contents, memory.proven)
        self.usage.withdrawn |= set(memory.withdrawn)
        self._introducing, self._refusals = Introducing(), Refusals()
        self._reporting = Reporting(terms.lease)
        self._choosing = Choosing(registry, self.policies, self.seen, self._contents, self.usage, self._refusals)
        self._proving = Proving(self._contents, self.usage, self.seen)
        self._target: Target | None = None
        self._dirty = True
        """Whether something has changed since the target was chosen."""
        self._retry_at = inf
        self._to_offer: Vector | None = None
        self._active_here = 0
        """The newest vector that the sidecar was said to run to this process."""
        self._released: set[str] = set()
        self._looking = True
        self._look_at: float | None = None
        self._paused = 0.0
        self._now = 0.0
        self._pending: Memory | None = None
        """To be saved before anything else."""
        self._former = memory.directory
        """The id that the directory had at the start of this process."""
        self._adjusted = self._begun = self._is_reported = self._leaving = False
        self._renew_at = 0.0
        self._has_renewed = False
        """Whether the last request was a renewal: others have their turn then."""
        self._writing: tuple[MemberStatus, frozenset[str], frozenset[str]] | None = None
        """The status on its way, the contents in it, and the policies that it says are run."""
        self._reading = 0

    # -- what others ask -----------------------------------------------------------------------------------------------

    @property
    def follows(self) -> bool:
        """Whether the watches of policies, of Secrets and of the own ShipperMember run: from the registration on, for
        ever. Their first lists must begin after this is True."""
        return self._begun

    @property
    def secrets(self) -> frozenset[str]:
        """The names of the Secrets to watch now; empty before `follows`."""
        if not self._begun:
            return frozenset()
        running = self._choosing.names(self._vectors.running.values())
        selected = self._choosing.names_of(self.policies.selected(self.own.labels)) if self.own.object else frozenset()
        return running | selected

    @property
    def kept(self) -> Vector | None:
        """The vector of an earlier process, which may run without the API server; None for a new member, or one that
        has left."""
        if not self.memory.number or self.memory.left or self._begun:
            return None
        vector = self._vector(self.memory)
        return vector if len(vector.contents) == len({id for part in vector.parts for id in part.contents}) else None

    @property
    def holding(self) -> bool:
        """Whether the sidecar needs a lease to send: by its settings, or as long as the API server may believe that."""
        return self.terms.hold or self.memory.fence

    @property
    def registered(self) -> bool:
        """Whether the API server has the status of this process, and nothing speaks against it."""
        return self.place == "ours" and self._is_reported and self.name.is_ours(self.memory.directory)

    @property
    def left(self) -> bool:
        """Whether this process takes part no more, and has said so."""
        return self.place == "out" and self._pending is None and not self.name.is_ours(self.memory.directory)

    @property
    def granted_until(self) -> float | None:
        """The end of the newest lease of the sidecar."""
        return self.fencing.until

    @property
    def held(self) -> str:
        """Why the sidecar gets no lease now although this member takes part; empty if it gets one."""
        if not self.holding or not self.registered or self._is_settled():
            return ""
        if self.fencing.must_read:
            return "policies and Secrets were not read again since the last lapse"
        return "the sidecar has not answered `active` for what it is to run"

    @property
    def waits(self) -> Sequence[tuple[str, str]]:
        """What keeps policies from being run as they are: name and a sentence, for people."""
        if self._target is None:
            return ()
        nacks = [(name, f"{nack.path}: {nack.message}") for name, nack in self._target.nacks.values()]
        return [*nacks, *self._target.waits]

    def status(self, facts: Facts) -> MemberStatus:
        """Returns the status as it is now; that of the API server may be older."""
        return self._status(facts)

    def is_pending(self, now: float, facts: Facts) -> bool:
        """Whether the API server does not have the newest status yet, and gets it within seconds."""
        due = self._reporting.due(self._status(facts), self.own.status, now)
        return self.registered and due is not None and due <= now + _SOON

    # -- the next step -------------------------------------------------------------------------------------------------

    def next(self, now: float, facts: Facts) -> Step:
        """Returns the next step; an event in between only changes what it is."""
        self._now = now
        self._settle(now, facts)
        if self._pending is not None:
            return Save(self._pending)
        if self.place == "out":
            return self._go(now, facts)
        if (local := self._local(now, facts)) is not None:
            return local
        if now < self._paused:
            return Rest(self._paused)
        if self._looking or (self._look_at is not None and now >= self._look_at):
            self._looking = True
            return Look()
        return self._take_part(now, facts) if self.place == "ours" else self._stand_by()

    def _settle(self, now: float, facts: Facts) -> None:
        """Brings what follows from events up to date."""
        if self.fencing.notices_end(now):
            self._lapse()
        if self.own.settle(now) or self.own.gone:
            self._looking = True
        self._dirty = self._dirty or now >= self._retry_at
        if self._dirty and self._may_decide():
            self._decide(now)
        used = self._ids(facts)
        self._proving.retain(used | facts.using, facts.using)
        kept = used | self._refusals.ids
        self._contents.retain(kept | {id for part in self._vectors.good.values() for id in part.contents})

    def _may_decide(self) -> bool:
        return self._begun and self.place == "ours" and self.policies.synced and self.own.object is not None

    def _decide(self, now: float) -> None:
        selected = self.policies.selected(self.own.labels)
        self._target = self._choosing.choose(selected, self._vectors.running, self._vectors.good, now)
        uids = {one.uid for one in selected}
        self._refusals.retain(uids)
        self._vectors.retain(uids | self._vectors.running.keys())
        self._retry_at, self._dirty = min(self._refusals.again_at(now), self.policies.again_at(now)), False

    @property
    def _draft(self) -> Target | None:
        """What is to be run, if it is something else than what was offered."""
        target = self._target
        if target is None or self._leaving or target.keys == [key_of(part) for part in self.memory.parts]:
            return None
        return target

    def _ids(self, facts: Facts) -> frozenset[str]:
        """Returns the contents that are used, or may be from now on."""
        running = {id for part in self._vectors.running.values() for id in part.contents}
        draft = self._draft.contents if self._draft is not None else frozenset()
        return self.usage.ids(facts.using, running | draft)

    def _local(self, now: float, facts: Facts) -> Step | None:
        """Returns the next step without the API server."""
        if self._to_offer is not None:
            return Offer(self._to_offer)
        if ids := self._proving.to_withdraw(facts.using, self._ids(facts)):
            return Withdraw(tuple(sorted(ids)))
        if ids := self._released - self._ids(facts):
            return Forget(tuple(sorted(ids)))
        if (judge := self._judge()) is not None:
            return judge
        proven = self.registered and self._is_settled()
        if (grant := self.fencing.step(needed=self.holding, proven=proven, now=now)) is not None:
            return grant
        if self.place == "ours" and (draft := self._draft) is not None and self._is_ready(draft):
            number = self.memory.number + 1
            memory = self._remembered(facts, number, draft.parts)
            return Save(replace(memory, saves=self.memory.saves + 1))
        return None

    def _judge(self) -> Judge | None:
        if not self._may_decide():
            return None
        return self.policies.unjudged(self.policies.selected(self.own.labels), self._now)

    def _is_settled(self) -> bool:
        """Whether the sidecar runs what is to be run, as far as it was read after the last lapse."""
        if self.fencing.must_read or self._dirty or self._to_offer is not None or self._judge() is not None:
            return False
        if self._draft is not None or self._proving.is_open:
            return False
        return self._active_here >= self.memory.number

    # -- with the API server -------------------------------------------------------------------------------------------

    def _stand_by(self) -> Step:
        if self._leaving:
            self.place, self.why = "out", "it has left while another directory had its name"
            return Save(replace(self.memory, left=True, saves=self.memory.saves + 1))
        return Rest(self._look_at)

    def _take_part(self, now: float, facts: Facts) -> Step:
        if self.own.object is None:
            return Create(created(self.terms))
        if not self.name.is_ours(self.memory.directory):
            return Hold(self.name.to_hold(self.memory.directory, facts))
        if not self._adjusted and (wanted := adjusted(self.own.object, self.terms)) is not None:
            return Adjust(wanted)
        self._adjusted = True
        if not self._is_reported or self._leaving:
            return self._write(facts)
        is_due = now >= self._renew_at
        if is_due and not self._has_renewed:
            return Hold(self.name.to_hold(self.memory.directory, facts))
        self._has_renewed = False
        work = self._announce(facts) or self._confirm(facts) or self._reread(facts)
        if work is not None:
            return work
        if is_due:
            return Hold(self.name.to_hold(self.memory.directory, facts))
        due = self._reporting.due(self._status(facts), self.own.status, now)
        if due is not None and due <= now:
            return self._write(facts)
        until = [self._renew_at, due, self.own.waits_until, self._retry_at, self.fencing.until]
        return Rest(min(one for one in until if one is not None and one > now))

    def _announce(self, facts: Facts) -> Step | None:
        """Returns the write that comes before a use; None if all is announced."""
        draft = self._draft
        used = self._contents.of(self._ids(facts))
        if all(self.usage.is_announced(one) or self.usage.is_usable(one) for one in used) and all(
            self._introducing.is_announced(part) for part in self._newcomers(draft)
        ):
            return None
        return self._write(facts)

    def _confirm(self, facts: Facts) -> Confirm | None:
        """Returns the reads that come between the announcement and the use; None if none is needed."""
        used = self._contents.of(self._ids(facts))
        names = {one.secret for one in used if not self.usage.is_usable(one) and not self._proving.has_failed(one)}
        known = self.policies.known
        new = [part for part in self._newcomers(self._draft) if not self._introducing.is_ready(part, known)]
        if not names and not new:
            return None
        self._begin_reading()
        return Confirm(frozenset(names), frozenset(part.name for part in new))

    def _begin_reading(self) -> None:
        self.policies.reading.begin()
        self.seen.reading.begin()

    def _end_reading(self) -> None:
        self.policies.reading.end()
        self.seen.reading.end()

    def _newcomers(self, draft: Target | None) -> list[Part]:
        """Returns the parts of policies that this member does not run yet."""
        entries = self._entries.by_uid
        parts = draft.parts if draft is not None else ()
        return [part for part in parts if part.uid not in entries or entries[part.uid].removed]

    def _is_ready(self, draft: Target) -> bool:
        contents = self._contents.of(draft.contents)
        new = self._newcomers(draft)
        return all(map(self.usage.is_usable, contents)) and all(
            self._introducing.is_ready(part, self.policies.known) for part in new
        )

    def _reread(self, facts: Facts) -> Reread | None:
        if not self.holding or not self.fencing.must_read:
            return None
        self._reading = self.fencing.lapses
        self._begin_reading()
        used = {one.secret for one in self._contents.of(self._ids(facts))}
        return Reread(self.secrets | used)

    def _write(self, facts: Facts) -> Step:
        """Returns the write of the status, or the save of what it depends on."""
        memory = self._remembered(facts, self.memory.number, self.memory.parts)
        if memory != self.memory:
            return Save(replace(memory, saves=self.memory.saves + 1))
        status = self._status(facts)
        ids = frozenset() if status.state == "left" and not status.using else self._ids(facts)
        uids = frozenset(one.uid for one in status.policies if not one.removed)
        self.usage.writing(ids)
        self._introducing.writing(uids)
        self._writing = status, ids, uids
        return Write(patch(self.own.uid, self.own.version, status))

    def _status(self, facts: Facts) -> MemberStatus:
        draft = self._draft
        nacks = self._target.nacks if self._target is not None else {}
        self._entries.finish(keep=nacks)
        has_left = self._leaving and not facts.undelivered
        return MemberStatus(
            process=f"{self.memory.directory}/{self.terms.process}.{self.memory.saves}",
            state="left" if self._leaving else "running",
            fence="hold" if self.terms.hold else "continue",
            undelivered=facts.undelivered,
            degraded=facts.degraded,
            policies=reports(self._entries, self._vectors.running, draft.parts if draft else (), self._contents, nacks),
            using=() if has_left else self.usage.entries(self._ids(facts)),
            lost=losses(self.own.status, self.memory.directory),
        )

    def _remembered(self, facts: Facts, number: int, parts: tuple[Part, ...]) -> Memory:
        """Returns what must be durable before the next write or offer."""
        ids = self._ids(facts)
        entries = self._entries.with_vector(number, parts) if number > self.memory.number else self._entries.by_uid
        return replace(
            self.memory,
            number=number,
            drawn=self._contents.drawn,
            parts=parts,
            good=self._vectors.replaced,
            contents=tuple(self._contents.of(sorted(ids))),
            proven=tuple(sorted(self.usage.proven & ids)),
            withdrawn=tuple(sorted(self.usage.withdrawn & facts.using)),
            entries=tuple(entries[uid] for uid in sorted(entries)),
            reached=dict(self._entries.reached),
            left=False,
            fence=self.memory.fence or self.terms.hold,
        )

    def _vector(self, memory: Memory) -> Vector:
        found = self._contents.of(id for part in memory.parts for id in part.contents)
        tree = self._choosing.merged(memory.parts).tree
        name = named(memory.directory, memory.number)
        usable = {one.id: one for one in found if one.id not in self.usage.withdrawn}
        return Vector(memory.number, name, tree, memory.parts, usable)

    def _go(self, now: float, facts: Facts) -> Step:
        """Returns the next step of a member that has left."""
        if not self.name.is_ours(self.memory.directory):
            return Rest(None)
        if now < self._paused:
            return Rest(self._paused)
        if self._looking:
            return Look()
        return Hold(self.name.to_hold(self.memory.directory, facts, give_up=True))

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def failed(self, until: float) -> None:
        """A step failed otherwise than by None: nothing more before this instant, and then a Look. Whether a write was
        done is unknown."""
        self._paused, self._looking = until, True
        self._reporting.doubt()

    def looked(self, step: Look, found: Found, *, now: float) -> None:
        """A look has found this."""
        self._looking, self._look_at = False, None
        self.own.read(found.member, now)
        self.name.found(found.lease, now)
        self._heed_bounds()
        self._dirty = True
        if self.place == "out":
            return
        status, directory = self.own.status, self.memory.directory
        if directory_of(status.process) == directory and saves_of(status.process) > self.memory.saves:
            self._pending = replace(self.memory, directory=self.terms.spare, saves=self.memory.saves + 1, proven=())
            return
        if not self.fencing.is_alive(now):
            self._doubt(status)
        if (taken := self.name.judge({directory, self._former}, now)) is not None:
            self.place = "apart" if self._is_reported or self.place == "apart" else "taken"
            self.why, self._look_at = taken.why, taken.until
            self._is_reported = False
            self._lapse_quietly()
        else:
            self.place, self.why = "ours", ""

    def _doubt(self, status: MemberStatus) -> None:
        """Keeps as proven only what the API server has had an entry for."""
        directory = self.memory.directory
        if directory_of(status.process) == directory:
            there = status.using
        else:
            there = tuple(use for one in status.lost if directory_of(one.process) == directory for use in one.using)
        self.usage.check(there)
        self._introducing.doubt()
        self._proving.begin_anew()

    def _heed_bounds(self) -> None:
        if self.usage.bounds != self.name.bounds:
            self.usage.bounds = self.name.bounds
            self._proving.begin_anew()
            self._dirty = True

    def _lapse(self) -> None:
        self._lapse_quietly()
        self._looking = True

    def _lapse_quietly(self) -> None:
        self.fencing.lapse()

    def saved(self, memory: Memory) -> None:
        """The memory is durable."""
        before, self.memory, self._pending = self.memory, memory, None
        if memory.directory != before.directory:
            self._contents.renamed(memory.directory)
            self.usage.doubt()
            self._introducing.doubt()
            self._reporting.doubt()
            self._is_reported, self._looking = False, True
            self._to_offer = self._vector(memory) if memory.number else None
        if memory.number > before.number:
            self._vectors.saved(memory.number, memory.parts)
            self._entries.by_uid = {one.uid: one for one in memory.entries}
            self._to_offer = self._vector(memory)

    def created(self, found: Object | None, *, now: float) -> None:
        """The ShipperMember was created, or there is one."""
        if found is None:
            self._looking = True
            return
        self.own.read(found, now)
        self._is_reported = False
        self._reporting.doubt()
        if not self.fencing.is_alive(now):
            self._doubt(self.own.status)
        self._dirty = True

    def adjusted(self, found: Object | None, *, now: float) -> None:
        """Labels and spec were written."""
        if found is None:
            self._looking = True
            return
        self._adjusted, self._dirty = True, True
        self.own.wrote(found, now)

    def held_lease(self, found: Object | None, *, began: float, now: float) -> None:
        """`Hold` was done by a request that began at an instant."""
        if found is None:
            self._looking, self._paused = True, now + _SOON if not self._begun else self._paused
            return
        was_ours = self.name.is_ours(self.memory.directory)
        self.name.found(found, now)
        self._heed_bounds()
        if self.place == "out":
            return
        self._renew_at, self._has_renewed = began + self.terms.lease / 3, True
        if not was_ours:
            self._lapse_quietly()
        self.fencing.renew(began)

    def wrote(self, step: Write, found: Object | None, *, began: float, now: float) -> None:
        """The status was written, and this is the answer, whole."""
        if found is None or self._writing is None:
            self._looking = True
            return
        status, ids, uids = self._writing
        self.own.wrote(found, now)
        self._dirty = True
        self.usage.wrote(ids)
        self._introducing.wrote(uids)
        self._reporting.wrote(status, self.own.status, now)
        self._is_reported = self._begun = True
        if status.state == "left":
            self.place, self.why = "out", "it has left"
            self._pending = replace(self.memory, left=True, saves=self.memory.saves + 1)
        elif self.memory.fence and status.fence == "continue":
            self.fencing.loosened()
            self._pending = replace(self.memory, fence=False, saves=self.memory.saves + 1)

    def reread(self, policies: Listing, secrets: Mapping[str, SecretFound], *, began: float, now: float) -> None:
        """All policies, and each Secret of the step."""
        self.policies.listed(policies)
        unclear = [name for name, found in secrets.items() if not self._read(name, found)]
        self._end_reading()
        if not unclear and self._reading == self.fencing.lapses:
            self.fencing.must_read = False

    def judged(self, step: Judge, judgement: Judgement, *, now: float) -> None:
        """A generation was judged."""
        self.policies.judged(step, judgement, now)
        self._dirty = True

    def confirmed(
        self, step: Confirm, secrets: Mapping[str, SecretFound], policies: Mapping[str, Object | None], *, now: float
    ) -> None:
        """Each Secret and policy of the step, read after the step was given."""
        self._proving.confirmed({name for name, found in secrets.items() if self._read(name, found)})
        for name, policy in policies.items():
            if self.policies.read(name, policy) and (known := self.policies.at(name)) is not None:
                self._introducing.confirmed(known.uid, known.generation)
        self._end_reading()
        self._dirty = True

    def offered(self, vector: Vector) -> None:
        """The agent reads this vector from now on."""
        self.usage.offered(vector.contents, vector.number)
        self._to_offer = None

    def withdrew(self, ids: Iterable[str]) -> None:
        """The sidecar has these contents no more."""
        self.usage.withdrew(ids)
        self._proving.withdrew(ids)
        self._dirty = True

    def forgot(self, ids: Iterable[str]) -> None:
        """The ledger has these contents no more."""
        self._released -= set(ids)
        self.usage.forgot(ids)

    def granted(self, until: float | None) -> None:
        """The sidecar has its lease, or needs none any more."""
        self.fencing.granted(until)

    # -- events --------------------------------------------------------------------------------------------------------

    def saw_policy(self, event: Event) -> None:
        """An event of the watch of policies, SYNCED included, in order."""
        self.policies.saw(event)
        self._dirty = True

    def saw_secret(self, name: str, event: Event) -> None:
        """An event of the watch of one Secret, SYNCED included: without an object before it there is none."""
        if (found := self.seen.saw(name, event)) is not None:
            self._contents.saw(found)
        self._dirty = True

    def unwatched(self, name: str) -> None:
        """The watch of a Secret has ended, since nothing refers to it; the next one shows it anew."""
        self.seen.forget(name)
        self._dirty = True

    def denied(self, name: str, why: str) -> None:
        """The watch of a Secret is refused (401, 403)."""
        self.seen.denied(name, why)
        self._dirty = True

    def saw_own(self, event: Event, *, now: float) -> None:
        """An event of the watch of the own ShipperMember."""
        self.own.saw(event)
        self._dirty = True

    def caught_up(self, version: str) -> None:
        """The watch of the own ShipperMember was handed everything up to a version."""
        self.own.caught_up(version)

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
        self._dirty = True

    def released(self, id: str) -> None:
        """Every sidecar here has released a content (`PolicySource.released`)."""
        self._released.add(id)

    def end(self) -> None:
        """The agent has ended: what the status lacks of its last figures is written at once."""
        self._reporting.is_last = True

    def leave(self) -> None:
        """This member leaves for good; every sidecar has stopped."""
        self._leaving = True

    def _read(self, name: str, found: SecretFound) -> bool:
        """Takes what a read of a Secret has found; returns whether that is what is known now."""
        is_known = self.seen.read(name, found)
        if (present := self.seen.present(name)) is not None:
            self._contents.saw(present)
        self._dirty = True
        return is_known
