"""Opens the records that a member reads, and remembers which of them are forged."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from shipper.fleet.records import HEAD, Head
from shipper.fleet.seal import Seals, Unauthentic
from shipper.fleet.store import Entry, StoreRefused

T = TypeVar("T", bound=msgspec.Struct)


class Sealed:
    """The records of one member."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals
        self.forged: dict[str, str] = {}
        """What is wrong with each forged record, by its key, until it is found to be gone or replaced."""

    def open(self, key: str, entry: Entry | None, type: type[T]) -> T | None:
        """Returns the record of a key; None if there is none, or a forged one."""
        self.forged.pop(key, None)
        if entry is None:
            return None
        try:
            return self._seals.open(key, entry.value, type)
        except Unauthentic as error:
            self.forged[key] = str(error)
            return None

    def open_head(self, entry: Entry | None) -> Head | None:
        """Returns the head; raises StoreRefused for a forged one: nothing tells which version is the newest then."""
        head = self.open(HEAD, entry, Head)
        if head is None and entry is not None:
            raise StoreRefused(self.forged[HEAD])
        return head
