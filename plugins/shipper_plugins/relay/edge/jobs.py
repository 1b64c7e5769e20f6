"""What a `relay` output sends of log events: each call of `send` is a job, which ends with its answers. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import trio

from shipper.plugin import Answer, Answers, Outcome, anew
from shipper.plugin.relay import Ranked
from shipper_plugins.relay.frames import Part

COUNTED = {
    Ranked.DUPLICATE: Answer(Outcome.DUPLICATE),
    Ranked.SUPERSEDED: Answer(Outcome.DUPLICATE),
    Ranked.DEAD_LETTER: Answer(Outcome.DEAD_LETTER, "a dead letter of the principal, which keeps it"),
    Ranked.DROPPED: Answer(Outcome.DROPPED, "dropped at the principal"),
    Ranked.DAMAGED: Answer(Outcome.DAMAGED, "stored events of the principal were damaged"),
}
"""By the final answer of the principal, what this shipper counts."""


@dataclass(eq=False, slots=True)
class Job:
    """One call of `send`."""

    part: Part
    count: int
    size: int
    """Its bytes, by which a request is bounded."""
    items: Sequence[int]
    """The places of its events in the part."""
    is_own: bool = True
    """Whether this shipper was the first to accept its events."""
    is_alone: bool = False
    """Whether it was refused together with others, and goes alone."""
    answers: Answers | None = None
    error: Exception | None = None
    ended: trio.Event = field(default_factory=trio.Event)
    request: Request | None = None
    final: dict[int, Ranked] = field(default_factory=dict)
    """By item, the known final answers, if the principal gives them later than its confirmation."""

    @property
    def identity(self) -> tuple[str, int]:
        return self.part.origin.hex(), self.part.seq

    def end(self, answers: Answers | None = None, error: Exception | None = None) -> None:
        """Ends the job, once; later calls change nothing."""
        if not self.ended.is_set():
            self.answers, self.error = answers, None if error is None else anew(error)
            self.ended.set()

    def result(self) -> Answers:
        """Returns the answers of an ended job, or raises its error."""
        if self.error is not None:
            raise anew(self.error)
        assert self.answers is not None
        return self.answers

    def end_all(self, answer: Answer, retry_after: float | None = None) -> None:
        """Ends it with the same answer for each event."""
        self.end(Answers(self.count, dict.fromkeys(range(self.count), answer), retry_after))

    def told(self, final: Mapping[int, Ranked], *, is_stored: bool) -> None:
        """Ends it when the answers for all its items are known; `is_stored`: they are not from the end of the way."""
        self.final |= {item: final[item] for item in self.items if item in final}
        if len(self.final) == self.count:
            ranks = [self.final[item] for item in self.items]
            others = {at: COUNTED[rank] for at, rank in enumerate(ranks) if rank is not Ranked.DELIVERED}
            self.end(Answers(self.count, others, is_stored=is_stored))


@dataclass(eq=False, slots=True)
class Request:
    """The jobs of one request."""

    jobs: list[Job]
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)
