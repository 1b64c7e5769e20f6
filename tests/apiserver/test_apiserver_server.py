"""The client and the reflector against a real API server."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.apiserver import client as client_module
from shipper.apiserver.client import Client, connected
from shipper.apiserver.config import find
from shipper.apiserver.errors import (
    AlreadyExists,
    Conflict,
    Invalid,
    NotFound,
    Unauthorized,
    Unreachable,
)
from shipper.apiserver.objects import LEASES, SECRETS, Kind, name, uid, version
from shipper.apiserver.reflector import Reflector
from shipper.apiserver.versions import compare, is_older
from tests.apiserver.told import Told
from tests.backends import kubernetes as backend
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import path

pytestmark = pytest.mark.backend

MAPS = Kind("", "v1", "configmaps", "ConfigMap")
ALL = [{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["*"]}]


@asynccontextmanager
async def as_user(server: Kubernetes, namespace: str, number: int = 0) -> AsyncIterator[Client]:
    """The client of a user, or of the administrator."""
    file, token = server.directory / f"kubeconfig-{number}", server.user_token(number) if number else server.token
    config = find({}, kubeconfig=str(server.kubeconfig(file, token, namespace=namespace)))
    async with connected(config) as client:
        yield client


def a_map(name: str, **content: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": content}


# -- requests ----------------------------------------------------------------------------------------------------------


async def test_an_object_is_created_read_changed_and_deleted(kubernetes: Kubernetes, namespace: str):
    async with as_user(kubernetes, namespace) as client:
        made = await client.create(MAPS, a_map("a", k="1"))
        assert await client.get(MAPS, "a") == made

        patched = await client.patch(MAPS, "a", {"data": {"k": "2"}}, uid=uid(made), version=version(made))
        assert compare(version(patched), version(made)) == 1
        replaced = await client.replace(MAPS, "a", {**patched, "data": {"k": "3"}})
        assert replaced["data"] == {"k": "3"}

        await client.delete(MAPS, "a", uid=uid(made))
        with pytest.raises(NotFound):
            await client.get(MAPS, "a")


async def test_a_write_for_another_state_is_a_conflict_and_changes_nothing(kubernetes: Kubernetes, namespace: str):
    async with as_user(kubernetes, namespace) as client:
        made = await client.create(MAPS, a_map("a", k="1"))
        newer = await client.patch(MAPS, "a", {"data": {"k": "2"}})
        with pytest.raises(Conflict):
            await client.patch(MAPS, "a", {"data": {"k": "3"}}, version=version(made))
        with pytest.raises(Conflict):
            await client.patch(MAPS, "a", {"data": {"k": "3"}}, uid="another")
        with pytest.raises(Conflict):
            await client.replace(MAPS, "a", made)
        with pytest.raises(Conflict):
            await client.delete(MAPS, "a", uid="another")
        with pytest.raises(AlreadyExists):
            await client.create(MAPS, a_map("a"))

        assert await client.get(MAPS, "a") == newer


async def test_a_patch_that_changes_nothing_returns_the_version_that_there_was(kubernetes: Kubernetes, namespace: str):
    async with as_user(kubernetes, namespace) as client:
        made = await client.create(MAPS, a_map("a", k="1"))

        assert version(await client.patch(MAPS, "a", {"data": {"k": "1"}})) == version(made)


@pytest.mark.parametrize("can_stream", [True, False])
async def test_a_reflector_of_metadata_gets_no_content_of_a_secret(
    kubernetes: Kubernetes, namespace: str, can_stream: bool
):
    told, got = Told(), []

    def heed(event: Any) -> None:
        got.append(event.object)
        told.heed(event)

    async with as_user(kubernetes, namespace) as client, trio.open_nursery() as nursery:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "1"}}
        await client.create(SECRETS, secret)
        reflector = Reflector(
            client,
            SECRETS,
            fields="metadata.name=a",
            metadata_only=True,
            heed=heed,
            trouble=told.trouble,
        )
        reflector._can_stream = can_stream
        nursery.start_soon(reflector.run)
        with trio.fail_after(60):
            await reflector.synced()
            changed = await client.patch(SECRETS, "a", {"stringData": {"k": "2"}})
            await told.wait_until(lambda: version(reflector.objects["a"]) == version(changed))
        nursery.cancel_scope.cancel("all was seen")

    assert not any("data" in one for one in got)
    assert name(got[0]) == "a"


async def test_an_unknown_field_is_refused(kubernetes: Kubernetes, namespace: str):
    async with as_user(kubernetes, namespace) as client:
        with pytest.raises(Invalid, match="unknown field"):
            await client.create(MAPS, {**a_map("a"), "dataa": {}})


async def test_a_lease_needs_microseconds(kubernetes: Kubernetes, namespace: str):
    def lease(at: str) -> dict[str, Any]:
        spec = {"holderIdentity": "x", "leaseDurationSeconds": 40, "renewTime": at}
        return {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": {"name": "a"}, "spec": spec}

    async with as_user(kubernetes, namespace) as client:
        made = await client.create(LEASES, lease("2026-01-02T03:04:05.000000Z"))

        assert made["spec"]["holderIdentity"] == "x"
        with pytest.raises(Invalid):
            await client.create(LEASES, {**lease("2026-01-02"), "metadata": {"name": "b"}})


async def test_pages_of_a_list_are_one_state(kubernetes: Kubernetes, namespace: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "PAGE", 7)
    async with as_user(kubernetes, namespace) as client:
        for number in range(30):
            await client.create(MAPS, a_map(f"a{number:02}"))
        found = await client.list(MAPS)

    assert [name(item) for item in found.items] == [f"a{number:02}" for number in range(30)]
    assert all(compare(version(item), found.version) in (-1, 0) for item in found.items)


async def test_k8_the_version_of_a_list_is_that_of_no_item(kubernetes: Kubernetes, namespace: str):
    async with as_user(kubernetes, namespace) as client:
        made = await client.create(MAPS, a_map("a"))
        await client.create(SECRETS, {"metadata": {"name": "s"}})
        found = await client.list(MAPS)

    assert [version(item) for item in found.items] == [version(made)]
    assert is_older(version(made), found.version), "the writes of other kinds count"


# -- credentials -------------------------------------------------------------------------------------------------------


async def test_a_pod_asks_as_its_service_account_and_takes_its_next_token(
    kubernetes: Kubernetes, namespace: str, tmp_path: Path
):
    """A token of a deleted ServiceAccount is refused after the server's cache of 10 s; the file has a good one then."""
    for account in ("old", "new"):
        kubernetes.account(namespace, account)
        kubernetes.grant(namespace, f"account:{account}", ALL)
    variables = kubernetes.mount(tmp_path, namespace, "old")
    config = find({**variables, "SHIPPER_SERVICE_ACCOUNT": str(tmp_path)})
    assert config.namespace == namespace

    async with connected(config) as client:
        await client.create(MAPS, a_map("a"))
        kubernetes.admin.delete(path("serviceaccounts", namespace, "old"))
        await until_refused(client)
        (tmp_path / "token").write_text(kubernetes.account_token(namespace, "new"))

        assert name(await client.get(MAPS, "a")) == "a"


