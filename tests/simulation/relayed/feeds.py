"""Who writes log events and changes keys at an edge, and the inputs that read them.

    log    a growing sequence, read from the stored position, as a file is
    shelf  documents by key, read in full at each start and then as they change, as a directory is

Each change of a key has a number of its own, which rises and stands in the document.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import ClassVar, NamedTuple

import trio

from shipper.plugin import Batch, Input, InputContext, Source
from shipper.plugin.state import Change
from tests.simulation.relayed.site import Site, site_of
from tests.simulation.stage import Stage

COLLECTION = "things"
MOST_READ = 8
"""Events that are read at once, at most."""


class Word(NamedTuple):
    """The last word about a key: the number of the change, and whether it is deleted."""

    number: int
    deleted: bool


class Feeds:
    """Of one edge, whichever process reads them."""

    def __init__(self, world: Stage, edge: str, keys: int) -> None:
        self.world, self.edge = world, edge
        self.keys = [f"k{number}" for number in range(keys)]
        self.written = 0
        self.words: dict[str, Word] = {}
        self.changed: list[str] = []
        self.writers = 0
        self.news = trio.Event()

    def write(self, count: int) -> None:
        """There are more events."""
        self.written += count
        self.world.note("written", edge=self.edge, upto=self.written)
        self._tell()

    def change(self, random: Random, *, hot: bool = False) -> None:
        """A document is written, or removed."""
        key = self.keys[0] if hot else random.choice(self.keys)
        before = self.words.get(key)
        self._say(key, deleted=before is not None and not before.deleted and random.random() < 0.25)

    def replace(self, key: str) -> int:
        """A document is written; returns its number."""
        return self._say(key, deleted=False)

    def _say(self, key: str, *, deleted: bool) -> int:
        before = self.words.get(key)
        word = self.words[key] = Word(1 if before is None else before.number + 1, deleted)
        self.changed.append(key)
        self.world.note("changed", edge=self.edge, key=key, number=word.number, deleted=word.deleted)
        self._tell()
        return word.number

    def _tell(self) -> None:
        self.news.set()
        self.news = trio.Event()


class _OfEdge(Source):
    def __init__(self, context: InputContext) -> None:
        self.context = context
        self.site: Site = site_of(context.aio)
        assert self.site.feeds is not None
        self.feeds = self.site.feeds


class LogInput(Input, frozen=True):
    """Reads the events of its edge."""

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        yield _Log(context)


class _Log(_OfEdge):
    async def run(self) -> None:
        at = int((await self.context.positions()).get("at", b"0"))
        self._accepted(at)
        while True:
            await self.site.pause("inputs")
            while at >= self.feeds.written:
                await self.feeds.news.wait()
            count = min(self.feeds.written - at, self.site.random("inputs").randint(1, MOST_READ))
            numbers = range(at + 1, at + count + 1)
            documents = [b'{"edge":"%b","number":%d}' % (self.feeds.edge.encode(), number) for number in numbers]
            self.site.note("emitting", edge=self.feeds.edge, numbers=tuple(numbers))
            await self.context.emit(Batch.documents(documents), positions={"at": b"%d" % (at + count)})
            self.site.effect()
            at += count
            self._accepted(at)

    def _accepted(self, upto: int) -> None:
        self.site.read_upto = upto
        self.site.note("accepted", edge=self.feeds.edge, upto=upto)


class ShelfInput(Input, frozen=True):
    """Keeps the documents of its edge."""

    gives_state: ClassVar[bool] = True
    gives_events: ClassVar[bool] = False

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        yield _Shelf(context)


class _Shelf(_OfEdge):
    async def run(self) -> None:
        at = len(self.feeds.changed)
        await self._keep(list(self.feeds.words))
        self.site.kept_upto = at
        while True:
            await self.site.pause("inputs")
            while at >= len(self.feeds.changed):
                await self.feeds.news.wait()
            upto = at + self.site.random("inputs").randint(1, MOST_READ)
            keys = list(dict.fromkeys(self.feeds.changed[at:upto]))
            at = min(upto, len(self.feeds.changed))
            await self._keep(keys)
            self.site.kept_upto = at

    async def _keep(self, keys: list[str]) -> None:
        """What is there now of these keys."""
        words = {key: self.feeds.words[key] for key in keys}
        if not words:
            return
        numbers = {key: word.number for key, word in words.items()}
        self.site.note("keeping", edge=self.feeds.edge, numbers=numbers)
        await self.context.keep([_change(key, word) for key, word in words.items()])
        self.site.effect()
        self.site.note("kept", edge=self.feeds.edge, numbers=numbers)


def _change(key: str, word: Word) -> Change:
    return Change(COLLECTION, key, None if word.deleted else b'{"number":%d}' % word.number)
