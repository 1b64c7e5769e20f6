"""The proxy before the API server: it changes nothing by itself, each fault meets what it names, and ends."""

from __future__ import annotations

import http.client
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import pytest
import trio

from tests.backends.kubernetes import Kubernetes, running
from tests.backends.kubernetes_api import Api, Object, path
from tests.backends.kubernetes_faults import Match, Request
from tests.backends.kubernetes_proxy import Proxy, open_proxy

pytestmark = pytest.mark.backend

PATIENCE = 20.0
LOST = (http.client.HTTPException, OSError)
T = TypeVar("T")


@pytest.fixture
async def proxy(kubernetes: Kubernetes) -> AsyncIterator[Proxy]:
    async with open_proxy(kubernetes) as found:
        with trio.fail_after(PATIENCE):
            yield found


@pytest.fixture
def api(kubernetes: Kubernetes, proxy: Proxy) -> Api:
    """The administrator, through the proxy."""
    return Api(proxy.url, kubernetes.ca, kubernetes.token, agent="of the test")


@pytest.fixture
def configmaps(namespace: str) -> str:
    return path("configmaps", namespace)


async def aside(call: Callable[..., T], *arguments: Any, **how: Any) -> T:
    """Calls what blocks, in a thread that nobody waits for if the test is over."""
    return await trio.to_thread.run_sync(partial(call, *arguments, **how), abandon_on_cancel=True)


def named(name: str) -> Object:
    return {"metadata": {"name": name}}


class Watch:
    """A watch through the proxy, in a thread: what it has been told, and how it ended."""

    def __init__(self, api: Api, configmaps: str) -> None:
        self.told: list[Object] = []
        self.ended = ""
        self._api, self._configmaps = api, configmaps

    @property
    def names(self) -> list[str]:
        return [event["object"]["metadata"]["name"] for event in self.told]

    async def run(self) -> None:
        await aside(self._run)

    def _run(self) -> None:
        try:
            with self._api.watch(self._configmaps, timeoutSeconds="60", resourceVersion="0") as events:
                for event in events:
                    self.told.append(event)
            self.ended = "cleanly"
        except LOST:
            self.ended = "broken"


async def until(holds: Callable[[], object]) -> None:
    """What happens in a thread tells nobody."""
    while not holds():  # noqa: ASYNC110 -- threads set nothing
        await trio.sleep(0.01)


@pytest.fixture
async def watch(api: Api, configmaps: str, proxy: Proxy, nursery: trio.Nursery) -> Watch:
    """One that is open."""
    found = Watch(api, configmaps)
    nursery.start_soon(found.run)
    await proxy.until(lambda: proxy.count(watch=True, status=200) == 1)
    return found


# -- no fault ----------------------------------------------------------------------------------------------------------


async def test_it_passes_requests_and_answers_on_and_counts_them_by_client(
    proxy: Proxy, api: Api, kubernetes: Kubernetes, configmaps: str
) -> None:
    large = {**named("a"), "data": {"k": "v" * 500_000}}

    await aside(api.create, configmaps, large)
    found = await aside(api.get, f"{configmaps}/a")
    missing = await aside(api.call, "GET", f"{configmaps}/b")

    assert (found["data"], missing.status) == (large["data"], 404)
    assert proxy.counts == {
        ("of the test", "POST", 201): 1,
        ("of the test", "GET", 200): 1,
        ("of the test", "GET", 404): 1,
    }
    assert [(one.method, one.path, one.status) for one in proxy.requests] == [
        ("POST", configmaps, 201),
        ("GET", f"{configmaps}/a", 200),
        ("GET", f"{configmaps}/b", 404),
    ]


async def test_a_connection_serves_many_requests(proxy: Proxy, kubernetes: Kubernetes) -> None:
    def ask() -> list[int]:
        api = Api(proxy.url, kubernetes.ca, kubernetes.token)
        connection = http.client.HTTPSConnection(proxy.url.removeprefix("https://"), context=api._tls, timeout=10)
        try:
            return [_asked(connection, kubernetes.token) for _ in range(3)]
        finally:
            connection.close()

    assert await aside(ask) == [200, 200, 200]
    assert proxy.count(path="^/version$") == 3


