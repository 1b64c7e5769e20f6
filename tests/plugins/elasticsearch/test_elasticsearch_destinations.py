"""Where and how the `elasticsearch` output asks: headers, cloud ids, proxies, fingerprints, indices by condition."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from shipper.plugin import Asyncio, Batch, ClientTls, Credential, CredentialId, Later, NotBegun, OutputContext, Sender
from shipper.plugin.asking import Finding, Prepared, Question
from shipper.policy.policy import parse
from shipper.policy.registry import Registry
from shipper.policy.uses import uses
from shipper.sdk.errors import PolicyError
from shipper.sdk.tallies import Requests
from shipper.testing import BulkDestination, open_destination
from shipper_demo.ports import free_port
from shipper_plugins.elasticsearch.output import ElasticsearchOutput
from tests import certificates
from tests.proxy import ForwardProxy, open_proxy
from tests.raw_http import http, raw_server, read_request

pytestmark = pytest.mark.usefixtures("no_proxy_of_the_machine")
CA = trustme.CA()
TRUST = certificates.trust(CA)
KEY = Credential.parse({"api_key": "id:canary-secret"})
GATEWAY = Credential.parse({"token": "canary-of-the-gateway"})
PROXY = Credential.parse({"username": "ann", "password": "pröxy"})
OWN = certificates.credential(CA, "shipper-1")
CREDENTIALS = {CredentialId(id): one for id, one in (("es", KEY), ("gateway", GATEWAY), ("proxy", PROXY), ("own", OWN))}
SECRET: dict[str, Any] = {"secret_headers": {"X-Gateway": CredentialId("gateway")}}
CREATED = b'{"errors":false,"items":[{"create":{"status":201}}]}'


def documents(*texts: bytes, seq: int = 1) -> Batch:
    return replace(Batch.documents(texts), origin=b"0123456789abcdef", seq=seq)


@asynccontextmanager
async def sender(
    aio: Asyncio, *hosts: str, credential: str = "es", of_context: Any = None, **settings: Any
) -> AsyncIterator[Sender]:
    output = ElasticsearchOutput(hosts=hosts, credential=CredentialId(credential), **settings)
    async with output.open(OutputContext("main", aio, CREDENTIALS, **(of_context or {}))) as opened:
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

    async with raw_server(talk) as url, sender(aio, url, headers={"X-Tenant": "shop"}, **SECRET) as main:
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


def test_a_header_that_looks_like_a_secret_is_warned_of() -> None:
    output = ElasticsearchOutput(hosts=("https://es:9200",), headers={"X-Api-Key": "canary", "X-Tenant": "shop"})

    assert list(output.warnings()) == ["headers: X-Api-Key looks like a secret; write it under secret_headers"]


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


# -- fingerprints ------------------------------------------------------------------------------------------------------


def fingerprint(ca: trustme.CA | trustme.LeafCert) -> str:
    pem = ca.cert_pem if isinstance(ca, trustme.CA) else ca.cert_chain_pems[0]
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.bytes().decode())).hexdigest()


def showing(
    ca: trustme.CA,
    *names: str,
    shown: trustme.CA | None = None,
    ask: bool = False,
    version: ssl.TLSVersion | None = None,
) -> ssl.SSLContext:
    """A server that shows its authority too, as Elasticsearch does."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    issued = ca.issue_cert(*names)
    with issued.private_key_and_cert_chain_pem.tempfile() as path:
        Path(path).write_bytes(Path(path).read_bytes() + (shown or ca).cert_pem.bytes())
        context.load_cert_chain(path)
    if ask:
        context.verify_mode = ssl.CERT_REQUIRED
        ca.configure_trust(context)
    if version is not None:
        context.maximum_version = version
    return context


@pytest.mark.parametrize("spelling", [str, str.upper, lambda text: ":".join(re.findall("..", text))])
async def test_an_authority_is_trusted_by_its_fingerprint(aio: Asyncio, spelling: Callable[[str], str]) -> None:
    pin = spelling(fingerprint(CA))
    async with (
        open_destination(aio, keys={KEY}, tls=showing(CA, "127.0.0.1")) as destination,
        sender(aio, destination.url, ca_fingerprint=pin, workers=4) as main,
        trio.open_nursery() as nursery,
    ):
        for seq in range(4):
            nursery.start_soon(main.send, documents(b"{}", seq=seq))

    assert destination.total == 4


