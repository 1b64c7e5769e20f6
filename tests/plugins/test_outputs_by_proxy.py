"""The outputs `otlp` and `relay` through a proxy that keeps what it sees; the options of all three that have one."""

from __future__ import annotations

import gzip
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import trio
import trustme

from shipper.plugin import (
    Asyncio,
    ClientTls,
    Credential,
    CredentialId,
    Later,
    Material,
    NotBegun,
    OutputContext,
    Sender,
    StartFailed,
)
from shipper.plugin.asking import Finding, Question
from shipper.policy.policy import parse
from shipper.policy.registry import Registry
from shipper.sdk.errors import PolicyError
from shipper.sdk.http_answer import Unreachable
from shipper_demo.ports import free_port
from shipper_plugins.otlp import protobuf
from shipper_plugins.otlp.output import OtlpOutput
from shipper_plugins.relay.input import RelayTls
from tests import certificates
from tests.plugins.otlp.test_output_otlp import BATCH, Receiver, over_grpc
from tests.plugins.relay import pair as relay
from tests.proxy import ForwardProxy, open_proxy
from tests.raw_http import http, raw_server, read_request

pytestmark = pytest.mark.usefixtures("no_proxy_of_the_machine")
CA = trustme.CA()
TRUST = certificates.trust(CA)
HOST = "far.test:4317"
KEY = Credential.parse({"bearer_token": "canary-of-the-key"})
LOGIN = Credential.parse({"username": "ann", "password": "canary-pröxy"})
CREDENTIALS = {CredentialId("key"): KEY, CredentialId("login"): LOGIN}


def context(aio: Asyncio, **settings: Any) -> OutputContext:
    return OutputContext("main", aio, CREDENTIALS, **settings)


def otlp(**settings: Any) -> OtlpOutput:
    output = OtlpOutput(**{"endpoint": f"https://{HOST}", "credential": CredentialId("key"), "tls": TRUST, **settings})
    output.load()
    return output


@asynccontextmanager
async def sender(aio: Asyncio, **settings: Any) -> AsyncIterator[Sender]:
    async with otlp(**settings).open(context(aio)) as opened:
        yield opened


@asynccontextmanager
async def behind_a_proxy(tls: bool = True, **options: Any) -> AsyncIterator[tuple[Receiver, ForwardProxy]]:
    """A receiver of gRPC at `HOST`, which only the proxy knows."""
    certificate, key = certificates.identity(CA, HOST.partition(":")[0])
    credentials = grpc.ssl_server_credentials([(key.encode(), certificate.encode())])
    receiver = Receiver()
    with over_grpc(receiver, credentials if tls else None) as port:
        async with open_proxy({HOST: port}, **options) as proxy:
            yield receiver, proxy


# -- otlp over gRPC ----------------------------------------------------------------------------------------------------


