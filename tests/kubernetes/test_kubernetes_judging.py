"""A generation of a policy is judged alone, and reads nothing of the host that the host's own settings do not allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.kubernetes.judging import judge
from shipper.kubernetes.member.steps import Judgement
from shipper.policy.registry import Registry

REGISTRY = Registry.installed()
SECRET = {"secret": {"name": "es", "key": "api_key"}}


def policy(credential: object = SECRET, **output: object) -> dict[str, Any]:
    main = {"type": "elasticsearch", "hosts": ["https://es:9200"], "credential": credential}
    app = {"type": "file", "paths": ["/var/log/app.log"]}
    return {"version": 1, "inputs": {"app": app}, "outputs": {"main": {**main, **output}}}


def judged(written: dict[str, Any], environment: dict[str, str] | None = None) -> Judgement:
    return judge("web", written, REGISTRY, environment)


def problems(written: dict[str, Any], environment: dict[str, str] | None = None) -> list[tuple[str, str]]:
    return [(problem.path, problem.message) for problem in judged(written, environment).problems]


def test_a_policy_with_a_secret_of_its_namespace_is_valid() -> None:
    assert judged(policy()) == Judgement()


def test_a_mistake_has_its_path() -> None:
    ((path, message),) = problems(policy(host="x"))

    assert path == "outputs.main.host"
    assert "did you mean" in message


@pytest.mark.parametrize("reference", [{"file": "/etc/shadow"}, {"env": "AWS_KEY"}, {"systemd": "es"}, {"fleet": "es"}])
def test_a_policy_reads_no_secret_of_a_host(reference: dict[str, str]) -> None:
    ((path, message),) = problems(policy(reference))

    assert path == "outputs.main.credential"
    assert "may not read secrets of a host" in message
    assert "{secret: {name: NAME, key: KEY}}" in message


def test_a_policy_reads_no_variable_of_a_host() -> None:
    ((path, message),) = problems(policy(hosts=["https://${AWS_KEY}.example"]))

    assert path == "outputs.main.hosts[0]"
    assert "may not read variables of a host" in message


def test_what_is_twice_a_dollar_is_no_variable() -> None:
    assert problems(policy(index="$${x}")) == []


def test_a_host_may_allow_its_variables_and_files(tmp_path: Path) -> None:
    written = policy({"file": str(tmp_path / "es")}, hosts=["https://${HOST}:9200"], timeout="${SECONDS}s")

    assert problems(written, {"HOST": "es", "SECONDS": "5"}) == []
    ((_, message),) = problems(written, {"HOST": "es"})
    assert "SECONDS is not set" in message


def test_nobody_chooses_the_content_of_a_secret() -> None:
    ((path, _),) = problems(policy({"secret": {"name": "es", "key": "api_key", "id": "es-1"}}))

    assert path == "outputs.main.credential"


def test_a_malformed_reference_is_named() -> None:
    ((path, message),) = problems(policy({"secret": "es"}))

    assert (path, message) == ("outputs.main.credential", "`secret` is followed by {name: NAME, key: KEY}")


def test_what_a_newer_shipper_may_know_is_unsupported() -> None:
    newer = {"version": 1, "inputs": {"app": {"type": "telepathy"}}}

    assert judged(newer).unsupported
    assert not judged({"version": 2}).unsupported
    assert not judged({}).unsupported


def test_processors_without_an_input_are_judged_too() -> None:
    assert [path for path, _ in problems({"version": 1, "processors": [{"type": "parse", "as": 1}]})] != []


def test_a_secret_in_a_policy_is_refused_and_not_quoted() -> None:
    ((_, message),) = problems(policy("id:canary-of-a-key"))

    assert "canary" not in message


def test_what_nests_too_deeply_is_refused() -> None:
    nested: dict[str, Any] = {}
    for _ in range(400):
        nested = {"a": nested}

    ((_, message),) = problems({"version": 1, "inputs": nested})
    assert "deeper than 32" in message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "paths", "hosts", "credential", "secret", "name", "x"]), inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["version", "inputs", "outputs", "processors", "queue", "x"]), JSON))
def test_whatever_an_object_holds_is_judged_and_raises_nothing(written: dict[str, Any]) -> None:
    found = judged(written)

    assert found.problems or written.get("version") == 1


@given(JSON)
def test_whatever_a_reference_is_no_file_of_the_host_is_read(reference: Any) -> None:
    judged(policy(reference))
