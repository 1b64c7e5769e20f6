"""The store on etcd. A swap is one transaction; a list has pages of one revision; reads need a quorum.

A swap that was sent, and not answered, raises StoreUnreachable. It is never sent again: the second one might find the
write of the first, and report it as another's. The caller reads, and recognises its own write by what is in it.

A limit of etcd 3.5: a leader that was stopped or cut off may answer a renewal after another leader has taken its place.
Then the lease ends up to one lease earlier than `renew` has promised. Whoever relies on a lease therefore waits for a
whole lease after it is gone (`judge`).
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import trio

from shipper.fleet.etcd.answers import Grant, KeyValue, Nothing, Range, Renewal, Txn
from shipper.fleet.etcd.gateway import AnswerTooLarge, Call, Gateway, Login
from shipper.fleet.etcd.hosts import Host, TlsFiles
from shipper.fleet.etcd.keys import Keys, coded
from shipper.fleet.etcd.watch import Watch
from shipper.fleet.store import (
    SECONDS,
    Change,
    Compacted,
    Entry,
    Found,
    Lease,
    LeaseEnded,
    Listing,
    StoreRefused,
    StoreUnreachable,
    Swapped,
)
from shipper.sdk.errors import BadOption
from shipper.sdk.retry import hasty

LARGEST = 1_400_000
"""Bytes of a value; etcd refuses requests of more than 1.5 MiB."""
RELIST = 30.0
"""A watch that has died silently would hide a change until it is begun anew."""
PAGE = 500
"""Entries of one answer, at first; less if they are large."""
LARGEST_LISTING = 128 << 20
"""Bytes of all keys and values together, each entry with `OVERHEAD`: anybody who can write to etcd makes them."""
OVERHEAD = 1 << 10


@asynccontextmanager
async def open_etcd(
    urls: Sequence[str], prefix: str, *, tls: TlsFiles | None = None, login: Login | None = None
) -> AsyncIterator[Etcd]:
    """Yields the store of the keys below `prefix`, as in `/shipper/prod/`; raises BadOption for a wrong URL, or none.

    It connects at the first call.
    """
    if not urls:
        raise BadOption("etcd needs the address of one host at least")
    gateway = Gateway([Host.parse(url) for url in urls], tls or TlsFiles(), login)
    try:
        yield Etcd(gateway, Keys(prefix))
    finally:
        await gateway.aclose()


class Etcd:
    """See `shipper.fleet.store.Store`."""

    largest = LARGEST
    relist = RELIST

    def __init__(self, gateway: Gateway, keys: Keys) -> None:
        self._gateway = gateway
        self._keys = keys

    async def read(self, key: str, *, seconds: float = SECONDS) -> Found:
        purpose = f"read {self._keys.shown(key)}"
        call = Call("/v3/kv/range", {"key": self._keys.of(key)}, purpose, seconds=seconds)
        found = await self._gateway.call(call, Range)
        return Found(self._only(found), found.header.revision)

    async def list(self, prefix: str, *, keys_only: bool = False) -> Listing:
        limit, pauses = PAGE, hasty()
        with trio.move_on_after(SECONDS):
            while True:
                try:
                    return await self._listed(prefix, limit, keys_only=keys_only)
                except AnswerTooLarge as error:
                    if limit == 1:
                        raise StoreRefused(str(error)) from None
                    limit = max(1, limit // 8)
                except Compacted:  # while it was read; from the beginning then
                    await trio.sleep(next(pauses))
        raise StoreUnreachable(f"list {self._keys.shown(prefix)}: not finished within {SECONDS:g} s")

    async def _listed(self, prefix: str, limit: int, *, keys_only: bool) -> Listing:
        """Returns the listing; raises Compacted if its revision is gone before the last page."""
        first, end = self._keys.range(prefix)
        message: dict[str, Any] = {"key": first, "range_end": end, "limit": str(limit), "keys_only": keys_only}
        call = Call("/v3/kv/range", message, f"list {self._keys.shown(prefix)}")
        page = await self._gateway.call(call, Range)
        at = page.header.revision
        found, size = [*page.kvs], _size(page.kvs)
        while page.more and page.kvs:
            message.update(key=coded(page.kvs[-1].key + b"\0"), revision=str(at))
            page = await self._gateway.call(call, Range)
            found += page.kvs
            size += _size(page.kvs)
            if size > LARGEST_LISTING:
                raise StoreRefused(f"{call.purpose}: more than {LARGEST_LISTING >> 20} MiB; remove keys of nobody")
        return Listing(tuple(map(self._keys.entry, found)), at)

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
        if value is not None and len(value) > LARGEST:
            raise StoreRefused(f"{purpose}: {len(value)} bytes; at most {LARGEST} are possible")
        if renews is not None and not await self.renew(renews):
            raise LeaseEnded(f"{purpose}: the lease has ended")
        call = Call("/v3/kv/txn", self._transaction(self._keys.of(key), value, expected, lease), purpose, False)
        done = await self._gateway.call(call, Txn)
        ranges = [answer.response_range for answer in done.responses if answer.response_range is not None]
        if len(ranges) != 1:
            raise StoreUnreachable(f"{purpose}: an answer that is not etcd's")
        return Swapped(done.succeeded, self._only(ranges[0]), done.header.revision)

    def _transaction(self, key: str, value: bytes | None, expected: int, lease: Lease | None) -> dict[str, Any]:
        look = {"request_range": {"key": key}}
        if value is None:
            write: dict[str, Any] = {"request_delete_range": {"key": key}}
        else:
            under = {} if lease is None else {"lease": str(lease.id)}
            write = {"request_put": {"key": key, "value": coded(value), **under}}
        compare = {"target": "MOD", "key": key, "mod_revision": str(expected)}
        return {"compare": [compare], "success": [write, look], "failure": [look]}

    @asynccontextmanager
    async def watch(self, prefix: str, after: int) -> AsyncIterator[AsyncIterator[Sequence[Change]]]:
        async with aclosing(Watch(self._gateway, self._keys, prefix, after)) as watch:
            yield watch

    async def grant(self, seconds: float) -> Lease:
        made = await self._gateway.call(
            Call("/v3/lease/grant", {"TTL": str(math.ceil(seconds))}, "grant a lease"), Grant
        )
        if made.id == 0 or made.ttl < seconds:
            raise StoreUnreachable("grant a lease: an answer that is not etcd's")
        return Lease(made.id, float(made.ttl))

    async def renew(self, lease: Lease) -> bool:
        call = Call("/v3/lease/keepalive", {"ID": str(lease.id)}, "renew a lease")
        return (await self._gateway.call(call, Renewal)).result.ttl > 0

    async def revoke(self, lease: Lease) -> None:
        with suppress(LeaseEnded):
            await self._gateway.call(Call("/v3/lease/revoke", {"ID": str(lease.id)}, "revoke a lease"), Nothing)

    def _only(self, found: Range) -> Entry | None:
        return self._keys.entry(found.kvs[0]) if found.kvs else None


def _size(page: Sequence[KeyValue]) -> int:
    return sum(OVERHEAD + len(one.key) + len(one.value) for one in page)
