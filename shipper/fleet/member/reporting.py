"""When the report of a member is due, what must be durable before, and what it says."""

from __future__ import annotations

from msgspec.structs import replace

from shipper.fleet.member.answers import Answers
from shipper.fleet.member.head import KnownHead
from shipper.fleet.member.order import position
from shipper.fleet.member.registration import Registration
from shipper.fleet.member.steps import Facts, Terms
from shipper.fleet.memory import Memory
from shipper.fleet.records import Fence, Report, Version

PROMPT = 3
"""Writes for the answers to one version that are not put off to the next renewal."""


class Reporting:
    """The pace of the reports; what they say is read from the other parts, and never changed here."""

    def __init__(self, terms: Terms, known: KnownHead, answers: Answers, registration: Registration) -> None:
        self._terms, self._known, self._answers, self._registration = terms, known, answers, registration
        self.due = 0.0
        """The instant of the next renewal."""
        self._prompts = 0

    def must_write(self, now: float, memory: Memory, *, leaving: bool) -> bool:
        """Returns whether a report is to be written now."""
        last = self._registration.report
        if last is None or last.instance != self._terms.instance or last.state == "joining":
            return True
        if leaving or self._registration.forged or now >= self.due or last.epoch < self._known.epoch(memory.epoch):
            return True
        news = last.stages != self._answers.stages or last.refusal != self._answers.refusal
        return news and self._prompts < PROMPT

    def wrote(self, began: float, *, first: bool) -> None:
        """A write that began at this instant was done. News move no renewal: members that answered together do not
        renew together from then on."""
        if not first and began < self.due:
            self._prompts += 1
        else:
            self.due = began + self._terms.lease / 3

    def offered(self) -> None:
        """Another version was offered: the answers to it are prompt again."""
        self._prompts = 0

    def remembered(self, memory: Memory, *, leaving: bool) -> Memory:
        """Returns what must be durable before the next write."""
        state = self._registration.next_state(leaving=leaving)
        return replace(
            memory,
            state=memory.state if state == "joining" else state,
            newest=self._known.newest,
            head=self._known.seen,
            epoch=self._known.epoch(memory.epoch),
            instance=self._terms.instance,
            writers=self._registration.earlier_writers(memory),
            write=self._registration.attempted + 1,
            revision=self._registration.revision,
            fence=memory.fence or self._terms.hold,
            released=self._known.released_for_good(memory.released),
        )

    def report(self, memory: Memory, running: Version | None, facts: Facts, *, leaving: bool) -> Report:
        """Returns the report to write; all of `remembered` is durable."""
        terms, registration, answers = self._terms, self._registration, self._answers
        begun = self._begun(leaving=leaving)
        using = sorted(facts.using | self._pins(begun, running))
        return Report(
            name=terms.name,
            directory=memory.directory,
            boot=terms.boot,
            instance=terms.instance,
            write=memory.write,
            epoch=memory.epoch,
            state=registration.next_state(leaving=leaving),
            since=facts.wall if registration.since is None else registration.since,
            seen=facts.wall,
            lease=terms.lease,
            begun=begun,
            stages=answers.stages,
            ledger=answers.ledger,
            refusal=answers.refusal,
            using=using,
            unaccepted=[] if facts.accepted is None else [id for id in using if id not in facts.accepted],
            contents={id: [*facts.contents[id]] for id in using if id in facts.contents},
            released=list(memory.released),
            undelivered=facts.undelivered,
            local=answers.local,
            fence=Fence(terms.lease, facts.request) if terms.hold else None,
            lost=registration.losses(facts.wall),
            releases=terms.releases,
            forget_after=terms.forget_after,
            http=facts.http,
        )

    def _begun(self, *, leaving: bool) -> Version | None:
        """Returns the version with which this member begins, once it is registered as a joiner."""
        last = self._registration.report
        is_registered = last is not None and last.state == "joining" and not leaving
        return self._known.current if is_registered else self._registration.begun

    def _pins(self, begun: Version | None, running: Version | None) -> frozenset[str]:
        """Returns the ids that the sidecar may use before the ledger names them."""
        active = self._answers.stages.get("active")
        has_begun = begun is not None and position(active) >= position(begun)
        return self._known.pins(None if has_begun else begun, running)
