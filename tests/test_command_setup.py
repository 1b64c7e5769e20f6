"""`shipper setup`: what it shows where no destination answers. Real ones are in tests/backends."""

import json

import pytest
from click.testing import CliRunner

from shipper.commands.setup import command
from tests.plugins.elasticsearch.test_elasticsearch_asked import serving

POLICY = """
version: 1
inputs:
  app: {type: file, paths: [/a.log], data_stream: {dataset: app, namespace: prod}}
outputs:
  main: {type: elasticsearch, hosts: ["http://127.0.0.1:1", "http://127.0.0.1:2"]}
  tty: {type: console}
"""


@pytest.fixture
def set_up(tmp_path):
    def run(*arguments, text=POLICY):
        (tmp_path / "policy.yaml").write_text(text)
        return CliRunner().invoke(command, [arguments[0], str(tmp_path / "policy.yaml"), *map(str, arguments[1:])])

    return run


def test_templates_are_shown_though_no_host_answers(set_up):
    result = set_up("elasticsearch")
    lines = [line for line in result.stdout.splitlines() if not line.startswith(" ")]

    assert result.exit_code == 1
    assert lines == [
        "outputs.main: component template shipper@mappings: unknown: 127.0.0.1:2: connection refused",
        "outputs.main: index template shipper-logs-app: unknown: 127.0.0.1:2: connection refused",
        "outputs.main: destination main: 127.0.0.1:2: connection refused",
    ]
    assert '"logs-app-*"' in result.stdout


def test_another_web_server_is_not_taken_for_a_node_and_nothing_is_written_to_it(set_up):
    with serving({"GET /": (200, {}, b"<html>welcome")}) as (host, asked):
        result = set_up(
            "elasticsearch", "--write", text=POLICY.replace('["http://127.0.0.1:1", "http://127.0.0.1:2"]', f"[{host}]")
        )

    assert (result.exit_code, "neither Elasticsearch nor OpenSearch" in result.stdout) == (1, True)
    assert [path for _, path, _ in asked] == ["/"]


def test_programs_get_the_templates_too(set_up):
    told = json.loads(set_up("elasticsearch", "--json", "--place", "metrics-cpu-x").stdout)

    assert [(one["output"], one["name"]) for one in told["prepared"]] == [
        ("main", "shipper@mappings"),
        ("main", "shipper-logs-app"),
        ("main", "shipper-metrics-cpu"),
    ]
    assert told["prepared"][1]["content"]["data_stream"] == {}
    assert told["problems"][0]["code"] == "unreachable"


def test_a_policy_of_an_index_needs_nothing(set_up):
    result = set_up("elasticsearch", text=POLICY.replace(':2"]', ':2"], index: mine'))

    assert (result.exit_code, result.stdout) == (0, "the policy has no data streams that need anything\n")


def test_what_cannot_be_set_up_is_refused_with_a_reason(set_up, tmp_path):
    assert "no output of the type kafka" in str(set_up("kafka").exception)
    assert "type console need nothing" in str(set_up("console").exception)
    assert "there is no output nope" in str(set_up("elasticsearch", "--output", "nope").exception)
    assert "No such file" in str(set_up("elasticsearch", "--secret", tmp_path / "none").exception)
    assert set_up("elasticsearch", text="version: 1\nquue: 1\n").exit_code == 78


def test_a_given_secret_that_fits_several_outputs_is_sent_to_none_that_is_not_named(set_up, tmp_path):
    (tmp_path / "admin").write_text("admin:hunter2")
    main = '  main: {type: elasticsearch, hosts: ["http://127.0.0.1:1"], credential: {file: /no}}'
    two = f"version: 1\ninputs: {{app: {{type: generate}}}}\noutputs:\n{main}\n{main.replace('main', 'other')}\n"
    refused = set_up("elasticsearch", "--secret", tmp_path / "admin", text=two)

    assert "name the one by --output (main, other)" in str(refused.exception)
    assert set_up("elasticsearch", "--output", "main", "--secret", tmp_path / "admin", text=two).exit_code == 1
