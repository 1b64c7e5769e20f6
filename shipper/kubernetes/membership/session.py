"""The member's own objects: its ShipperMember, and its Lease.

Every method raises ApiError, but for what a step has an answer None for: the object is another one by now, or is gone.
"""

from __future__ import annotations

from typing import Any

from shipper.apiserver.client import Client
from shipper.apiserver.errors import AlreadyExists, Conflict, Invalid, NotFound
from shipper.apiserver.objects import LEASES, Kind, Object, uid, version
from shipper.kubernetes.kinds import MEMBER_LEASE, MEMBERS
from shipper.kubernetes.member.steps import Adjust, Create, Found, Hold, Write
from shipper.kubernetes.membership.troubles import CrdOutdated


class Session:
    """One member, on the API server."""

    def __init__(self, client: Client, name: str, seconds: float) -> None:
        """No call lasts longer than `seconds`."""
        self._client, self._name, self._seconds = client, name, seconds

    async def look(self) -> Found:
        """Reads the Lease and then the ShipperMember."""
        lease = await self._get(LEASES, MEMBER_LEASE + self._name)
        return Found(await self._get(MEMBERS, self._name), lease)

    async def create(self, step: Create) -> Object | None:
        """Creates the ShipperMember; None if there is one."""
        try:
            return await self._client.create(MEMBERS, step.object, seconds=self._seconds)
        except AlreadyExists:
            return None

    async def adjust(self, step: Adjust) -> Object | None:
        """Patches labels and spec of the ShipperMember."""
        return await self._patch(step.patch)

    async def hold(self, step: Hold) -> Object | None:
        """Creates or replaces the Lease."""
        lease = step.lease
        try:
            if version(lease):
                name = MEMBER_LEASE + self._name
                return await self._client.replace(LEASES, name, lease, seconds=self._seconds)
            return await self._client.create(LEASES, lease, seconds=self._seconds)
        except (AlreadyExists, Conflict):
            return None
        except NotFound:
            if not version(lease):
                raise
            return None

    async def write(self, step: Write) -> Object | None:
        """Patches the status; raises CrdOutdated if the answer lacks what was written."""
        found = await self._patch(step.patch, subresource="status")
        if found is not None and (lost := _lost(step.patch.get("status"), found.get("status"))):
            raise CrdOutdated(f"the API server has dropped what was written to the status of this member: {lost}")
        return found

    async def _get(self, kind: Kind, name: str) -> Object | None:
        try:
            return await self._client.get(kind, name, seconds=self._seconds)
        except NotFound:
            return None

    async def _patch(self, patch: Object, *, subresource: str = "") -> Object | None:
        at = {"uid": uid(patch), "version": version(patch)}
        try:
            return await self._client.patch(
                MEMBERS, self._name, patch, subresource=subresource, seconds=self._seconds, **at
            )
        except (Conflict, NotFound):
            return None
        except Invalid as error:
            if "unknown field" in str(error):
                raise CrdOutdated(str(error)) from None
            raise


def _lost(written: Any, found: Any, path: str = "status") -> str:
    """Returns the path of a field that was written and is not there; empty if there is none.

    Lists are replaced as a whole by a merge patch, so their items are compared one by one.
    """
    if isinstance(written, dict):
        kept = found if isinstance(found, dict) else {}
        for key, value in written.items():
            if value is not None and key not in kept:
                return f"{path}.{key}"
            if lost := _lost(value, kept.get(key), f"{path}.{key}"):
                return lost
    if isinstance(written, list):
        there = found if isinstance(found, list) else []
        if len(there) != len(written):
            return path
        pairs = enumerate(zip(written, there, strict=True))
        return next((lost for at, (one, other) in pairs if (lost := _lost(one, other, f"{path}[{at}]"))), "")
    return ""
