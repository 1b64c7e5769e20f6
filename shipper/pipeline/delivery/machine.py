"""What a lane does next: where it is, and until when it waits. No I/O, no clock.

    closed    settles barriers that it has reached, is held, waits, or opens the output
    open      a session (`session`), or a wait between two of them with the client open
    quiet     an order wants nothing under way
    gone      retired and empty

A lane lives in sessions. A session ends when the destination gives no answer or refuses our requests. Then the lane
gives up connections, memory and, if it is retired, its slot (`slots`), and keeps only the time of its next try, with
one request (`waits`). So hundreds of lanes of a dead destination cost nothing, and no destination is asked more often
than once in a backoff. Revisions, orders and other credentials do not shorten the wait; only a new setting or
credential of this lane does.
"""

from __future__ import annotations

from typing import NamedTuple

from shipper.pipeline.attempts.attempt import Trouble
from shipper.pipeline.delivery.backlog import Backlog
from shipper.pipeline.delivery.session import Facts, Rest, Session, Settle
from shipper.pipeline.delivery.waits import Backoff, Waits
from shipper.sdk.codes import Code, Why
from shipper.sdk.feeding import Feeding
from shipper.spool.queue import Entry


class Stand(NamedTuple):
    """An order wants nothing under way: rest."""


class Held(NamedTuple):
    """Show what holds the events, and rest."""

    hold: Why


class Idle(NamedTuple):
    """Nothing waits: rest."""


class Open(NamedTuple):
    """Open the output, and begin a session; `drains`: with a slot for draining, as the destination answers."""

    drains: bool


Step = Stand | Settle | Held | Idle | Rest | Open


class Failing(NamedTuple):
    """A batch whose events may be why sessions end; `since` when the first of these sessions in a row ended."""

    batch: int
    since: float


class Machine:
    """The decisions of one lane."""

    def __init__(self, feeding: Feeding, backoff: Backoff, *, active: bool) -> None:
        self.feeding, self.active = feeding, active
        self.is_gone = False
        self.is_fed = True
        """Whether anything is routed to it."""
        self.quiets = 0
        """Orders that want nothing under way."""
        self.hurries = False
        """Whether nothing waits for more to be sent with it."""
        self.is_tried = False
        """Whether a session is under way, or waits for a slot; False between two sessions, even with an open client."""
        self.session: Session | None = None
        self.trouble: Trouble | None = None
        """What ended the last session, if it was a trouble."""
        self.failing: Failing | None = None
        self.answers = False
        """Whether the destination answered when it was last asked."""
        self._backoff = backoff
        self.waits = Waits(backoff)
        self.backlog = Backlog(backoff, self.waits)

    # -- closed --------------------------------------------------------------------------------------------------------

    def next(self, now: float, first: Entry | None, hold: Why | None) -> Step:
        """Returns what the closed lane does, which holds `first` as its first entry; `hold` is why it may send
        nothing."""
        if self.quiets:
            return Stand()
        if first is not None and first.is_barrier:
            return Settle(first.seq)
        if hold is not None and (first is not None or hold.code != Code.CREDENTIAL_MISSING):
            return Held(hold)
        if first is None and (hold is not None or not self.is_open_idle):
            return Idle()
        if self.is_waiting(now):
            return Rest(self.waits.destination)
        return Open(drains=self.answers)

    def is_waiting(self, now: float) -> bool:
        """Whether it must not ask the destination now."""
        return self.trouble is not None and self.waits.destination > now

    @property
    def is_open_idle(self) -> bool:
        """Whether the client stays open though nothing waits."""
        return self.active and self.is_fed and self.feeding.is_open_idle

    # -- open ----------------------------------------------------------------------------------------------------------

    def begin(self) -> Session:
        """A session begins."""
        self.waits.begin()
        self.is_tried = True
        asks = not (self.active or self.answers)
        self.session = Session(self.backlog, self.feeding, self._backoff, last=self.trouble, asks=asks)
        return self.session

    def facts(self, *, needs_slot: bool) -> Facts:
        """Returns what the session asks of its lane."""
        return Facts(self.active, self.active and not self.hurries, needs_slot)

    def ended(self, now: float) -> Trouble | None:
        """The session has ended; returns what ended it, if that was trouble."""
        session, self.session, self.is_tried = self.session, None, False
        assert session is not None
        self.trouble = session.trouble
        self.answers = session.trouble is None and session.has_answers
        if session.feed.progressed:
            self.waits.progressed()
        self._note_failing(None if session.trouble is None else session.trouble.batch, now)
        if session.trouble is not None:
            self.failed(session.trouble, now)
        return session.trouble

    def failed(self, trouble: Trouble, now: float) -> None:
        """There was trouble with the destination: it is put off."""
        self.trouble = trouble
        left = self.backlog.next_due() if trouble.is_of_left else None  # room may have been made since
        self.waits.after_trouble(now, held=trouble.held, wanted=trouble.retry_after, left=left)

    def _note_failing(self, batch: int | None, now: float) -> None:
        if batch is None:
            self.failing = None
        elif self.failing is None or self.failing.batch != batch:
            self.failing = Failing(batch, now)

    # -- what is said to it --------------------------------------------------------------------------------------------

    def poke(self) -> None:
        """Something that the lane needs has changed, perhaps for the better: it tries at once."""
        self.waits.waive()
        self.anew()

    def anew(self) -> None:
        """Begins at the first entry again; what the present session learns no longer counts."""
        self.backlog = Backlog(self._backoff, self.waits)
        self.waits.forget_left()

    def adopt(self, feeding: Feeding) -> None:
        """Uses other settings."""
        self.feeding = feeding
        self.poke()

    def has_room(self, now: float) -> bool:
        """Dead letters may have room; returns whether something that waited for that is tried at once."""
        if self.trouble is not None and self.trouble.code == Code.DEAD_LETTERS_FULL:
            self.waits.end()
            return True
        if not self.backlog.has_room(now):
            return False
        self.waits.left_is_due()
        return True
