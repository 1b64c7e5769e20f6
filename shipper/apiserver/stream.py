"""The lines of a watch, from the blocks in which they come. Pure.

    {"type":"ADDED","object":{…}}
    {"type":"BOOKMARK","object":{"kind":…,"metadata":{"resourceVersion":"12","annotations":{…}}}}
    {"type":"ERROR","object":{"kind":"Status","code":410,…}}

A line is at most LARGEST_LINE bytes: etcd keeps no object above 1.5 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

LARGEST_LINE = 16 << 20
INITIAL_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark after all objects that there are."""


class NotAWatch(ValueError):
    """What came is not an answer to a watch."""


class Item(NamedTuple):
    """One line: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and its object."""

    type: str
    object: dict[str, Any]

    @property
    def ends_initial(self) -> bool:
        """Whether it is the bookmark after all objects that there are."""
        annotations = (self.object.get("metadata") or {}).get("annotations") or {}
        return self.type == "BOOKMARK" and annotations.get(INITIAL_END) == "true"


TYPES = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: dict[str, Any]


_lines = msgspec.json.Decoder(_Line)


class Lines:
    """Takes blocks, and returns what is complete."""

    def __init__(self, most: int = LARGEST_LINE) -> None:
        self._most = most
        self._begun = bytearray()

    def feed(self, block: bytes) -> Iterator[Item]:
        """Yields what the block completes; raises NotAWatch, and is of no use after that."""
        *ends, rest = block.split(b"\n")
        for end in ends:
            self._add(end)
            if line := bytes(self._begun).strip():
                yield _item(line)
            self._begun.clear()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if len(self._begun) + len(part) > self._most:
            raise NotAWatch(f"a line of more than {self._most >> 20} MiB")
        self._begun += part


def _item(line: bytes) -> Item:
    try:
        found = _lines.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise NotAWatch("a line that is no event") from None
    if found.type not in TYPES:
        raise NotAWatch("an event of an unknown type")
    return Item(found.type, found.object)
