"""One process of one member: the order of its steps, its memory, and its status. See the package.

Instants (`now`, `began`, `until`) are seconds of CLOCK_BOOTTIME.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from shipper.apiserver.objects import Event, Listing, Object
from shipper.kubernetes.kinds import MemberStatus
from shipper.kubernetes.member.fencing import Fencing
from shipper.kubernetes.member.losses import directory_of, losses, saves_of
from shipper.kubernetes.member.memory import Memory
from shipper.kubernetes.member.reporting import Reporting, patch
from shipper.kubernetes.member.running import Running
from shipper.kubernetes.member.standing import SOON, Standing
from shipper.kubernetes.member.steps import (
    Facts,
    Found,
    Judge,
    Look,
    Offer,
    Reread,
    Save,
    SecretFound,
    Step,
    Terms,
    Write,
)
from shipper.membership.steps import Rest
from shipper.policy.registry import Registry
from shipper.sdk.retry import Refusals


class Member:
    """A member; the caller performs the steps that `next` returns, one after the other, and tells what happens.

    Events may come between a step and its outcome, and, while it writes, the steps of `beside`.
    """

    def __init__(self, terms: Terms, memory: Memory, registry: Registry) -> None:
        """`memory` is durable."""
        self.terms = terms
        self.standing = Standing(terms, memory.directory)
        self.running = Running(memory, registry, self.standing)
        """Is told what becomes of `Judge`, `Confirm`, `Offer`, `Withdraw` and `Forget`, of policies and of Secrets."""
        self.fencing = Fencing(terms.lease)
        self._reporting = Reporting(terms.lease)
        self._refusals = Refusals()
        self._pending: Memory | None = None
        """To be saved before anything else."""
        self._writing: tuple[MemberStatus, frozenset[str], frozenset[str]] | None = None
        """The status on its way, the contents in it, and the policies that it says are run."""
        self._reading = 0

    # -- what others ask -----------------------------------------------------------------------------------------------

    @property
    def memory(self) -> Memory:
        """What is durable."""
        return self.running.memory

    @property
    def holding(self) -> bool:
        """Whether the sidecar needs a lease to send: by its settings, or as long as the API server may believe that."""
        return self.terms.hold or self.memory.fence

    @property
    def left(self) -> bool:
        """Whether this process takes part no more, and has said so."""
        return self.standing.place == "out" and self._pending is None and not self.standing.has_name

    @property
    def held(self) -> str:
        """Why the sidecar gets no lease now although this member takes part; empty if it gets one."""
        if not self.holding or not self.standing.registered or self._is_settled():
            return ""
        if self.fencing.must_read:
            return "policies and Secrets were not read again since the last lapse"
        return "the sidecar has not answered `active` for what it is to run"

    def _is_settled(self) -> bool:
        """Whether the sidecar runs what is to be run, as far as it was read after the last lapse."""
        return not self.fencing.must_read and self.running.is_settled()

    def status(self, facts: Facts) -> MemberStatus:
        """Returns the status as it is now; that of the API server may be older."""
        is_leaving = self.standing.is_leaving
        has_left = is_leaving and not facts.undelivered
        return MemberStatus(
            process=f"{self.memory.directory}/{self.terms.process}.{self.memory.saves}",
            state="left" if is_leaving else "running",
            fence="hold" if self.terms.hold else "continue",
            undelivered=facts.undelivered,
            degraded=facts.degraded,
            policies=self.running.reports(),
            using=() if has_left else self.running.usage.entries(self.running.ids(facts)),
            lost=losses(self.standing.own.status, self.memory.directory),
        )

    def is_pending(self, now: float, facts: Facts) -> bool:
        """Whether the API server does not have the newest status yet, and gets it within seconds."""
        due = self._reporting.due(self.status(facts), self.standing.own.status, now)
        return self.standing.registered and due is not None and due <= now + SOON

    # -- the next step -------------------------------------------------------------------------------------------------

    def next(self, now: float, facts: Facts) -> Step:
        """Returns the next step; an event in between only changes what it is."""
        if self.fencing.notices_end(now):
            self.fencing.lapse()
            self.standing.look_again()
        self.standing.settle(now)
        self.running.settle(now, facts)
        if self._pending is not None:
            return Save(self._pending)
        if self.standing.place == "out":
            return self.standing.go(now, facts)
        step = self._local(now, facts) or self.standing.look(now)
        if step is not None:
            return step
        return self._take_part(now, facts) if self.standing.place == "ours" else self._stand_by()

    def beside(self, now: float, facts: Facts) -> Judge | Save | Offer | None:
        """Returns what may be done while a `Write` or a `Hold` is on its way; None if there is nothing.

        A new generation that needs no announcement is judged, saved and offered. A step is told before the next one.
        """
        self.running.settle(now, facts)
        if self._pending is not None or self.standing.place != "ours":
            return None
        step = self.running.step(facts)
        if step is not None:
            return step if isinstance(step, Judge | Offer) else None
        ready = self.running.ready(facts)
        return None if ready is None else Save(_saved_again(self._taking_part(ready)))

    def _local(self, now: float, facts: Facts) -> Step | None:
        """Returns the next step without the API server."""
        if (step := self.running.step(facts)) is not None:
            return step
        proven = self.standing.registered and self._is_settled()
        if (grant := self.fencing.step(now, needed=self.holding, proven=proven)) is not None:
            return grant
        ready = self.running.ready(facts)
        return None if ready is None else Save(_saved_again(self._taking_part(ready)))

    def _stand_by(self) -> Step:
        if self.standing.is_leaving:
            self.standing.left("it has left while another directory had its name")
            return Save(_saved_again(replace(self.memory, left=True)))
        return self.standing.stand_by()

    def _take_part(self, now: float, facts: Facts) -> Step:
        standing = self.standing
        if (entering := standing.enter(facts)) is not None:
            return entering
        if not standing.is_reported or standing.is_leaving:
            return self._write(facts)
        renewal = standing.renewal(now, facts)
        step = renewal or self._announce(facts) or self.running.confirm(facts) or self._reread(facts)
        if step is not None:
            return step
        if now >= standing.renew_at:
            return standing.hold(facts)
        due = self._reporting.due(self.status(facts), standing.own.status, now)
        if due is not None and due <= now:
            return self._write(facts)
        until = [standing.renew_at, due, standing.own.waits_until, self.running.retry_at, self.fencing.until]
        return Rest(min(one for one in until if one is not None and one > now))

    def _announce(self, facts: Facts) -> Step | None:
        """Returns the write that comes before a use; None if all is announced."""
        return None if self.running.is_announced(facts) else self._write(facts)

    def _reread(self, facts: Facts) -> Reread | None:
        if not self.holding or not self.fencing.must_read:
            return None
        self._reading = self.fencing.lapses
        return self.running.reread(facts)

    def _write(self, facts: Facts) -> Step:
        """Returns the write of the status, or the save of what it depends on."""
        memory = self._taking_part(self.running.remembered(facts))
        if memory != self.memory:
            return Save(_saved_again(memory))
        status, own = self.status(facts), self.standing.own
        ids = frozenset() if status.state == "left" and not status.using else self.running.ids(facts)
        uids = frozenset(one.uid for one in status.policies if not one.removed)
        self.running.writing(ids, uids)
        self._writing = status, ids, uids
        return Write(patch(own.uid, own.version, status))

    def _taking_part(self, memory: Memory) -> Memory:
        return replace(memory, left=False, fence=memory.fence or self.terms.hold)

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def failed(self, until: float) -> None:
        """A step failed otherwise than by None: nothing more before this instant, and then a Look. Whether a write was
        done is unknown."""
        self.standing.look_again(until)
        self._reporting.doubt()

    def looked(self, step: Look, found: Found, *, now: float) -> None:
        """A look has found this."""
        self.standing.looked(found, now)
        self.running.heed(self.standing.name.bounds)
        self.running.is_stale = True
        if self.standing.place == "out":
            return
        status, memory = self.standing.own.status, self.memory
        if directory_of(status.process) == memory.directory and saves_of(status.process) > memory.saves:
            self._pending = _saved_again(replace(memory, directory=self.terms.spare, proven=()))
            return
        if not self.fencing.is_alive(now):
            self.running.doubt(status)
        if not self.standing.judge(now):
            self.fencing.lapse()

    def saved(self, memory: Memory) -> None:
        """The memory is durable."""
        has_new_id = memory.directory != self.memory.directory
        self._pending = None
        self.running.saved(memory)
        if has_new_id:
            self._reporting.doubt()
            self.standing.renamed(memory.directory)

    def _look_again(self, what: str, now: float, *, at_once: bool = True) -> None:
        """A step was not done, as somebody else was faster: looks again at once, or after a pause."""
        goes_on = at_once and not self._refusals.is_repeated(what)
        self.standing.look_again(None if goes_on else now + SOON)

    def created(self, found: Object | None, *, now: float) -> None:
        """The ShipperMember was created, or there is one."""
        if found is None:
            self._look_again("create", now)
            return
        self._refusals.over("create")
        self.standing.created(found, now)
        self._reporting.doubt()
        if not self.fencing.is_alive(now):
            self.running.doubt(self.standing.own.status)
        self.running.is_stale = True

    def adjusted(self, found: Object | None, *, now: float) -> None:
        """Labels and spec were written."""
        if found is None:
            self._look_again("adjust", now)
            return
        self._refusals.over("adjust")
        self.standing.adjusted(found, now)
        self.running.is_stale = True

    def held_lease(self, found: Object | None, *, began: float, now: float) -> None:
        """`Hold` was done by a request that began at an instant."""
        standing = self.standing
        if found is None:
            self._look_again("hold", now, at_once=standing.follows)
            return
        self._refusals.over("hold")
        had_name = standing.has_name
        standing.name.found(found, now)
        self.running.heed(standing.name.bounds)
        if standing.place == "out":
            return
        standing.renewed(began)
        if not had_name:
            self.fencing.lapse()
        self.fencing.renew(began)

    def wrote(self, step: Write, found: Object | None, *, began: float, now: float) -> None:
        """The status was written, and this is the answer, whole."""
        if found is None or self._writing is None:
            self._look_again("write", now)
            return
        self._refusals.over("write")
        status, ids, uids = self._writing
        self.standing.reported(found, now)
        self.running.is_stale = True
        self.running.wrote(ids, uids)
        self._reporting.wrote(status, self.standing.own.status, now)
        if status.state == "left":
            self.standing.left("it has left")
            self._pending = _saved_again(replace(self.memory, left=True))
        elif self.memory.fence and status.fence == "continue":
            self.fencing.loosened()
            self._pending = _saved_again(replace(self.memory, fence=False))

    def reread(self, policies: Listing, secrets: Mapping[str, SecretFound], *, began: float, now: float) -> None:
        """All policies, and each Secret of the step."""
        if self.running.read_again(policies, secrets) and self._reading == self.fencing.lapses:
            self.fencing.must_read = False

    def granted(self, until: float | None) -> None:
        """The sidecar has its lease, or needs none any more."""
        self.fencing.granted(until)

    # -- events --------------------------------------------------------------------------------------------------------

    def saw_own(self, event: Event, *, now: float) -> None:
        """An event of the watch of the own ShipperMember."""
        self.standing.own.saw(event)
        self.running.is_stale = True

    def caught_up(self, version: str) -> None:
        """The watch of the own ShipperMember was handed everything up to a version."""
        self.standing.own.caught_up(version)

    def end(self) -> None:
        """The agent has ended: what the status lacks of its last figures is written at once."""
        self._reporting.is_last = True

    def leave(self) -> None:
        """This member leaves for good; every sidecar has stopped."""
        self.standing.is_leaving = True


def _saved_again(memory: Memory) -> Memory:
    return replace(memory, saves=memory.saves + 1)
