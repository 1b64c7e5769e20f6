"""What a session sends at once: its attempts (`joining`), and what their answers mean for the session. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from shipper.pipeline.attempts.attempt import Attempt, Trouble
from shipper.pipeline.attempts.joining import Parts
from shipper.pipeline.attempts.stable import Stable
from shipper.pipeline.delivery.probe import PROBE_EVENTS
from shipper.pipeline.delivery.session import Send, Session
from shipper.pipeline.memory.loading import Loaded
from shipper.sdk.codes import Code
from shipper.spool.queue import Entry, Settlement

LETTERS_FULL = "the dead-letter store is full, rejected events are held"


class Request:
    """What was handed out, with its attempts."""

    def __init__(self, send: Send, session: Session) -> None:
        self.send, self.attempts = send, list[tuple[Attempt, Parts]]()
        self.goes_in_halves = False
        """Whether single events are searched on which the output fails unexpectedly."""
        self._session, self._backlog, self._feeding = session, session.backlog, session.feed.feeding
        question = send.parcel.question
        self._target = None if question is None else question.target

    def loaded(self, found: Loaded, lost: Sequence[Entry]) -> None:
        """These entries were loaded, and those are settled: they are damaged, or superseded."""
        for entry in lost:
            self._backlog.settled(entry.seq)
        seqs = [entry.seq for entry, _ in found]
        self._backlog.hand_out([entry for entry, _ in found])
        self.goes_in_halves = self._backlog.suspects.are_known(seqs)

    @property
    def wants_targets(self) -> bool:
        """Whether the place of each event within the destination matters."""
        return self._target is not None or bool(self._backlog.closed)

    def add(self, attempt: Attempt, parts: Parts, targets: Sequence[str] | None) -> None:
        """Adds an attempt, without the events of targets that refuse; `targets` are those of its events, if they are
        known."""
        attempt.ordered, attempt.fences, attempt.targets = self._feeding.ordered, self._backlog.fences, targets
        if self._feeding.stable and attempt.batch.versions is None:
            stable = Stable(attempt.batch, parts, self.send.parcel.request)
            attempt.stay_the_same(stable, self._feeding.bytes)
        if targets is None:
            attempt.asked_place = self._target
        elif self._target is not None:
            attempt.ask_target(self._target, PROBE_EVENTS)
        elif self.send.few is None:
            attempt.leave_out(self._backlog.closed)
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
        self._backlog.nothing_asked(question, self.send.parcel.entries[0].seq)
        return True

    # -- while it is sent ----------------------------------------------------------------------------------------------

    def works(self, parts: Parts) -> bool:
        """Whether the output was seen to work on others than those of this attempt."""
        return self._session.feed.progressed or self._backlog.suspects.is_witnessed(parts[0][0].seq)

    def close_targets(self, attempt: Attempt, now: float) -> None:
        """Sends nothing more to the targets that refused events of an attempt."""
        for name, answer in attempt.refused_targets().items():
            self._backlog.refuse(name, answer.reason, now, attempt.retry_after or 0.0, answer.code)

    def judge(self, attempt: Attempt, parts: Parts, *, works: bool) -> None:
        """An attempt is over: ends the session where that was trouble."""
        if attempt.doubt is not None:
            self._backlog.suspects.failed(parts[0][0].seq)
            if self.send.is_witness:
                return
            self._isolate(attempt, attempt.doubt, parts[0][0].seq, works=works or attempt.progress > 0)
        trouble = attempt.overloaded()
        if trouble is not None:
            if attempt.blames_events:
                trouble.batch = next((entry.seq for entry, part in parts if attempt.is_open(part)), None)
            self._session.end(trouble)

    def _isolate(self, attempt: Attempt, doubt: Trouble, first: int, *, works: bool) -> None:
        """Gives up events that break the output (`suspects`), once they have failed as often alone."""
        suspects = self._backlog.suspects
        if attempt.trouble is not None:
            return
        is_new = attempt.progress > 0 and not suspects.is_isolated(first)
        if is_new:
            suspects.isolated(first)
        if works and not is_new:
            attempt.give_up_doubted()
        else:
            attempt.failed(doubt)

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
        backlog, feed = self._backlog, self._session.feed
        had_progressed = feed.progressed
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
        takes = attempt.taking_targets().intersection(self._backlog.closed)
        if asked is not None and attempt.is_asked and asked not in takes:
            put_off_singly = attempt.is_singly_put_off and attempt.trouble is None
            takes_it = put_off_singly and asked not in attempt.refused_targets()
            self._backlog.answered(asked, now, takes=takes_it)
        for name in takes:
            self._backlog.answered(name, now, takes=True)