def _asked(connection: http.client.HTTPSConnection, token: str) -> int:
    connection.request("GET", "/version", headers={"Authorization": f"Bearer {token}"})
    with connection.getresponse() as answer:
        answer.read()
        return answer.status


async def test_a_watch_is_told_at_once_and_is_counted_while_it_is_open(
    proxy: Proxy, api: Api, watch: Watch, configmaps: str
) -> None:
    await aside(api.create, configmaps, named("a"))

    await until(lambda: watch.names == ["a"])
    assert proxy.watches(path="/configmaps$") == 1
    proxy.cut(watch=True)
    await proxy.until(lambda: proxy.watches() == 0)


async def test_a_client_that_leaves_takes_its_connection_along(
    proxy: Proxy, api: Api, kubernetes: Kubernetes, configmaps: str
) -> None:
    def glance() -> None:
        with api.watch(configmaps, timeoutSeconds="60"):
            pass

    await aside(glance)

    await proxy.until(lambda: proxy.connections == 0)


# -- faults ------------------------------------------------------------------------------------------------------------


async def test_a_delay_meets_watches_only_and_ends_with_its_fault(
    proxy: Proxy, api: Api, configmaps: str, watch: Watch
) -> None:
    with proxy.delay(3600):
        await aside(api.create, configmaps, named("a"))
        await aside(api.create, configmaps, named("b"))
        assert watch.told == []

    await until(lambda: watch.names == ["a", "b"])


async def test_what_is_delayed_comes_later_by_so_much(proxy: Proxy, api: Api, configmaps: str, watch: Watch) -> None:
    with proxy.delay(0.5):
        begun = trio.current_time()
        await aside(api.create, configmaps, named("a"))
        await until(lambda: watch.names == ["a"])

    assert trio.current_time() - begun >= 0.5


async def test_a_silent_watch_stays_open_and_is_told_all_when_silence_ends(
    proxy: Proxy, api: Api, configmaps: str, watch: Watch
) -> None:
    with proxy.silence(watch=True):
        await aside(api.create, configmaps, named("a"))
        await aside(api.create, configmaps, named("b"))
        with trio.move_on_after(0.3):
            await until(lambda: watch.told)
        assert (watch.told, watch.ended, proxy.watches()) == ([], "", 1)

    await until(lambda: watch.names == ["a", "b"])


async def test_silence_of_all_accepts_connections_and_passes_nothing_on(
    proxy: Proxy, api: Api, kubernetes: Kubernetes, configmaps: str
) -> None:
    with proxy.silence():
        with pytest.raises(TimeoutError):
            await aside(api.call, "POST", configmaps, named("a"), seconds=0.5)
        assert await aside(kubernetes.admin.items, configmaps) == []

    await aside(api.create, configmaps, named("a"))


async def test_a_cut_meets_what_it_names(proxy: Proxy, api: Api, configmaps: str, watch: Watch) -> None:
    assert proxy.cut(path="/leases") == 0
    assert proxy.cut(path="/configmaps", watch=True) == 1

    await until(lambda: watch.ended == "broken")


async def test_while_it_refuses_nobody_is_served(proxy: Proxy, api: Api, configmaps: str, watch: Watch) -> None:
    with proxy.refuse():
        with pytest.raises(LOST):
            await aside(api.call, "GET", configmaps)
        await until(lambda: watch.ended == "broken")

    assert await aside(api.items, configmaps) == []


async def test_a_throttle_names_when_to_come_again_and_ends_after_its_times(
    proxy: Proxy, api: Api, kubernetes: Kubernetes, configmaps: str
) -> None:
    proxy.throttle(3, times=2, path="/configmaps$", method="POST")

    answers = [await aside(api.call, "POST", configmaps, named(name)) for name in ("a", "b", "c")]

    assert [(answer.status, answer.headers.get("Retry-After")) for answer in answers] == [
        (429, "3"),
        (429, "3"),
        (201, None),
    ]
    assert [item["metadata"]["name"] for item in await aside(kubernetes.admin.items, configmaps)] == ["c"]
    assert proxy.count(status=429) == 2


