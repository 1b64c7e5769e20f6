"""A lane's progress through its backlog: what was handed out, what was left behind, and what comes next. No I/O.

The front moves through the entries in the store's order. Events that the destination does not take now are left behind:
all events of a target (an index, a topic) that refuses, and single events that the destination puts off. Of each such
group only the lowest entry is remembered, so a group may have any size. A pass finds its events again: it goes through
the entries a second time, from the lowest one up to the front.

A target that refuses is asked again after its own backoff, with a few events of its lowest entry. When it takes them, a
pass begins, and the other targets are asked at once too: one repair often serves them all. Events that were put off
singly come again in a pass as soon as they are due.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from shipper.pipeline.attempts.fences import Fences
from shipper.pipeline.attempts.suspects import Suspects
from shipper.pipeline.delivery.waits import PASSED, Backoff, Waits
from shipper.sdk.codes import Code, Why
from shipper.spool.queue import Entry
from shipper.spool.requests import Composed

PLACES = 4096
"""The most refusing targets of a lane: each takes memory, and sometimes a request. Events of further ones are put off
singly."""
LONGEST_NAME = 100
"""The most characters of a target in a message."""
ASK_SECONDS = 0.2
"""Seconds between two questions after one that failed, however many targets refuse."""
ASKS = 32
"""After so many failed questions in a row, a draining lane gives up its slot for a while."""


class Left(msgspec.Struct):
    """Events that were left behind. `first` is their lowest entry, `due` the instant of the next try."""

    first: float
    due: float


class Closed(Left):
    """Events of a target that refuses, for a `reason`; `waits` are the seconds between two questions."""

    reason: str
    waits: Iterator[float]
    code: str = Code.REFUSED


class Question(NamedTuple):
    """A question to a target; `first` is the lowest entry that may have events of it."""

    target: str
    first: int


class Backlog:
    """Entries are named by their `seq`. An entry is outstanding from `hand_out` until it is `settled` or `left`.

    `waits` are those of the lane.
    """

    def __init__(self, backoff: Backoff, waits: Waits | None = None) -> None:
        self.front = 0
        """The newest entry that was handed out."""
        self.outstanding: dict[int, float] = {}
        """By outstanding entry, when it was sent; infinite while it waits to be sent, or its answers to be noted."""
        self.barriers: list[int] = []
        """The barriers that the front has passed."""
        self.knows_requests = False
        """Whether this session has read the requests that are to stay the same."""
        self.suspected: list[Composed] = []
        """Those of them on which the output fails."""
        self.suspects = Suspects()
        self.fences = Fences()
        self._backoff = backoff
        self._lane = Waits(backoff) if waits is None else waits
        self._closed: dict[str, Closed] = {}
        self._put_off: Left | None = None
        self._wants_room = False
        """Whether some of them were put off for lack of room for dead letters."""
        self._waits = backoff()
        self._why: Why | None = None
        """Why events were put off, until they have their final answers."""
        self._pass: float = math.inf
        self._retried_to = -1
        """The front when the last pass for events that were put off began."""
        self._asking: Question | None = None
        self._in_vain = 0
        """Questions since a target took events."""

    def rewind(self) -> None:
        """Begins a session with nothing outstanding: the front is where the last session had settled or left
        everything."""
        self.front = min([self.front + 1, *self.outstanding, *self.barriers]) - 1
        self.outstanding.clear()
        self.barriers.clear()
        self.suspected.clear()
        self._asking, self._in_vain, self.knows_requests = None, 0, False

    # -- what comes next -----------------------------------------------------------------------------------------------

    @property
    def is_passing(self) -> bool:
        """Whether a pass is under way."""
        return self._pass < math.inf

    @property
    def has_left(self) -> bool:
        """Whether something was left behind."""
        return bool(self._closed) or self._put_off is not None

    def at_front(self, entry: Entry) -> None:
        """Moves the front to this entry."""
        self.front = max(self.front, entry.seq)
        if entry.is_barrier:
            self.barriers.append(entry.seq)

    def pass_by(self, upto: int) -> None:
        """Moves the front: up to this place there is nothing that was not handed out."""
        self.front = max(self.front, upto)

    def hand_out(self, entries: Iterable[Entry]) -> None:
        """Marks entries as outstanding."""
        self.outstanding.update((entry.seq, math.inf) for entry in entries)

    @contextmanager
    def under_way(self, seqs: Collection[int], clock: Callable[[], float]) -> Iterator[None]:
        """As long as the block lasts, a request for these entries waits for its answer."""
        self.outstanding.update(dict.fromkeys(seqs, clock()))
        try:
            yield
        finally:
            self.outstanding.update({seq: math.inf for seq in seqs if seq in self.outstanding})

    def passing_after(self, now: float) -> int | None:
        """Returns the entry above which the pass goes on; None if there is no pass, or it waits for questions.

        It waits until a target refuses or all targets were asked, so that one pass serves all targets that one repair
        has helped. Otherwise each of them would begin it anew.
        """
        others_first = self._lane.questions == PASSED and (self._asking is not None or self._asks_at() <= now)
        return int(self._pass) if self.is_passing and not others_first else None

    def passed(self, after: int, entries: Sequence[Entry], under_way: Container[int]) -> list[Entry]:
        """Takes the stored entries above `after` (empty: no more are stored); returns those to hand out in the pass.

        For entries that were outstanding when the store was read (`under_way`), that reading may be out of date: the
        pass stops before the first of them that came back meanwhile.
        """
        if self._pass < after:  # more was found to be sent again meanwhile
            return []
        found: list[Entry] = []
        for entry in entries:
            if entry.seq > self.front:
                break
            if entry.seq in under_way and entry.seq not in self.outstanding:
                return found
            self._pass = entry.seq
            if not entry.is_barrier and entry.seq not in under_way:
                found.append(entry)
        if not entries or entries[-1].seq >= self.front:
            self._pass = math.inf
        if not found:
            self._end_retry()
        return found

    def begin_due(self, now: float) -> None:
        """Begins a pass if events that were put off are due."""
        if self._put_off is not None and self._put_off.due <= now:
            self._pass = min(self._pass, self._put_off.first - 1)
            self._put_off, self._retried_to = None, self.front
            self._wants_room, self._lane.wanted = False, PASSED

    def ask(self, now: float) -> Question | None:
        """Returns the target to ask now, if one is due; `answered` or `nothing_asked` must follow."""
        if self._asks_at() > now:
            return None
        _, target, first = min((left.due, target, int(left.first)) for target, left in self._to_ask())
        self._asking = Question(target, first)
        return self._asking

    def next_due(self) -> float:
        """Returns when something that was left behind is due."""
        return min(self._asks_at(), math.inf if self._put_off is None else self._put_off.due)

    def is_worth_a_slot(self, now: float) -> bool:
        """Whether a lane that has handed out everything else should go on."""
        soon = self._asks_at() <= now + ASK_SECONDS and self._in_vain < ASKS
        return bool(self.outstanding) or self.is_passing or soon

    def _asks_at(self) -> float:
        dues = [left.due for _, left in self._to_ask()] if self._asking is None else []
        return max(self._lane.questions, min(dues, default=math.inf))

    def _to_ask(self) -> Iterator[tuple[str, Closed]]:
        for target, left in self._closed.items():
            if left.first < math.inf and left.first not in self.outstanding:
                yield target, left

    @property
    def barrier(self) -> int | None:
        """Returns the lowest barrier that the front has passed."""
        return self.barriers[0] if self.barriers else None

    def barrier_is_reached(self) -> bool:
        """Whether everything below that is settled."""
        return self._lowest_passed() > self.barriers[0]

    def lowest(self) -> int:
        """Returns the lowest entry below which everything is settled."""
        return int(min(self._lowest_passed(), self.front + 1))

    def _lowest_passed(self) -> float:
        """Returns the lowest entry that the front has passed and that is not settled."""
        left = [*self._closed.values(), *([] if self._put_off is None else [self._put_off])]
        return min([*self.outstanding, *(each.first for each in left), self._pass + 1])

    # -- what became of it ---------------------------------------------------------------------------------------------

    def settled(self, seq: int) -> None:
        """Notes that all events of an entry have their final answers."""
        self.outstanding.pop(seq, None)
        self.suspects.settled(seq)
        self._end_retry()

    def renewed(self, seq: int) -> None:
        """Notes that an entry got another version since it was handed out; the next pass sends that."""
        self.outstanding.pop(seq, None)
        self._pass = min(self._pass, seq - 1)

    def _end_retry(self) -> None:
        """Resets the wait, if everything that was put off has its final answers: the next trouble begins with a short
        one."""
        is_over = self._retried_to >= 0 and self._put_off is None and not self.is_passing
        if is_over and min(self.outstanding, default=math.inf) > self._retried_to:
            self._retried_to, self._waits, self._why = -1, self._backoff(), None

    def left(
        self,
        seq: int,
        keys: Collection[str | None],
        now: float,
        problem: str | None,
        wait: float,
        code: str = Code.UNAVAILABLE,
    ) -> None:
        """Notes events that were left behind: those of some targets, or put off singly (None) for at least `wait`
        seconds.

        Events of a target that is not closed are put off singly too: the target takes events by now, or never refused.
        They were not sent because another target was asked.
        """
        self.outstanding.pop(seq, None)
        for key in keys:
            if key is not None and key in self._closed:
                self._closed[key].first = min(self._closed[key].first, seq)
            else:
                self._leave_single(seq, now, problem, wait, code)

    def left_for_room(self, seq: int, now: float, problem: str) -> None:
        """Notes that events were rejected while dead letters have no room: they wait for it."""
        self._leave_single(seq, now, problem, 0.0, Code.DEAD_LETTERS_FULL)
        self._wants_room = True

    def has_room(self, now: float) -> bool:
        """Notes that dead letters may have room; returns whether events that waited for it are due now."""
        if self._put_off is None or not self._wants_room:
            return False
        self._put_off.due = max(now, self._lane.wanted)
        self._waits = self._backoff()
        return self._put_off.due <= now

    def _leave_single(self, seq: int, now: float, problem: str | None, wait: float, code: str) -> None:
        if self._put_off is None:
            due = now + max(next(self._waits), wait)
            self._put_off = Left(seq, due)
        self._put_off.first = min(self._put_off.first, seq)
        if wait:
            self._lane.wanted = max(self._lane.wanted, now + wait)
        self._why = Why(problem or "some events were put off", code)

    # -- targets -------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> Collection[str]:
        """Returns the targets that are known to refuse events."""
        return self._closed.keys()

    def refuse(self, target: str, reason: str, now: float, wait: float, code: str = Code.REFUSED) -> None:
        """Notes that a target refuses events: they stay behind for at least `wait` seconds."""
        known = self._closed.get(target)
        if known is None and len(self._closed) < PLACES:
            known = self._closed[target] = Closed(math.inf, now, reason, self._backoff())
        elif self._asking is None or self._asking.target != target:
            return
        assert known is not None
        known.reason, known.code, known.due = reason, code, now + max(next(known.waits), wait)

    def answered(self, target: str, now: float, *, takes: bool) -> None:
        """Notes the result of a question: the target takes events again, or refuses as before."""
        if self._asking is not None and self._asking.target == target:
            self._asking = None
        if not takes:
            self._lane.questions = now + ASK_SECONDS
            self._in_vain += 1
            return
        self._lane.questions, self._in_vain = PASSED, 0
        left = self._closed.pop(target, None)
        if left is not None and left.first < math.inf:
            self._pass = min(self._pass, left.first - 1)
        for other in self._closed.values():
            other.due = now

    def nothing_asked(self, question: Question, upto: int) -> None:
        """Notes that no entry from the question's first up to this one has events of the asked target.

        The target may have taken events that were sent before, and another one may be asked.
        """
        if self._asking == question:
            self._asking = None
        left = self._closed.get(question.target)
        if left is None or left.first < question.first:
            return
        left.first = upto + 1
        if upto >= self.front:
            del self._closed[question.target]

    def waiting_seconds(self, now: float) -> float:
        """Returns for how long the oldest request has had no answer."""
        return max(0.0, now - min(self.outstanding.values(), default=math.inf))

    def problem(self) -> Why | None:
        """Returns why something was left behind."""
        if self._closed:
            target, left = next(iter(self._closed.items()))
            others = f" (and {len(self._closed) - 1} more)" if len(self._closed) > 1 else ""
            return Why(f"{target[:LONGEST_NAME]}{others}: {left.reason}", left.code)
        return self._why
