"""The policy of a fleet is checked without any of its hosts, and what it changes is said before it is published."""

from __future__ import annotations

from pathlib import Path

import pytest

from shipper.fleet import changes
from shipper.fleet.changes import Candidate, Changes
from shipper.policy.registry import Registry
from shipper.sdk.errors import PolicyError

REGISTRY = Registry.installed()
POLICY = """version: 1
inputs:
  logs: {type: file, paths: ['/var/log/${NODE}/*.log']}
  net: {type: syslog, addresses: ['${LISTEN}']}
outputs:
  main:
    type: elasticsearch
    hosts: ['${ES}']
    credential: {fleet: es}
    tls: {ca: '/no/such/${NODE}.pem'}
  other:
    type: elasticsearch
    hosts: ['https://${OTHER:-es.example}:9200']
    credential: {file: '/no/such/${NODE}'}
queue: {max_bytes: '${SIZE}'}
drain: {deadline: '${DEADLINE}'}
"""
PINS = {"es": "es-1"}


def read(text: str) -> Candidate:
    return changes.read(text, REGISTRY)


def planned(after: str, before: str | None = POLICY, pins: dict[str, str] = PINS) -> Changes:
    return changes.plan(before, PINS if before else {}, read(after), pins, REGISTRY)


def problems(text: str) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        read(text)
    return [f"{problem.line}: {problem.path}: {problem.message}" for problem in caught.value.problems]


RELATIVE = "a relative path has no meaning on the hosts of a fleet; write an absolute one"


@pytest.mark.parametrize("file", [None, "/home/anna/policy.yaml"])
def test_a_relative_path_is_refused_where_it_is_written(file: str | None) -> None:
    text = POLICY.replace("'/no/such/${NODE}.pem'", "certificates/ca.pem")
    text = text.replace("'/no/such/${NODE}'", "'keys/${NODE}'")
    for part in (text, text.replace("'keys/${NODE}'", "/keys/es"), text.replace("certificates/", "/")):
        with pytest.raises(PolicyError) as caught:
            changes.read(part, REGISTRY, file=file)

        assert {problem.message for problem in caught.value.problems} == {RELATIVE}


@pytest.mark.parametrize("setting", ["path", "directory"])
def test_a_relative_path_of_an_output_is_refused_unless_it_begins_with_a_variable(setting: str) -> None:
    text = f"version: 1\noutputs:\n  main: {{type: file, {setting}: 'archive/${{NODE}}.ndjson'}}\n"

    assert problems(text) == [f"3: outputs.main.{setting}: {RELATIVE}"]
    for path in ("/archive/${NODE}", "${ARCHIVE}/events"):
        assert read(text.replace("archive/${NODE}.ndjson", path)).unchecked == ()


def test_a_path_that_begins_with_a_variable_is_that_of_the_host() -> None:
    text = POLICY.replace("'/no/such/${NODE}.pem'", "'${DIRECTORY}/ca.pem'")
    candidate = read(text.replace("'/no/such/${NODE}'", "'${KEYS}/es'"))

    assert candidate.policy is not None
    assert candidate.unchecked == ()


def test_files_secrets_and_variables_of_hosts_need_not_be_here() -> None:
    candidate = read(POLICY)

    assert candidate.policy is not None
    assert (candidate.names, candidate.unchecked) == (("es",), ())
    assert candidate.text == POLICY
    assert "version" not in repr(candidate)


BESIDE = "demo.yaml"
"""Its key is beside it, so it is for one host."""
EXAMPLES = [
    path
    for path in sorted(Path("policies").glob("*.yaml"))
    if "credential: {" in path.read_text() and path.name != BESIDE
]


def test_an_example_for_one_host_is_refused() -> None:
    assert problems((Path("policies") / BESIDE).read_text())[0].endswith(RELATIVE)


def test_every_example_with_references_is_accepted() -> None:
    for path in EXAMPLES:
        assert read(path.read_text()).policy is not None


