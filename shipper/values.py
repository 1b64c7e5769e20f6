"""Values of the domain, which the spool stores and the protocol writes: revisions, and counts of their events.

They have no wire format: `protocol/messages` makes messages of them. They are stored as JSON of their fields, so a
field may be added with a default, but none may be renamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated, Literal, NamedTuple

import msgspec

LARGEST_COUNT = 2**63 - 1
"""The largest integer of SQLite: numbers from outside are stored unchanged."""
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)]
Change = Literal["none", "live", "barrier"]
"""The kind of change of a revision, compared with the active one before it."""
Reason = Literal[
    "invalid",
    "stale",
    "conflict",
    "credential_missing",
    "credential_conflict",
    "superseded",
    "failed",
    "locked",
]
"""Why a revision is refused."""
Confirms = Literal["stored", "delivered"]
"""What final answers are worth, as in `shipper.sdk.peers`."""


class Revision(NamedTuple):
    """The number of a policy; compares by epoch first."""

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.number}" if self.epoch else str(self.number)

    @classmethod
    def parse(cls, text: str) -> Revision:
        """Returns the revision that `str` has written."""
        epoch, _, number = text.rpartition(":")
        return cls(int(epoch or 0), int(number))


class Revisions(msgspec.Struct, frozen=True):
    """The newest durable revision of each stage."""

    received: Revision | None = None
    active: Revision | None = None
    drained: Revision | None = None


class Counts(msgspec.Struct, frozen=True):
    """Events that a barrier waited for; `accepted` is the sum of the others once it is settled."""

    accepted: int = 0
    delivered: int = 0
    duplicate: int = 0
    dead_letter: int = 0
    dropped: int = 0
    damaged: int = 0
    superseded: int = 0
    """Versions of keyed state that a newer one has replaced."""

    @property
    def answered(self) -> int:
        """How many have their final answer."""
        known = self.delivered + self.duplicate + self.dead_letter + self.dropped
        return known + self.damaged + self.superseded


class Confirmed(IntEnum):
    """What final answers are worth, in the order from the best to the worst; kept as its number."""

    UNKNOWN = 0
    """There was no answer."""
    DELIVERED = 1
    """The events are delivered at the end of their way."""
    STORED = 2
    """Another shipper has stored them."""

    @classmethod
    def of(cls, word: Confirms | None) -> Confirmed:
        """Returns what a word means."""
        return cls.UNKNOWN if word is None else cls[word.upper()]

    @property
    def word(self) -> Confirms | None:
        """The word of the protocol; None for no answer."""
        return (None, "delivered", "stored")[self]


class CredentialUse(msgspec.Struct, frozen=True):
    """Credentials by their ids: those that something may still use, and those that nothing uses any more."""

    in_use: Sequence[str]
    released: Sequence[str]


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The record that a revision is drained: stored in the transaction in which it becomes true, and repeated on
    demand."""

    epoch: int
    revision: int
    sha256: str
    change: Change
    credentials: CredentialUse
    ledger: Counts
    confirms: Confirms | None = None
    """The weakest confirmation of the outputs that it waited for; None: of none was there ever an answer."""


receipt_of = msgspec.json.Decoder(Receipt).decode
"""Reads an encoded receipt; it is made before there are threads, see `shipper.sdk.packing`."""


class StateFigures(msgspec.Struct, frozen=True):
    """How much keyed state there is: keys, those that are deleted and still known included; and versions that wait,
    each counted for every destination."""

    keys: int = 0
    waiting: int = 0


class DeadLetterFigures(msgspec.Struct, frozen=True):
    """The figures of the dead-letter store."""

    events: int = 0
    bytes: int = 0
    oldest_seconds: float = 0.0


class DeadLetterReason(msgspec.Struct, frozen=True):
    """Why an output refused events for ever."""

    output: str
    reason: str
    events: int
    """How many of the newest dead letters have it."""
    newest_seconds: float
    """The age of the newest of them."""
