"""What a session sends at once: its attempts (`joining`), and what their answers mean for the session. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from shipper.pipeline.attempts.attempt import Attempt, Trouble
from shipper.pipeline.attempts.joining import Parts
from shipper.pipeline.attempts.stable import Stable
from shipper.pipeline.delivery.backlog import Backlog
from shipper.pipeline.delivery.probe import PROBE_EVENTS
from shipper.pipeline.delivery.session import Send, Session
from shipper.pipeline.memory.loading import Loaded
from shipper.sdk.codes import Code
from shipper.sdk.feeding import Feeding
from shipper.spool.queue import Entry, Settlement

LETTERS_FULL = "the dead-letter store is full, rejected events are held"


class Request:
    """What was handed out, with its attempts."""

    def __init__(self, send: Send, session: Session, feeding: Feeding) -> None:
        self.send, self.attempts = send, list[tuple[Attempt, Parts]]()
        self._session, self._feeding = session, feeding
        self._is_suspect = False
        question = send.parcel.question
        self._target = None if question is None else question.target

    @property
    def backlog(self) -> Backlog:
        """The backlog of its entries."""
        return self._session.backlog

    def loaded(self, found: Loaded, lost: Sequence[Entry]) -> None:
        """These entries were loaded, and those are settled: they are damaged, or superseded."""
        for entry in lost:
            self.backlog.settled(entry.seq)
        seqs = [entry.seq for entry, _ in found]
        self.backlog.hand_out([entry for entry, _ in found])
        self._is_suspect = self.backlog.suspects.are_known(seqs)

    @property
    def wants_targets(self) -> bool:
        """Whether the place of each event within the destination matters."""
        return self._target is not None or bool(self.backlog.closed)

    def add(self, attempt: Attempt, parts: Parts, targets: Sequence[str] | None) -> None:
        """Adds an attempt, without the events of targets that refuse; `targets` are those of its events, if they are
        known."""
        attempt.ordered, attempt.fences, attempt.targets = self._feeding.ordered, self.backlog.fences, targets
        if self._feeding.stable and attempt.batch.versions is None:
            stable = Stable(attempt.batch, parts, self.send.parcel.request)
            attempt.stay_the_same(stable, self._feeding.bytes)
        if targets is None:
            attempt.asked_place = self._target
        elif self._target is not None:
            attempt.ask_target(self._target, PROBE_EVENTS)
        elif self.send.few is None:
            attempt.leave_out(self.backlog.closed)
        self.attempts.append((attempt, parts))

    @property
    def in_vain(self) -> str | None:
        """Returns the id of a request that was sent before, and of which no event is left."""
        request = self.send.parcel.request
        is_asked = any(attempt.is_asked for attempt, _ in self.attempts)
        return None if request is None or is_asked or not self.attempts else request.name

    def asks_nothing(self, left: Sequence[Entry]) -> bool:
        """Ends the question, if its entry has no event to ask with, also if it was damaged; returns whether."""
        question = self.send.parcel.question
        if question is None or left or any(attempt.is_asked for attempt, _ in self.attempts):
            return False
        self.backlog.nothing_asked(question, self.send.parcel.entries[0].seq)
        return True

    # -- while it is sent ----------------------------------------------------------------------------------------------

    def may_go_on(self) -> bool:
        """Whether the next attempt may begin."""
        return self._session.trouble is None

    def works(self, parts: Parts) -> bool:
        """Whether the output was seen to work on others than those of this attempt."""
        return self._session.progressed or self.backlog.suspects.is_witnessed(parts[0][0].seq)

    @property
    def goes_in_halves(self) -> bool:
        """Whether single events are searched on which the output fails unexpectedly."""
        return self._is_suspect

    def close_targets(self, attempt: Attempt, now: float) -> None:
        """Sends nothing more to the targets that refused events of an attempt."""
        for name, answer in attempt.refused_targets().items():
            self.backlog.refuse(name, answer.reason, now, attempt.retry_after or 0.0, answer.code)

    def judge(self, attempt: Attempt, parts: Parts, *, works: bool) -> None:
        """An attempt is over: ends the session where that was trouble."""
        trouble = self._session.blame(self.send, attempt, parts[0][0], works=works or attempt.progress > 0)
        if trouble is not None:
            if attempt.blames_events:
                trouble.batch = next((entry.seq for entry, part in parts if attempt.is_open(part)), None)
            self._session.end(trouble)

    # -- after it was sent ---------------------------------------------------------------------------------------------

    @property
    def is_noted_first(self) -> bool:
        """Whether its answers must be durable before the next request: in strict order, dead letters may have no
        room."""
        return self._feeding.ordered and any(attempt.has_rejected for attempt, _ in self.attempts)

    def sent(self, left: Sequence[Entry], now: float) -> None:
        """All of it was sent, but these entries, for which there was no memory."""
        self._session.sent(self.send, [attempt for attempt, _ in self.attempts], left, now)

    def settled(
        self,
        attempt: Attempt,
        parts: Parts,
        settlements: Mapping[int, Settlement | None],
        renewed: Collection[int],
        now: float,
    ) -> bool:
        """The answers of an attempt are durable; slots that were `renewed` hold other versions by now. Returns whether
        they are the first ones of the session."""
        backlog, feed = self.backlog, self._session.feed
        had_progressed = self._session.progressed
        feed.progressed |= any(settlement is not None for settlement in settlements.values())
        worst, wait = attempt.worst(), attempt.retry_after or 0.0
        for entry, part in parts:
            settlement = settlements[entry.seq]
            lacks_room = attempt.rejected(part) > (0 if settlement is None else len(settlement.letters))
            if entry.seq in renewed:
                backlog.renewed(entry.seq)
            elif settlement is not None and settlement.rest is None:
                backlog.settled(entry.seq)
            elif lacks_room and attempt.stops:
                self._session.end(Trouble(LETTERS_FULL, code=Code.DEAD_LETTERS_FULL))
            elif attempt.stable is not None and settlement is not None:
                backlog.renewed(entry.seq)  # what is left was not sent
            elif (keys := attempt.keeps(part)) is not None:
                backlog.left(entry.seq, keys, now, worst.reason, wait, worst.code)
                if lacks_room:
                    backlog.left_for_room(entry.seq, now, LETTERS_FULL)
        self._open_targets(attempt, now)
        return feed.progressed and not had_progressed

    def _open_targets(self, attempt: Attempt, now: float) -> None:
        """Sends again what was left behind for targets that took events."""
        asked = attempt.asked_place
        takes = attempt.taking_targets().intersection(self.backlog.closed)
        if asked is not None and attempt.is_asked and asked not in takes:
            put_off_singly = attempt.is_singly_put_off and attempt.trouble is None
            takes_it = put_off_singly and asked not in attempt.refused_targets()
            self.backlog.answered(asked, now, takes=takes_it)
        for name in takes:
            self.backlog.answered(name, now, takes=True)

    def noted(self) -> None:
        """All answers are durable."""
        self._session.noted(self.send)
