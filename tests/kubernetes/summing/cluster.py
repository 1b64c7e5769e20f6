"""A namespace of a real API server with the kinds of shipper.dev, and members that a test plays by writing objects."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import trio

from shipper.apiserver.client import Client, connected
from shipper.apiserver.config import find
from shipper.kubernetes.kinds import MEMBER_LEASE, POLICIES, RELEASED
from shipper.kubernetes.summing import records
from shipper.kubernetes.summing.leader import Leader
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import Api, Object, path

API = POLICIES.api_version
LEASES_API = "coordination.k8s.io/v1"
PATIENCE = 60.0


@dataclass
class Told:
    """What a leader has said."""

    troubles: dict[str, str] = field(default_factory=dict)
    all_troubles: list[tuple[str, str | None]] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)

    def trouble(self, cause: str, text: str | None) -> None:
        self.all_troubles.append((cause, text))
        if text is None:
            self.troubles.pop(cause, None)
        else:
            self.troubles[cause] = text


@dataclass
class Cluster:
    """Requests of an administrator, in threads; each returns what the server has answered."""

    kubernetes: Kubernetes
    namespace: str

    @property
    def admin(self) -> Api:
        return self.kubernetes.admin

    async def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return await trio.to_thread.run_sync(functools.partial(function, *args, **named))

    def path(self, plural: str, name: str = "", sub: str = "", api: str = API) -> str:
        return path(plural, self.namespace, name, sub, api=api)

    async def until(self, holds: Callable[[], Any], what: str = "it holds", seconds: float = PATIENCE) -> Any:
        """Asks in a thread until the answer is true; returns it."""
        with trio.move_on_after(seconds):
            while not (found := await self.call(holds)):  # noqa: ASYNC110 - the server is asked
                await trio.sleep(0.03)
            return found
        raise AssertionError(f"not within {seconds:g} s: {what}")

    # -- policies ------------------------------------------------------------------------------------------------------

    async def policy(self, name: str = "web", **spec: Any) -> Object:
        made = {
            "apiVersion": API,
            "kind": "ShipperPolicy",
            "metadata": {"name": name},
            "spec": {"policy": {"version": 1}, **spec},
        }
        return await self.call(self.admin.create, self.path("shipperpolicies"), made)

    async def edit(self, name: str = "web", **text: Any) -> int:
        """Changes the text of a policy; returns the generation."""
        found = await self.call(self.admin.patch, self.path("shipperpolicies", name), {"spec": {"policy": text}})
        return int(found["metadata"]["generation"])

    def status(self, name: str = "web") -> Object:
        return self.admin.get(self.path("shipperpolicies", name)).get("status", {})

    def condition(self, type: str, name: str = "web") -> Object:
        return next((one for one in self.status(name).get("conditions", ()) if one["type"] == type), {})

    async def until_condition(self, type: str, status: str, generation: int, name: str = "web", **more: Any) -> Object:
        def holds() -> Object | None:
            found = self.condition(type, name)
            wanted = {"status": status, "observedGeneration": generation, **more}
            return found if wanted.items() <= found.items() else None

        try:
            return await self.until(holds, f"{type} {status} of {generation}")
        except AssertionError:
            raise AssertionError(json.dumps(await self.call(self.status, name), indent=1)) from None

    # -- Secrets -------------------------------------------------------------------------------------------------------

    async def secret(self, name: str = "es", **content: str) -> Object:
        """Creates or changes a Secret."""
        made = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": {"shipper.dev/use": "credential"}},
            "stringData": content,
        }
        [found] = await self.call(self.admin.apply, [made], self.namespace)
        return found

    def released(self, name: str = "es") -> records.Release:
        answer = self.admin.call("GET", self.path("shippersecrets", name))
        return records.release(answer.body if answer.status == 200 else {"metadata": {}})

    def bound(self, secret: Object, key: str = "api_key") -> str:
        found = self.released(secret["metadata"]["name"]).status
        uid = secret["metadata"]["uid"]
        return next((one.released_before for one in found.credentials if (one.uid, one.key) == (uid, key)), "")

    async def until_bound(self, secret: Object, version: str, key: str = "api_key") -> None:
        def holds() -> bool:
            return int(self.bound(secret, key) or 0) >= int(version)

        try:
            await self.until(holds, f"released before {version}")
        except AssertionError:
            raise AssertionError(repr(await self.call(self.released))) from None


@dataclass
class Played:
    """A member whose objects the test writes."""

    cluster: Cluster
    name: str
    directory: str = ""
    version: str = ""
    _renewals: int = 0

    def __post_init__(self) -> None:
        self.directory = self.directory or f"dir-{self.name}"

    @property
    def lease(self) -> str:
        return self.cluster.path("leases", MEMBER_LEASE + self.name, api=LEASES_API)

    async def create(
        self, *, seconds: float = 40, labels: Mapping[str, str] = {}, spec: Mapping[str, Any] = {}, lease: bool = True
    ) -> Played:
        """As a member begins: its object, its Lease, its first report."""
        made = {
            "apiVersion": API,
            "kind": "ShipperMember",
            "metadata": {"name": self.name, "labels": dict(labels)},
            "spec": dict(spec),
        }
        cluster = self.cluster
        await cluster.call(cluster.admin.create, cluster.path("shippermembers"), made)
        if lease:
            await self.claim(seconds=seconds)
        await self.report()
        return self

    async def claim(self, *, seconds: float = 40) -> None:
        held = {"holderIdentity": f"{self.directory}/boot/p", "leaseDurationSeconds": seconds, "renewTime": _now()}
        made = {
            "apiVersion": LEASES_API,
            "kind": "Lease",
            "metadata": {"name": MEMBER_LEASE + self.name},
            "spec": held,
        }
        await self.cluster.call(self.cluster.admin.create, self.cluster.path("leases", api=LEASES_API), made)

    async def renew(self) -> Object:
        """Renews its Lease as it is now."""
        found = await self.cluster.call(self.cluster.admin.get, self.lease)
        found["spec"]["renewTime"] = _now()
        return await self.cluster.call(self.cluster.admin.replace, self.lease, found)

    async def bounds(self) -> dict[str, str]:
        found = await self.cluster.call(self.cluster.admin.get, self.lease)
        return records.bounds(found["metadata"].get("annotations", {}).get(RELEASED, ""))

    async def report(self, *policies: Object, using: tuple[Object, ...] = (), **status: Any) -> None:
        """Writes its whole status."""
        written = {"process": f"{self.directory}/p", "policies": list(policies), "using": list(using), **status}
        where = self.cluster.path("shippermembers", self.name, "status")
        await self.cluster.call(self.cluster.admin.patch, where, {"status": written})


def entry(policy: Object, generation: int, stage: str, **more: Any) -> Object:
    of = policy["metadata"]
    return {"name": of["name"], "uid": of["uid"], "generation": generation, "stage": stage, **more}


def using(secret: Object, version: str = "", key: str = "api_key") -> Object:
    of = secret["metadata"]
    return {"secret": of["name"], "uid": of["uid"], "key": key, "resourceVersion": version or of["resourceVersion"]}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@asynccontextmanager
async def client_of(cluster: Cluster, *, url: str = "", token: str = "") -> AsyncIterator[Client]:
    file = cluster.kubernetes.directory / f"kubeconfig-{cluster.namespace}-{abs(hash((url, token)))}"
    shown = token or cluster.kubernetes.token
    cluster.kubernetes.kubeconfig(file, shown, namespace=cluster.namespace, url=url)
    async with connected(find({}, kubeconfig=str(file))) as client:
        yield client


@asynccontextmanager
async def leading(
    cluster: Cluster, identity: str = "one/boot/p", *, url: str = "", token: str = "", seconds: float = 15, **more: Any
) -> AsyncIterator[tuple[Leader, Told]]:
    """A candidate that runs until the end of the block."""
    told = Told()
    async with client_of(cluster, url=url, token=token) as client, trio.open_nursery() as nursery:
        leader = Leader(client, identity, seconds, trouble=told.trouble, say=told.sentences.append, **more)
        nursery.start_soon(leader.run)
        yield leader, told
        nursery.cancel_scope.cancel("the test has ended")


async def until_leading(leader: Leader) -> int:
    with trio.fail_after(PATIENCE):
        while leader.token is None:  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(0.01)
    return leader.token
