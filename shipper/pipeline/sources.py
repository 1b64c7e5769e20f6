"""Which input has the last word on a key of keyed state, for lanes that compare.

An input that reads its documents again at each start (`Input.is_source`) has the last word on its keys, once it has
read all of them. Nobody has it for keys that came by a door, or from another plugin: they are not said again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

import trio

from shipper.plugin import Input
from shipper.spool.resync import Claim


class Reading(Protocol):
    """A running input, by the name of its positions and keys; `is_complete` once it has read everything."""

    @property
    def source(self) -> str: ...

    @property
    def is_complete(self) -> bool: ...

    @property
    def adopted(self) -> Callable[[Collection[str]], None]: ...


class Sources:
    """The routed inputs of the active revision."""

    def __init__(self) -> None:
        self._inputs: list[tuple[Input, Reading]] | None = None
        """None: not known yet, at the start."""
        self.news = trio.Event()
        """Set, and replaced, when a claim may have changed."""

    def switch(self, inputs: Mapping[str, tuple[Input, Reading]]) -> None:
        """Replaces the inputs; those that are sources come first."""
        self._inputs = sorted(inputs.values(), key=lambda one: (not one[0].is_source, one[1].source))
        self.tell()

    def tell(self) -> None:
        """Notes that an input has read everything."""
        self.news.set()
        self.news = trio.Event()

    def adopted(self, keys: Iterable[tuple[str, str]]) -> None:
        """Tells the inputs of these versions, by owner and collection, that they were taken from a destination."""
        found = frozenset(keys)
        for input, reading in self._inputs or ():
            owners = {owner for owner, collection in found if owner and input.has_keys(owner, collection)}
            if owners:
                reading.adopted(owners)

    def claim(self, owner: str, collection: str) -> Claim | None:
        """Returns who has the last word on a key; None: no running input."""
        if self._inputs is None:
            return Claim("", "unread")
        for input, reading in self._inputs:
            if input.has_keys(owner, collection):
                if not input.is_source:
                    return Claim(reading.source, "adopt")
                return Claim(reading.source, "source" if reading.is_complete else "unread")
        return None
