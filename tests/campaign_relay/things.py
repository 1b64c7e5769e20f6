"""What was said of keys, what a backend was made to write of them, and whether the one follows from the other. No I/O.

Who writes a key numbers its versions: the document `{"n": 3}` is the third thing that was said of it. So a write at the
backend tells which version it is, and an older one that comes behind a newer one is seen, whatever place it has.
A deletion has no document, and stands for the first deletion that is not older than what was written before it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from shipper.testing import Document


class Thing(NamedTuple):
    """A key, as the backend knows it."""

    owner: str
    collection: str
    key: str


class Write(NamedTuple):
    """What the backend took; `n` is None for a deletion."""

    n: int | None
    place: int


class Things:
    """The truth about keys, and the writes of a backend; both grow with what is done."""

    def __init__(self) -> None:
        self._said: dict[Thing, list[int | None]] = defaultdict(list)
        self._unsure: set[Thing] = set()
        self._undeleted: dict[Thing, int] = {}
        """Keys of which a deletion is in doubt, unless the backend has a document of a higher number than this."""
        self._writes: dict[Thing, list[Write]] = defaultdict(list)
        self.seen: Counter[str] = Counter()
        """How many versions were written, and how many refused as older than what was there."""

    # -- the truth -----------------------------------------------------------------------------------------------------

    def put(self, thing: Thing) -> bytes:
        """A new document of the key; returns it, to be said until it is taken."""
        said = self._said[thing]
        said.append(len(said) + 1)
        self._unsure.discard(thing)
        return b'{"n":%d}' % len(said)

    def delete(self, thing: Thing) -> None:
        """The key is deleted."""
        self._said[thing].append(None)
        self._unsure.discard(thing)

    def present(self, owner: str, collection: str) -> list[str]:
        """The keys that are not deleted."""
        return [one.key for one, said in self._said.items() if one[:2] == (owner, collection) and said[-1] is not None]

    def doubt(self, owner: str, collection: str, *, deletions_only: bool = False) -> None:
        """Somebody's memory of these keys has gone back: what the last word is, is not known before a new one.

        `deletions_only`: of keys that are there another memory is whole, such as a directory of documents; one that is
        not there may be unknown to that somebody, until a new document was seen to pass.
        """
        keys = [one for one in self._said if one[:2] == (owner, collection)]
        if deletions_only:
            self._undeleted |= {one: len(self._said[one]) for one in keys}
        else:
            self._unsure |= set(keys)

    def standing(self, owner: str, collection: str) -> dict[Thing, int]:
        """The keys, and how much was said of each."""
        return {one: len(said) for one, said in self._said.items() if one[:2] == (owner, collection)}

    # -- the backend ---------------------------------------------------------------------------------------------------

    def note(self, documents: Iterable[Document]) -> None:
        """What the backend is about to do with these; it takes no version that is not above the one that it has."""
        for one in documents:
            if one.version is None or not one.source:
                continue
            source = json.loads(one.source)
            says = source["shipper"]
            writes = self._writes[Thing(says["owner"], says["collection"], says["key"])]
            if writes and one.version <= writes[-1].place:
                self.seen["versions refused by the backend"] += 1
                continue
            self.seen["versions written"] += 1
            writes.append(Write(None if says["deleted"] else source["n"], one.version))

    # -- the judgement -------------------------------------------------------------------------------------------------

    def settled(self) -> bool:
        """Whether the last word of each key is at the backend."""
        return not self.open()

    def open(self) -> dict[Thing, str]:
        """Keys whose last word the backend does not have, and what it has."""
        return {
            thing: f"{_name(self._last(thing))} instead of {_name(said[-1])}"
            for thing, said in self._said.items()
            if not self._is_in_doubt(thing) and self._last(thing) != said[-1]
        }

    def early(self, standing: Mapping[Thing, int]) -> dict[Thing, str]:
        """Those keys of `open` of which nothing was said since they were standing so."""
        return {thing: what for thing, what in self.open().items() if len(self._said[thing]) == standing.get(thing)}

    def wrong(self) -> dict[Thing, str]:
        """Keys whose writes are none that can be: an older one behind a newer one, or one of nothing that was said."""
        found = {thing: _wrong(self._said.get(thing, ()), writes) for thing, writes in list(self._writes.items())}
        return {thing: what for thing, what in found.items() if what is not None}

    def differing(self, documents: Mapping[str, Mapping[str, bytes]]) -> list[Thing]:
        """Keys of which the backend has in the end another document than was written last."""
        has: dict[Thing, Write] = {}
        for name, index in documents.items():
            for source in index.values() if name.startswith("state-") else ():
                document = json.loads(source)
                says = document["shipper"]
                thing = Thing(says["owner"], says["collection"], says["key"])
                has[thing] = Write(None if says["deleted"] else document["n"], says["place"])
        last = {thing: writes[-1] for thing, writes in self._writes.items() if writes}
        return [thing for thing in has.keys() | last.keys() if has.get(thing) != last.get(thing)]

    def _is_in_doubt(self, thing: Thing) -> bool:
        if thing in self._unsure or self._said[thing][-1] is not None:
            return thing in self._unsure
        above = self._undeleted.get(thing, 0)
        return above > 0 and not any(write.n is not None and write.n > above for write in self._writes.get(thing, ()))

    def _last(self, thing: Thing) -> int | None:
        writes = self._writes.get(thing)
        return writes[-1].n if writes else None


def _wrong(said: Iterable[int | None], writes: Iterable[Write]) -> str | None:
    history = list(said)
    at = 0
    for write in writes:
        if write.n is not None and not (0 < write.n <= len(history) and history[write.n - 1] == write.n):
            return f"{_name(write.n)} was never said"
        later = [place for place in range(at, len(history)) if history[place] == write.n]
        if not later:
            return f"{_name(write.n)} was written behind version {at + 1}"
        at = later[0]
    return None


def _name(n: int | None) -> str:
    return "nothing" if n is None else f"version {n}"
