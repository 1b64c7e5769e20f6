"""Hosts that are no etcd, or a dead one: each call ends in time, with one error, and a write is never asked twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import trio

from shipper.fleet.etcd import gateway, hosts, http, watch
from shipper.fleet.etcd import store as store_on_etcd
from shipper.fleet.etcd.store import open_etcd
from shipper.fleet.store import Compacted, StoreError, StoreRefused, StoreUnreachable

Handler = Callable[[trio.SocketStream], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@asynccontextmanager
async def host(handler: Handler) -> AsyncIterator[str]:
    """A server; yields its URL."""

    async def handled(stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await handler(stream)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, handled, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


def says(raw: bytes, *, times: int = 1, then_hangs: bool = False) -> Handler:
    async def handler(stream: trio.SocketStream) -> None:
        await stream.receive_some(65536)
        for _ in range(times):
            await stream.send_all(raw)
        if then_hangs:
            await trio.sleep_forever()

    return handler


def whole(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


WRONG = {
    "nothing": says(b""),
    "no HTTP": says(b"\x00\x01\x02 CANARY\r\n\r\n"),
    "a page": says(whole("502 Bad Gateway", b"<html>CANARY</html>")),
    "a good page": says(whole("200 OK", b"<html>CANARY</html>")),
    "another JSON": says(whole("200 OK", b'{"kvs": "CANARY"}')),
    "an unknown error": says(whole("418 I'm a teapot", b'{"message": "CANARY", "code": 4}')),
    "half an answer": says(HEAD + b"Content-Length: 100\r\n\r\n{"),
    "endless headers": says(HEAD + b"A: " + b"x" * 1000, times=100_000),
    "an endless body": says(HEAD + b"\r\n" + b" " * 100_000, times=10_000),
    "an endless error": says(b"HTTP/1.1 500 No\r\n\r\n" + b" " * 100_000, times=10_000),
    "endless promises": says(b"HTTP/1.1 100 Continue\r\n\r\n", times=1_000_000),
    "a hang": says(b"", then_hangs=True),
    "a hang in the body": says(HEAD + b"Content-Length: 100\r\n\r\n{", then_hangs=True),
}


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "SECONDS", 1.0)
    monkeypatch.setattr(gateway, "SHORTEST_TRY", 0.4)
    monkeypatch.setattr(watch, "SECONDS", 0.5)
    monkeypatch.setattr(http, "LARGEST_ANSWER", 1 << 20)


@pytest.mark.parametrize("name", WRONG)
async def test_each_call_ends_with_one_error_that_quotes_nothing(name: str):
    with trio.fail_after(60):
        async with host(WRONG[name]) as url, open_etcd([url], "/x/") as store:
            lease = None
            for call in (
                lambda: store.read("head"),
                lambda: store.list("members/"),
                lambda: store.swap("head", b"SECRET", expected=0, lease=lease),
                lambda: store.grant(5),
            ):
                with pytest.raises(StoreError) as failed:
                    await call()
                assert "CANARY" not in str(failed.value)
                assert "SECRET" not in str(failed.value)
                assert url.removeprefix("http://") in str(failed.value) or "not etcd's" in str(failed.value)


@pytest.mark.parametrize("number", ["1" * 400, "-1", "9223372036854775808"])
async def test_a_number_that_etcd_cannot_have_is_an_error(number: str):
    said = says(whole("200 OK", f'{{"ID": "1", "TTL": "{number}"}}'.encode()))
    with trio.fail_after(60):
        async with host(said) as url, open_etcd([url], "/x/") as store:
            with pytest.raises(StoreError, match="not etcd's"):
                await store.grant(5)


@pytest.mark.parametrize("entry", ['{"key": "eA=="}', '{"key": "%s"}' % ("AAAA" * 300)])
async def test_a_list_without_an_end_is_an_error(entry: str, monkeypatch: pytest.MonkeyPatch):
    """Anybody who can write to etcd makes as many keys as he wants, with long names or with long values."""
    monkeypatch.setattr(store_on_etcd, "LARGEST_LISTING", 100_000)
    page = f'{{"header": {{"revision": "7"}}, "more": true, "kvs": [{",".join([entry] * 20)}]}}'
    with trio.fail_after(60):
        async with host(says(whole("200 OK", page.encode()))) as url, open_etcd([url], "/x/") as store:
            with pytest.raises(StoreRefused, match="remove keys of nobody"):
                await store.list("members/")


@pytest.mark.parametrize("name", WRONG)
async def test_a_watch_ends_with_one_error(name: str):
    with trio.fail_after(60):
        async with host(WRONG[name]) as url, open_etcd([url], "/x/") as store, store.watch("", 7) as found:
            with pytest.raises(StoreError) as failed:
                await anext(found)

    assert "CANARY" not in str(failed.value)


@pytest.mark.parametrize("name", ["nothing", "a page", "no HTTP", "half an answer", "a hang"])
async def test_a_write_whose_answer_is_lost_is_asked_of_no_other_host(name: str):
    asked = 0

    async def counted(stream: trio.SocketStream) -> None:
        nonlocal asked
        asked += 1
        await WRONG[name](stream)

    with trio.fail_after(60):
        async with host(counted) as one, host(counted) as two, open_etcd([one, two], "/x/") as store:
            with pytest.raises(StoreUnreachable):
                await store.swap("head", b"", expected=0)
            assert asked == 1
            with pytest.raises(StoreUnreachable):
                await store.read("head")
            assert asked == 3


async def test_a_write_goes_to_another_host_where_one_has_no_leader_or_cannot_be_reached():
    no_leader = whole("503 Service Unavailable", b'{"message":"etcdserver: no leader","code":14}')
    done = b'{"header":{"revision":"7"},"succeeded":true,"responses":[{},{"response_range":{}}]}'
    with trio.fail_after(60):
        async with host(says(no_leader)) as one, host(says(whole("200 OK", done))) as two:
            for _ in range(5):
                async with open_etcd([one, "http://127.0.0.1:1", two], "/x/") as store:
                    assert (await store.swap("head", None, expected=0)).at == 7


async def test_a_watch_that_is_created_and_broken_again_and_again_ends():
    created = b'{"result":{"header":{"revision":"9"},"created":true}}\n'
    asked = 0

    async def handler(stream: trio.SocketStream) -> None:
        nonlocal asked
        asked += 1
        await says(HEAD + b"\r\n" + created)(stream)

    with trio.fail_after(60):
        async with host(handler) as url, open_etcd([url], "/x/") as store, store.watch("", 7) as found:
            with pytest.raises(StoreUnreachable):
                await anext(found)

    assert 2 <= asked < 30


@pytest.mark.parametrize("second", [("other", "7", "9"), ("same", "6", "9"), ("same", "7", "3")])
async def test_a_watch_ends_where_the_store_is_no_continuation_of_the_one_before(second: tuple[str, str, str]):
    """Another cluster, a lower term, or a lower revision that is the newest one."""
    asked = 0

    async def handler(stream: trio.SocketStream) -> None:
        nonlocal asked
        cluster, term, revision = ("same", "7", "9") if asked == 0 else second
        asked += 1
        head = b'{"cluster_id":"%s","raft_term":"%s","revision":"%s"}' % (
            cluster.encode(),
            term.encode(),
            revision.encode(),
        )
        request = await stream.receive_some(65536)
        if b"/v3/watch" in request:
            body = b'{"result":{"header":%s,"created":true}}\n' % head
            await stream.send_all(HEAD + b"\r\n" + body)
        else:
            await stream.send_all(whole("200 OK", b'{"header":%s}' % head))

    with trio.fail_after(60):
        async with host(handler) as url, open_etcd([url], "/x/") as store, store.watch("", 9) as found:
            with pytest.raises(Compacted):
                await anext(found)


@pytest.mark.parametrize(
    "url",
    [
        "etcd:2379",
        "ftp://etcd",
        "http://",
        "http://u:p@etcd:2379",
        "http://etcd:2379/v3",
        "http://etcd:99999",
        "x",
    ],
)
def test_a_wrong_url_is_refused(url: str):
    with pytest.raises(ValueError, match="an address"):
        hosts.Host.parse(url)


def test_a_url_has_a_port_or_the_usual_one():
    assert str(hosts.Host.parse("https://etcd-1")) == "etcd-1:2379"
    assert str(hosts.Host.parse("http://[::1]:80/")) == "[::1]:80"
