"""What became of events that were sent: the answers of an output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum

import msgspec

from shipper.sdk.codes import Code, checked
from shipper.sdk.errors import Held, Later, NotBegun, TooLarge


class Outcome(Enum):
    """The answer for one event."""

    DELIVERED = "delivered"
    DUPLICATE = "duplicate"
    """The destination has had it before, under our own id."""
    SUPERSEDED = "superseded"
    """Of keyed state only: the destination has a newer version of this key, or another one at the same place. It is
    final; but see `Answer.fence`."""
    REJECTED = "rejected"
    """Refused for ever: it becomes a dead letter."""
    DEAD_LETTER = "dead_letter"
    """Refused for ever further on its way, where a dead letter is kept: it counts as one, and none is written here."""
    DROPPED = "dropped"
    """Dropped further on its way, by an order or for lack of room."""
    DAMAGED = "damaged"
    """Lost further on its way, since what was stored there is damaged."""
    LATER = "later"
    """No final answer: the same id again, after a while."""
    HELD = "held"
    """Refused for lack of a permission: kept, shown, probed gently."""


class Ranked(IntEnum):
    """Final answers, from the best to the worst: that of an event which goes to several outputs is the worst of
    theirs."""

    DELIVERED = 0
    DUPLICATE = 1
    SUPERSEDED = 2
    DEAD_LETTER = 3
    DROPPED = 4
    DAMAGED = 5

    @classmethod
    def of(cls, outcome: Outcome) -> Ranked:
        """The rank of a final answer."""
        return cls.DEAD_LETTER if outcome is Outcome.REJECTED else cls[outcome.name]

    @property
    def outcome(self) -> Outcome:
        """The answer of a relay to whom it has the event from."""
        return Outcome[self.name]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer for one event that was not simply delivered; `reason` never quotes the event."""

    outcome: Outcome
    reason: str = ""
    of_target: bool = False
    """With LATER or HELD: whether it applies to all events of the same target (see `Output.targets`), for now."""
    code: str = ""
    """By which programs decide, one of Code or the plugin's own; where none is given, one of its outcome."""
    fence: tuple[int, bytes] | None = None
    """With SUPERSEDED, of a destination that says so: the place and the digest of the version that it has. If this one
    was the last word of its owner nevertheless, given by this process, it is sent again, at a place above that."""

    def __post_init__(self) -> None:
        """Raises ValueError for a code that is none."""
        object.__setattr__(self, "code", checked(self.code) if self.code else _OF_OUTCOME[self.outcome])

    @classmethod
    def of(cls, error: Later | Held | TooLarge | NotBegun) -> Answer:
        """That of an event whose request ended so, while others of its batch were answered: HELD after Held, or LATER.

        Such an event goes again, in another request: so it is after TooLarge, too.
        """
        return cls(Outcome.HELD if isinstance(error, Held) else Outcome.LATER, str(error), code=error.code)


_OF_OUTCOME: Mapping[Outcome, str] = {
    Outcome.DELIVERED: Code.OK,
    Outcome.DUPLICATE: Code.OK,
    Outcome.SUPERSEDED: Code.OK,
    Outcome.DEAD_LETTER: Code.REJECTED,
    Outcome.DROPPED: Code.REJECTED,
    Outcome.DAMAGED: Code.DAMAGED,
    Outcome.REJECTED: Code.REJECTED,
    Outcome.LATER: Code.UNAVAILABLE,
    Outcome.HELD: Code.REFUSED,
}


class Answers(msgspec.Struct, frozen=True):
    """The answers for a batch of `count` events: by position, those that were not simply delivered."""

    count: int
    others: Mapping[int, Answer] = msgspec.field(default_factory=dict)
    retry_after: float | None = None
    """Seconds that the destination asked to wait, for those that come later."""
    is_stored: bool = False
    """Whether the destination is another shipper that has stored them: they may not be at the end of their way yet."""

    @classmethod
    def until(
        cls, first: int, error: Later | Held | TooLarge | NotBegun, count: int, others: Mapping[int, Answer]
    ) -> Answers:
        """Of a batch that goes as several requests: those up to the event `first` were answered, and then one ended so.

        `others` are the answers before.
        """
        rest = dict.fromkeys(range(first, count), Answer.of(error))
        return cls(count, {**others, **rest}, error.retry_after if isinstance(error, Later) else None)
