"""The store on an API server.

A swap is one POST, or one PUT with the resourceVersion and the uid that it expects. The server refuses any other, so
the revision of a key is the resourceVersion of its object. A swap needs the uid of the object and the revision of its
creation. They are remembered from this client's last look or write; otherwise the object is read.

To remove a key, its object is written without a value and with a label, and then deleted. So the removal has a
revision like each other write, and is one for all who watch. If the deletion fails, what is left counts as no key, and
the next swap of the key takes its place.

A read is a list of one name: it needs a quorum, and its version is that of the store, which an absent key does not
have.

A swap that was sent, and not answered, raises StoreUnreachable. It is never sent again: the second one might find the
write of the first, and report it as another's. The caller reads, and recognises its own write by what is in it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import trio

from shipper.apiserver.client import Client, connected
from shipper.apiserver.config import Configuration
from shipper.apiserver.errors import AlreadyExists, Conflict, NotFound
from shipper.apiserver.objects import Object, version
from shipper.fleet.kubernetes.answers import told
from shipper.fleet.kubernetes.keeper import Keeper
from shipper.fleet.kubernetes.leases import Leases
from shipper.fleet.kubernetes.objects import LARGEST, RECORDS, REMOVED, Keys, Known, revision
from shipper.fleet.kubernetes.removal import delete
from shipper.fleet.kubernetes.watch import Watch
from shipper.fleet.store import (
    ABSENT,
    SECONDS,
    Change,
    Entry,
    Found,
    Lease,
    LeaseEnded,
    Listing,
    StoreRefused,
    StoreUnreachable,
    Swapped,
)
from shipper.sdk.retry import hasty

MOST_KNOWN = 256
"""Keys of which a client remembers the last object."""


@asynccontextmanager
async def open_kubernetes(configuration: Configuration, fleet: str) -> AsyncIterator[ApiServer]:
    """Yields the store of a fleet in the namespace of the configuration; it connects at the first call.

    While it is open, and as long as it watches or has granted a lease, it may be the one that ends leases (`keeper`).
    """
    failure: Exception | None = None
    async with connected(configuration) as client, trio.open_nursery() as nursery:
        store = ApiServer(client, Keys(fleet))
        nursery.start_soon(store.keeper.run)
        try:
            yield store
        except Exception as error:
            failure = error  # not in a group
        nursery.cancel_scope.cancel("the store is closed")
    if failure is not None:
        raise failure


class ApiServer:
    """See `shipper.fleet.store.Store`."""

    largest = LARGEST
    relist = math.inf

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client, self._keys = client, keys
        self._leases = Leases(client, keys)
        self.keeper = Keeper(client, keys, self._leases)
        self._known: OrderedDict[str, Known] = OrderedDict()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read(self, key: str, *, seconds: float = SECONDS) -> Found:
        with told(f"read {self._keys.shown(key)}"):
            found = await self._client.list(RECORDS, fields=f"metadata.name={self._keys.name(key)}", seconds=seconds)
        at = revision(found.version)
        if found.items:
            return Found(self._seen(key, found.items[0]), at)
        self._known.pop(key, None)
        return Found(None, at)

    async def list(self, prefix: str, *, keys_only: bool = False) -> Listing:
        selector = f"{self._keys.selector(prefix)},!{REMOVED}"
        with told(f"list {self._keys.shown(prefix)}"):
            found = await self._client.list(RECORDS, labels=selector, metadata_only=keys_only, seconds=SECONDS)
        entries = [
            entry
            for item in found.items
            if (key := self._keys.key(item)) is not None and key.startswith(prefix)
            if (entry := self._keys.entry(key, item, key_only=keys_only)) is not None
        ]
        entries.sort(key=lambda entry: entry.key)
        return Listing(entries, revision(found.version))

    @asynccontextmanager
    async def watch(self, prefix: str, after: int) -> AsyncIterator[AsyncIterator[Sequence[Change]]]:
        self.keeper.wanted.set()
        async with aclosing(Watch(self._client, self._keys, prefix, after)) as watch:
            yield watch

    # -- writing -------------------------------------------------------------------------------------------------------

    async def swap(
        self,
        key: str,
        value: bytes | None,
        *,
        expected: int,
        lease: Lease | None = None,
        renews: Lease | None = None,
    ) -> Swapped:
        purpose = f"write {self._keys.shown(key)}"
        if value is not None and len(value) > self.largest:
            raise StoreRefused(f"{purpose}: {len(value)} bytes; at most {self.largest} are possible")
        with told(purpose), trio.move_on_after(SECONDS):
            if lease is not None and not await self._leases.exists(lease):
                raise LeaseEnded(f"{purpose}: the lease has ended")
            swapped = await self._swapped(key, value, expected, lease, renews)
            if renews is not None and swapped.done and not await self._leases.exists(renews):
                raise LeaseEnded(f"{purpose}: the lease has ended")
            return swapped
        raise StoreUnreachable(f"{purpose}: not finished within {SECONDS:g} s")

    async def _swapped(
        self, key: str, value: bytes | None, expected: int, lease: Lease | None, renews: Lease | None
    ) -> Swapped:
        """Writes once, and until then looks as often as somebody else is faster."""
        before = self._known.get(key) if expected != ABSENT else None
        is_known = before.revision == expected if before is not None else expected == ABSENT and value is not None
        pauses = hasty()
        while True:
            if not is_known:
                found = await self.read(key)
                before = self._known.get(key)
                if (ABSENT if found.entry is None else found.entry.revision) != expected:
                    return Swapped(False, found.entry, found.at)
                if found.entry is None and value is None:
                    return Swapped(True, None, found.at)
            try:
                made = await self._written(self._keys.object(key, value, before=before, lease=lease, renews=renews))
            except (Conflict, AlreadyExists):
                is_known = False
                await trio.sleep(next(pauses))
                continue
            entry = self._seen(key, made)
            if value is None:
                await delete(self._client, made)
            return Swapped(True, entry, revision(version(made)))

    async def _written(self, wanted: Object) -> Object:
        """Returns the object as it was written; raises ApiError, Conflict among them if it is another one by now."""
        metadata = wanted["metadata"]
        if "resourceVersion" not in metadata:
            return await self._client.create(RECORDS, wanted)
        try:
            return await self._client.replace(RECORDS, metadata["name"], wanted)
        except NotFound as error:
            raise Conflict(str(error)) from None

    def _seen(self, key: str, found: Object) -> Entry | None:
        """Returns the entry of an object, which is remembered."""
        entry = self._keys.entry(key, found)
        self._known[key] = Known.of(found)
        self._known.move_to_end(key)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return entry

    # -- leases --------------------------------------------------------------------------------------------------------

    async def grant(self, seconds: float) -> Lease:
        self.keeper.wanted.set()
        with told("grant a lease"):
            return await self._leases.grant(seconds)

    async def renew(self, lease: Lease) -> bool:
        with told("renew a lease"), trio.move_on_after(SECONDS):
            return await self._leases.renew(lease)
        raise StoreUnreachable(f"renew a lease: not finished within {SECONDS:g} s")

    async def revoke(self, lease: Lease) -> None:
        with told("revoke a lease"), trio.move_on_after(SECONDS):
            await self._leases.revoke(lease)
            return
        raise StoreUnreachable(f"revoke a lease: not finished within {SECONDS:g} s")
