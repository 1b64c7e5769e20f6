"""Follows the head of a fleet, and reads it again after each break of the watch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import trio

from shipper.fleet.member.machine import Member
from shipper.fleet.membership.sealed import Sealed
from shipper.fleet.membership.troubles import Troubles
from shipper.fleet.records import HEAD
from shipper.fleet.store import Store, StoreError


class Watching:
    """`run` it once, beside the task that performs the member's steps."""

    def __init__(
        self,
        store: Store,
        sealed: Sealed,
        member: Member,
        troubles: Troubles,
        *,
        wake: Callable[[], None],
        waits: Callable[[], Iterator[float]],
    ) -> None:
        """`wake` is called after each event for the member; `waits` makes a backoff."""
        self._store, self._sealed, self._member, self._troubles = store, sealed, member, troubles
        self._wake, self._waits = wake, waits
        self._scope: trio.CancelScope | None = None

    async def run(self) -> None:
        """Follows the head for ever, also while the store is away."""
        waits = self._waits()
        while True:
            try:
                with trio.CancelScope() as self._scope:
                    at = await self._read()
                    self._troubles.failed("watch", None)
                    waits = self._waits()
                    await self._watch(at)
            except StoreError as error:
                self._troubles.failed("watch", error)
            await trio.sleep(next(waits))

    def begin_anew(self) -> None:
        """Ends the watch: the store was restored, and its revisions went back."""
        if self._scope is not None:
            self._scope.cancel("the store was restored, and its revisions went back")

    async def _read(self) -> int:
        since = self._member.known.at
        found = await self._store.read(HEAD)
        self._member.saw_head(self._sealed.open_head(found.entry), found.at, since)
        self._wake()
        return found.at

    async def _watch(self, after: int) -> None:
        async with self._store.watch(HEAD, after) as batches:
            async for changes in batches:
                for change in changes:
                    if change.key == HEAD:
                        self._member.saw_head(self._sealed.open_head(change.entry), change.at)
                self._wake()
