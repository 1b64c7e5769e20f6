"""Requests for the keyed state of edges: versions are kept, both sides are compared, programs put keys."""

from __future__ import annotations

from collections.abc import Sequence

from shipper.plugin import Outdated, PluginFault
from shipper.plugin.state import Kept
from shipper_plugins.relay.digests import Unreadable
from shipper_plugins.relay.principal.door import Refused, busy
from shipper_plugins.relay.principal.edges import Edges
from shipper_plugins.relay.principal.forget import not_begun
from shipper_plugins.relay.principal.keys import Full
from shipper_plugins.relay.state import (
    Arrived,
    Compare,
    Compared,
    Given,
    Limits,
    Named,
    StateAnswered,
    StateHead,
    Surplus,
    Wanted,
)

FULL_SECONDS = 10.0
"""Seconds after which a program may ask again whether there is room for another key."""


class KeyedState:
    """The keyed state of the edges of a door."""

    def __init__(self, edges: Edges) -> None:
        self._edges, self._context, self._sets = edges, edges.context, edges.sets

    async def keep(
        self, name: str, head: StateHead, versions: Sequence[Arrived], limits: Limits, *, awaits: bool = False
    ) -> StateAnswered:
        """Stores versions of an edge's keys; returns the result of each. Raises Refused.

        If it `awaits`, new ones are confirmed only by their final answers.
        """
        edge = self._edges.of(name)
        async with edge.lock:
            for _ in range(2):
                link = self._edges.link(edge, head)
                try:
                    expect = {edge.at(head.link): link.stored}
                    answered = await edge.keys.keep(self._context, versions, limits, expect, awaits=awaits)
                    edge.seen.took(head.link, versions=len(versions) - answered.left)
                    return answered
                except Outdated:
                    await self._edges.load_again(edge)
                except Full:
                    raise busy("there is no room for more state now") from None
                except PluginFault:
                    raise Refused(422, "part_refused", "a version cannot be stored") from None
        raise busy("what is stored of this edge changes")

    async def compare(self, name: str, asked: Compare, limits: Limits) -> Compared:
        """Answers a question about an edge's keys. Raises Refused."""
        edge = self._edges.hear(name, asked.link, asked.generation)
        try:
            return await self._sets.answer(name, edge.keys, limits, asked.question)
        except Unreadable as error:
            raise Refused(400, "bad_request", str(error)) from None

    async def name(self, name: str, asked: Surplus, limits: Limits) -> Named:
        """Returns the names of keys of an edge. Raises Refused."""
        edge = self._edges.hear(name, asked.link, asked.generation)
        return await self._sets.named(name, edge.keys, limits, asked.points)

    async def give(self, name: str, asked: Wanted) -> Given:
        """Returns documents of keys of an edge. Raises Refused."""
        self._edges.hear(name, asked.link, asked.generation)
        return await self._sets.given(name, asked.keys)

    async def put(self, name: str, collection: str, key: str, document: bytes | None, limits: Limits) -> Kept:
        """Stores the document of a program's key, None to delete it. Raises Refused."""
        try:
            expect = not_begun(name)
            kept = await self._edges.of(name).keys.put(self._context, collection, key, document, limits, expect)
        except Full:
            raise busy("there is no room for more state now") from None
        except Outdated:
            raise busy("what is stored of this edge is being forgotten") from None
        except PluginFault:
            raise Refused(400, "bad_request", "a key or a collection cannot have this name") from None
        if kept == "collection":
            raise Refused(403, "forbidden", "this edge may not have this collection")
        if kept == "too_large":
            raise Refused(413, "too_large", f"a document has at most {limits.max_document_bytes} bytes")
        if not isinstance(kept, Kept):
            raise Refused(429, "full", "this edge has as many keys, or bytes, as it may have", FULL_SECONDS)
        return kept
