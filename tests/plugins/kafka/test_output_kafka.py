"""The options of the `kafka` output; what it does is tested against a real broker (`tests/backends/test_kafka.py`)."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.plugin import BadOption, Code, Credential, CredentialId, OutputContext, StartFailed
from shipper.sdk.aio import open_asyncio
from shipper_plugins.kafka.output import KafkaOutput, KafkaTls, Sasl

_ID = CredentialId("c")
_SCHEMA = Path(__file__).parents[3] / "policies" / "shipper.schema.json"
_WITHOUT_LIBRARY = """
import sys
for name in ("aiokafka", "cramjam"):
    sys.modules[name] = None
from shipper.__main__ import main
main()
"""


def output(**options: Any) -> KafkaOutput:
    return KafkaOutput(**{"hosts": ("localhost:9092",), **options})


def test_an_option_that_cannot_be_is_named() -> None:
    for options, at in [
        ({"hosts": ("a:1", "a:1")}, ("hosts", 1)),
        ({"hosts": ("a:1", "b:99999")}, ("hosts", 1)),
        ({"hosts": ("a:0",)}, ("hosts", 0)),
        ({"hosts": ("a:1",), "sasl": Sasl(mechanism="PLAIN", credential=_ID)}, ("sasl", "mechanism")),
        ({"timeout": 0}, ("timeout",)),
        ({"request_max_bytes": 10}, ("request_max_bytes",)),
        ({"request_max_bytes": 17 << 20}, ("request_max_bytes",)),
    ]:
        with pytest.raises(BadOption) as error:
            output(**options)
        assert error.value.at == at


def test_a_key_makes_it_ordered() -> None:
    assert output(key="user.id").feeding().in_flight == 1
    assert output(key="user.id").feeding().ordered
    assert not output().feeding().ordered


def test_a_credential_over_a_plain_connection_is_told() -> None:
    assert output(hosts=("kafka:9092",), sasl=Sasl(credential=_ID)).warnings()
    assert not output(sasl=Sasl(credential=_ID)).warnings()


async def test_a_certificate_that_is_none_is_no_start() -> None:
    tls, secret = KafkaTls(credential=_ID), Credential.parse({"certificate": "-----BEGIN", "key": "canary-secret"})
    with trio.fail_after(30):
        async with open_asyncio() as aio:
            with pytest.raises(StartFailed) as failed:
                async with output(tls=tls).open(OutputContext("main", aio, {_ID: secret})):
                    pass
    assert failed.value.code == Code.CREDENTIAL_INVALID
    assert "canary-secret" not in str(failed.value)


def without_library(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT_LIBRARY, *arguments], capture_output=True, text=True, timeout=60
    )


def test_a_policy_without_the_library_is_refused_with_the_command_that_installs_it(tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text("version: 1\noutputs:\n  main: {type: kafka, hosts: ['localhost:9092'], topic: t}\n")
    done = without_library("validate", str(policy))
    assert done.returncode == 78
    assert "pip install 'shipper[kafka]'" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_the_schema_needs_no_library() -> None:
    done = without_library("schema")
    assert done.stdout == _SCHEMA.read_text()
