"""The ways of the `elasticsearch` output to a real backend: its fingerprint, a proxy, a dead host, conditions."""

import hashlib
import ssl
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
import trio

from shipper.plugin import (
    Batch,
    ClientTls,
    Condition,
    Credential,
    CredentialId,
    Later,
    Outcome,
    OutputContext,
)
from shipper.sdk.aio import open_asyncio
from shipper_demo.ports import free_port
from shipper_plugins.elasticsearch.client import host_rotation
from shipper_plugins.elasticsearch.client.index_cases import IndexCase, PipelineCase
from shipper_plugins.elasticsearch.output import ElasticsearchOutput
from tests.proxy import open_proxy

pytestmark = pytest.mark.backend

AUDIT = Condition(equals={"kind": "audit"})
TAGGED = Condition(has_fields=["tag"])


@asynccontextmanager
async def sender(user, *hosts, **settings):
    credential = Credential.parse({"username": user[0], "password": user[1]})
    output = ElasticsearchOutput(hosts=hosts, credential=CredentialId("es"), **settings)
    with trio.fail_after(120):
        async with open_asyncio() as aio, output.open(OutputContext("main", aio, {"es": credential})) as opened:
            yield opened


def documents(*texts, seq=1):
    return replace(Batch.documents(texts), origin=b"0123456789abcdef", seq=seq)


def fingerprint(node):
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(node.ca.read_text())).hexdigest()


async def test_a_node_is_trusted_by_the_fingerprint_of_its_authority_through_a_proxy(opensearch):
    user = opensearch.create_writer("ways-proxy")
    settings = {"tls": ClientTls(verification="certificate"), "ca_fingerprint": fingerprint(opensearch)}
    async with (
        open_proxy({"es.test:9200": urlsplit(opensearch.url).port}) as proxy,
        sender(user, "https://es.test:9200", index="logs-ways-proxy", proxy=proxy.url, **settings) as main,
    ):
        answers = await main.send(documents(b'{"a":1}', b'{"a":2}'))

    assert dict(answers.others) == {}
    assert opensearch.count("logs-ways-proxy") == 2
    assert {head.split(" ")[0] for head in proxy.heads} == {"CONNECT"}


async def test_a_node_with_another_authority_gets_nothing(opensearch):
    user = opensearch.create_writer("ways-other")
    async with sender(user, opensearch.url, index="logs-ways-other", ca_fingerprint="ab" * 32) as main:
        with pytest.raises(Later, match="no certificate of its chain"):
            await main.send(documents(b'{"a":1}'))

    assert opensearch.count("logs-ways-other") == 0


async def test_beside_a_dead_host_each_event_goes_where_its_condition_says(opensearch, monkeypatch):
    """A pipeline that is not there holds the events that name it, and no others."""
    monkeypatch.setattr(host_rotation, "PROBE_FIRST", 0.01)
    opensearch.change("PUT", "/_ingest/pipeline/ways", {"processors": []})
    user = opensearch.create_writer("ways-cases")
    settings = {
        "ca_fingerprint": fingerprint(opensearch),
        "index": "logs-ways-all",
        "indices": (IndexCase(index="logs-ways-audit", when=AUDIT),),
        "pipelines": (PipelineCase(pipeline="ways", when=AUDIT), PipelineCase(pipeline="missing", when=TAGGED)),
    }
    batch = documents(b'{"kind":"audit"}', b'{"tag":"x"}', b'{"n":1}')
    async with sender(user, f"https://127.0.0.1:{free_port()}", opensearch.url, **settings) as main:
        for seq in range(4):
            answers = await main.send(replace(batch, seq=seq))
            assert {at: answer.outcome for at, answer in answers.others.items()} == {1: Outcome.HELD}

    assert (opensearch.count("logs-ways-audit"), opensearch.count("logs-ways-all")) == (4, 4)
