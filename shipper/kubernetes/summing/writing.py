"""What a leader reads by quorum and writes, one request each. Every write names the uid and the version of what it is
for, so that it changes nothing that the leader has not seen; ApiError says what has become of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from shipper.apiserver.client import Client
from shipper.apiserver.errors import Forbidden, NotFound, Unauthorized
from shipper.apiserver.objects import LEASES, PODS, SECRETS, Kind, Object, metadata, uid, version
from shipper.kubernetes.kinds import MEMBER_LEASE, MEMBERS, POLICIES, RELEASED, RELEASES, PolicyStatus, SecretStatus
from shipper.kubernetes.summing import records
from shipper.kubernetes.summing.records import Lease, Member, Policy, Release
from shipper.kubernetes.summing.release import Secret


class OldKind(Exception):
    """The answer to a write does not show what was written: the CustomResourceDefinition is of another shipper."""


@dataclass(frozen=True)
class Crowd:
    """Members as a quorum read has them, and the Leases after them."""

    members: Sequence[Member]
    leases: Mapping[str, Object]
    """By the name of the Lease, as they are written."""


class Writing:
    """The requests of a leader."""

    def __init__(self, client: Client, token: int) -> None:
        self._client, self._token = client, token

    # -- reads ---------------------------------------------------------------------------------------------------------

    async def crowd(self) -> Crowd:
        """Lists members, and Leases after that."""
        members = await self._client.list(MEMBERS)
        return Crowd([records.member(one) for one in members.items], await self.leases())

    async def leases(self) -> dict[str, Object]:
        """Lists the Leases of members, by name."""
        found = await self._client.list(LEASES)
        return {name: one for one in found.items if (name := str(metadata(one)["name"])).startswith(MEMBER_LEASE)}

    async def secret(self, name: str) -> Secret:
        """Reads the version of a Secret, and nothing of its content; raises Forbidden, Unauthorized."""
        found = await self._client.list(SECRETS, fields=f"metadata.name={name}", metadata_only=True)
        return (
            Secret(name, version(found.items[0]), uid(found.items[0])) if found.items else Secret(name, found.version)
        )

    async def pod_is_gone(self, member: Member) -> bool:
        """Whether the Pod of a member is not there any more."""
        pod = member.spec.pod
        if pod is None:
            return False
        try:
            return uid(await self._client.get(PODS, pod.name)) != pod.uid
        except NotFound:
            return True

    async def policy(self, name: str) -> Object:
        """Reads a policy."""
        return await self._client.get(POLICIES, name)

    async def release(self, name: str) -> Object:
        """Reads a ShipperSecret."""
        return await self._client.get(RELEASES, name)

    # -- writes --------------------------------------------------------------------------------------------------------

    async def claim(self, kind: Kind, of: Policy | Release) -> Object:
        """Writes the token into an object, before anything is concluded for it."""
        return await self._status(kind, of, {"leader": self._token})

    async def judged(self, of: Policy, status: PolicyStatus) -> Object:
        """Writes the status of a policy; raises OldKind, too."""
        found = await self._status(POLICIES, of, msgspec.to_builtins(status))
        if records.policy(found).status != status:
            raise OldKind
        return found

    async def released(self, of: Release, status: SecretStatus) -> Object:
        """Writes the status of a ShipperSecret; raises OldKind, too."""
        found = await self._status(RELEASES, of, msgspec.to_builtins(status))
        if records.release(found).status != status:
            raise OldKind
        return found

    async def create_release(self, name: str) -> Object:
        """Makes the ShipperSecret of a Secret."""
        made = {"apiVersion": RELEASES.api_version, "kind": RELEASES.name, "metadata": {"name": name}}
        return await self._client.create(RELEASES, made)

    async def finalizers(self, of: Policy, at: str, finalizers: Sequence[str]) -> Object:
        """Writes the finalizers of a policy at a version."""
        patch = {"metadata": {"finalizers": list(finalizers)}}
        return await self._client.patch(POLICIES, of.name, patch, uid=of.uid, version=at)

    async def fence(self, lease: Object, bounds: Mapping[str, str]) -> Object:
        """Writes bounds into a member's Lease as it was read; a renewal since then is a Conflict."""
        found = records.lease(lease)
        text = msgspec.json.encode({**found.bounds, **bounds}).decode()
        of = metadata(lease)
        annotations = {**(of.get("annotations") or {}), RELEASED: text}
        return await self._client.replace(LEASES, found.name, {**lease, "metadata": {**of, "annotations": annotations}})

    async def forget(self, member: Member, lease: Lease | None) -> None:
        """Deletes what is left of a member that has ended: its Lease first, so that no Lease stays without a member."""
        if lease is not None:
            with suppress(NotFound):
                await self._client.delete(LEASES, lease.name, uid=lease.uid, version=lease.version)
        await self._client.delete(MEMBERS, member.name, uid=member.uid, version=member.version)

    async def _status(self, kind: Kind, of: Policy | Release, status: Mapping[str, Any]) -> Object:
        patch = {"status": status}
        return await self._client.patch(kind, of.name, patch, subresource="status", uid=of.uid, version=of.version)


NO_RIGHT = (Forbidden, Unauthorized)
