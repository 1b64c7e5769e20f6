"""The scripts of docs/rotating.md, run by a reader beside a real OpenSearch and a real Kafka broker."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
import trio

from tests.backends.maven import JVM
from tests.docs.reader import ACCESS, environment, furnish, running, shell, until
from tests.readme import FILES, Block, Page

pytestmark = pytest.mark.backend

PAGE = Page("docs/rotating.md")
CONFIGS = '#!/bin/sh\nexec java {options} -cp "{libraries}/*" kafka.admin.ConfigCommand "$@"\n'
ACLS = """#!{python}
import sys
from confluent_kafka.admin import *
from confluent_kafka import KafkaException
admin = AdminClient({{"bootstrap.servers": "{plain}"}})
principal, topic = (sys.argv[sys.argv.index(name) + 1] for name in ("--allow-principal", "--topic"))
kind, pattern = ResourceType.TOPIC, ResourcePatternType.LITERAL
writing = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
if "--add" in sys.argv:
    rules = [AclBinding(kind, topic, pattern, principal, "*", one, AclPermissionType.ALLOW) for one in writing]
    done = admin.create_acls(rules)
else:
    every = AclOperation.ANY, AclPermissionType.ANY
    done = admin.delete_acls([AclBindingFilter(kind, topic, pattern, principal, "*", *every)])
for future in done.values():
    future.result(30)
"""
"""What `kafka-acls.sh` does with these options; its class is in an archive that no other test needs."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    furnish(tmp_path, PAGE.files)
    (tmp_path / "bin/curl").unlink()
    (tmp_path / "keys").mkdir(mode=0o700)
    (tmp_path / "app.log").write_text("one\ntwo\n")
    for path in tmp_path.iterdir():
        if path.is_file() and path.read_bytes().startswith(b"#!"):
            path.chmod(0o755)
    return tmp_path


async def test_a_key_of_elasticsearch_is_replaced_and_invalidated(elasticsearch_node, place: Path) -> None:
    (place / "ca.pem").write_bytes(elasticsearch_node.ca.read_bytes())
    (place / "admin.curl").write_text(f'user = "{":".join(elasticsearch_node.admin)}"\n')
    (place / "policy.yaml").write_text(FILES["policy.yaml"])
    (place / "api-key.json").write_text(FILES["api-key.json"])
    env = environment(place, ES_URL=elasticsearch_node.url, NGINX_LOG=str(place / "access.log"))
    stream = "logs-nginx.access-default"
    command = "shipper supervise policy.yaml --config supervise-elasticsearch.yaml --state ./state\n"
    await shell(place, "./rotate-key", env)
    with running(place, Block("sh", "background", command), env) as output:
        output.start()
        await _counted(lambda: elasticsearch_node.count(stream), 5)
        await shell(place, "./rotate-key", env)
        await until(lambda: "on_release done" in output.text)
        with (place / "access.log").open("a") as log:
            log.write(ACCESS)
        await _counted(lambda: elasticsearch_node.count(stream), 6)
    name = json.loads(FILES["api-key.json"])["name"]
    keys = await trio.to_thread.run_sync(elasticsearch_node.change, "GET", f"/_security/api_key?name={name}")
    in_order = sorted(keys["api_keys"], key=lambda key: key["creation"])

    assert [key["invalidated"] for key in in_order][-2:] == [True, False]


async def test_a_user_of_opensearch_is_replaced_and_deleted(opensearch, place: Path) -> None:
    (place / "ca.pem").write_bytes(opensearch.ca.read_bytes())
    (place / "admin.curl").write_text(f'user = "{":".join(opensearch.admin)}"\n')
    env = environment(place, OPENSEARCH_URL=opensearch.url)
    role, rotate = PAGE.shell("opensearch")
    stream = "logs-app-default"
    await shell(place, role.text, env)
    await shell(place, rotate.text, env)
    first = _user(place / "keys/opensearch")
    with running(place, PAGE.one("sh", "opensearch background"), env) as output:
        output.start()
        await _counted(lambda: opensearch.count(stream), 2)
        await _next_second(first)
        await shell(place, rotate.text, env)
        await until(lambda: "on_release done" in output.text)
        with (place / "app.log").open("a") as log:
            log.write("three\n")
        await _counted(lambda: opensearch.count(stream), 3)
        users = await trio.to_thread.run_sync(opensearch.change, "GET", "/_plugins/_security/api/internalusers")

    assert first not in users
    assert _user(place / "keys/opensearch") in users
    await shell(place, f"SHIPPER_CREDENTIAL_NAME={first} ./revoke-user", env)


async def test_a_scram_user_of_kafka_is_replaced_and_deleted(kafka, place: Path) -> None:
    (place / "ca.pem").write_bytes(kafka.ca.read_bytes())
    (place / "admin.properties").touch()
    for name, text in (("configs", CONFIGS), ("acls", ACLS)):
        program = place / f"bin/kafka-{name}.sh"
        told = {"options": " ".join(JVM), "libraries": kafka.libraries, "python": sys.executable, "plain": kafka.plain}
        program.write_text(text.format(**told))
        program.chmod(0o755)
    await trio.to_thread.run_sync(kafka.create_topic, "logs")
    env = environment(place, KAFKA=kafka.plain, KAFKA_TLS=kafka.sasl)
    (rotate,) = PAGE.shell("kafka")
    await shell(place, rotate.text, env)
    first = _user(place / "keys/kafka")
    with running(place, PAGE.one("sh", "kafka background"), env) as output:
        output.start()
        await _counted(lambda: kafka.count("logs"), 2)
        await _next_second(first)
        await shell(place, rotate.text, env)
        await until(lambda: "on_release done" in output.text)
        with (place / "app.log").open("a") as log:
            log.write("three\n")
        await _counted(lambda: kafka.count("logs"), 3)
    records = await trio.to_thread.run_sync(kafka.records, "logs")
    known = await trio.to_thread.run_sync(kafka.users)

    assert [json.loads(record.value())["message"] for record in records] == ["one", "two", "three"]
    assert first not in known
    assert _user(place / "keys/kafka") in known
    await shell(place, f"SHIPPER_CREDENTIAL_NAME={first} ./revoke-scram", env)


def _user(file: Path) -> str:
    return file.read_text().splitlines()[0].removeprefix("username: ")


async def _counted(count, wanted: int) -> None:
    with trio.fail_after(120):
        while await trio.to_thread.run_sync(count) < wanted:  # noqa: ASYNC110 (another process)
            await trio.sleep(0.2)


async def _next_second(name: str) -> None:
    """Names of users have seconds."""
    while name.endswith(time.strftime("%H%M%S", time.gmtime())):  # noqa: ASYNC110 (a clock)
        await trio.sleep(0.1)
