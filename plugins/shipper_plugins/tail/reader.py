"""Makes the calls that turns need: sees files and compares them in threads, cuts, and stores.

What is seen is decided on in `turn`, in the thread of the event loop, where no two decisions are taken at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio

from shipper.plugin import InputContext
from shipper_plugins.tail.calls import Calls
from shipper_plugins.tail.chunk import Taken
from shipper_plugins.tail.content import Look
from shipper_plugins.tail.copies import compare
from shipper_plugins.tail.effects import Ask, Compare, CutUp, IsWhole, Keep, LookAgain, Steps
from shipper_plugins.tail.followed import Followed
from shipper_plugins.tail.lines import Cut
from shipper_plugins.tail.open_files import OpenFiles
from shipper_plugins.tail.queue import Turns
from shipper_plugins.tail.sight import Sight, Wish, at_hand, see
from shipper_plugins.tail.stream import Stream
from shipper_plugins.tail.together import together
from shipper_plugins.tail.turn import Turning

SEEN = 32
"""Files that a thread looks at in one go, at most: one that hangs stops them all."""

_T = TypeVar("_T")


class Reader:
    """Reads streams by turns."""

    def __init__(self, followed: Followed, context: InputContext, calls: Calls, act: Callable[[], None]) -> None:
        self.turns = Turns[Stream]()
        self.open_files = OpenFiles(lambda stream: stream in followed.known.detached)
        self._followed = followed
        self._turning = Turning(followed)
        self._context = context
        self._filtered = context.meters.counter("lines_filtered", "Lines, or events of several, that were left out.")
        self._calls = calls
        self._act = act
        """Does what was decided."""

    async def see(self, wishes: Sequence[Wish]) -> list[Sight | OSError]:
        """Look at the files of streams, at the first of them at least, until there is a chunk to store."""
        if seen_at_hand := at_hand(wishes, self.open_files, self._context.chunk_bytes):
            return list(seen_at_hand)
        look = partial(see, wishes[:SEEN], self.open_files, self._context.chunk_bytes)
        seen, slow = await self._calls.run(wishes[0].path, look)
        for number, wish in enumerate(wishes[: len(seen)], 1):
            self.turns.note(wish.stream, slow=slow and number == len(seen))
        return seen

    def unsee(self, seen: Sight | OSError) -> None:
        """What was seen is of no use: a file that was opened for it is compared by its first bytes when it is again."""
        if isinstance(seen, Sight) and not seen.was_open:
            self.open_files.close(seen.wish.stream)

    async def take(self, sight: Sight) -> Taken | bool:
        """See `Turning.take`."""
        return await self._follow(self._turning.take(sight, self._context.chunk_bytes))

    async def _follow(self, steps: Steps[_T]) -> _T:
        """Make the calls that a decision asks for; returns what it does."""
        answer = None
        while True:
            try:
                ask = steps.send(answer)
            except StopIteration as end:
                result: _T = end.value
                return result
            finally:
                self._act()
            answer = await self._answer(ask)

    async def _answer(self, ask: Ask[Any]) -> Any:
        match ask:
            case CutUp():
                return await self._cut(ask)
            case LookAgain(path=path):
                return await self._calls.run(path, partial(self._look, ask))
            case IsWhole(path=path):
                return await self._calls.run(path, partial(self._is_whole, ask))
            case Compare(path, file, original, known):
                return await self._calls.run(path, partial(compare, path, file, original, known))
            case Keep(positions):
                return await self._context.emit(positions=positions)
        raise AssertionError(ask)

    async def _cut(self, ask: CutUp) -> Cut:
        cut = partial(
            ask.cutter.cut,
            ask.found,
            ask.place.offset,
            skipping=ask.place.skipping,
            final=ask.final,
            flush=ask.flush,
        )
        return await trio.to_thread.run_sync(cut) if ask.cutter.slow and ask.found else cut()

    def _look(self, ask: LookAgain) -> Look:
        with self.open_files.use(ask.stream, ask.path, ask.file) as (content, _):
            return content.look(ask.offset, ask.size)

    def _is_whole(self, ask: IsWhole) -> bool:
        with self.open_files.use(ask.stream, ask.path, ask.file) as (content, _):
            return content.end() is not None

    async def store(self, taken: Sequence[Taken]) -> list[bool]:
        """Store the chunks of some streams and their positions, all in one, then move on; which have more to read?"""
        followed = self._followed
        tidy = dict(followed.tidy)
        positions = {one.stream.key: one.position() for one in taken if one.is_stored}
        if positions:
            batches = together([one.cut.batches for one in taken])
            await self._context.emit(*batches, positions={**tidy, **positions})
            followed.tidied(tidy)
            self._filtered.add(sum(one.cut.filtered for one in taken))
        more = [self._turning.stored(one) for one in taken]
        self._act()
        return more
