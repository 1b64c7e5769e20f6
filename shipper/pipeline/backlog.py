"""A lane's way through its backlog: what was handed out, what was left behind, and what comes next. No I/O.

The front goes through the entries in the store's order. What the destination does not take now is left behind: the
events of a target (an index, a topic) that refuses them, and single events that it puts off. Of each such group only
the lowest entry is remembered, so it may be of any size; the others are found in the store again by a pass, which is a
second way through the entries, from the lowest one up to the front.

A target that refuses is asked again after its own backoff, with a few events of its lowest entry. Once it takes them, a
pass begins, and other targets are asked at once too: often one repair serves them all. Events that were put off one by
one come again by a pass as soon as they are due.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shipper.pipeline.suspects import Suspects
from shipper.sdk.codes import Code
from shipper.spool.queue import Entry

PLACES = 4096
"""That refuse, of one lane: each takes memory and sometimes a request. Events of further ones are put off singly."""
LONGEST_NAME = 100
"""Of a target, in a message."""
ASK_SECONDS = 0.2
"""Between two questions after one that failed, however many targets refuse."""
ASKS = 32
"""In a row, after which a lane that drains gives up its slot for a while."""


@dataclass(slots=True)
class Left:
    """Events that were left behind; `first` is their lowest entry, `due` when they are tried again."""

    first: float
    due: float


@dataclass(slots=True)
class Closed(Left):
    """Those of a target, for a `reason`; `waits` are the seconds between two questions."""

    reason: str
    waits: Iterator[float]
    code: str = Code.REFUSED


class Question(NamedTuple):
    """To a target; `first` is the lowest entry that may have events of it."""

    target: str
    first: int


class Backlog:
    """Entries are named by their `seq`. A handed out one is outstanding until it is `settled` or `left`."""

    def __init__(self, backoff: Callable[[], Iterator[float]]) -> None:
        self.front = 0
        """The newest entry that was handed out."""
        self.outstanding: dict[int, float] = {}
        """When each was sent; never, if it waits for its turn or its answers were not noted yet."""
        self.barriers: list[int] = []
        """Those that the front has passed."""
        self.suspects = Suspects()
        self._backoff = backoff
        self._closed: dict[str, Closed] = {}
        self._put_off: Left | None = None
        self._wants_room = False
        """Whether some of them were put off for want of room for dead letters."""
        self._not_before = -math.inf
        """When the destination wants to be asked for them at the earliest."""
        self._waits = backoff()
        self._reason: str | None = None
        """Why events were put off, until they have their final answers."""
        self._code: str = Code.UNAVAILABLE
        self._pass: float = math.inf
        self._retried_to = -1
        """The front when the last pass began for events that were put off."""
        self._asking: Question | None = None
        self._ask_after = -math.inf
        self._in_vain = 0
        """Questions to targets since one took events."""

    def rewind(self) -> None:
        """A session begins, and nothing is under way: the front is where the last one had settled or left all."""
        self.front = min([self.front + 1, *self.outstanding, *self.barriers]) - 1
        self.outstanding.clear()
        self.barriers.clear()
        self._asking, self._in_vain = None, 0

    # -- what comes next -----------------------------------------------------------------------------------------------

    @property
    def is_passing(self) -> bool:
        """Whether a pass is on its way."""
        return self._pass < math.inf

    @property
    def has_left(self) -> bool:
        """Whether something was left behind."""
        return bool(self._closed) or self._put_off is not None

    def at_front(self, entry: Entry) -> None:
        """The front reaches this entry."""
        self.front = max(self.front, entry.seq)
        if entry.is_barrier:
            self.barriers.append(entry.seq)

    def pass_by(self, upto: int) -> None:
        """There is nothing of its kind between the front and this place."""
        self.front = max(self.front, upto)

    def hand_out(self, entries: Iterable[Entry]) -> None:
        """These are with a worker now."""
        self.outstanding.update((entry.seq, math.inf) for entry in entries)

    def passing_after(self, now: float) -> int | None:
        """The pass goes on with the entries above this one; None: there is none, or it waits for questions.

        If one repair serves many targets, one pass serves them all: it waits until a target refuses or all were asked.
        Else each target that takes events again would have it begin anew.
        """
        others_first = self._ask_after == -math.inf and (self._asking is not None or self._asks_at() <= now)
        return int(self._pass) if self.is_passing and not others_first else None

    def passed(self, after: int, entries: Sequence[Entry], under_way: Container[int]) -> list[Entry]:
        """The entries of the store above `after` (none: no more are stored): those to hand out now, for the pass.

        Of those that were outstanding when the store was asked (`under_way`) it may have told what is true no longer:
        the pass stops before the first that has come back meanwhile.
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
        """Begin a pass if events that were put off are due."""
        if self._put_off is not None and self._put_off.due <= now:
            self._pass = min(self._pass, self._put_off.first - 1)
            self._put_off, self._retried_to = None, self.front
            self._wants_room, self._not_before = False, -math.inf

    def ask(self, now: float) -> Question | None:
        """The target to ask now, if one is due; it ends with `answered` or `nothing_asked`."""
        if self._asks_at() > now:
            return None
        _, target, first = min((left.due, target, int(left.first)) for target, left in self._to_ask())
        self._asking = Question(target, first)
        return self._asking

    def next_due(self) -> float:
        """When something that was left behind is due."""
        return min(self._asks_at(), math.inf if self._put_off is None else self._put_off.due)

    def is_worth_a_slot(self, now: float) -> bool:
        """Whether a lane that has handed out everything else should go on."""
        soon = self._asks_at() <= now + ASK_SECONDS and self._in_vain < ASKS
        return bool(self.outstanding) or self.is_passing or soon

    def _asks_at(self) -> float:
        dues = [left.due for _, left in self._to_ask()] if self._asking is None else []
        return max(self._ask_after, min(dues, default=math.inf))

    def _to_ask(self) -> Iterator[tuple[str, Closed]]:
        for target, left in self._closed.items():
            if left.first < math.inf and left.first not in self.outstanding:
                yield target, left

    def barrier_is_reached(self) -> bool:
        """Whether everything below the lowest barrier is settled."""
        if not self.barriers:
            return False
        return self._lowest_passed() > self.barriers[0]

    def is_settled_below(self, barrier: int) -> bool:
        """Whether the front has passed this place, and everything below it is settled."""
        return self.front >= barrier and self._lowest_passed() > barrier

    def lowest(self) -> int:
        """Every entry below this one is settled."""
        return int(min(self._lowest_passed(), self.front + 1))

    def _lowest_passed(self) -> float:
        """The lowest entry that is not settled, of those that the front has passed."""
        left = [*self._closed.values(), *([] if self._put_off is None else [self._put_off])]
        return min([*self.outstanding, *(each.first for each in left), self._pass + 1])

    # -- what became of it ---------------------------------------------------------------------------------------------

    def settled(self, seq: int) -> None:
        """All its events have their final answers."""
        self.outstanding.pop(seq, None)
        self.suspects.settled(seq)
        self._end_retry()

    def renewed(self, seq: int) -> None:
        """It holds another version since it was handed out, which is sent by the next pass."""
        self.outstanding.pop(seq, None)
        self._pass = min(self._pass, seq - 1)

    def _end_retry(self) -> None:
        """If all that was put off has its final answers: the next trouble of that kind begins with a short wait."""
        is_over = self._retried_to >= 0 and self._put_off is None and not self.is_passing
        if is_over and min(self.outstanding, default=math.inf) > self._retried_to:
            self._retried_to, self._waits, self._reason = -1, self._backoff(), None

    def left(
        self,
        seq: int,
        keys: Collection[str | None],
        now: float,
        problem: str | None,
        wait: float,
        code: str = Code.UNAVAILABLE,
    ) -> None:
        """Events of it were left behind: of these targets, or put off one by one (None) for `wait` seconds at least.

        Those of a target that is not closed are put off too. It takes events by now, or it never refused any: they were
        not sent because another target was asked.
        """
        self.outstanding.pop(seq, None)
        for key in keys:
            if key is not None and key in self._closed:
                self._closed[key].first = min(self._closed[key].first, seq)
            else:
                self._leave_single(seq, now, problem, wait, code)

    def left_for_room(self, seq: int, now: float, problem: str) -> None:
        """Events of it were refused for ever, and dead letters have no room: they are put off until these have."""
        self._leave_single(seq, now, problem, 0.0, Code.DEAD_LETTERS_FULL)
        self._wants_room = True

    def has_room(self, now: float) -> bool:
        """There may be room for dead letters: whether events are due now that were put off for want of it."""
        if self._put_off is None or not self._wants_room:
            return False
        self._put_off.due = max(now, self._not_before)
        self._waits = self._backoff()
        return self._put_off.due <= now

    def _leave_single(self, seq: int, now: float, problem: str | None, wait: float, code: str) -> None:
        if self._put_off is None:
            due = now + max(next(self._waits), wait)
            self._put_off = Left(seq, due)
        self._put_off.first = min(self._put_off.first, seq)
        if wait:
            self._not_before = max(self._not_before, now + wait)
        self._reason, self._code = problem or "some events were put off", code

    # -- targets -------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> Collection[str]:
        """The targets that refuse events, as far as is known."""
        return self._closed.keys()

    def refuse(self, target: str, reason: str, now: float, wait: float, code: str = Code.REFUSED) -> None:
        """A target refuses events: leave them behind, for `wait` seconds at least."""
        known = self._closed.get(target)
        if known is None and len(self._closed) < PLACES:
            known = self._closed[target] = Closed(math.inf, now, reason, self._backoff())
        elif self._asking is None or self._asking.target != target:
            return
        assert known is not None
        known.reason, known.code, known.due = reason, code, now + max(next(known.waits), wait)

    def answered(self, target: str, now: float, *, takes: bool) -> None:
        """The target that was asked takes events again, or refuses as before."""
        if self._asking is not None and self._asking.target == target:
            self._asking = None
        if not takes:
            self._ask_after = now + ASK_SECONDS
            self._in_vain += 1
            return
        self._ask_after, self._in_vain = -math.inf, 0
        left = self._closed.pop(target, None)
        if left is not None and left.first < math.inf:
            self._pass = min(self._pass, left.first - 1)
        for other in self._closed.values():
            other.due = now

    def nothing_asked(self, question: Question, upto: int) -> None:
        """No entry from the question's first up to this one has events of the target that was to be asked.

        Meanwhile the target may have taken events that were sent before, and another one may be asked.
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
        """For how long the request that was sent first has had no answer."""
        return max(0.0, now - min(self.outstanding.values(), default=math.inf))

    def problem(self) -> str | None:
        """Why something was left behind."""
        if self._closed:
            target, left = next(iter(self._closed.items()))
            others = f" (and {len(self._closed) - 1} more)" if len(self._closed) > 1 else ""
            return f"{target[:LONGEST_NAME]}{others}: {left.reason}"
        return self._reason

    def code(self) -> str:
        """That of the problem, if there is one."""
        return next(iter(self._closed.values())).code if self._closed else self._code
