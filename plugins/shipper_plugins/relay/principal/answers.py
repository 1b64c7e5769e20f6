"""The final answers that come later than a confirmation (`acknowledge: delivered`), told to edges that ask for them."""

from __future__ import annotations

import time

import msgspec
import trio

from shipper.plugin.relay import Ranked
from shipper_plugins.relay.frames import Outcomes, Poll, Told, VersionOutcome
from shipper_plugins.relay.principal.door import over
from shipper_plugins.relay.principal.edges import Edges
from shipper_plugins.relay.principal.known import Known
from shipper_plugins.relay.principal.settled import Page

MOST_TOLD = 64
MOST_TOLD_EVENTS = 1 << 16
"""The most events whose answers one poll gets; a single part may have more."""
MOST_VERSIONS_TOLD = 1000
"""The most versions of one poll."""


class Answers:
    """What the edges of a door are told."""

    def __init__(self, edges: Edges) -> None:
        self._edges, self._context = edges, edges.context

    async def told(self, name: str, poll: Poll) -> Told:
        """Returns the answers for awaited parts since the last poll; waits a while for some. Raises Refused."""
        self._edges.heard(name, poll.head)
        edge = self._edges.of(name)
        with trio.move_on_after(poll.wait):
            while not edge.has_news(poll):
                await edge.news.wait()
        if not edge.has_news(poll):
            async with edge.lock:
                await self._edges.look(edge)
        self._edges.check_promise()
        self._edges.heard(name, poll.head)
        page = edge.settled.above(poll.head.link, poll.versions_after, MOST_VERSIONS_TOLD, time.monotonic())
        if page is None:  # in another session it sends again what it waits for
            edge.sessions.forget(poll.head.link)
            raise over()
        told = await self._of_parts(edge, poll.after)
        return msgspec.structs.replace(told, versions=await self._of_versions(page), versions_upto=page.upto)

    async def _of_versions(self, page: Page) -> list[VersionOutcome]:
        """Returns the answers for versions that are still the newest of their keys; older ones are known by the newer
        ones."""
        known = await self._context.answers(page.keys) if page.keys else {}
        found = [(key.split("/"), known.get(key)) for key in page.keys]
        return [VersionOutcome(name, int(place), Ranked(answers[0])) for (_, name, place), answers in found if answers]

    async def _of_parts(self, edge: Known, after: int) -> Told:
        """Returns the first of what is new above a number."""
        taken = {one.key(edge.name): one for one in edge.awaited()}
        upto = edge.told
        news = sorted((number, key) for key, number in edge.done.items() if number > after)[: MOST_TOLD + 1]
        known = await self._context.answers([key for _, key in news[:MOST_TOLD]])
        told: list[Outcomes] = []
        for at, (number, key) in enumerate(news):
            if at == MOST_TOLD or sum(len(one.answers) for one in told) > MOST_TOLD_EVENTS:
                upto = number - 1
                break
            answers, one = known.get(key), taken.get(key)
            if answers is not None and one is not None:
                told.append(Outcomes(one.origin.hex(), one.seq, one.spans, answers))
        return Told(upto, told)