async def until_refused(client: Client) -> None:
    with trio.fail_after(60), suppress(Unauthorized):
        while await client.get(MAPS, "a"):  # noqa: ASYNC110 - no event tells that a cache has forgotten
            await trio.sleep(0.2)


async def test_a_certificate_is_taken(kubernetes: Kubernetes, namespace: str, tmp_path: Path):
    certificate, key = kubernetes.certificate("user-902", backend.GROUP)
    kubernetes.grant(namespace, "user-902", ALL)
    file = kubernetes.kubeconfig(tmp_path / "c", "", namespace=namespace)
    text = file.read_text().replace("token: ''", f"client-certificate: {certificate}\n    client-key: {key}")
    file.write_text(text)

    async with connected(find({}, kubeconfig=str(file))) as client:
        assert (await client.list(MAPS)).items == []


# -- what a reflector tells --------------------------------------------------------------------------------------------


@asynccontextmanager
async def following(client: Client, kind: Kind = MAPS, **more: Any) -> AsyncIterator[tuple[Reflector, Told]]:
    told = Told()
    async with trio.open_nursery() as nursery:
        made = Reflector(client, kind, heed=told.heed, trouble=told.trouble, caught_up=told.note, **more)
        nursery.start_soon(made.run)
        with trio.fail_after(60):
            await made.synced()
        yield made, told
        nursery.cancel_scope.cancel()


async def test_t844_2_every_change_is_told_once_and_in_order(kubernetes: Kubernetes, namespace: str):
    async with as_user(kubernetes, namespace) as client:
        made = await client.create(MAPS, a_map("a", n="0"))
        async with following(client) as (reflector, told):
            assert told.events == [("ADDED", "a", version(made)), ("SYNCED", "", reflector.seen)]
            written = [version(await client.patch(MAPS, "a", {"data": {"n": str(n)}})) for n in range(1, 61)]
            await client.delete(MAPS, "a")
            again = await client.create(MAPS, a_map("a"))
            with trio.fail_after(60):
                await told.wait_for("ADDED", "a", version(again))

            assert [at for type, _, at in told.events if type == "MODIFIED"] == written
            assert [type for type, _, _ in told.events[-2:]] == ["DELETED", "ADDED"]
            assert told.troubles == []