async def test_grpc_goes_through_one_tunnel_whose_proxy_sees_nothing_of_it(
    aio: Asyncio, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with behind_a_proxy() as (receiver, proxy), sender(aio, proxy=proxy.url, compression="none") as main:
        for _ in range(3):
            await main.send(BATCH)

    assert len(receiver.bodies) == 3 * BATCH.count
    assert [head.split("\r\n")[0] for head in proxy.heads] == [f"CONNECT {HOST} HTTP/1.1"]
    seen = proxy.heads[0].lower() + proxy.tunnelled.decode("latin-1").lower()
    assert "authorization" not in seen
    assert "canary" not in seen
    assert "canary" not in caplog.text


async def test_grpc_without_tls_goes_through_a_tunnel_too(aio: Asyncio) -> None:
    """Here the receiver speaks first: nothing that follows the proxy's answer is lost."""
    async with (
        behind_a_proxy(tls=False) as (receiver, proxy),
        sender(aio, endpoint=f"http://{HOST}", proxy=proxy.url) as main,
    ):
        await main.send(BATCH)

    assert receiver.bodies == list(range(BATCH.count))
    assert proxy.heads[0].startswith("CONNECT ")


async def test_a_proxy_of_grpc_is_shown_its_own_credential_alone(aio: Asyncio) -> None:
    async with (
        behind_a_proxy(login="ann:canary-pröxy") as (receiver, proxy),
        sender(aio, proxy=proxy.url, proxy_credential=CredentialId("login")) as main,
    ):
        await main.send(BATCH)

    assert receiver.headers[0]["authorization"] == KEY.authorization()
    assert "Proxy-Authorization: Basic" in proxy.heads[0]
    assert KEY.authorization() not in proxy.heads[0]


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_a_proxy_that_makes_no_tunnel_is_named(aio: Asyncio, protocol: str) -> None:
    told: list[None] = []

    async def begins() -> None:
        told.append(None)

    async with behind_a_proxy(login="ann:other") as (receiver, proxy):
        output = otlp(protocol=protocol, proxy=proxy.url, proxy_credential=CredentialId("login"))
        async with output.open(context(aio, begins=begins)) as main:
            with pytest.raises(Later) as why:
                await main.send(BATCH)

    assert str(why.value) == f"{HOST} by the proxy {proxy.url.removeprefix('http://')}: the proxy answered 407"
    assert (receiver.requests, told) == ([], [])


async def test_the_certificate_of_a_receiver_is_checked_through_a_tunnel(aio: Asyncio) -> None:
    async with behind_a_proxy() as (receiver, proxy), sender(aio, tls=ClientTls(), proxy=proxy.url) as main:
        with pytest.raises(Unreachable, match="certificate verify failed") as why:
            await main.send(BATCH)

    assert why.value.code == "tls_failed"
    assert receiver.requests == []


async def test_a_proxy_gets_no_credential_once_nothing_may_begin_any_more(aio: Asyncio) -> None:
    may = iter([True])  # before the connection is made
    async with behind_a_proxy(login="ann:canary-pröxy") as (_, proxy):
        output = otlp(proxy=proxy.url, proxy_credential=CredentialId("login"))
        async with output.open(context(aio, may_begin=lambda: next(may, False))) as main:
            with pytest.raises(NotBegun):
                await main.send(BATCH)

    assert proxy.heads == []


async def test_a_person_who_asks_is_told_of_the_proxy(aio: Asyncio) -> None:
    told: list[Finding] = []
    async with behind_a_proxy() as (_, proxy):
        await otlp(proxy=proxy.url).ask(context(aio), Question(), told.append)
    assert {finding.verdict for finding in told} == {"good"}

    told.clear()
    await otlp(proxy=f"http://127.0.0.1:{free_port()}").ask(context(aio), Question(), told.append)
    assert "by the proxy" in told[0].text


# -- otlp over HTTP ----------------------------------------------------------------------------------------------------


async def test_over_http_a_receiver_without_tls_is_asked_by_its_whole_url(aio: Asyncio) -> None:
    bodies = []

    async def talk(stream: trio.SocketStream) -> None:
        bodies.append((await read_request(stream)).partition(b"\r\n\r\n")[2])
        await stream.send_all(http(b"", headers="Content-Type: application/x-protobuf\r\n"))

    async with (
        raw_server(talk) as url,
        open_proxy({HOST: int(url.rpartition(":")[2])}) as proxy,
        sender(aio, endpoint=f"http://{HOST}", protocol="http", proxy=proxy.url) as main,
    ):
        await main.send(BATCH)

    assert proxy.heads[0].startswith(f"POST http://{HOST}/v1/logs HTTP/1.1\r\n")
    assert len(protobuf.decoded(gzip.decompress(bodies[0])).groups) == 1


# -- relay -------------------------------------------------------------------------------------------------------------

PRINCIPAL = "principal.test:6789"


@asynccontextmanager
async def principal_behind_a_proxy(aio: Asyncio, **options: Any) -> AsyncIterator[tuple[relay.Principal, ForwardProxy]]:
    """A principal at `PRINCIPAL`, which only the proxy knows."""
    certificate, key = certificates.identity(CA, "principal.test")
    tls = RelayTls(certificate=Material("c", certificate), key=Material("k", key))
    async with (
        relay.principal(aio, tls=tls) as door,
        open_proxy({PRINCIPAL: int(door.url.rpartition(":")[2])}, **options) as proxy,
    ):
        yield door, proxy


async def test_events_are_relayed_through_a_tunnel_whose_proxy_sees_nothing_of_them(aio: Asyncio) -> None:
    async with (
        principal_behind_a_proxy(aio) as (door, proxy),
        relay.edge(aio, f"https://{PRINCIPAL}", tls=TRUST, proxy=proxy.url) as main,
    ):
        for place in (1, 2):
            await main.send(relay.entry(place))
        assert door.numbers == [1, 2]

    assert {head.split("\r\n")[0] for head in proxy.heads} == {f"CONNECT {PRINCIPAL} HTTP/1.1"}
    assert "authorization" not in "".join(proxy.heads).lower()
    assert b"/v1/relay" not in proxy.tunnelled


# -- options -----------------------------------------------------------------------------------------------------------

OUTPUTS = {
    "elasticsearch": "type: elasticsearch\n    hosts: [https://es:9200]",
    "otlp": f"type: otlp\n    endpoint: https://{HOST}",
    "relay": f"type: relay\n    name: berlin\n    hosts: [https://{PRINCIPAL}]\n    credential: k",
}


def test_what_is_no_proxy_is_refused_at_its_place() -> None:
    for options, path, said in [
        ("proxy: https://proxy:3128", "proxy", "not by https:// or socks: write http://proxy:3128"),
        ("proxy: http://ann@p", "proxy", "name one by `proxy_credential`"),
        ("proxy: 'http://ann:canary@p'", "proxy", "must not contain a secret"),
        ("proxy: 'http://p/x'", "proxy", "the URL of a host"),
        ("proxy_credential: p", "proxy_credential", "needs a proxy"),
        ("proxy: none\n    proxy_credential: p", "proxy_credential", "needs a proxy"),
    ]:
        for output in OUTPUTS.values():
            with pytest.raises(PolicyError) as refused:
                parse(f"version: 1\noutputs:\n  main:\n    {output}\n    {options}\n", Registry.installed())

            [problem] = refused.value.problems
            assert problem.path == f"outputs.main.{path}"
            assert said in problem.message
            assert "canary" not in str(refused.value)


def test_a_relay_goes_through_a_proxy_to_hosts_with_tls_only() -> None:
    text = OUTPUTS["relay"].replace("https://", "http://") + "\n    proxy: http://proxy:3128"
    with pytest.raises(PolicyError, match="write hosts with https://") as refused:
        parse(f"version: 1\noutputs:\n  main:\n    {text}\n", Registry.installed())

    assert [problem.path for problem in refused.value.problems] == ["outputs.main.proxy"]


async def test_a_wrong_variable_is_told_at_the_start_with_its_remedy(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "https://canary@proxy")
    with pytest.raises(
        StartFailed, match=r"output main: the variable HTTPS_PROXY: .*; `proxy: none` ignores it"
    ) as why:
        async with sender(aio):
            pass
    async with sender(aio, proxy="none"):
        pass

    assert "canary" not in str(why.value)