async def test_a_list_and_a_watch_are_told_that_their_version_is_gone(proxy: Proxy, api: Api, configmaps: str) -> None:
    proxy.gone(times=1, method="GET", path="/configmaps$", watch=False)
    proxy.gone_in_stream(times=1)

    listed = await aside(api.call, "GET", configmaps)
    watched = Watch(api, configmaps)
    await watched.run()

    assert (listed.status, listed.reason) == (410, "Expired")
    [event] = watched.told
    assert (event["type"], event["object"]["code"], watched.ended) == ("ERROR", 410, "cleanly")
    assert (await aside(api.call, "GET", configmaps)).status == 200


async def test_an_open_watch_expires_after_what_it_was_told(
    proxy: Proxy, api: Api, configmaps: str, watch: Watch
) -> None:
    await aside(api.create, configmaps, named("a"))
    await until(lambda: watch.told)

    assert proxy.expire_watches(path="/configmaps") == 1

    await until(lambda: watch.ended)
    assert ([event["type"] for event in watch.told], watch.ended) == (["ADDED", "ERROR"], "cleanly")


async def test_an_answer_is_lost_and_its_request_is_done(
    proxy: Proxy, api: Api, kubernetes: Kubernetes, configmaps: str
) -> None:
    proxy.lose_answers(times=1, method="POST")

    with pytest.raises(LOST):
        await aside(api.create, configmaps, named("a"))

    assert len(await aside(kubernetes.admin.items, configmaps)) == 1
    assert [(one.status, one.lost) for one in proxy.requests] == [(201, True)]
    assert (await aside(api.call, "POST", configmaps, named("a"))).reason == "AlreadyExists"


async def test_a_fault_of_one_client_leaves_others_alone(
    proxy: Proxy, api: Api, kubernetes: Kubernetes, configmaps: str
) -> None:
    other = Api(proxy.url, kubernetes.ca, kubernetes.token, agent="another")
    with proxy.answer(503, "ServiceUnavailable", agent="another"):
        assert (await aside(other.call, "GET", configmaps)).status == 503
        assert (await aside(api.call, "GET", configmaps)).status == 200
    assert (await aside(other.call, "GET", configmaps)).status == 200


async def test_a_server_that_is_killed_breaks_watches_off_here_too(own: Kubernetes) -> None:
    configmaps = path("configmaps", own.namespace())
    async with open_proxy(own) as proxy, trio.open_nursery() as nursery:
        api = Api(proxy.url, own.ca, own.token)
        watch = Watch(api, configmaps)
        nursery.start_soon(watch.run)
        with trio.fail_after(PATIENCE):
            await proxy.until(lambda: proxy.watches() == 1)
            await aside(own.kill)
            await until(lambda: watch.ended == "broken")
            with suppress(*LOST):
                await aside(api.call, "GET", configmaps)
            await aside(own.start)
            assert (await aside(api.call, "GET", configmaps)).status == 200


@pytest.fixture
def own(kubernetes: Kubernetes) -> Iterator[Kubernetes]:
    """One that the test may kill; where `kubernetes` is, there are its programs."""
    with running() as found:
        yield found


# -- what is meant -----------------------------------------------------------------------------------------------------


def test_a_match_means_requests_for_which_all_holds_that_it_names() -> None:
    request = Request("GET", "/api/v1/namespaces/a/pods", {"watch": "1"}, "shipper/1", 0.0, status=200)

    assert Match().holds(request)
    assert Match(path="/pods$", method="GET", agent="shipper", watch=True, status=200).holds(request)
    assert not any(
        Match(**wrong).holds(request)
        for wrong in ({"path": "^/pods"}, {"method": "PUT"}, {"agent": "x"}, {"watch": False}, {"status": 201})
    )
