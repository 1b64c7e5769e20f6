"""The one destination of all principals, and the output that speaks to it.

It keeps each document under its id once, and of a key the version with the highest place. Principals reach it by
connections of their own, whose answers may be lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

import msgspec
import trio

from shipper.plugin import Answer, Answers, Batch, Later, Outcome, Output, OutputContext, Sender
from tests.simulation.relayed.site import Site, site_of
from tests.simulation.stage import Stage

POISON = 7
"""One in so many events is refused for ever, in worlds that know poison."""


class Pace(msgspec.Struct, frozen=True):
    first: float = 0.05
    longest: float = 2.0


class Backend:
    """Of a world."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.is_down = False
        self.refuses_logs = False
        self.documents: set[str] = set()
        self.has: dict[tuple[str, str], tuple[int, str]] = {}

    def take(self, site: Site, batch: Batch) -> dict[int, Answer]:
        """A request arrives: what is not simply delivered. Raises Later."""
        if self.is_down:
            raise Later("503 unavailable")
        if site.strikes("busy"):
            raise Later("429 busy", retry_after=site.random("net").choice((None, 0.5, 3.0)))
        if batch.versions is not None:
            return self._take_versions(site, batch)
        if self.refuses_logs:
            return dict.fromkeys(range(batch.count), Answer(Outcome.LATER, "429 index", of_target=True))
        return self._take_events(site, batch)

    def _take_events(self, site: Site, batch: Batch) -> dict[int, Answer]:
        others: dict[int, Answer] = {}
        events = list(zip(batch.id_texts(), batch.whole(), strict=True))
        named = tuple((id, event["edge"], event["number"]) for id, event in events)
        self.stage.note("stored", principal=site.of, life=site.life, events=named)
        for at, (id, event) in enumerate(events):
            if "poison" in self.stage.scenario.rates and event["number"] % POISON == 0:
                others[at] = Answer(Outcome.REJECTED, "400 mapping")
            elif site.strikes("item_later"):
                others[at] = Answer(Outcome.LATER, "429 item")
            elif id in self.documents:
                others[at] = Answer(Outcome.DUPLICATE)
            else:
                self.documents.add(id)
        return others

    def _take_versions(self, site: Site, batch: Batch) -> dict[int, Answer]:
        others: dict[int, Answer] = {}
        assert batch.versions is not None
        for at, (version, document) in enumerate(zip(batch.versions, batch.whole(), strict=True)):
            assert version is not None
            key, mine = (version.owner, version.key), (version.place, version.digest.hex())
            has = self.has.get(key)
            if has == mine:
                others[at] = Answer(Outcome.DUPLICATE)
            elif has is not None and mine[0] <= has[0]:
                fence = (has[0], bytes.fromhex(has[1]))
                others[at] = Answer(Outcome.SUPERSEDED, "409 an older version", fence=fence)
            else:
                self.has[key] = mine
                number = None if version.deleted else document["number"]
                self.stage.note(
                    "applied", principal=site.of, owner=version.owner, key=version.key, number=number, place=mine[0]
                )
        return others


class StoreOutput(Output, frozen=True):
    """Delivers to the backend of the world."""

    backoff: ClassVar[Pace] = Pace()

    def contacts(self) -> Sequence[str]:
        return ["store"]

    def feeding(self) -> Any:
        return replace(super().feeding(), backoff=(self.backoff.first, self.backoff.longest))

    def targets(self, batch: Batch) -> Sequence[str]:
        return ["logs" if batch.versions is None else "state"] * batch.count

    def takes_state(self) -> bool:
        return True

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        yield _Connection(site_of(context.aio), context)


class _Connection(Sender):
    def __init__(self, site: Site, context: OutputContext) -> None:
        self._site, self._context = site, context

    async def send(self, batch: Batch) -> Answers:
        from tests.simulation.relayed.world import current

        site = self._site
        await self._context.begins()
        await site.pause("net")
        site.effect()
        others = current().backend.take(site, batch)
        await site.pause("net")
        if site.strikes("answer_lost"):
            await trio.sleep(site.random("net").uniform(0.0, 1.0))
            raise Later("the connection broke")
        if batch.versions is None:
            outcomes = [others[at].outcome.value if at in others else "delivered" for at in range(batch.count)]
            site.note("answered", ids=tuple(batch.id_texts()), outcomes=tuple(outcomes))
        return Answers(batch.count, others)
