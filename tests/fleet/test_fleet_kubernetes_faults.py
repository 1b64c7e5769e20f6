"""The store on an API server where answers are lost, watches lie, rights are missing, and nobody ends leases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
import trio.testing

from shipper.apiserver import watching
from shipper.apiserver.credentials import FixedToken
from shipper.apiserver.reflector import Reflector
from shipper.fleet.kubernetes import keeper
from shipper.fleet.kubernetes.leases import Leases, lease_object
from shipper.fleet.kubernetes.objects import Keys
from shipper.fleet.kubernetes.store import ApiServer, open_kubernetes
from shipper.fleet.store import ABSENT, Compacted, LeaseEnded, Store, StoreError, StoreRefused, StoreUnreachable
from tests.apiserver.server import Exchange, configuration, scripted
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import path
from tests.backends.kubernetes_proxy import Proxy, open_proxy
from tests.fleet import kubernetes as fleets
from tests.fleet.conformance import take
from tests.fleet.kubernetes import LEASES, NAMESPACE, Place

PATIENCE = 60.0
RECORDS_PATH = "shipperfleetrecords"


@pytest.fixture
def cluster(api_server: Kubernetes) -> Kubernetes:
    return api_server


@pytest.fixture
async def proxy(cluster: Kubernetes) -> AsyncIterator[Proxy]:
    async with open_proxy(cluster) as found:
        yield found


@pytest.fixture
def place(cluster: Kubernetes, proxy: Proxy) -> Place:
    """A fleet whose clients go through the proxy."""
    return Place(cluster, proxy.url)


@pytest.fixture
async def store(place: Place) -> AsyncIterator[ApiServer]:
    with trio.fail_after(PATIENCE):
        async with place.client() as found:
            yield found


async def in_thread(call: Callable[..., Any], *arguments: Any) -> Any:
    return await trio.to_thread.run_sync(call, *arguments)


# -- swaps -------------------------------------------------------------------------------------------------------------


@pytest.mark.backend
async def test_a_swap_whose_answer_is_lost_is_sent_once_and_its_effect_is_unknown(store: ApiServer, proxy: Proxy):
    made = await store.swap("head", b"1", expected=ABSENT)
    with proxy.lose_answers(method="PUT", path=RECORDS_PATH), pytest.raises(StoreUnreachable):
        await store.swap("head", b"2", expected=made.at)

    found = await store.read("head")
    assert proxy.count(method="PUT", path=RECORDS_PATH) == 1
    assert found.entry is not None
    assert found.entry.value == b"2"
    assert found.entry.created == made.at
    late = await store.swap("head", b"3", expected=made.at)
    assert not late.done
    assert late.entry == found.entry


@pytest.mark.backend
async def test_a_server_that_wants_fewer_requests_is_obeyed_and_asked_again(store: ApiServer, proxy: Proxy):
    with proxy.throttle(1, times=1, method="POST", path=RECORDS_PATH):
        began = trio.current_time()
        done = await store.swap("head", b"1", expected=ABSENT)

    assert done.done
    assert trio.current_time() - began >= 1.0


@pytest.mark.backend
async def test_a_removal_leaves_no_object(store: ApiServer, place: Place):
    made = await store.swap("secrets/a", b"1", expected=ABSENT)
    await store.swap("secrets/a", None, expected=made.at)

    assert await in_thread(place.records) == []


@pytest.mark.backend
async def test_a_removed_key_whose_object_stays_is_absent_and_may_be_created_again(store: ApiServer, proxy: Proxy):
    made = await store.swap("secrets/a", b"1", expected=ABSENT)
    async with store.watch("secrets/", made.at) as changes:
        with proxy.answer(500, "InternalError", method="DELETE", path=RECORDS_PATH):
            removed = await store.swap("secrets/a", None, expected=made.at)
        assert removed.done
        assert (await store.read("secrets/a")).entry is None
        assert (await store.list("secrets/")).entries == []
        assert (await store.swap("secrets/a", None, expected=ABSENT)).done
        again = await store.swap("secrets/a", b"2", expected=ABSENT)
        seen = await take(changes, 2)

    assert again.entry is not None
    assert again.entry.created == again.at > removed.at
    assert [(change.entry, change.at) for change in seen] == [(None, removed.at), (again.entry, again.at)]


@pytest.mark.backend
async def test_an_object_that_a_person_deletes_is_a_removed_key(store: ApiServer, place: Place, cluster: Kubernetes):
    made = await store.swap("members/web-1", b"1", expected=ABSENT)
    async with store.watch("members/", made.at) as changes:
        name = Keys(place.fleet).name("members/web-1")
        await in_thread(cluster.admin.delete, path(RECORDS_PATH, NAMESPACE, name, api=fleets.RECORDS))
        (change,) = await take(changes, 1)

    assert (change.key, change.entry) == ("members/web-1", None)
    assert change.at > made.at
    assert (await store.swap("members/web-1", b"2", expected=made.at)).entry is None


@pytest.mark.backend
async def test_fleets_of_one_namespace_see_nothing_of_each_other(cluster: Kubernetes):
    with trio.fail_after(PATIENCE):
        async with Place(cluster, fleet="a.b").client() as one, Place(cluster, fleet="A_B").client() as two:
            made = await one.swap("head", b"1", expected=ABSENT)
            async with two.watch("", made.at - 1) as changes:
                other = await two.swap("head", b"2", expected=ABSENT)

                assert other.done
                assert [change.at for change in await take(changes, 1)] == [other.at]
            assert [entry.value for entry in (await one.list("")).entries] == [b"1"]


@pytest.mark.backend
async def test_a_removed_key_is_told_once(store: ApiServer):
    made = await store.swap("secrets/a", b"1", expected=ABSENT)
    async with store.watch("", made.at) as changes:
        removed = await store.swap("secrets/a", None, expected=made.at)
        last = await store.swap("secrets/b", b"", expected=ABSENT)

        assert [(change.key, change.at) for change in await take(changes, 2)] == [
            ("secrets/a", removed.at),
            ("secrets/b", last.at),
        ]


@pytest.mark.backend
async def test_what_a_removal_has_left_goes_with_the_next_keeper(cluster: Kubernetes, proxy: Proxy):
    fleet = Place(cluster, proxy.url)
    with trio.fail_after(PATIENCE):
        with proxy.answer(500, "InternalError", method="DELETE", path=RECORDS_PATH):
            async with fleet.client() as store:
                made = await store.swap("secrets/a", b"1", expected=ABSENT)
                await store.swap("secrets/a", None, expected=made.at)
        assert len(await in_thread(fleet.records)) == 1
        async with fleet.client() as store:
            await store.grant(60)
            while await in_thread(fleet.records):  # noqa: ASYNC110 (of the server)
                await trio.sleep(0.1)


# -- watches -----------------------------------------------------------------------------------------------------------


@pytest.mark.backend
async def test_a_watch_that_is_silently_dead_is_found_and_goes_on_without_a_gap(
    store: ApiServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(watching, "SILENT_SECONDS", 1.5)
    at = (await store.read("head")).at
    async with store.watch("head", at) as changes:
        with trio.move_on_after(0.5):
            await anext(changes)
        await proxy.until(lambda: proxy.watches(path=RECORDS_PATH) > 0)
        with proxy.silence(watch=True, path=RECORDS_PATH):
            done = await store.swap("head", b"1", expected=ABSENT)
            with trio.move_on_after(1):
                await anext(changes)
        seen = await take(changes, 1)

    assert [change.at for change in seen] == [done.at]


@pytest.mark.backend
async def test_a_watch_whose_version_is_too_old_raises(store: ApiServer, proxy: Proxy):
    made = await store.swap("head", b"1", expected=ABSENT)
    async with store.watch("head", made.at) as changes:
        with proxy.gone_in_stream(path=RECORDS_PATH), pytest.raises(Compacted):
            await anext(changes)


@pytest.mark.backend
async def test_a_watch_from_the_future_raises_instead_of_being_silent(store: ApiServer):
    at = (await store.read("head")).at
    async with store.watch("head", at + 1_000_000) as changes:
        with pytest.raises(Compacted, match="it was restored"):
            await anext(changes)


@pytest.mark.backend
async def test_a_watch_that_cannot_be_resumed_raises_and_a_late_heal_is_seen_by_the_next_one(
    store: ApiServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shipper.fleet.kubernetes.watch.SECONDS", 1.0)
    made = await store.swap("head", b"1", expected=ABSENT)
    async with store.watch("head", made.at) as changes:
        with proxy.refuse(), pytest.raises(StoreUnreachable):
            await anext(changes)
        done = await store.swap("head", b"2", expected=made.at)

        assert [change.at for change in await take(changes, 1)] == [done.at]


# -- leases ------------------------------------------------------------------------------------------------------------


@pytest.mark.backend
async def test_a_keeper_whose_watch_is_late_ends_no_lease_that_is_renewed(
    store: ApiServer, place: Place, proxy: Proxy, cluster: Kubernetes
):
    lease = await store.grant(4)
    made = await store.swap("alive/web-1", b"", expected=ABSENT, lease=lease)
    with proxy.delay(60.0, watch=True):
        async with Place(cluster, fleet=place.fleet).client() as member:
            report = await member.swap("members/web-1", b"", expected=ABSENT)
            for _ in range(6):
                await trio.sleep(1)
                report = await member.swap("members/web-1", b"", expected=report.at, renews=lease)

        assert report.done
    assert (await store.read("alive/web-1")).entry == made.entry


@pytest.mark.backend
async def test_a_record_that_renews_a_lease_just_before_its_end_keeps_the_keys_for_its_seconds(
    store: ApiServer, place: Place, monkeypatch: pytest.MonkeyPatch
):
    """The keeper has looked, and has not ended the lease yet."""
    renewed: list[float] = []
    end = Leases.end

    async def late(self: Leases, id: str, uid: str, version: str) -> bool:
        if not renewed:
            renewed.append(trio.current_time())
            await store.swap("members/web-1", b"", expected=ABSENT, renews=lease)
        return await end(self, id, uid, version)

    monkeypatch.setattr(Leases, "end", late)
    lease = await store.grant(2)
    made = await store.swap("alive/web-1", b"", expected=ABSENT, lease=lease)
    async with store.watch("alive/", made.at) as changes:
        (change,) = await take(changes, 1)
        at = trio.current_time()

    assert change.entry is None
    assert at - renewed[0] >= lease.seconds
    report = (await store.read("members/web-1")).entry
    assert report is not None
    with pytest.raises(LeaseEnded):
        await store.swap("members/web-1", b"", expected=report.revision, renews=lease)


@pytest.mark.backend
async def test_a_lease_without_keys_ends_too_and_leaves_no_object(store: ApiServer, place: Place):
    lease = await store.grant(2)
    name = Keys(place.fleet).lease(lease.id)
    while any(one["metadata"]["name"] == name for one in await in_thread(place.leases)):  # noqa: ASYNC110
        await trio.sleep(0.2)

    assert not await store.renew(lease)


@pytest.mark.backend
async def test_a_keeper_that_died_is_followed_by_another(place: Place, cluster: Kubernetes):
    """Nobody renews its Lease; only who has seen that for its seconds takes it."""
    name = Keys(place.fleet).keeper
    dead = lease_object({"name": name, "labels": {"shipper.dev/fleet": place.fleet}}, "dead", 3)
    await in_thread(cluster.admin.create, path("leases", NAMESPACE, api=LEASES), dead)
    began = trio.current_time()
    with trio.fail_after(PATIENCE):
        async with place.client() as store:
            lease = await store.grant(1)
            made = await store.swap("alive/web-1", b"", expected=ABSENT, lease=lease)
            async with store.watch("alive/", made.at) as changes:
                (change,) = await take(changes, 1)

    assert change.entry is None
    assert trio.current_time() - began >= 3.0


def holders(place: Place) -> list[str]:
    name = Keys(place.fleet).keeper
    found = [one for one in place.leases() if one["metadata"]["name"] == name]
    return [one["spec"]["holderIdentity"] for one in found]


async def holder(place: Place, *, other_than: str = "") -> str:
    while (found := await in_thread(holders, place)) in ([], [other_than]):  # noqa: ASYNC110 (of the server)
        await trio.sleep(0.1)
    return str(found[0])


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper that ends gives up its place within seconds, or lets it run out: here however slow the server is."""
    monkeypatch.setattr(keeper, "FAREWELL_SECONDS", PATIENCE)