async def test_the_chain_of_another_authority_gets_nothing(aio: Asyncio) -> None:
    requests = Requests()
    async with (
        open_destination(aio, tls=showing(trustme.CA(), "127.0.0.1")) as destination,
        sender(aio, destination.url, ca_fingerprint=fingerprint(CA), of_context={"requests": requests}) as main,
    ):
        for _ in range(2):
            with pytest.raises(Later, match=r"no certificate of its chain has the ca_fingerprint$") as why:
                await main.send(documents(b"{}"))

    assert (destination.log, why.value.code) == ([], "tls_failed")
    assert requests.failures == {"tls": 2}


async def test_a_chain_with_the_right_authority_that_did_not_sign_it_gets_nothing(aio: Asyncio) -> None:
    """Anybody can show somebody else's certificate."""
    forged = showing(trustme.CA(), "127.0.0.1", shown=CA)
    async with (
        open_destination(aio, tls=forged) as destination,
        sender(aio, destination.url, ca_fingerprint=fingerprint(CA)) as main,
    ):
        for _ in range(2):
            with pytest.raises(Later, match="certificate verify failed"):
                await main.send(documents(b"{}"))

    assert destination.log == []


async def test_the_name_is_checked_as_ever(aio: Asyncio) -> None:
    async with open_destination(aio, keys={KEY}, tls=showing(CA, "es.test")) as destination:
        async with sender(aio, destination.url, ca_fingerprint=fingerprint(CA)) as main:
            with pytest.raises(Later, match="IP address mismatch"):
                await main.send(documents(b"{}"))
        assert destination.log == []
        tls = ClientTls(verification="certificate")
        async with sender(aio, destination.url, ca_fingerprint=fingerprint(CA), tls=tls) as main:
            await main.send(documents(b"{}"))

    assert destination.total == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_host_that_wants_a_certificate_is_looked_at_without_one(aio: Asyncio, version: ssl.TLSVersion) -> None:
    tls = showing(CA, "127.0.0.1", ask=True, version=version)
    async with (
        open_destination(aio, keys={"CN=shipper-1"}, tls=tls) as destination,
        sender(aio, destination.url, credential="own", ca_fingerprint=fingerprint(CA)) as main,
    ):
        await main.send(documents(b"{}"))

    assert destination.total == 1


async def test_a_host_that_is_not_there_is_told_as_ever_and_trusted_when_it_is(aio: Asyncio) -> None:
    dead = f"https://127.0.0.1:{free_port()}"
    async with open_destination(aio, keys={KEY}, tls=showing(CA, "127.0.0.1")) as destination:
        async with sender(aio, dead, ca_fingerprint=fingerprint(CA)) as main:
            with pytest.raises(Later, match="connection refused"):
                await main.send(documents(b"{}"))
        async with sender(aio, dead, destination.url, ca_fingerprint=fingerprint(CA)) as main:
            await main.send(documents(b"{}"))

    assert destination.total == 1


async def test_an_authority_is_found_through_a_proxy(aio: Asyncio) -> None:
    async with (
        open_destination(aio, keys={KEY}, tls=showing(CA, "es.test")) as destination,
        open_proxy({ES: port_of(destination)}) as proxy,
        sender(aio, f"https://{ES}", ca_fingerprint=fingerprint(CA), proxy=proxy.url) as main,
    ):
        await main.send(documents(b"{}"))

    assert (destination.total, len(proxy.heads)) == (1, 2)


async def test_a_person_who_asks_is_answered_by_hosts_of_the_fingerprint_alone(aio: Asyncio) -> None:
    told: list[Finding] = []
    async with (
        open_destination(aio, keys={KEY}, tls=showing(CA, "127.0.0.1")) as destination,
        open_destination(aio, keys={KEY}, tls=showing(trustme.CA(), "127.0.0.1")) as other,
    ):
        for host, verdict in ((destination.url, "good"), (other.url, "bad")):
            output = ElasticsearchOutput(hosts=(host,), credential=CredentialId("es"), ca_fingerprint=fingerprint(CA))
            told.clear()
            await output.ask(OutputContext("main", aio, CREDENTIALS), Question(), told.append)
            assert [one.verdict for one in told if one.asked == "tls"] == [verdict], told

    assert told[-1].text == "no certificate of its chain has the ca_fingerprint"


async def test_templates_are_shown_of_a_host_with_the_fingerprint(aio: Asyncio) -> None:
    told: list[Prepared] = []
    async with open_destination(aio, keys={KEY}, tls=showing(CA, "127.0.0.1")) as destination:
        output = ElasticsearchOutput(
            hosts=(destination.url,), credential=CredentialId("es"), ca_fingerprint=fingerprint(CA)
        )
        context = OutputContext("main", aio, CREDENTIALS)
        await output.set_up(context, Question(targets=("logs-app-prod",)), told.append, write=False)

    assert told
    assert all(one.code != "tls_failed" for one in told)


