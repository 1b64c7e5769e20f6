"""Whose word counts for keys of keyed state: what inputs say of themselves, for lanes that compare.

An input that reads documents again at each start (`Input.is_source`) has the last word about its keys, once it has read
all of them. Of what came in by a door, or from a plugin, nobody can say it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

import trio

from shipper.plugin import Input
from shipper.spool.resync import Claim


class Reading(Protocol):
    """A running input, by the name of its positions and keys; `is_complete` once it has read all that there is."""

    @property
    def source(self) -> str: ...

    @property
    def is_complete(self) -> bool: ...

    @property
    def adopted(self) -> Callable[[Collection[str]], None]: ...


class Sources:
    """The inputs of the active revision, as far as they are routed."""

    def __init__(self) -> None:
        self._inputs: list[tuple[Input, Reading]] | None = None
        """None: they are not known yet, at the start."""
        self.news = trio.Event()
        """Set, and replaced by another one, when a claim may be another one than before."""

    def switch(self, inputs: Mapping[str, tuple[Input, Reading]]) -> None:
        """From now on these count; first those that are sources."""
        self._inputs = sorted(inputs.values(), key=lambda one: (not one[0].is_source, one[1].source))
        self.tell()

    def tell(self) -> None:
        """An input has read all."""
        self.news.set()
        self.news = trio.Event()

    def adopted(self, keys: Iterable[tuple[str, str]]) -> None:
        """Versions of keys, by owner and collection, were taken from a destination: tell the inputs that have these."""
        found = frozenset(keys)
        for input, reading in self._inputs or ():
            owners = {owner for owner, collection in found if owner and input.has_keys(owner, collection)}
            if owners:
                reading.adopted(owners)

    def claim(self, owner: str, collection: str) -> Claim | None:
        """Whose word counts for a key; None: that of no input that is here."""
        if self._inputs is None:
            return Claim("", "unread")
        for input, reading in self._inputs:
            if input.has_keys(owner, collection):
                if not input.is_source:
                    return Claim(reading.source, "adopt")
                return Claim(reading.source, "source" if reading.is_complete else "unread")
        return None
