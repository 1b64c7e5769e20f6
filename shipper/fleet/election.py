"""Elects one of the hosts that have an `on_release`.

    leader key, under a lease of the store     one candidate at a time tries; the next one waits for the key's removal
    head, swapped for one with token + 1       from this instant on, the candidate has the authority

The key only keeps candidates from disturbing each other. The authority is the token in the head: each write of a
candidate is a swap of the head that has its token. So a candidate that was stopped, or lost its lease without noticing
it, can change nothing after another one was elected.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import trio
from msgspec.structs import replace

from shipper.fleet.records import HEAD, LEADER, Head, Leader
from shipper.fleet.seal import Seals
from shipper.fleet.store import ABSENT, Entry, Lease, Store, StoreError, StoreUnreachable, held
from shipper.sdk.retry import hasty

_FAREWELL_SECONDS = 2.0


class Election:
    """One candidate."""

    def __init__(self, store: Store, seals: Seals, candidate: Leader, seconds: float) -> None:
        """`seconds`: the lease of the key, after which another candidate is elected."""
        self._store, self._seals, self._candidate, self._seconds = store, seals, candidate, seconds

    async def lead(self, act: Callable[[int], Awaitable[None]]) -> None:
        """Waits, without an end, until this candidate is elected, then runs `act(token)`; cancels it when the lease
        may be over. Raises StoreError, or Unauthentic for a forged head or key."""
        async with self._key(await self._vacant()) as scope:
            await act(await self._raised())
            scope.cancel("the candidate has resigned")

    async def _vacant(self) -> int:
        """Waits until no candidate has the key under a lease; returns the revision to expect of it. Raises Unauthentic
        for a forged one."""
        found = await self._store.read(LEADER)
        if (entry := held(found.entry)) is None:
            return _revision(found.entry)
        self._seals.open(LEADER, entry.value, Leader)
        async with self._store.watch(LEADER, found.at) as changes:
            async for some in changes:
                for change in some:
                    if change.key == LEADER and held(change.entry) is None:
                        return _revision(change.entry)
        raise StoreUnreachable("the watch of the elected candidate has ended")

    @asynccontextmanager
    async def _key(self, expected: int) -> AsyncIterator[trio.CancelScope]:
        """Yields while this candidate has the key; yields a cancelled scope if another one was faster."""
        began = trio.current_time()
        lease = await self._store.grant(self._seconds)
        try:
            record = self._seals.seal(LEADER, self._candidate)
            swapped = await self._store.swap(LEADER, record, expected=expected, lease=lease)
            async with trio.open_nursery() as nursery:
                if not swapped.done:
                    nursery.cancel_scope.cancel("another candidate has the key")
                nursery.start_soon(self._keep, lease, began, nursery.cancel_scope)
                yield nursery.cancel_scope
        finally:
            with trio.move_on_after(_FAREWELL_SECONDS, shield=True), suppress(StoreError):
                await self._store.revoke(lease)

    async def _keep(self, lease: Lease, began: float, scope: trio.CancelScope) -> None:
        """Renews the lease; cancels the scope when it is, or may be, over."""
        end = began + self._seconds
        while trio.current_time() < end:
            await trio.sleep(min(self._seconds / 3, max(0.0, end - trio.current_time())))
            at, holds = trio.current_time(), None
            with trio.move_on_at(end), suppress(StoreError):
                holds = await self._store.renew(lease)
            if holds is not None:
                end = at + self._seconds if holds else -math.inf
        scope.cancel("the lease of the key may be over")

    async def _raised(self) -> int:
        """Raises the token in the head to one of this candidate, and returns it.

        A swap whose answer was lost may have raised it too; the candidate then gets a higher one.
        """
        pauses = hasty()
        while True:
            found = await self._store.read(HEAD)
            if found.entry is None:
                await self._created(found.at)
                await trio.sleep(next(pauses))
                continue
            head = self._seals.open(HEAD, found.entry.value, Head)
            new = replace(head, token=head.token + 1, leader=self._candidate.member)
            raw = self._seals.seal(HEAD, new.replacing())
            swapped = await self._store.swap(HEAD, raw, expected=found.entry.revision)
            if swapped.done:
                return new.token
            await trio.sleep(next(pauses))

    async def _created(self, after: int) -> None:
        """Waits until the fleet has a head."""
        async with self._store.watch(HEAD, after) as changes:
            async for _ in changes:
                return


def _revision(entry: Entry | None) -> int:
    return ABSENT if entry is None else entry.revision
