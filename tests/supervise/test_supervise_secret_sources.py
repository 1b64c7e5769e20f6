"""A kind of reference that a stranger has installed."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from shipper.policy import document, registry, secret_sources
from shipper.policy.registry import Registry
from shipper.policy.schema import json_schema
from shipper.sdk.errors import PolicyError
from shipper.sdk.secret_source import LARGEST, Absent, SecretSource
from shipper.supervise.desired import Desired
from shipper.supervise.secrets import Reference, exposed, read, references, watched
from shipper.supervise.sources import PolicyFiles

MODULE = '''
import json, os
from pathlib import Path
from shipper.plugin.secrets import Absent, SecretSource, text_of

class VaultSecret(SecretSource, frozen=True):
    """A field of an object, which is a file of JSON here."""

    field: str = "value"

    placeholder = "OBJECT"
    schema = {"type": "string", "examples": ["es"]}
    keys = {"field": {"type": "string"}}
    poll_seconds = 30.0

    @classmethod
    def parse(cls, kind, value, keys, folder):
        return cls(text_of(kind, value), text_of("field", keys.get("field", "value")))

    @property
    def variables(self):
        return ["VAULT_TOKEN"]

    def read(self, environment):
        content = json.loads(Path(environment["VAULT"], self.name).read_text())
        if self.field not in content:
            raise Absent(f"has no field {self.field} yet")
        return content[self.field].encode()

    def exposure(self):
        return "everybody has the token"
'''
POLICY = """version: 1
outputs:
  main: {type: file, path: /tmp/out}
  other: {type: elasticsearch, hosts: ["http://127.0.0.1:9200"], credential: %s}
"""


@pytest.fixture(autouse=True)
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed distribution with two kinds, of which one cannot be loaded."""
    points = "[shipper.secret_sources]\nvault = stranger_vault:VaultSecret\nbroken = stranger_vault:Nothing\n"
    (tmp_path / "stranger-1.dist-info").mkdir()
    (tmp_path / "stranger-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1\n")
    (tmp_path / "stranger-1.dist-info" / "entry_points.txt").write_text(points)
    (tmp_path / "stranger_vault.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield tmp_path / "objects"
    forget()


def forget() -> None:
    """Forget what is installed."""
    registry.all_points.cache_clear()
    secret_sources.installed.cache_clear()


def referring(written: str) -> Any:
    return references(document.read(POLICY % written, file="/etc/shipper/p.yaml"), Registry.installed())


def test_its_secrets_are_read_named_and_labelled_as_those_of_any_kind(vault: Path) -> None:
    vault.mkdir()
    (vault / "es").write_text(json.dumps({"api_key": "id:hunter2"}))
    (reference,) = referring("{vault: es, field: api_key}")

    assert (str(reference), reference.label) == ("vault:es", "es")
    assert read(reference, {"VAULT": str(vault)}).fields == {"api_key": "id:hunter2"}
    assert exposed(reference) == "the secret vault:es: everybody has the token"


def test_two_fields_of_one_object_are_two_secrets() -> None:
    assert len({**referring("{vault: es, field: a}"), **referring("{vault: es, field: b}")}) == 2


@pytest.mark.parametrize(
    ("content", "message", "kind"),
    [
        (None, "the secret vault:es cannot be read: No such file or directory", ValueError),
        ("{}", "the secret vault:es has no field value yet", Absent),
        ("{hunter2", "the secret vault:es cannot be read: JSONDecodeError", ValueError),
        ('{"value": 5}', "the secret vault:es cannot be read: AttributeError", ValueError),
        ('{"value": "x"}', "the secret vault:es: it is neither an API key", ValueError),
        (json.dumps({"value": "x" * (LARGEST + 1)}), "cannot be read: it is larger than 1MiB", ValueError),
    ],
)
def test_what_cannot_be_read_is_named_and_nothing_of_it_is_told(
    vault: Path, content: str | None, message: str, kind: type[ValueError]
) -> None:
    vault.mkdir()
    if content is not None:
        (vault / "es").write_text(content)
    (reference,) = referring("{vault: es}")

    with pytest.raises(ValueError, match=message) as caught:
        read(reference, {"VAULT": str(vault)})

    assert type(caught.value) is kind
    assert "hunter2" not in str(caught.value)


class Careless(SecretSource, frozen=True):
    """Fails wherever it is asked."""

    @classmethod
    def parse(cls, kind: str, value: object, keys: Mapping[str, object], folder: Path | None) -> Careless:
        raise KeyError(value)

    def paths(self, environment: Mapping[str, str]) -> Collection[Path]:
        raise KeyError("hunter2")

    def exposure(self) -> str | None:
        raise KeyError("hunter2")


def test_a_kind_that_fails_is_an_error_of_its_reference_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(secret_sources.installed()._sources, "vault", Careless)
    with pytest.raises(PolicyError, match="the secret source vault fails: KeyError"):
        referring("{vault: hunter2}")

    reference = Reference("vault", Careless("x"))
    assert watched(reference, {}) == ()
    assert exposed(reference) == "the secret vault:x: its access rights are unknown: KeyError"


def test_what_is_wrong_with_its_reference_is_said_without_quoting_it() -> None:
    for written, message in [
        ("{vault: es, hunter2: x}", "beside `vault` a reference has field or `as`, and no other key"),
        ("{vault: es, password: hunter2}", "a policy must not contain a secret"),
        ("{vault: [hunter2]}", "`vault` is followed by a text"),
        ("{vault: es, field: [hunter2]}", "`field` is followed by a text"),
        ("{broken: hunter2}", r"secret source broken \(stranger_vault:Nothing\) cannot be loaded: AttributeError"),
        ("{nosuch: hunter2}", r"{file: PATH}, {env: NAME}, .* {secret: {name: NAME, key: KEY}} or {vault: OBJECT}"),
    ]:
        with pytest.raises(PolicyError, match=message) as caught:
            referring(written)

        assert "hunter2" not in str(caught.value)


def test_what_has_no_path_is_polled_and_its_variables_are_secret(vault: Path, tmp_path: Path) -> None:
    vault.mkdir()
    (vault / "es").write_text('{"value": "id:hunter2"}')
    policy = tmp_path / "p.yaml"
    policy.write_text(POLICY % "{vault: es}")
    desired = Desired(PolicyFiles((policy,)), {"VAULT": str(vault)}, Registry.installed())
    (kept,) = desired.read({}).credentials.values()

    assert (kept.sources, desired.poll_seconds) == (["vault:es"], 30.0)
    assert (desired.watched, desired.secret_variables) == ({policy}, {"VAULT_TOKEN"})


def test_editors_are_told_of_its_keys() -> None:
    schema = json_schema(Registry.installed())["$defs"]["output.elasticsearch"]["properties"]["credential"]

    (of_vault,) = [one for one in schema["anyOf"] if "vault" in one.get("properties", {})]
    assert of_vault["properties"].keys() == {"vault", "field", "as"}
    assert {"vault": "es"} in schema["examples"]