async def test_one_object_of_a_kind_is_followed_by_its_name(kubernetes: Kubernetes, namespace: str):
    """As a Secret is, with a right for this name alone."""
    named = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"], "resourceNames": ["es"]}]
    kubernetes.grant(namespace, "user-903", named)
    async with (
        as_user(kubernetes, namespace) as admin,
        as_user(kubernetes, namespace, 903) as client,
    ):
        await admin.create(SECRETS, {"metadata": {"name": "other"}})
        async with following(client, SECRETS, fields="metadata.name=es") as (reflector, told):
            made = await admin.create(SECRETS, {"metadata": {"name": "es"}})
            with trio.fail_after(60):
                await told.wait_for("ADDED", "es", version(made))

            assert [*reflector.objects] == ["es"]


# -- faults of the server ----------------------------------------------------------------------------------------------


async def test_t844_6_a_restart_of_the_server_costs_no_change(kubernetes: Kubernetes, namespace: str):
    """It has no history afterwards, so a watch of what was seen last is told that this version is gone."""
    async with as_user(kubernetes, namespace) as client:
        await client.create(MAPS, a_map("gone"))
        await client.create(MAPS, a_map("kept", n="1"))
        async with following(client) as (reflector, told):
            await trio.to_thread.run_sync(kubernetes.kill)
            with trio.fail_after(60):
                await told.wait_until(lambda: told.troubles)
            await trio.to_thread.run_sync(kubernetes.start)
            admin = kubernetes.admin
            await trio.to_thread.run_sync(admin.delete, path("configmaps", namespace, "gone"))
            last = await trio.to_thread.run_sync(
                admin.patch, path("configmaps", namespace, "kept"), {"data": {"n": "2"}}
            )
            with trio.fail_after(60):
                await told.wait_until(lambda: version(reflector.objects["kept"]) == version(last))
                await told.wait_until(lambda: told.troubles[-1] is None)

            assert [*reflector.objects] == ["kept"]
            assert told.troubles[0] is not None
            assert told.troubles[0].startswith(f"changes of configmaps in namespace {namespace} have not been seen")
            types = [(type, of) for type, of, _ in told.events]
            assert types.count(("DELETED", "gone")) == 1
            assert types.count(("ADDED", "kept")) == 1


async def test_t844_6_an_etcd_that_restarts_under_a_watch_loses_nothing(kubernetes: Kubernetes, namespace: str):
    async with as_user(kubernetes, namespace) as client, following(client) as (_, told):
        await client.create(MAPS, a_map("a"))
        kubernetes.etcd.kill()
        with pytest.raises(Unreachable, match="no answer within 1 s"):
            await client.get(MAPS, "a", seconds=1)
        await trio.to_thread.run_sync(kubernetes.start_etcd)
        with trio.fail_after(60):
            while True:
                try:
                    made = await client.create(MAPS, a_map("b"))
                    break
                except (Unreachable, AlreadyExists):
                    await trio.sleep(0.2)
            await told.wait_for("ADDED", "b", version(made))

        assert [of for type, of, _ in told.events if type == "ADDED"] == ["a", "b"]


async def test_t844_6_a_restored_etcd_is_told_as_what_it_has(kubernetes: Kubernetes, namespace: str, tmp_path: Path):
    """Its versions go on from an older one, so a watch of the newest seen version would be silent for ever."""
    data = kubernetes.directory / "etcd"
    async with as_user(kubernetes, namespace) as client:
        await client.create(MAPS, a_map("a", n="old"))
        kubernetes.etcd.kill()
        shutil.copytree(data, tmp_path / "copy")
        await trio.to_thread.run_sync(kubernetes.start)
        for number in range(100):
            await client.patch(MAPS, "a", {"data": {"n": str(number)}})
        await client.create(MAPS, a_map("b"))
        async with following(client) as (reflector, told):
            assert {*reflector.objects} == {"a", "b"}
            await trio.to_thread.run_sync(kubernetes.stop)
            shutil.rmtree(data)
            shutil.copytree(tmp_path / "copy", data)
            await trio.to_thread.run_sync(kubernetes.start)
            with trio.fail_after(60):
                await told.wait_until(lambda: "b" not in reflector.objects)

            assert reflector.objects["a"]["data"] == {"n": "old"}
            made = await client.patch(MAPS, "a", {"data": {"n": "newest"}})
            with trio.fail_after(60):
                await told.wait_for("MODIFIED", "a", version(made))
