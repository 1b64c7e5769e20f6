"""The member's own records in the store: the key of its lease, its report, and its mark."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import trio

from shipper.fleet.member.steps import Claim, Mark, Seen, Write
from shipper.fleet.membership.sealed import Sealed
from shipper.fleet.records import ALIVE, HEAD, MEMBERS, RESTORED, Alive, Report, Restored
from shipper.fleet.seal import Seals
from shipper.fleet.store import ABSENT, Entry, Found, Lease, LeaseEnded, Store, StoreError, Swapped, held
from shipper.sdk.units import Duration


class Lapsed(Exception):
    """The lease has ended, or its key was changed."""


class MemberSession:
    """One process of a member, in the store; every method raises StoreError."""

    def __init__(self, store: Store, seals: Seals, sealed: Sealed, member: str, seconds: Duration) -> None:
        self._store, self._seals, self._sealed, self._seconds = store, seals, sealed, seconds
        self._alive, self._report, self._restored = ALIVE + member, MEMBERS + member, RESTORED + member
        self._lease: Lease | None = None
        self._claimed = ABSENT
        """The revision of the lease's key as this process wrote it."""

    async def look(self) -> Seen:
        """Reads the records of the member, and then the head; renews the lease meanwhile, if there is one.

        Joining takes several looks. Without a renewal in each of them, the lease would end before the first report
        where the store is slow. This renewal says nothing to anybody: only one of `renew` counts.
        """
        (alive,) = await self._together(self._alive, renewing=self._lease)
        report, restored = await self._together(self._report, self._restored)
        head = await self._store.read(HEAD)
        return Seen(
            self._sealed.open(self._report, report.entry, Report),
            _revision(report.entry),
            self._sealed.open(self._alive, held(alive.entry), Alive),
            _revision(alive.entry),
            self._sealed.open_head(head.entry),
            head.at,
            self._sealed.open(self._restored, restored.entry, Restored),
            _revision(restored.entry),
        )

    async def _together(self, *keys: str, renewing: Lease | None = None) -> list[Found]:
        """Reads keys at the same time, beside a renewal; raises the first failure. More than two calls would need
        connections that are not kept (`etcd.gateway.MOST_IDLE`)."""
        found: dict[str, Found] = {}
        failures: list[StoreError] = []

        async def read(key: str) -> None:
            found[key] = await self._store.read(key)

        async def attempt(call: Callable[..., Awaitable[object]], argument: object) -> None:
            try:
                await call(argument)
            except StoreError as error:
                failures.append(error)
                nursery.cancel_scope.cancel("a call of a look has failed")

        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(attempt, read, key)
            if renewing is not None:
                nursery.start_soon(attempt, self._store.renew, renewing)
        if failures:
            raise failures[0]
        return [found[key] for key in keys]

    async def claim(self, step: Claim) -> bool:
        """Writes the key under a new lease; returns whether that was done."""
        lease = await self._store.grant(self._seconds)
        swapped = await self._swap(self._alive, step.alive, step.expected, lease=lease)
        if swapped.done:
            self._lease, self._claimed = lease, _revision(swapped.entry)
        return swapped.done

    async def write(self, step: Write) -> int | None:
        """Writes the report, which renews the lease; returns its revision, None if something else is in its place.

        Raises Lapsed unless the lease's key is there as it was claimed, for only that proves to others that this host
        is alive; what became of the report is unknown then. The key is read after the renewal has begun: whoever sees
        it gone later counts a whole lease from then.
        """
        if self._lease is None:
            raise Lapsed
        try:
            swapped = await self._swap(self._report, step.report, step.expected, renews=self._lease)
            found = await self._store.read(self._alive)
        except LeaseEnded:
            self._lease = None
            raise Lapsed from None
        if _revision(found.entry) != self._claimed:
            self._lease = None
            raise Lapsed
        return swapped.entry.revision if swapped.done and swapped.entry is not None else None

    async def mark(self, step: Mark) -> int | None:
        """Writes or removes the mark; returns its revision, 0 for none, and None if something else is in its place."""
        swapped = await self._swap(self._restored, step.restored, step.expected)
        return _revision(swapped.entry) if swapped.done else None

    async def _swap(
        self,
        key: str,
        record: msgspec.Struct | None,
        expected: int,
        *,
        lease: Lease | None = None,
        renews: Lease | None = None,
    ) -> Swapped:
        """Writes or removes a record; once that is done, no forged one is in its place."""
        raw = None if record is None else self._seals.seal(key, record)
        swapped = await self._store.swap(key, raw, expected=expected, lease=lease, renews=renews)
        if swapped.done:
            self._sealed.forged.pop(key, None)
        return swapped

    async def revoke(self) -> None:
        """Ends the lease, if there is one."""
        if self._lease is not None:
            await self._store.revoke(self._lease)
            self._lease = None


def _revision(entry: Entry | None) -> int:
    return 0 if entry is None else entry.revision
