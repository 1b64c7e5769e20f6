"""Where and how the `elasticsearch` output asks: headers, cloud ids, proxies, fingerprints, indices by condition."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio

from shipper.plugin import Asyncio, Batch, Credential, CredentialId, OutputContext, Sender
from shipper.policy.policy import parse
from shipper.policy.registry import Registry
from shipper.policy.uses import uses
from shipper.sdk.aio import open_asyncio
from shipper.sdk.errors import PolicyError
from shipper.testing import open_destination
from shipper_plugins.outputs.elasticsearch import ElasticsearchOutput
from tests.raw_http import http, raw_server, read_request

KEY = Credential.parse({"api_key": "id:canary-secret"})
GATEWAY = Credential.parse({"token": "canary-of-the-gateway"})
CREDENTIALS = {CredentialId("es"): KEY, CredentialId("gateway"): GATEWAY}
CREATED = b'{"errors":false,"items":[{"create":{"status":201}}]}'


@pytest.fixture
async def aio() -> AsyncIterator[Asyncio]:
    with trio.fail_after(60):
        async with open_asyncio() as opened:
            yield opened


def documents(*texts: bytes, seq: int = 1) -> Batch:
    return replace(Batch.documents(texts), origin=b"0123456789abcdef", seq=seq)


@asynccontextmanager
async def sender(aio: Asyncio, *hosts: str, credential: str | None = "es", **settings: Any) -> AsyncIterator[Sender]:
    id = None if credential is None else CredentialId(credential)
    output = ElasticsearchOutput(hosts=hosts, credential=id, **settings)
    async with output.open(OutputContext("main", aio, CREDENTIALS)) as opened:
        yield opened


def named(request: bytes) -> dict[str, str]:
    """The headers of a request."""
    head = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value for name, value in (line.split(": ", 1) for line in head)}


# -- headers -----------------------------------------------------------------------------------------------------------


async def test_each_request_has_the_headers_of_the_policy_and_the_secret_ones(
    aio: Asyncio, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    requests = []

    async def talk(stream: trio.SocketStream) -> None:
        requests.append(await read_request(stream))
        await stream.send_all(http(CREATED))

    settings = {"headers": {"X-Tenant": "shop"}, "secret_headers": {"X-Gateway": CredentialId("gateway")}}
    async with raw_server(talk) as url, sender(aio, url, **settings) as main:
        await main.send(documents(b'{"a":1}'))

    headers = named(requests[0])
    assert (headers["x-tenant"], headers["x-gateway"]) == ("shop", "canary-of-the-gateway")
    assert headers["authorization"] == KEY.authorization()
    assert "canary" not in caplog.text


CLOUD_ID = "shop:Zm91bmQuaW86OTI0MyRhYmMkZGVm"
POLICY = """
version: 1
outputs:
  main:
    type: elasticsearch
    hosts: [https://es:9200]
    credential: es
    secret_headers: {X-Gateway: gateway}
"""


def test_the_secret_of_a_header_is_a_credential_of_the_output() -> None:
    """So it is wanted, sealed, hidden and released like any other."""
    read = parse(POLICY, Registry.installed())

    assert {one.id for one in uses(read.outputs["main"].config)} == {"es", "gateway"}


def test_a_secret_header_to_a_host_without_tls_is_warned_of() -> None:
    output = ElasticsearchOutput(hosts=("http://es:9200",), secret_headers={"X-A": CredentialId("gateway")})

    assert ["unencrypted" in one for one in output.warnings()] == [True]


# -- cloud ids ---------------------------------------------------------------------------------------------------------


def test_a_cloud_id_stands_for_the_hosts() -> None:
    read = parse(
        POLICY.replace("hosts: [https://es:9200]", "cloud_id: 'shop:Zm91bmQuaW86OTI0MyRhYmMkZGVm'"),
        Registry.installed(),
    )

    assert read.outputs["main"].config.urls == ("https://abc.found.io:9243",)


@pytest.mark.parametrize(
    ("hosts", "path"),
    [
        ("cloud_id: shop:x", "outputs.main.cloud_id"),
        ("hosts: [https://es]\n    cloud_id: '" + CLOUD_ID + "'", "outputs.main.cloud_id"),
        ("workers: 1", "outputs.main"),
        ("hosts: []", "outputs.main.hosts"),
    ],
)
def test_an_output_has_either_hosts_or_a_cloud_id(hosts: str, path: str) -> None:
    with pytest.raises(PolicyError) as refused:
        parse(POLICY.replace("hosts: [https://es:9200]", hosts), Registry.installed())

    assert [problem.path for problem in refused.value.problems] == [path]


async def test_events_arrive_as_before(aio: Asyncio) -> None:
    async with open_destination(aio, keys={KEY}) as destination, sender(aio, destination.url) as main:
        await main.send(documents(b'{"a":1}', b'{"a":2}'))

    assert destination.total == 2