@pytest.mark.backend
@pytest.mark.usefixtures("patient")
async def test_one_of_many_clients_keeps_and_gives_its_place_to_another_when_it_ends(place: Place):
    with trio.fail_after(PATIENCE):
        async with place.client() as one, place.client() as two:
            for client in (one, two):
                client.keeper.wanted.set()
            first = await holder(place)
            async with place.client() as three:
                three.keeper.wanted.set()
                assert await holder(place) == first
        async with place.client() as four:
            four.keeper.wanted.set()
            await holder(place, other_than=first)

    assert await in_thread(holders, place) == []


@pytest.mark.backend
@pytest.mark.usefixtures("patient")
async def test_a_client_that_ends_while_it_is_elected_leaves_its_place(place: Place, proxy: Proxy):
    with trio.fail_after(PATIENCE), proxy.delay(PATIENCE, watch=False, method="POST", path="leases"):
        async with place.client() as client:
            client.keeper.wanted.set()
            await holder(place)

    assert await in_thread(holders, place) == []


@pytest.mark.backend
@pytest.mark.usefixtures("patient")
async def test_a_client_that_ends_when_it_was_just_elected_leaves_its_place(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    """It does not follow the election any more, and does not keep yet."""
    elected, leaving = trio.Event(), trio.Event()

    class Lasting(Reflector):
        async def run(self) -> None:
            try:
                await super().run()
            finally:
                elected.set()
                with trio.CancelScope(shield=True):
                    await leaving.wait()
                    await trio.testing.wait_all_tasks_blocked()

    monkeypatch.setattr(keeper, "Reflector", Lasting)
    with trio.fail_after(PATIENCE):
        async with place.client() as client:
            client.keeper.wanted.set()
            await elected.wait()
            assert await in_thread(holders, place) == [client.keeper._holder]
            leaving.set()

    assert await in_thread(holders, place) == []


# -- what is wrong with a server ---------------------------------------------------------------------------------------


@pytest.mark.backend
async def test_a_missing_right_names_the_rule_that_grants_it(cluster: Kubernetes, place: Place):
    configured = fleets.configuration(cluster, token=cluster.user_token(900))
    async with open_kubernetes(configured, place.fleet) as store:
        with pytest.raises(StoreRefused, match=r"shipperfleetrecords.*verbs: \[\"list\"\]"):
            await store.read("head")
        with pytest.raises(StoreRefused, match=r"verbs: \[\"create\"\]"):
            await store.swap("head", b"", expected=ABSENT)
        with pytest.raises(StoreRefused, match="leases"):
            await store.grant(5)


@pytest.mark.backend
async def test_a_namespace_that_is_not_there_is_said(cluster: Kubernetes, place: Place):
    async with open_kubernetes(fleets.configuration(cluster, namespace="nowhere"), place.fleet) as store:
        with pytest.raises(StoreRefused, match="nowhere"):
            await store.swap("head", b"", expected=ABSENT)


async def answers(talk: Callable[[Exchange], Any], call: Callable[[Store], Any]) -> StoreError:
    """The error of a call to a server that answers so."""
    with trio.fail_after(PATIENCE):
        async with (
            scripted(talk) as server,
            open_kubernetes(configuration(server.url, FixedToken("t")), "prod") as store,
        ):
            with pytest.raises(StoreError) as failed:
                await call(store)
    return failed.value


def read(store: Store) -> Any:
    return store.read("head", seconds=2.0)


def swap(store: Store) -> Any:
    return store.swap("head", b"SECRET", expected=7)


async def test_a_server_without_the_kind_names_the_manifest():
    error = await answers(lambda exchange: exchange.refuse(404, "NotFound", "not there"), read)

    assert isinstance(error, StoreRefused)
    assert "kubectl apply -f packaging/kubernetes/crds" in str(error)


async def test_versions_without_an_order_are_an_error_that_says_what_to_do():
    error = await answers(lambda exchange: exchange.answer({"items": [], "metadata": {"resourceVersion": "a-b"}}), read)

    assert isinstance(error, StoreRefused)
    assert "KEP-5504" in str(error)
    assert "fleet.etcd" in str(error)


@pytest.mark.parametrize("call", [read, swap])
@pytest.mark.parametrize(
    "answer",
    [
        b"CANARY",
        b"[]",
        b'{"items": 7}',
        b'{"items": [7]}',
        b'{"items": [{"metadata": 7}], "metadata": {"resourceVersion": "7"}}',
        b'{"metadata": []}',
        b'{"items": [{"metadata": {"uid": []}}], "metadata": {"resourceVersion": "7"}}',
    ],
)
async def test_an_answer_that_is_not_the_servers_is_one_error_that_quotes_nothing(answer: bytes, call: Any):
    error = await answers(lambda exchange: exchange.answer(answer), call)

    assert "CANARY" not in str(error)
    assert "SECRET" not in str(error)
