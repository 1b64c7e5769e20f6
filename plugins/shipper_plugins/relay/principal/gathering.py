"""Small requests that come together, from whichever edges, are stored together. In the asyncio thread.

    request ──┐
    request ──┼── group ──> Parts.take_together ──> answers       one hand-over to trio, one transaction
    request ──┘     while it is stored, the next group gathers

No timer delays a group: one that comes alone goes at once. A request that the group cannot answer is taken alone beside
the next groups, and a group whose events take long holds up the next one for `HELD_UP` seconds and no longer: no edge
waits for what another one does.

The intake gathers emissions too, in trio. Here whole requests gather before they get there: a hand-over of each takes
80 µs, one for sixteen 15 µs each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

from outcome import Error, Outcome, Value

from shipper.plugin import Asyncio
from shipper_plugins.relay.frames import Answered
from shipper_plugins.relay.principal.door import Refused
from shipper_plugins.relay.principal.parts import Parts, Sent

MOST_OF_A_GROUP = 256
"""The most requests of one transaction."""
HELD_UP = 0.25
"""Seconds after which the next group is stored beside one that is not stored yet."""

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Answer:
    """The answer to come of one request. An error is a value: nobody is there to be told of it, if the peer has gone.

    It is not a future: whoever waits is called at once, and not after another turn of the loop.
    """

    __slots__ = ("_callbacks", "_said", "sent")

    def __init__(self, sent: Sent) -> None:
        self.sent = sent
        self._said: Answered | Exception | None = None
        self._callbacks: list[Callable[[Answer], object]] = []

    def add_done_callback(self, callback: Callable[[Answer], object]) -> None:
        """Has it called when the answer is there; it is not there yet, and the callback must not raise."""
        self._callbacks.append(callback)

    def result(self) -> Answered:
        """Returns or raises the answer that is there."""
        assert self._said is not None
        if isinstance(self._said, Exception):
            raise self._said
        return self._said

    def end(self, said: Answered | Exception) -> None:
        """The answer is there."""
        self._said = said
        for callback in self._callbacks:
            callback(self)


Group = tuple[Answer, ...]
"""The requests of one transaction."""


class Gathering:
    """The groups of one server."""

    def __init__(self, parts: Parts, aio: Asyncio) -> None:
        self._parts, self._aio = parts, aio
        self._waiting: list[Answer] = []
        self._is_storing = False
        self._groups = 0
        self._under_way: dict[Group, Callable[[], None]] = {}
        """What is being stored, and what cancels that."""
        self._ended = asyncio.Event()
        """Set when nothing is under way."""

    async def answer(self, sent: Sent) -> Answered:
        """Returns what `Parts.take` returns or raises. A cancel changes nothing for the others."""
        answer, ended = self.take(sent), asyncio.Event()
        answer.add_done_callback(lambda _: ended.set())
        await ended.wait()
        return answer.result()

    def take(self, sent: Sent) -> Answer:
        """Returns the answer to come: what `Parts.take` returns or raises."""
        answer = Answer(sent)
        self._waiting.append(answer)
        if not self._is_storing:
            self._is_storing = True
            asyncio.get_running_loop().call_soon(self._store)
        return answer

    async def rest(self, seconds: float) -> None:
        """Returns when nothing is under way, at the latest after so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._until_ended()
        except TimeoutError:
            return

    async def close(self) -> None:
        """Ends what is under way, when nobody waits for it any more."""
        self._waiting.clear()
        for cancel in self._under_way.values():
            cancel()
        await self._until_ended()

    async def _until_ended(self) -> None:
        while self._is_storing or self._under_way:
            self._ended.clear()
            await self._ended.wait()

    def _store(self) -> None:
        """Begins to store what waits, the first of it."""
        group, self._waiting = tuple(self._waiting[:MOST_OF_A_GROUP]), self._waiting[MOST_OF_A_GROUP:]
        self._groups += 1
        self._is_storing = bool(group)
        if group:
            held_up = asyncio.get_running_loop().call_later(HELD_UP, self._store)
            ended = partial(self._stored, group, self._groups, held_up)
            self._begin(group, ended, self._parts.take_together, [one.sent for one in group])
        else:
            self._ended.set()

    def _stored(
        self,
        group: Group,
        number: int,
        held_up: asyncio.TimerHandle,
        end: Outcome[Sequence[Answered | Refused | None]],
    ) -> None:
        held_up.cancel()
        if number == self._groups:  # else the next group is being stored beside it
            asyncio.get_running_loop().call_soon(self._store)
        if isinstance(end, Value):
            for one, answer in zip(group, end.value, strict=True):
                if answer is None:
                    self._begin((one,), partial(_end, one), self._parts.take, one.sent)
                else:
                    one.end(answer)
        else:
            for one in group:
                _end(one, end)

    def _begin(
        self,
        group: Group,
        ended: Callable[[Outcome[T]], None],
        function: Callable[[*Args], Awaitable[T]],
        *args: *Args,
    ) -> None:
        def end(outcome: Outcome[T]) -> None:
            del self._under_way[group]
            self._ended.set()
            ended(outcome)

        self._under_way[group] = self._aio.ask(end, function, *args)


def _end(one: Answer, end: Outcome[Any]) -> None:
    """Ends an answer; after a cancel nobody waits for it any more."""
    if isinstance(end, Value):
        one.end(end.value)
    elif isinstance(end, Error) and isinstance(end.error, Exception):
        one.end(end.error)
