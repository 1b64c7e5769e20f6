"""What real destinations say when they are asked before any event is sent."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AclOperation

from shipper.commands.setup import command as setup
from shipper.commands.test import command

pytestmark = pytest.mark.backend

PAGE = (Path(__file__).parents[2] / "docs" / "testing-policies.md").read_text()

NARROW = {"indices": [{"names": ["logs-app-*"], "privileges": ["create_doc"]}]}


def asked(kind, path, *options):
    result = CliRunner().invoke(command, [kind, str(path), *options])
    return result.exit_code, [line.strip() for line in result.stdout.splitlines()]


@pytest.fixture
def policy(tmp_path: Path):
    """Writes a policy whose output `main` goes to a node with a secret."""

    def write(node, secret, more="", host=None):
        (tmp_path / "secret").write_text(secret)
        (tmp_path / "secret").chmod(0o600)
        (tmp_path / "policy.yaml").write_text(
            "version: 1\n"
            "inputs:\n"
            "  app: {type: file, paths: [/a.log], data_stream: {dataset: app, namespace: prod}}\n"
            "  web: {type: file, paths: [/b.log], data_stream: {dataset: web}}\n"
            "outputs:\n"
            f'  main: {{type: elasticsearch, hosts: ["{host or node.url}"], credential: {{file: secret}}, '
            f"tls: {{ca: {node.ca}}}{more}}}\n"
        )
        return tmp_path / "policy.yaml"

    return write


def written(user):
    return f"username: {user[0]}\npassword: {user[1]}\n"


def where(node):
    return node.url.removeprefix("https://")


def test_elasticsearch_names_what_a_user_may_write(elasticsearch_node, policy):
    user = elasticsearch_node.create_writer("asked-wide")
    status, lines = asked("output", policy(elasticsearch_node, written(user)))
    host = where(elasticsearch_node)

    assert (status, lines[0], lines[-1]) == (0, "outputs.main", "nothing is bad")
    assert f"good     address {host}" in lines
    assert f"good     tls {host}" in lines
    assert f"good     login {host}: user asked-wide" in lines
    assert "good     privilege logs-app-prod: create_doc" in lines
    assert "good     privilege logs-web-default: create_doc" in lines


def test_elasticsearch_names_what_is_missing_for_each_stream(elasticsearch_node, policy):
    user = elasticsearch_node.create_writer("asked-narrow", NARROW)
    status, lines = asked("output", policy(elasticsearch_node, written(user)))

    assert (status, lines[-1]) == (1, "1 bad")
    assert (
        "bad      privilege logs-web-default: missing: create_doc, auto_configure; give it to the role or the API key, "
        "for the index logs-web-default"
    ) in lines
    assert [line for line in lines if line.startswith("unknown  privilege logs-app-prod: it may write, but not create")]


def test_what_may_not_be_created_may_be_there(elasticsearch_node, policy):
    role = {"indices": [{"names": ["logs-app-*"], "privileges": ["create_doc", "view_index_metadata"]}]}
    user = elasticsearch_node.create_writer("asked-there", role)
    elasticsearch_node.change("PUT", "/logs-app-prod")
    try:
        _, lines = asked("output", policy(elasticsearch_node, written(user)))
    finally:
        elasticsearch_node.change("DELETE", "/logs-app-prod")

    assert "good     privilege logs-app-prod: create_doc" in lines


def test_what_goes_elsewhere_by_condition_is_asked_about_too(elasticsearch_node, policy):
    role = {
        "cluster": ["read_pipeline"],
        "indices": [{"names": ["logs-*"], "privileges": ["create_doc", "create_index"]}],
    }
    user = elasticsearch_node.create_writer("asked-cases", role)
    elasticsearch_node.change("PUT", "/_ingest/pipeline/asked-here", {"processors": []})
    more = (
        ", pipeline: asked-here, pipelines: [{pipeline: asked-gone, when: {has_fields: [never.there]}}]"
        ", indices: [{index: audit, when: {has_fields: [never.there]}}, {index: logs-own, when: {has_fields: [nor]}}]"
    )
    try:
        status, lines = asked("output", policy(elasticsearch_node, written(user), more))
    finally:
        elasticsearch_node.change("DELETE", "/_ingest/pipeline/asked-here")
    host = where(elasticsearch_node)

    assert (status, lines[-1]) == (1, "2 bad")
    assert f"good     destination {host}: pipeline asked-here" in lines
    assert f"bad      destination {host}: there is no pipeline asked-gone" in lines
    assert "good     privilege logs-app-prod: create_doc" in lines
    assert "good     privilege logs-own: create_doc" in lines
    assert (
        "bad      privilege audit: missing: create_doc, auto_configure; give it to the role or the API key, "
        "for the index audit"
    ) in lines


def test_a_pipeline_that_may_not_be_looked_up_is_not_known(elasticsearch_node, policy):
    user = elasticsearch_node.create_writer("asked-dark")
    status, lines = asked("output", policy(elasticsearch_node, written(user), ", pipeline: asked-dark"))

    told = "pipeline asked-dark: the credential may not look it up (read_pipeline)"
    assert status == 0
    assert f"unknown  destination {where(elasticsearch_node)}: {told}" in lines


def test_an_api_key_is_known_until_it_is_invalidated(elasticsearch_node, policy):
    id, secret = elasticsearch_node.create_api_key("asked-key")
    path = policy(elasticsearch_node, secret)
    status, lines = asked("credential", path)

    assert status == 0
    assert f"good     secret file:{path.parent}/secret: {id}" in lines
    assert f"good     login {where(elasticsearch_node)}: API key asked-key of user admin" in lines
    assert not [line for line in lines if "address" in line or secret in line]
    elasticsearch_node.delete_api_key(id)
    status, lines = asked("credential", path)
    assert (status, lines[-1]) == (1, "1 bad")
    assert [line for line in lines if line.startswith(f"bad      login {where(elasticsearch_node)}: 401 Unauthorized")]


def test_a_new_credential_is_asked_about_before_the_policy_has_it(elasticsearch_node, policy, tmp_path):
    _, new = elasticsearch_node.create_api_key("asked-new", NARROW)
    path = policy(elasticsearch_node, "id:the-old-and-dead-secret")
    (tmp_path / "new").write_text(new)
    status, lines = asked("credential", path, "--secret", str(tmp_path / "new"))

    assert status == 1
    assert f"good     login {where(elasticsearch_node)}: API key asked-new of user admin" in lines
    assert [line for line in lines if line.startswith("bad      privilege logs-web-default: missing: create_doc")]


def test_nothing_is_written_to_elasticsearch(elasticsearch_node, policy):
    user = elasticsearch_node.create_writer("asked-nothing")
    before = elasticsearch_node.change("GET", "/_cat/indices?format=json&h=index,docs.count")
    asked("output", policy(elasticsearch_node, written(user)), "--try")

    assert elasticsearch_node.change("GET", "/_cat/indices?format=json&h=index,docs.count") == before


def test_a_certificate_that_is_not_trusted_and_a_closed_port_are_told_apart(elasticsearch_node, policy):
    user = elasticsearch_node.create_writer("asked-tls")
    host = where(elasticsearch_node)
    path = policy(elasticsearch_node, written(user))
    path.write_text(path.read_text().replace(f"tls: {{ca: {elasticsearch_node.ca}}}", "workers: 1"))
    _, untrusted = asked("output", path)
    _, closed = asked("output", policy(elasticsearch_node, written(user), host="https://localhost:1"))

    assert f"good     address {host}" in untrusted
    assert [line for line in untrusted if line.startswith(f"bad      tls {host}: certificate verify failed")]
    assert "bad      address localhost:1: connection refused" in closed


def test_opensearch_knows_the_user_and_tells_privileges_only_when_it_is_tried(opensearch, policy):
    user = opensearch.create_writer("asked-open", {**NARROW_ACTIONS})
    path = policy(opensearch, written(user))
    status, lines = asked("output", path)

    assert status == 0
    assert f"good     login {where(opensearch)}: user asked-open" in lines
    assert [line for line in lines if line.startswith("unknown  privilege logs-app-prod: OpenSearch does not tell")]
    before = opensearch.count("logs-app-prod")
    status, lines = asked("output", path, "--try")
    assert status == 1
    assert "good     privilege logs-app-prod: a document may be created" in lines
    assert [line for line in lines if line.startswith("bad      privilege logs-web-default: 403 security_exception")]
    assert opensearch.count("logs-app-prod") == before


def test_opensearch_does_not_know_a_wrong_password(opensearch, policy):
    name, _ = opensearch.create_writer("asked-wrong")
    status, lines = asked("output", policy(opensearch, written((name, "hunter2"))))

    assert status == 1
    assert [line for line in lines if line.startswith(f"bad      login {where(opensearch)}: 401 Unauthorized")]
    assert not [line for line in lines if "hunter2" in line]


NARROW_ACTIONS = {
    "cluster_permissions": ["indices:data/write/bulk"],
    "index_permissions": [
        {
            "index_patterns": ["logs-app-*"],
            "allowed_actions": ["indices:data/write/bulk*", "indices:data/write/index", "indices:admin/create"],
        }
    ],
}


@pytest.fixture
def streaming(tmp_path: Path):
    """Writes a policy whose output `main` goes to a broker."""

    def write(kafka, host, topics, user=None, ca=None):
        login = "" if user is None else ", sasl: {credential: {file: secret}, mechanism: SCRAM-SHA-512}"
        tls = "" if ca is None else f", tls: {{ca: {ca}}}"
        if user is not None:
            (tmp_path / "secret").write_text(written(user))
        inputs = "".join(
            f"  i{number}: {{type: generate, processors: [{{type: add_fields, fields: {{topic: {topic}}}}}]}}\n"
            for number, topic in enumerate(topics)
        )
        (tmp_path / "policy.yaml").write_text(
            f"version: 1\ninputs:\n{inputs}outputs:\n"
            f'  main: {{type: kafka, hosts: ["{host}"], topic_field: topic{login}{tls}}}\n'
        )
        return tmp_path / "policy.yaml"

    return write


def test_a_broker_names_the_topics_that_are_missing_or_forbidden(kafka, streaming):
    kafka.create_topic("asked-mine")
    kafka.create_topic("asked-other")
    user = kafka.create_user("asked-ship", topics="asked-mine")
    topics = ["asked-mine", "asked-other", "asked-none"]
    status, lines = asked("output", streaming(kafka, kafka.sasl, topics, user, kafka.ca))
    _, of_admin = asked("output", streaming(kafka, kafka.plain, topics))

    assert status == 1
    assert lines[1:] == [
        f"good     secret file:{lines[1].split('file:')[1]}",
        f"good     address {kafka.sasl}",
        f"good     tls {kafka.sasl}",
        f"good     login {kafka.sasl}",
        "good     privilege asked-mine: Write",
        "bad      privilege asked-none: topic asked-none: TOPIC_AUTHORIZATION_FAILED",
        "bad      privilege asked-other: topic asked-other: TOPIC_AUTHORIZATION_FAILED",
        "2 bad",
    ]
    assert "bad      privilege asked-none: topic asked-none: UNKNOWN_TOPIC_OR_PARTITION: create the topic" in of_admin
    assert "good     privilege asked-other: Write" in of_admin
    assert kafka.count("asked-mine") == kafka.count("asked-other") == 0


def test_a_user_that_may_read_a_topic_and_not_write_to_it_is_told_apart(kafka, streaming):
    """Metadata show such a topic: only a request to write is refused."""
    kafka.create_topic("asked-read")
    user = kafka.create_user("asked-reader", topics="asked-elsewhere")
    kafka.permit("User:asked-reader", "asked-read", [AclOperation.DESCRIBE])
    _, lines = asked("output", streaming(kafka, kafka.sasl, ["asked-read"], user, kafka.ca))

    assert (
        "bad      privilege asked-read: topic asked-read: TOPIC_AUTHORIZATION_FAILED: the user lacks Write" in lines
    ), lines


def test_a_broker_does_not_know_a_wrong_password_and_has_a_trusted_certificate(kafka, streaming):
    name, _ = kafka.create_user("asked-wrong")
    _, wrong = asked("output", streaming(kafka, kafka.sasl, ["asked-mine"], (name, "hunter2"), kafka.ca))
    path = streaming(kafka, kafka.sasl, ["asked-mine"], (name, "hunter2"), kafka.ca)
    path.write_text(path.read_text().replace(f"{{ca: {kafka.ca}}}", "{}"))
    _, untrusted = asked("output", path)
    _, closed = asked("output", streaming(kafka, "127.0.0.1:1", ["asked-mine"]))

    assert [line for line in wrong if line.startswith(f"bad      login {kafka.sasl}: ")]
    assert f"good     tls {kafka.sasl}" in wrong
    assert [line for line in untrusted if line.startswith(f"bad      tls {kafka.sasl}: ")]
    assert [line for line in closed if line.startswith("bad      address 127.0.0.1:1: ")]


@pytest.fixture
def bare():
    """Removes what `shipper setup` has written to a node before."""

    def remove(node):
        node.request("DELETE", "/_data_stream/logs-types-x")
        node.request("DELETE", "/logs-types-x")
        for name in ("app", "web", "types"):
            node.request("DELETE", f"/_index_template/shipper-logs-{name}")
        for name in ("shipper@mappings", "ecs@mappings"):
            node.request("DELETE", f"/_component_template/{name}")

    return remove


def set_up(path, *options):
    result = CliRunner().invoke(setup, ["elasticsearch", str(path), *options])
    return result.exit_code, [line for line in result.stdout.splitlines() if not line.startswith(" ")]


NAMES = ["component template shipper@mappings", "index template shipper-logs-app", "index template shipper-logs-web"]


@pytest.mark.parametrize("backend", ["elasticsearch_node", "opensearch"])
def test_templates_are_shown_then_written_and_then_never_again(request, backend, policy, bare):
    node = request.getfixturevalue(backend)
    bare(node)
    path = policy(node, written(node.admin))
    shown = set_up(path)
    nothing = node.request("GET", "/_index_template/shipper-logs-app").status
    first = set_up(path, "--write")
    again = set_up(path, "--write")
    got = node.change("GET", "/_index_template/shipper-logs-app")["index_templates"][0]["index_template"]

    assert shown == (0, [*(f"outputs.main: {name}: missing" for name in NAMES), "nothing was written: add --write"])
    assert nothing == 404
    assert first == (0, [f"outputs.main: {name}: written" for name in NAMES])
    assert again == (0, [f"outputs.main: {name}: is there" for name in NAMES])
    assert got["composed_of"] == ["shipper@mappings"]


def test_what_is_somebody_elses_stays_and_an_older_form_is_replaced(elasticsearch_node, policy, bare):
    bare(elasticsearch_node)
    path = policy(elasticsearch_node, written(elasticsearch_node.admin))
    mine = {"index_patterns": ["logs-app-*"], "priority": 7, "_meta": {"who": "me"}}
    older = {"index_patterns": ["logs-web-*"], "priority": 8, "_meta": {"managed_by": "shipper", "digest": "old"}}
    elasticsearch_node.change("PUT", "/_index_template/shipper-logs-app", mine)
    elasticsearch_node.change("PUT", "/_index_template/shipper-logs-web", older)
    elasticsearch_node.change("PUT", "/_component_template/ecs@mappings", {"template": {}})
    status, lines = set_up(path, "--write")
    told = elasticsearch_node.change("GET", "/_index_template/shipper-logs-*")["index_templates"]
    app, web = (one["index_template"] for one in sorted(told, key=lambda one: one["name"]))

    assert status == 0
    assert lines[1:] == [
        f"outputs.main: {NAMES[1]}: left alone: it is of somebody else, and stays as it is",
        f"outputs.main: {NAMES[2]}: written",
    ]
    assert (app["priority"], web["composed_of"]) == (7, ["ecs@mappings", "shipper@mappings"])


def test_a_stream_gets_the_types_of_its_template(opensearch, policy, bare):
    """The fields of nginx are numbers and addresses, and an odd text does not make a field a date.

    (The distribution of Elasticsearch for tests cannot delete a data stream, which keeps its template from going.)
    """
    bare(opensearch)
    set_up(policy(opensearch, written(opensearch.admin)), "--place", "logs-types-x", "--write")
    document = (
        b'{"create":{}}\n{"@timestamp":"2026-01-01T00:00:00Z","message":"x","http":{"response":{"status_code":200}},'
        b'"source":{"ip":"192.0.2.1"},"labels":{"day":"2026-01-01"}}\n'
    )
    answer = opensearch.request("POST", "/logs-types-x/_bulk?refresh=true", document).json()
    (found,) = opensearch.change("GET", "/logs-types-x/_mapping").values()
    fields = found["mappings"]["properties"]

    assert not answer["errors"], answer
    assert fields["http"]["properties"]["response"]["properties"]["status_code"] == {"type": "long"}
    assert fields["source"]["properties"]["ip"]["type"] == "ip"
    assert fields["labels"]["properties"]["day"]["type"] == "keyword"


def test_without_the_privilege_it_says_which_is_missing(elasticsearch_node, policy):
    user = elasticsearch_node.create_writer("asked-setup")
    status, lines = set_up(policy(elasticsearch_node, written(user)), "--write")

    assert status == 1
    assert "needs the privilege manage_index_templates; give another one by --secret" in lines[0]


# -- the page testing-policies.md --------------------------------------------------------------------------------------


def run(command, folder):
    """Runs a command of the page in a shell; the keys of the host are those of the folder, where there is no git."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    text = command.replace("/run/keys", str(folder)).replace("git show main:", "cat ")
    return subprocess.run(
        ["bash", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.S | re.M)


def test_the_commands_of_the_page_run(elasticsearch_node, policy, tmp_path):
    _, new = elasticsearch_node.create_api_key("asked-page")
    policy(elasticsearch_node, "id:the-old-and-dead-secret")
    (tmp_path / "es-new").write_text(new)
    ended = [run(block, tmp_path) for block in blocks("sh")]

    assert [one.returncode for one in ended] == [0, 0], ended
    assert ["changes nothing" in one.stdout for one in ended] == [True, False]
    assert ended[1].stdout.endswith("nothing is bad\n")


def test_templates_are_shown_as_the_page_shows_them(opensearch, policy, tmp_path, bare):
    bare(opensearch)
    path = policy(opensearch, "id:of-no-use")
    path.write_text(path.read_text().replace("dataset: app", "dataset: nginx.access"))
    (tmp_path / "admin").write_text(written(opensearch.admin))
    (shown,) = [block for block in blocks("console") if "shipper setup" in block]
    asks, _, told = shown.partition("\n")
    ended = run(asks.removeprefix("$ "), tmp_path)

    assert ended.returncode == 0
    assert [part for part in told.split("…\n") if part not in ended.stdout] == []
