"""What a head of a lane hands out in a session: the entries above its front, a pass, and questions to targets."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import takewhile

import trio

from shipper.pipeline import parcels
from shipper.pipeline.backlog import Backlog, Question
from shipper.pipeline.heads import Head
from shipper.pipeline.parcels import Parcel
from shipper.sdk.feeding import Feeding
from shipper.spool.queue import Entry

HandOut = Callable[[Parcel], Awaitable[bool]]


class Feed:
    """The feed of one head. `lingers`: whether entries may wait for more; `on_nothing_asked` is called for a question
    that ends without events. `hand_out` is set before the first entry."""

    def __init__(
        self,
        head: Head,
        backlog: Backlog,
        feeding: Feeding,
        *,
        lingers: Callable[[], bool],
        on_nothing_asked: Callable[[], None],
    ) -> None:
        self.backlog, self.news = backlog, head.news
        self.is_idle = False
        """Whether it waits for something to do."""
        self._read, self._feeding, self._lingers = head.read, feeding, lingers
        self._on_nothing_asked = on_nothing_asked
        self._gathered: list[Entry] = []
        """Entries above the front that wait for more to be sent with them."""
        self._upto = 0
        """The end of their last reading."""
        self._handed = -math.inf
        """When the front handed out entries last."""

    async def first(self) -> Entry | None:
        """The entry to ask the destination with: at the front, else the lowest one."""
        for after in (self.backlog.front, 0):
            found = (await self._read(after, 1)).entries
            if found and not found[0].is_barrier:
                return found[0]
        return None

    async def above(self, seq: int) -> list[Entry]:
        """Returns the next entries above this one, up to a barrier."""
        found = (await self._read(seq, parcels.WINDOW)).entries
        return list(takewhile(lambda entry: not entry.is_barrier, found))

    async def next(self, hand_out: HandOut) -> bool:
        """Hands out everything that is ready; returns whether there may be more."""
        more = await self._go_on(hand_out)
        more |= await self._pass(hand_out)
        more |= await self._ask_target(hand_out)
        return more

    async def wait(self) -> None:
        """Waits until there may be something to do."""
        with trio.move_on_at(min(self.backlog.next_due(), self._gathers_until())):
            await self.news.wait()
        self.is_idle = False

    async def _go_on(self, hand_out: HandOut) -> bool:
        """Hands out the next entries, unless they wait for more; returns whether there may be more."""
        newest = max(self._upto, self.backlog.front) if self._gathered else self.backlog.front
        more, self._upto = await self._read(newest, parcels.WINDOW - len(self._gathered))
        self._gathered += more
        if self._gathers_until() > trio.current_time():
            if not self._gathered:
                self.backlog.pass_by(self._upto)
            return False
        entries, self._gathered = self._gathered, []
        for parcel in parcels.of(entries, self._feeding):
            for entry in parcel:
                self.backlog.at_front(entry)
            if not parcel[0].is_barrier and not await hand_out(Parcel(parcel)):
                return False
            self._handed = trio.current_time()
        self.backlog.pass_by(self._upto)
        return len(entries) == parcels.WINDOW

    def _gathers_until(self) -> float:
        feeding = self._feeding if self._lingers() else replace(self._feeding, linger=0.0)
        return parcels.gathers_until(self._gathered, self._handed, feeding)

    async def _pass(self, hand_out: HandOut) -> bool:
        """Hands out again what was left behind and may be taken now; returns whether there may be more."""
        now = trio.current_time()
        self.backlog.begin_due(now)
        after = self.backlog.passing_after(now)
        if after is None:
            return False
        under_way = frozenset(self.backlog.outstanding)
        found = await self._read(after, parcels.WINDOW)
        entries = self.backlog.passed(after, found.entries, under_way)
        # All of them: the pass has gone by, also if the session ends before they are sent.
        self.backlog.hand_out(entries)
        for parcel in parcels.of(entries, self._feeding):
            if not await hand_out(Parcel(parcel)):
                return False
        return self.backlog.is_passing

    async def _ask_target(self, hand_out: HandOut) -> bool:
        """Asks a target that refused events whether it takes them now, if one is due."""
        question = self.backlog.ask(trio.current_time())
        if question is None:
            return False
        front, under_way = self.backlog.front, frozenset(self.backlog.outstanding)
        found = (await self._read(question.first - 1, 1)).entries
        if not found or found[0].seq > front:
            self.nothing_asked(question, front)
        elif found[0].is_barrier:
            self.nothing_asked(question, found[0].seq)
        elif found[0].seq in under_way:
            self.nothing_asked(question, found[0].seq - 1)
        elif not await hand_out(Parcel(found, question)):
            self.backlog.left(found[0].seq, {question.target}, trio.current_time(), None, 0.0)
        return True

    def nothing_asked(self, question: Question, upto: int) -> None:
        """See `Backlog.nothing_asked`."""
        self.backlog.nothing_asked(question, upto)
        self._on_nothing_asked()
