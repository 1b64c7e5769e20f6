"""The versions of one edge's keys: stored, refused or fenced.

Nothing is remembered of a version but its key; of one that is refused for ever, its place, as a position of the input,
for at most as many as the edge may have keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import trio

from shipper.plugin import Backpressure, InputContext
from shipper.plugin.state import Change, Kept
from shipper_plugins.relay import state
from shipper_plugins.relay.state import Arrived, Limits, Other, Refusal, StateAnswered, owner_at

REFUSED: Final = "REFUSED/"
"""The link in the names of these positions; no name of an edge has capital letters."""


class Full(Exception):
    """There is no room on the disk now."""


class Keys:
    """The keyed state of an edge: its refusals, by the name of the key."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.refused: dict[str, Refusal] = {}
        self.reading = trio.Lock()
        """Held by the comparison of this edge that reads its keys, so that the next turn is another edge's."""

    def load(self, positions: Mapping[str, bytes]) -> None:
        """Loads earlier refusals; an unreadable one is forgotten, and made again when its version comes again."""
        self.refused.clear()
        for key, stored in positions.items():
            try:
                self.refused[key.rpartition("/")[2]] = Refusal.unpack(stored)
            except ValueError:
                continue

    @property
    def prefix(self) -> str:
        """Returns the positions of the refusals."""
        return f"{REFUSED}{self._name}/"

    async def keep(
        self,
        context: InputContext,
        arrived: Sequence[Arrived],
        limits: Limits,
        expect: Mapping[str, bytes | None],
        *,
        awaits: bool = False,
    ) -> StateAnswered:
        """Stores versions; if it `awaits`, new ones are answered when all outputs have answered.

        Raises Outdated if other positions are stored than expected, Full, or PluginFault.
        """
        others: dict[int, Other] = {}
        changes: dict[int, Change] = {}
        refused: dict[str, Refusal | None] = {}
        for at, one in enumerate(arrived):
            name = state.name_of(one.version)
            before = self.refused.get(name)
            if before is not None and one.version.place < before.place:
                others[at] = Other(at, "fenced", before.place, before.digest.hex())
            elif (code := _refused(one, limits)) is not None:
                others[at] = Other(at, code)
                if before is not None or len(self.refused) + len(refused) < limits.quota.keys:
                    refused[name] = state.refusal_of(one, limits)
            else:
                version = one.version
                owner = owner_at(self._name, version.owner)
                changes[at] = Change(version.collection, version.key, one.document, owner, version.place)
                if before is not None:
                    refused[name] = None
        kept = await self._store(context, list(changes.values()), limits, refused, expect, awaits=awaits)
        others |= {at: other for at, one in zip(changes, kept, strict=True) if (other := _other(at, one)) is not None}
        return state.answered(others)

    async def put(
        self,
        context: InputContext,
        collection: str,
        key: str,
        document: bytes | None,
        limits: Limits,
        expect: Mapping[str, bytes | None],
    ) -> Kept | state.Code:
        """Stores the document of a program's key, or returns the reason why not. Raises as `keep` does."""
        code = limits.refuses(collection, len(document or b""))
        if code is not None:
            return code
        (kept,) = await self._store(context, [Change(collection, key, document, self._name)], limits, {}, expect)
        return "full" if kept.is_full else kept

    async def _store(
        self,
        context: InputContext,
        changes: Sequence[Change],
        limits: Limits,
        refused: Mapping[str, Refusal | None],
        expect: Mapping[str, bytes | None],
        *,
        awaits: bool = False,
    ) -> tuple[Kept, ...]:
        positions = {self.prefix + name: None if one is None else one.pack() for name, one in refused.items()}
        try:
            kept = await context.keep(changes, positions, expect, wait=False, quota=limits.quota, awaited=awaits)
        except Backpressure:
            raise Full from None
        self.refused |= {name: one for name, one in refused.items() if one is not None}
        for name in [name for name, one in refused.items() if one is None]:
            del self.refused[name]
        return kept


def _refused(one: Arrived, limits: Limits) -> state.Code | None:
    if one.is_withheld:
        return limits.refuses(one.version.collection, limits.max_document_bytes + 1)
    return limits.refuses(one.version.collection, len(one.document or b""))


def _other(at: int, kept: Kept) -> Other | None:
    if kept.is_full:
        return Other(at, "full")
    if kept.fenced:
        return Other(at, "fenced", kept.place, kept.digest.hex())
    if kept.awaited:
        return Other(at, "awaited")
    if kept.final is not None:
        return Other(at, "final", answer=kept.final)
    return None if kept.is_new else Other(at, "duplicate")
