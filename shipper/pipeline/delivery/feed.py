"""What a lane hands out in a session: entries above its front, a pass, and questions to targets. No I/O.

`next` says what is to be read of the store, or which parcel is the next one; `read` and `handed` say what came of it.
All three sources take turns, so that none keeps another waiting. On a quiet host nothing is read: what is stored next
of all is known when it comes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import takewhile
from typing import Literal, NamedTuple

from msgspec.structs import replace

from shipper.pipeline.delivery import parcels
from shipper.pipeline.delivery.backlog import Backlog, Question
from shipper.pipeline.delivery.parcels import Parcel
from shipper.pipeline.delivery.waits import Backoff
from shipper.sdk.feeding import Feeding
from shipper.spool.queue import Entry
from shipper.spool.requests import Composed

NOTING = 4
"""The most attempts that are under way or wait to be noted, unless the output wants more requests at once: while the
disk hangs, no more is sent."""
REFUSED = 4
"""After so many attempts in a row without a final answer, each next one waits."""


class Read(NamedTuple):
    """Read at most so many entries above this place, for this purpose."""

    after: int
    limit: int
    what: Literal["front", "pass", "question", "first", "witnesses", "requests"]
    """`requests`: instead, all that are to stay the same."""


class Feed:
    """The feed of a session; `lingers`: whether entries may wait for more. `backoff` is that of refused attempts."""

    def __init__(self, backlog: Backlog, feeding: Feeding, backoff: Backoff) -> None:
        self.backlog = backlog
        self.sending = self.noting = 0
        """Requests that are under way, and those whose answers are being noted."""
        self.progressed = False
        """Whether a final answer was noted; a rejection for which dead letters have no room is none."""
        self.lingers = False
        self.feeding, self._backoff, self._waits = feeding, backoff, backoff()
        self._looks = True
        """Whether the store may have more than was read."""
        self._reads = False
        """Whether what is above the front is being read."""
        self._turn = 0
        self._ready: deque[Parcel] = deque()
        self._gathered = parcels.Gathered()
        """Entries above the front that wait for more to be sent with them."""
        self._upto = 0
        """The last entry that was read or told of in this session."""
        self._handed = -math.inf
        """When the front handed out entries last."""
        self._under_way: frozenset[int] = frozenset()
        """What was outstanding when something was to be read."""
        self._question = Question("", 0)
        self._refused, self._refused_until = 0, -math.inf
        """Attempts in a row without a final answer, and until when the next one waits."""

    # -- what comes next -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """The store may have more entries."""
        self._looks = True

    def arrived(self, entry: Entry) -> None:
        """An entry was stored. If it is the next one of all that are stored, on whatever lane, it need not be read.

        Entries are told in any order, and of some (a barrier, a requeued letter) the lane hears only that they came.
        """
        is_next = entry.seq == self._newest + 1
        if is_next and not (self._looks or self._reads or len(self._gathered) >= self._window):
            self._gathered.add(entry)
            self._upto = entry.seq
        else:
            self._looks = True

    @property
    def _newest(self) -> int:
        """The last entry that was read or told of."""
        return max(self.backlog.front, self._upto)

    def pass_barriers(self) -> None:
        """Passes the barriers that come next."""
        while self._ready and self._ready[0].entries[0].is_barrier:
            self._move(self._ready.popleft())

    def next(self, now: float) -> Read | Parcel | None:
        """Returns the next parcel, or what to read before there is one; None if all that remains must wait."""
        if self.feeding.stable and not self.backlog.knows_requests:
            self.backlog.knows_requests = True
            return Read(0, 0, "requests")
        for _ in range(3):
            if self._ready:
                break
            self._turn = (self._turn + 1) % 3
            source = (self._ask, self._go_on, self._pass)[self._turn]
            if (read := source(now)) is not None:
                return read
        if self.backlog.suspected and (self.progressed or not (self._ready or self.sending or self.noting)):
            self._hand_out_suspected()
        return self._ready[0] if self._ready else None

    def until(self, now: float) -> float:
        """Returns when there may be something to do, unless something is said before."""
        if self._ready:
            return self._refused_until if now < self._refused_until else math.inf
        return min(self.backlog.next_due(), self._gathers_until())

    @property
    def waits_for_requests(self) -> bool:
        """Whether something waits for a place, or for what becomes of others."""
        return bool(self._ready or self.backlog.suspected) or self.backlog.has_left or self.backlog.is_passing

    @property
    def rests(self) -> bool:
        """Whether nothing is to be read or sent before more is stored, or what gathers was waited for."""
        is_busy = self._ready or self._looks or self._reads or self.sending
        return not (is_busy or self.backlog.has_left or self.backlog.is_passing)

    def has_place(self, now: float) -> bool:
        """Whether it may send one more request."""
        most = self.feeding.in_flight
        return self.sending < most and self.sending + self.noting < max(NOTING, most) and now >= self._refused_until

    def _go_on(self, now: float) -> Read | None:
        is_full = len(self._gathered) >= self._window
        if is_full or (self._gathered and not self._looks and self._gathers_until() <= now):
            self._hand_out()
        if is_full or not self._looks:
            return None
        self._looks, self._reads = False, True
        if self.feeding.stable:
            self._under_way = frozenset(self.backlog.outstanding)
        return Read(self._newest, self._window - len(self._gathered), "front")

    @property
    def _window(self) -> int:
        return parcels.window(self.feeding)

    @property
    def is_gathering(self) -> bool:
        """Whether some of what it has waits for more, and nothing else is to be done."""
        return bool(self._gathered) and not (self._ready or self.sending or self.noting or self.backlog.has_left)

    def _gathers_until(self) -> float:
        linger = self.feeding.linger if self.lingers else 0.0
        return self._gathered.until(self._handed, self.feeding, linger)

    def _pass(self, now: float) -> Read | None:
        self.backlog.begin_due(now)
        after = self.backlog.passing_after(now)
        if after is None:
            return None
        self._under_way = frozenset(self.backlog.outstanding)
        return Read(after, parcels.WINDOW, "pass")

    def _ask(self, now: float) -> Read | None:
        question = self.backlog.ask(now)
        if question is None:
            return None
        self._question, self._under_way = question, frozenset(self.backlog.outstanding)
        return Read(question.first - 1, 1, "question")

    # -- what was read -------------------------------------------------------------------------------------------------

    def read(self, read: Read, entries: Sequence[Entry], now: float) -> bool:
        """Takes what was read; returns whether a question ended without an event to ask with."""
        if read.what == "question":
            return self._read_question(entries)
        if read.what == "pass":
            self._read_pass(read.after, entries)
        else:
            self._read_front(entries, now)
        return False

    def read_requests(self, found: Sequence[Composed]) -> None:
        """Takes the requests that are to stay the same: they go before anything else.

        Of two with parts of the same entry, only the first goes in this session. One on which the output fails waits
        until another has shown that the output works, if there is another.
        """
        for one in found:
            seqs = [entry.seq for entry in one.entries]
            if not self.backlog.outstanding.keys().isdisjoint(seqs):
                continue
            self.backlog.hand_out(one.entries)
            if self.backlog.suspects.are_known(seqs):
                self.backlog.suspected.append(one)
            else:
                self._ready.append(Parcel(one.entries, request=one))

    def _hand_out_suspected(self) -> None:
        if self.progressed:
            self.backlog.suspects.output_works()
        one = self.backlog.suspected.pop(0)
        self._ready.appendleft(Parcel(one.entries, request=one))

    def _read_front(self, entries: Sequence[Entry], now: float) -> None:
        self._reads = False
        self._looks |= len(self._gathered) + len(entries) == self._window
        self._upto = entries[-1].seq if entries else self._upto
        if self.feeding.stable:
            under_way = self.backlog.outstanding.keys() | self._under_way
            entries = [entry for entry in entries if entry.seq not in under_way]
        for entry in entries:
            self._gathered.add(entry)
        if self._gathered and self._gathers_until() <= now:
            self._hand_out()
        self._pass_by()

    def _pass_by(self) -> None:
        """Moves the front over entries of requests that are to stay the same: they were handed out before."""
        if self.feeding.stable and not (self._ready or self._gathered):
            self.backlog.pass_by(self._upto)

    def _hand_out(self) -> None:
        gathered, self._gathered = self._gathered, parcels.Gathered()
        self._ready += map(Parcel, parcels.of(gathered.entries, self.feeding))

    def _read_pass(self, after: int, found: Sequence[Entry]) -> None:
        entries = self.backlog.passed(after, found, self._under_way)
        # All of them: the pass has gone by, also if the session ends before they are sent.
        self.backlog.hand_out(entries)
        self._ready += map(Parcel, parcels.of(entries, self.feeding))

    def _read_question(self, found: Sequence[Entry]) -> bool:
        question, front = self._question, self.backlog.front
        if not found or found[0].seq > front:
            self.backlog.nothing_asked(question, front)
        elif found[0].is_barrier:
            self.backlog.nothing_asked(question, found[0].seq)
        elif found[0].seq in self._under_way:
            self.backlog.nothing_asked(question, found[0].seq - 1)
        else:
            self._ready.append(Parcel(found, question))
            return False
        return True

    # -- what became of it ---------------------------------------------------------------------------------------------

    def handed(self, parcel: Parcel, now: float) -> None:
        """A request for this parcel, the next one, begins."""
        self._ready.popleft()
        if parcel.request is None:
            if parcel.entries[-1].seq > self.backlog.front:
                self._handed = now
            self._move(parcel)
        self.backlog.hand_out(parcel.entries)
        self.sending += 1

    def _move(self, parcel: Parcel) -> None:
        for entry in parcel.entries:
            self.backlog.at_front(entry)
        self._pass_by()

    def sent(self, parcel: Parcel, left: Sequence[Entry]) -> None:
        """A request has ended, without these entries: there was no memory for them."""
        self.sending -= 1
        self.noting += 1
        if left:
            self._ready.appendleft(replace(parcel, entries=left))

    def refused(self, now: float, *, progressed: bool, put_off: bool) -> None:
        """Limits the rate while batch after batch is put off singly: others get their turn, without a storm of
        requests."""
        if progressed and self._refused:
            self._refused, self._waits = 0, self._backoff()
        elif put_off and not progressed:
            self._refused += 1
            if self._refused >= REFUSED:
                self._refused_until = now + next(self._waits)

    def give_up(self, now: float) -> None:
        """The session ends: what was not handed out is left to the next one."""
        for parcel in self._ready:
            if parcel.question is not None and parcel.entries[0].seq not in self.backlog.outstanding:
                self.backlog.left(parcel.entries[0].seq, {parcel.question.target}, now, None, 0.0)
        self._ready.clear()
        self._gathered = parcels.Gathered()


def up_to_barrier(entries: Sequence[Entry]) -> list[Entry]:
    """Returns the first entries, up to a barrier."""
    return list(takewhile(lambda entry: not entry.is_barrier, entries))
