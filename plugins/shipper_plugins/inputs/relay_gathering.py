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
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from shipper.plugin import Asyncio
from shipper_plugins.inputs.relay_parts import Parts, Sent
from shipper_plugins.relay.frames import Answered

MOST_OF_A_GROUP = 256
"""The most requests of one transaction."""
HELD_UP = 0.25
"""Seconds after which the next group is stored beside one that is not stored yet."""


Answer = asyncio.Future[Answered | Exception]
"""An error is a value: nobody is there to be told of it, if the peer has gone."""


class _Waiting(NamedTuple):
    sent: Sent
    answer: Answer


class Gathering:
    """The groups of one server."""

    def __init__(self, parts: Parts, aio: Asyncio) -> None:
        self._parts, self._aio = parts, aio
        self._waiting: list[_Waiting] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_storing = False

    def take(self, sent: Sent) -> Answer:
        """Returns the answer to come: what `Parts.take` returns or raises. A cancel of it changes nothing for the
        others."""
        waiting = _Waiting(sent, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if not self._is_storing:
            self._is_storing = True
            self._start(self._store())
        return waiting.answer

    async def rest(self, seconds: float) -> None:
        """Returns when nothing is under way, at the latest after so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def close(self) -> None:
        """Ends what is under way, when nobody waits for it any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _store(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:MOST_OF_A_GROUP], self._waiting[MOST_OF_A_GROUP:]
                await asyncio.wait([self._start(self._store_group(group))], timeout=HELD_UP)
        finally:
            self._is_storing = False

    async def _store_group(self, group: Sequence[_Waiting]) -> None:
        try:
            answers = await self._aio.answer(self._parts.take_together, [one.sent for one in group])
        except Exception as error:
            for one in group:
                _end(one, error)
            return
        for one, answer in zip(group, answers, strict=True):
            if answer is None:
                self._start(self._take_alone(one))
            else:
                _end(one, answer)

    async def _take_alone(self, one: _Waiting) -> None:
        try:
            _end(one, await self._aio.answer(self._parts.take, one.sent))
        except Exception as error:
            _end(one, error)


def _end(one: _Waiting, answer: Answered | Exception) -> None:
    if not one.answer.done():  # its peer has gone
        one.answer.set_result(answer)


def told(answer: Answered | Exception) -> Answered:
    """Returns an answer, or raises it."""
    if isinstance(answer, Exception):
        raise answer
    return answer