PIN = "ca_fingerprint: " + "ab" * 32


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "ca_fingerprint: abcd"),
        ("", "ca_fingerprint: " + "xy" * 32),
        ("hosts: [http://es:9200]", PIN),
        ("", PIN + "\n    tls: {verification: none}"),
    ],
)
def test_what_is_no_fingerprint_or_has_no_use_is_refused_at_its_place(before: str, after: str) -> None:
    text = POLICY.replace("hosts: [https://es:9200]", before or "hosts: [https://es:9200]")
    with pytest.raises(PolicyError) as refused:
        parse(f"{text}    {after}\n", Registry.installed())

    assert [problem.path for problem in refused.value.problems] == ["outputs.main.ca_fingerprint"]


# -- proxies -----------------------------------------------------------------------------------------------------------

ES = "es.test:9200"


def port_of(destination: BulkDestination) -> int:
    return int(destination.url.rpartition(":")[2])


@asynccontextmanager
async def behind_a_proxy(aio: Asyncio, **options: Any) -> AsyncIterator[tuple[BulkDestination, ForwardProxy]]:
    """A destination over TLS named es.test:9200, which only the proxy knows."""
    async with (
        open_destination(aio, keys={KEY}, tls=certificates.server(CA, "es.test")) as destination,
        open_proxy({ES: port_of(destination)}, **options) as proxy,
    ):
        yield destination, proxy


async def test_a_proxy_makes_a_tunnel_and_sees_nothing_of_a_request(
    aio: Asyncio, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        behind_a_proxy(aio) as (destination, proxy),
        sender(aio, f"https://{ES}", tls=TRUST, proxy=proxy.url, **SECRET, compression="none") as main,
    ):
        for seq in range(3):
            await main.send(documents(b'{"a":"canary of an event"}', seq=seq))

    assert destination.total == 3
    assert [head.split("\r\n")[0] for head in proxy.heads] == [f"CONNECT {ES} HTTP/1.1"]
    seen = proxy.heads[0].lower() + proxy.tunnelled.decode("latin-1").lower()
    assert "authorization" not in seen
    assert "x-gateway" not in seen
    assert KEY.authorization().split()[1].lower() not in seen
    assert "canary" not in seen
    assert "canary" not in caplog.text


async def test_a_proxy_is_shown_its_own_credential_alone(aio: Asyncio) -> None:
    async with behind_a_proxy(aio, login="ann:pröxy") as (destination, proxy):
        settings = {"tls": TRUST, "proxy": proxy.url, "proxy_credential": CredentialId("proxy")}
        async with sender(aio, f"https://{ES}", **settings) as main:
            await main.send(documents(b"{}"))

    assert destination.total == 1
    assert "Proxy-Authorization: Basic" in proxy.heads[0]
    assert KEY.authorization() not in proxy.heads[0]


@pytest.mark.parametrize(
    ("refusal", "reason"), [(b"", "the proxy answered 407"), (b"SSH-2.0-x\r\n\r\n", "the answer is not HTTP")]
)
async def test_a_proxy_that_makes_no_tunnel_is_named(aio: Asyncio, refusal: bytes, reason: str) -> None:
    told: list[None] = []

    async def begins() -> None:
        told.append(None)

    async with (
        behind_a_proxy(aio, login="ann:other", refusal=refusal) as (destination, proxy),
        sender(aio, f"https://{ES}", tls=TRUST, proxy=proxy.url, of_context={"begins": begins}) as main,
    ):
        with pytest.raises(Later) as why:
            await main.send(documents(b"{}"))

    assert str(why.value) == f"{ES} by the proxy {proxy.url.removeprefix('http://')}: {reason}"
    assert (destination.total, told) == (0, [])


async def test_the_certificate_is_checked_through_a_tunnel(aio: Asyncio) -> None:
    async with behind_a_proxy(aio) as (destination, proxy):
        for tls, cause in (
            (ClientTls(), "unable to get local issuer"),
            (certificates.trust(CA, server_name="other.test"), "Hostname mismatch"),
        ):
            async with sender(aio, f"https://{ES}", tls=tls, proxy=proxy.url) as main:
                with pytest.raises(Later, match=cause) as why:
                    await main.send(documents(b"{}"))
                assert why.value.code == "tls_failed"

    assert destination.log == []


