"""Who changes keys, and the input that keeps them, as one that follows a directory of documents does.

A key belongs to this shipper, or to an edge, which gives its places. Each change of a key has a number of its own,
which rises and stands in the document; the input reads what is there now, not what was there between two looks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import ClassVar, NamedTuple

import trio

from shipper.plugin import InputContext, Source
from shipper.plugin.state import Change, digest_of
from tests.simulation.stage import Stage
from tests.simulation.streams import Reading, StreamInput, opening

NAME = "things"
"""Of the input, its type, and its collection."""
EDGE = "berlin"
TURNS = 2
"""Tasks of the input, each for keys of its own."""
MOST_AT_ONCE = 8
_EDGE_EVERY = 4


class Key(NamedTuple):
    """A key, by its owner."""

    owner: str
    name: str


class Word(NamedTuple):
    """What is said of a key; `place` is that of an edge."""

    key: Key
    number: int
    deleted: bool
    place: int | None

    def change(self) -> Change:
        document = None if self.deleted else b'{"number":%d}' % self.number
        return Change(NAME, self.key.name, document, self.key.owner, self.place)


class Things:
    """What is there now: by key the last word, and in `changed` which keys were changed, one after the other."""

    def __init__(self, stage: Stage, keys: int) -> None:
        self.stage = stage
        owners = [EDGE if number % _EDGE_EVERY == _EDGE_EVERY - 1 else "" for number in range(keys)]
        self.keys = [Key(owner, f"k{number}") for number, owner in enumerate(owners)]
        self.words: dict[Key, Word] = {}
        self.older: dict[Key, list[Word]] = {key: [] for key in self.keys}
        self.changed: list[list[Key]] = [[] for _ in range(TURNS)]
        self.read = [0] * TURNS
        """How much of `changed` is kept."""
        self.writers = 0
        self.news = trio.Event()

    @property
    def is_read(self) -> bool:
        """Whether nobody changes anything any more, and the input has kept it all."""
        return not self.writers and all(
            read >= len(changed) for read, changed in zip(self.read, self.changed, strict=True)
        )

    def change(self, random: Random, *, hot: bool) -> None:
        """A document is written, or removed."""
        number = 0 if hot else random.randrange(len(self.keys))
        key = self.keys[number]
        before = self.words.get(key)
        count = 1 if before is None else before.number + 1
        deleted = before is not None and not before.deleted and random.random() < 0.3
        if before is not None:
            self.older[key].append(before)
        word = Word(key, count, deleted, count << 8 if key.owner else None)
        self.words[key] = word
        self.changed[number % TURNS].append(key)
        self.stage.note("changed", word=word)
        self.news.set()
        self.news = trio.Event()


SHELVES: dict[str, Things] = {}
"""That of the world that runs, by `NAME`, if it knows keyed state."""


class ThingsInput(StreamInput, frozen=True):
    """Keeps what is there."""

    gives_state: ClassVar[bool] = True
    gives_events: ClassVar[bool] = False

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        async with opening(context):
            yield _Keeper(self, context)


class _Keeper(Reading):
    async def read(self) -> None:
        async with trio.open_nursery() as nursery:
            for turn in range(TURNS):
                nursery.start_soon(self._follow, turn)

    async def _follow(self, turn: int) -> None:
        things, position = SHELVES[NAME], f"at{turn}"
        stored = int((await self.context.positions()).get(position, b"0"))
        things.read[turn] = max(things.read[turn], stored)
        at = 0 if self.stage.strikes("rescan") else stored
        while True:
            await self.stumble()
            while at >= len(things.changed[turn]):
                await things.news.wait()
            upto = at + self.stage.random("things").randint(1, MOST_AT_ONCE)
            keys = dict.fromkeys(things.changed[turn][at:upto])
            at = min(upto, len(things.changed[turn]))
            await self._keep([things.words[key] for key in keys], {position: b"%d" % at})
            things.read[turn] = max(things.read[turn], at)
            await self._repeat_old(list(keys))

    async def _repeat_old(self, keys: Sequence[Key]) -> None:
        """An edge says again what it said before: it comes late, or twice."""
        for key in keys:
            if key.owner and SHELVES[NAME].older[key] and self.stage.strikes("stale_again"):
                await self._keep([self.stage.random("things").choice(SHELVES[NAME].older[key])], {})

    async def _keep(self, words: Sequence[Word], positions: dict[str, bytes]) -> None:
        self.stage.note("keeping", words=tuple(words))
        changes = [word.change() for word in words]
        kept = await self.context.keep(changes, positions)
        self.stage.effect()
        answers = tuple((answer.place, answer.is_new, answer.fenced) for answer in kept)
        is_sound = all(
            answer.fenced or answer.digest == digest_of(change.document)
            for answer, change in zip(kept, changes, strict=True)
        )
        self.stage.note("kept", words=tuple(words), answers=answers, is_sound=is_sound)
