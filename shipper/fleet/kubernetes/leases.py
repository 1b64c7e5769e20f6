"""The leases of a fleet: Lease objects of the API server. A lease has ended when its object is not there any more.

Two things renew a lease: a write of its object, and a write of a record that names it (`objects.LEASE`), after which
the object is still there. So a member that writes its report needs no second write, and its Lease does not change.
Who ends a lease (`keeper`) deletes the object first, and removes keys only if no such record was written before that.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import trio

from shipper.apiserver.client import Client
from shipper.apiserver.errors import Conflict, NotFound
from shipper.apiserver.objects import LEASES, Object, uid, version
from shipper.fleet.kubernetes.objects import FLEET, LEASE, RECORDS, REMOVED, Keys, lease_label, seconds_under
from shipper.fleet.kubernetes.removal import remove
from shipper.fleet.store import Lease
from shipper.sdk.retry import hasty

LONGEST = 86400.0


class Leases:
    """Those of one client; every method raises ApiError."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client, self._keys = client, keys
        self._known: dict[int, Object] = {}
        """The Lease objects of this client's leases, as it saw them last."""

    async def grant(self, seconds: float) -> Lease:
        """Returns a new lease."""
        lease = Lease(secrets.randbits(63) | 1, float(math.ceil(seconds)))
        self._known[lease.id] = await self._client.create(LEASES, self._object(lease))
        return lease

    async def renew(self, lease: Lease) -> bool:
        """Writes the object; returns whether it was there."""
        pauses = hasty()
        while True:
            known = self._known.get(lease.id)
            try:
                if known is None:  # the answer to its last write was lost
                    known = await self._client.get(LEASES, self._keys.lease(lease.id))
                wanted = self._object(lease, known)
                self._known.pop(lease.id, None)
                self._known[lease.id] = await self._client.replace(LEASES, self._keys.lease(lease.id), wanted)
            except Conflict:
                await trio.sleep(next(pauses))
            except NotFound:
                return False
            else:
                return True

    async def exists(self, lease: Lease) -> bool:
        """Returns whether the lease has not ended."""
        try:
            await self._client.get(LEASES, self._keys.lease(lease.id))
        except NotFound:
            return False
        return True

    async def end(self, id: str, uid: str, version: str) -> bool:
        """Ends a lease; returns False, and does nothing, if it was renewed after this version."""
        try:
            await self._client.delete(LEASES, self._keys.lease(int(id, 16)), uid=uid, version=version)
        except NotFound:
            return True
        except Conflict:
            return False
        return True

    async def revoke(self, lease: Lease) -> None:
        """Ends a lease, and removes its keys."""
        self._known.pop(lease.id, None)
        with suppress(NotFound):
            await self._client.delete(LEASES, self._keys.lease(lease.id))
        selector = f"{self._keys.selector()},{LEASE}={lease_label(lease.id)},!{REMOVED}"
        pauses = hasty()
        while True:
            found = await self._client.list(RECORDS, labels=selector, metadata_only=True)
            under = [item for item in found.items if seconds_under(item) is not None]
            if not under:
                return
            for item in under:
                await remove(self._client, self._keys, item)
            await trio.sleep(next(pauses))

    def _object(self, lease: Lease, before: Object | None = None) -> Object:
        label = lease_label(lease.id)
        metadata: dict[str, Any] = {
            "name": self._keys.lease(lease.id),
            "labels": {FLEET: self._keys.label, LEASE: label},
        }
        if before is not None:
            metadata |= {"uid": uid(before), "resourceVersion": version(before)}
        return lease_object(metadata, label, lease.seconds)


def lease_object(metadata: Mapping[str, Any], holder: str, seconds: float) -> Object:
    """Returns a Lease that is renewed now; its times are for people, and nobody here compares them."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": max(1, math.ceil(seconds)), "renewTime": now}
    return {"apiVersion": LEASES.api_version, "kind": LEASES.name, "metadata": dict(metadata), "spec": spec}


def seconds_of(found: Mapping[str, Any]) -> float:
    """Returns the seconds of a Lease."""
    spec = found.get("spec")
    seconds = spec.get("leaseDurationSeconds") if isinstance(spec, Mapping) else None
    return max(1.0, min(float(seconds), LONGEST)) if isinstance(seconds, int) else LONGEST