async def test_a_proxy_gets_no_credential_once_nothing_may_begin_any_more(aio: Asyncio) -> None:
    may = iter([True])  # before the connection is made
    async with behind_a_proxy(aio, login="ann:pröxy") as (_, proxy):
        settings = {"tls": TRUST, "proxy": proxy.url, "proxy_credential": CredentialId("proxy")}
        fence = {"may_begin": lambda: next(may, False)}
        async with sender(aio, f"https://{ES}", of_context=fence, **settings) as main:
            with pytest.raises(NotBegun):
                await main.send(documents(b"{}"))

    assert proxy.heads == []


async def test_a_tunnel_that_is_being_made_ends_with_the_block(aio: Asyncio) -> None:
    async with (
        open_proxy({}, refusal=b"HTTP/1.1 ") as proxy,
        trio.open_nursery() as nursery,
        sender(aio, f"https://{ES}", tls=TRUST, proxy=proxy.url) as main,
    ):
        nursery.start_soon(main.send, documents(b"{}"))
        await proxy.asked.wait()
        nursery.cancel_scope.cancel()


async def test_a_host_without_tls_is_asked_by_its_whole_url(aio: Asyncio) -> None:
    async with (
        open_destination(aio, keys={KEY}) as destination,
        open_proxy({ES: port_of(destination)}) as proxy,
        sender(aio, f"http://{ES}", proxy=proxy.url) as main,
    ):
        await main.send(documents(b"{}"))

    assert destination.total == 1
    assert proxy.heads[0].startswith(f"POST http://{ES}/")


async def test_the_proxy_of_the_environment_is_used_unless_the_policy_says_none(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with behind_a_proxy(aio, login="ann:canary") as (destination, proxy):
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("http://", "http://ann:canary@"))
        monkeypatch.setenv("NO_PROXY", "other.test")
        async with sender(aio, f"https://{ES}", tls=TRUST) as main:
            await main.send(documents(b"{}"))
        async with sender(aio, f"https://{ES}", tls=TRUST, proxy="none") as main:
            with pytest.raises(Later, match=r"name not found|no answer to the question"):
                await main.send(documents(b"{}", seq=2))

    assert (destination.total, len(proxy.heads)) == (1, 1)
    assert f"{ES} is asked by the environment's proxy {proxy.url.removeprefix('http://')}" in caplog.text
    assert "canary" not in caplog.text


# -- indices and pipelines by condition --------------------------------------------------------------------------------


CASES = """
    indices:
      - {index: audit, when: {equals: {kind: audit}}}
    pipeline: usual
    pipelines:
      - {pipeline: errors, when: {has_fields: [error.message]}}
"""


async def test_events_go_where_the_conditions_of_a_policy_say(aio: Asyncio) -> None:
    requests = []

    async def talk(stream: trio.SocketStream) -> None:
        requests.append(await read_request(stream))
        await stream.send_all(http(CREATED.replace(b"]}", b',{"create":{"status":201}}]}')))

    async with raw_server(talk) as url:
        text = POLICY.replace("https://es:9200", url) + CASES + "    compression: none\n"
        output = parse(text, Registry.installed()).outputs["main"].config
        async with output.open(OutputContext("main", aio, CREDENTIALS)) as main:
            answers = await main.send(documents(b'{"kind":"audit"}', b'{"error":{"message":"x"}}'))

    head, _, body = requests[0].partition(b"\r\n\r\n")
    assert dict(answers.others) == {}
    assert b"&pipeline=usual HTTP" in head
    assert [json.loads(line)["create"] for line in body.split(b"\n")[:-1:2]] == [
        {"_index": "audit", "_id": "MDEyMzQ1Njc4OWFiY2RlZg-1-0"},
        {"_index": "logs-generic-default", "_id": "MDEyMzQ1Njc4OWFiY2RlZg-1-1", "pipeline": "errors"},
    ]


def test_a_wrong_case_is_refused_at_its_place() -> None:
    for option, path in [
        ("indices: [{index: A, when: {equals: {a: 1}}}]", "outputs.main.indices[0].index"),
        ("indices: [{index: a}]", "outputs.main.indices[0].when"),
        ("indices: [{index: a, when: {}}]", "outputs.main.indices[0].when"),
        ("indices: [{index: a, when: {regexp: {a: '('}}}]", "outputs.main.indices[0].when.regexp.a"),
        ("pipelines: [{pipeline: a b, when: {equals: {a: 1}}}]", "outputs.main.pipelines[0].pipeline"),
    ]:
        with pytest.raises(PolicyError) as refused:
            parse(f"{POLICY}    {option}\n", Registry.installed())

        assert [problem.path for problem in refused.value.problems] == [path]
