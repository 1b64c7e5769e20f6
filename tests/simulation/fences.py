"""What a destination knows of keys: the version that it has of each, below which it takes none.

A version has a place and a digest, which are the fence for what comes later. Somebody else may have written there: the
shipper knows nothing of that version, and learns its place only when its own is refused.
"""

from __future__ import annotations

from typing import NamedTuple

from shipper.plugin import Answer, Batch, Outcome
from tests.simulation.stage import Stage
from tests.simulation.things import Key


class Told(NamedTuple):
    """A version, as a destination sees it; of a deletion nobody sees the number."""

    key: Key
    place: int
    digest: str
    number: int | None

    @property
    def deleted(self) -> bool:
        return self.number is None


class Fences:
    """Of one destination, by output."""

    def __init__(self, stage: Stage, backend: str) -> None:
        self._stage, self._backend = stage, backend
        self._has: dict[tuple[str, Key], tuple[int, str]] = {}

    def put(self, output: str, told: Told) -> Answer | None:
        """A version arrives; None if it is newer than what is there."""
        has = self._has.get((output, told.key))
        if has == (told.place, told.digest):
            return Answer(Outcome.DUPLICATE)
        if has is not None and told.place <= has[0]:
            return Answer(Outcome.SUPERSEDED, "409 an older version", fence=(has[0], bytes.fromhex(has[1])))
        self._has[output, told.key] = (told.place, told.digest)
        self._stage.note("applied", backend=self._backend, output=output, told=told)
        return None

    def overwrite(self, output: str, key: Key, ahead: int) -> None:
        """Somebody else writes a version here, at a place that is so much higher."""
        place, _ = self._has.get((output, key), (1 << 31, ""))
        self._has[output, key] = (place + ahead, "00" * 32)
        self._stage.note("overwritten", backend=self._backend, output=output, key=key)


def told_of(batch: Batch) -> list[Told]:
    """The versions of a batch."""
    told = []
    for version, document in zip(batch.versions or (), batch.whole(), strict=True):
        assert version is not None
        number = None if version.deleted else document["number"]
        told.append(Told(Key(version.owner, version.key), version.place, version.digest.hex(), number))
    return told
