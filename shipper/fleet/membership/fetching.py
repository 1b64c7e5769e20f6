"""Reads a version and its secrets from the store, in parts if that takes long."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from shipper.fleet.membership.offered import Offered
from shipper.fleet.memory import Kept
from shipper.fleet.records import SECRETS, VERSIONS, Secret, Text, Version
from shipper.fleet.seal import Seals, Unauthentic, digest
from shipper.fleet.store import SECONDS, Store, StoreError, StoreUnreachable

READERS = 8
"""Records that are read at the same time."""


class Missing(Exception):
    """The store lacks a record."""


class Fetching:
    """The version that is being read."""

    def __init__(self, store: Store, seals: Seals, lease: float) -> None:
        self._store, self._seals = store, seals
        self._seconds = min(SECONDS, lease / 3)
        self._reading: Version | None = None
        self._read: dict[str, bytes] = {}
        """Its records that were read until now, by key."""

    async def fetch(self, version: Version) -> tuple[Kept, Offered] | None:
        """Reads a version and its secrets, for at most a third of the lease, so that the renewal comes in time.

        Returns None if that was too short; what was read until then is not read again. Raises Missing, Unauthentic and
        StoreError.
        """
        if self._reading != version:
            self._reading = version
            self._read.clear()
        before = len(self._read)
        with trio.move_on_after(self._seconds):
            try:
                kept = await self._read_version(version)
                offered = self.authentic(kept)
            except (Missing, Unauthentic):
                self._reading = None
                raise
            self._reading = None
            return kept, offered
        if len(self._read) == before:
            raise StoreUnreachable(f"version {version} and its secrets were not read within {self._seconds:g} s")
        return None

    def authentic(self, kept: Kept) -> Offered:
        """Returns a version as it can be run; raises Unauthentic, and KeyError for a secret that is not kept."""
        text = self._text(kept.version, kept.text)
        opened = {id: self._seals.open(SECRETS + id, raw, Secret) for id, raw in kept.secrets.items()}
        contents = {name: opened[id].content for name, id in text.secrets.items()}
        return Offered(kept.version, text, contents)

    def _text(self, version: Version, raw: bytes) -> Text:
        text = self._seals.open(VERSIONS + version.sha256, raw, Text)
        if digest(text) != version.sha256:
            raise Unauthentic(f"the record {VERSIONS}{version.sha256} is the text of another version")
        return text

    async def _read_version(self, version: Version) -> Kept:
        await self._read_all([VERSIONS + version.sha256])
        text = self._read[VERSIONS + version.sha256]
        ids = sorted({*self._text(version, text).secrets.values()})
        await self._read_all([SECRETS + id for id in ids])
        return Kept(version, text, {id: self._read[SECRETS + id] for id in ids})

    async def _read_all(self, keys: Sequence[str]) -> None:
        """Reads records into `_read`, a few at a time; raises the first failure."""
        failures: list[Missing | StoreError] = []
        waiting = iter([key for key in keys if key not in self._read])

        async def read() -> None:
            try:
                for key in waiting:
                    self._read[key] = await self._read_raw(key)
            except (Missing, StoreError) as error:
                failures.append(error)
                nursery.cancel_scope.cancel("a record was not read")

        async with trio.open_nursery() as nursery:
            for _ in range(READERS):
                nursery.start_soon(read)
        if failures:
            raise failures[0]

    async def _read_raw(self, key: str) -> bytes:
        found = await self._store.read(key)
        if found.entry is None:
            raise Missing(f"the store has no record {key}")
        return found.entry.value