def test_a_mistake_that_no_variable_excuses_is_named_by_its_place() -> None:
    for old, new, expected in [
        ("type: file", "type: fiel", '3: inputs.logs.type: there is no input of type "fiel"'),
        ("max_bytes", "mx_bytes", '15: queue.mx_bytes: unknown key "mx_bytes"'),
        (
            "fleet: es",
            "fleet: '${ES}'",
            "9: outputs.main.credential: the name of a secret of the fleet has no variables",
        ),
        ("{fleet: es}", "'${ES}'", "9: outputs.main.credential: a policy must not contain a secret"),
        ("fleet: es", "fleet: ES", "9: outputs.main.credential: `fleet` is followed by a name"),
        ("${NODE}/*", "${NO DE}/*", "3: inputs.logs.paths[0]: a variable is written ${NAME}"),
        ("version: 1", "version: 2", "1: version: this shipper reads version 1"),
        ("'${SIZE}'", "1", "15: queue.max_bytes: expected a size with a unit"),
        ("${OTHER:-es.example}", "a b", "13: outputs.other.hosts[0]: "),
    ]:
        (problem,) = problems(POLICY.replace(old, new))

        assert problem.startswith(expected)


def test_no_text_is_quoted() -> None:
    assert "canary" not in "".join(problems(POLICY.replace("{fleet: es}", "'id:canary-canary'")))


def test_a_default_that_does_not_fit_is_a_mistake() -> None:
    (problem,) = problems(POLICY.replace("${SIZE}", "${SIZE:-large}"))

    assert problem.startswith("15: queue.max_bytes: expected a size with a unit")


def test_what_cannot_be_checked_is_named_and_plans_nothing_but_secrets() -> None:
    text = POLICY.replace("deadline: '${DEADLINE}'", "on_deadline: '${WHAT}'")

    assert read(text).unchecked == ("drain.on_deadline",)
    assert planned(text, pins={"es": "es-2"}) == Changes(
        None, new_secrets={"es": "es-2"}, dropped_secrets={"es": "es-1"}, unchecked=["drain.on_deadline"]
    )


def test_comments_and_order_change_nothing() -> None:
    assert planned("# a comment\n" + POLICY) == Changes("none")


def test_a_first_version_adds_everything() -> None:
    found = planned(POLICY, None)

    assert (found.change, found.drained, found.removed) == ("live", [], [])
    assert found.added == ["inputs.logs", "inputs.net", "outputs.main", "outputs.other"]
    assert found.new_secrets == PINS


def test_what_changes_and_what_drains_is_named() -> None:
    for old, new, changed, drained in [
        ("'${ES}'", "'${ES_2}'", ["outputs.main"], ["outputs.main"]),
        ("es.example", "es-2.example", ["outputs.other"], ["outputs.other"]),
        ("${NODE}.pem", "ca.pem", ["outputs.main"], ["outputs.main"]),
        ("/no/such/${NODE}'", "/no/such/es'", ["outputs.other"], ["outputs.other"]),
        ("'${SIZE}'", "2GiB", ["queue"], []),
        ("*.log", "*.txt", ["inputs.logs"], []),
        ("version: 1", "version: 1\nprocessors: [{type: add_fields, fields: {a: b}}]", ["processors"], []),
    ]:
        found = planned(POLICY.replace(old, new))

        assert (found.changed, found.drained) == (changed, drained)
        assert found.change == ("barrier" if drained else "live")


def test_a_new_id_of_a_secret_drains_the_outputs_that_use_it() -> None:
    found = planned(POLICY, pins={"es": "es-2"})

    assert (found.change, found.drained, found.changed) == ("barrier", ["outputs.main"], ["outputs.main"])
    assert (found.new_secrets, found.dropped_secrets) == ({"es": "es-2"}, {"es": "es-1"})


def test_a_removed_output_drains_and_a_renamed_input_is_another() -> None:
    found = planned(POLICY.replace("  other:", "  third:").replace("  logs:", "  files:"))

    assert found.drained == ["outputs.other"]
    assert (found.added, found.removed) == (["inputs.files", "outputs.third"], ["inputs.logs", "outputs.other"])


def test_a_version_that_cannot_be_read_any_more_leaves_the_changes_unknown() -> None:
    found = planned(POLICY, POLICY.replace("type: file", "type: of_a_plugin_that_is_gone"))

    assert found == Changes(None)


def test_two_variables_are_two_values() -> None:
    text = "version: 1\noutputs:\n  a: {type: elasticsearch, hosts: ['${A}', '${B}']}\n"

    assert planned(text.replace("${B}", "${C}"), text, {}).drained == ["outputs.a"]
