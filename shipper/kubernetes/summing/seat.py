"""The Lease `shipper-leader` as one candidate sees, swaps and renews it."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime

import trio

from shipper.apiserver.client import Client
from shipper.apiserver.errors import Conflict, NotFound
from shipper.apiserver.objects import LEASES, Event, Object
from shipper.apiserver.reflector import Reflector
from shipper.apiserver.versions import is_older
from shipper.kubernetes.kinds import LEADER_LEASE
from shipper.kubernetes.summing import records
from shipper.kubernetes.summing.liveness import LONGEST, margin
from shipper.process.environment import Environment


class Lost(Exception):
    """Another holder has the Lease."""


class Seat:
    """See the module. Its requests raise ApiError."""

    def __init__(self, client: Client, identity: str, seconds: float, environment: Environment) -> None:
        self._client, self._identity, self._seconds, self._environment = client, identity, seconds, environment
        self._seen: records.Lease | None = None
        self._object: Object = {}
        self._since = -math.inf
        """When the Lease was first seen as it is."""
        self._changed = trio.Event()

    # -- seen ----------------------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Reads the Lease by quorum."""
        try:
            self._saw(await self._client.get(LEASES, LEADER_LEASE))
        except NotFound:
            self._saw(None)

    def reflector(self, trouble: Callable[[str | None], None]) -> Reflector:
        """Returns what follows the Lease while it runs."""
        return Reflector(
            self._client,
            LEASES,
            fields=f"metadata.name={LEADER_LEASE}",
            heed=self._heed,
            trouble=trouble,
            environment=self._environment,
        )

    def _heed(self, event: Event) -> None:
        if event.type != "SYNCED":
            self._saw(None if event.type == "DELETED" else event.object)

    def _saw(self, found: Object | None) -> None:
        new = None if found is None else records.lease(found)
        old = self._seen
        if new is not None and old is not None and new.uid == old.uid and is_older(new.version, old.version):
            return
        if (old and old.mark) != (new and new.mark):
            self._since = self._environment.boottime()
        self._seen, self._object = new, found or {}
        self._changed.set()
        self._changed = trio.Event()

    async def vacant(self) -> None:
        """Returns when the Lease may be taken."""
        while True:
            seen, changed = self._seen, self._changed
            if seen is None or seen.holder in ("", self._identity):
                return
            seconds = min(max(seen.seconds, 0.0), LONGEST)
            left = self._since + seconds + margin(seconds) - self._environment.boottime()
            if left <= 0:
                return
            with trio.move_on_after(left):
                await changed.wait()

    async def lost(self, token: int) -> None:
        """Returns when another holder was seen than this candidate with this token."""
        while self._is_ours(token):
            await self._changed.wait()

    def _is_ours(self, token: int) -> bool:
        seen = self._seen
        return seen is not None and (seen.holder, seen.transitions) == (self._identity, token)

    # -- swapped -------------------------------------------------------------------------------------------------------

    async def take(self, floor: int) -> int:
        """Swaps the Lease for one of this candidate; returns its token, which is above `floor`, too."""
        before = self._seen
        token = max(before.transitions if before else 0, floor) + 1
        now, patience = self._now(), max(2.0, self._seconds / 2)
        spec = {**self._spec(now, token), "acquireTime": now}
        if before is None:
            named = {"apiVersion": LEASES.api_version, "kind": LEASES.name, "metadata": {"name": LEADER_LEASE}}
            found = await self._client.create(LEASES, {**named, "spec": spec}, seconds=patience)
        else:
            found = await self._client.replace(LEASES, LEADER_LEASE, {**self._object, "spec": spec}, seconds=patience)
        self._saw(found)
        return token

    async def renew(self, token: int) -> None:
        """Renews the Lease; raises Lost, too."""
        try:
            spec = {**(self._object.get("spec") or {}), **self._spec(self._now(), token)}
            found = await self._client.replace(LEASES, LEADER_LEASE, {**self._object, "spec": spec})
        except (Conflict, NotFound):
            await self.look()
            if not self._is_ours(token):
                raise Lost from None
            raise
        self._saw(found)

    async def release(self, token: int) -> None:
        """Gives the Lease back, so that the next candidate need not wait."""
        if not self._is_ours(token):
            return
        spec = {**(self._object.get("spec") or {}), "holderIdentity": "", "renewTime": self._now()}
        self._saw(await self._client.replace(LEASES, LEADER_LEASE, {**self._object, "spec": spec}))

    def _spec(self, now: str, token: int) -> Object:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, math.ceil(self._seconds)),
            "renewTime": now,
            "leaseTransitions": token,
        }

    def _now(self) -> str:
        return datetime.fromtimestamp(self._environment.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
