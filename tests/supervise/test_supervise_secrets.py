from __future__ import annotations

import base64
import contextlib
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.policy import document
from shipper.policy.registry import Registry
from shipper.sdk.credentials import API_KEY, BASIC, Credential
from shipper.sdk.errors import PolicyError
from shipper.supervise.ledger import Found, Kept, Ledger, Wanted, identified
from shipper.supervise.revoke import variables
from shipper.supervise.secret_sources import EnvironmentSecret, FileSecret, SystemdSecret
from shipper.supervise.secrets import Reference, interpreted, read, references, substituted
from tests.fakes import REGISTRY as FAKES

INSTALLED = Registry.installed()
POLICY = """
version: 1
inputs:
  bulk:
    type: elasticsearch
    credentials: [{file: keys/client}, {env: CLIENT}]
    tls: {credential: {systemd: tls}}
    processors: [{type: add_fields, fields: {credential: mine}}]
outputs:
  main: {type: elasticsearch, credential: {file: /run/keys/es, as: bearer_token}}
"""


def test_a_reference_can_be_saved_and_told_though_its_path_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"d\xff")
    path.write_text("id:hunter2")
    reference = Reference("file", FileSecret(str(path)))

    assert str(reference) == rf"file:{tmp_path}/d\udcff"
    assert read(reference, {}).fields == {"api_key": "id:hunter2"}


def test_references_are_found_where_plugins_have_them_and_nowhere_else() -> None:
    found = references(document.read(POLICY, file="/etc/shipper/p.yaml"), INSTALLED)

    assert {str(reference): [place.path for place in uses] for reference, uses in found.items()} == {
        "file:/etc/shipper/keys/client": ["inputs.bulk.credentials[0]"],
        "env:CLIENT": ["inputs.bulk.credentials[1]"],
        "systemd:tls": ["inputs.bulk.tls.credential"],
        "file:/run/keys/es": ["outputs.main.credential"],
    }


def test_each_reference_becomes_its_id() -> None:
    tree = document.read(POLICY, file="/etc/shipper/p.yaml")
    ids = {reference: f"id-{reference.label}" for reference in references(tree, INSTALLED)}

    changed = document.plain(substituted(tree, INSTALLED, ids))

    assert changed["inputs"]["bulk"]["credentials"] == ["id-client", "id-client"]
    assert changed["inputs"]["bulk"]["tls"] == {"credential": "id-tls"}
    assert changed["outputs"]["main"]["credential"] == "id-es"
    assert changed["inputs"]["bulk"]["processors"] == [{"type": "add_fields", "fields": {"credential": "mine"}}]


def test_references_are_found_by_the_types_of_settings_at_any_depth() -> None:
    text = """outputs:
  main:
    type: nested
    sasl: {secret: {env: SASL}}
    tls: [{kind: any, name: {file: no}}, {kind: own, client: {systemd: client}}]
"""
    tree = document.read(text)
    found = references(tree, FAKES)

    assert [(str(reference), place.path) for reference, (place,) in found.items()] == [
        ("env:SASL", "outputs.main.sasl.secret"),
        ("systemd:client", "outputs.main.tls[1].client"),
    ]
    assert [place.shapes for (place,) in found.values()] == [(API_KEY, BASIC), (API_KEY,)]
    main = document.plain(substituted(tree, FAKES, {one: one.source.name for one in found}))["outputs"]["main"]
    assert (main["sasl"], main["tls"][1]) == ({"secret": "SASL"}, {"kind": "own", "client": "client"})
    assert document.plain(tree)["outputs"]["main"]["sasl"] == {"secret": {"env": "SASL"}}


def test_a_secret_of_a_shape_that_is_not_taken_at_its_place_is_a_problem_there() -> None:
    tree = document.read(
        "outputs:\n  main:\n    type: nested\n    tls: [{kind: own, client: {env: X}}]\n", file="p.yaml"
    )
    ((reference, (place,)),) = references(tree, FAKES).items()
    problem = place.misfit(reference, Credential.parse({"hunter2": "hunter2"}))

    assert place.misfit(reference, Credential.parse({"api_key": "id:secret"})) is None
    assert problem is not None
    assert str(problem).startswith(
        "p.yaml:4:31: outputs.main.tls[0].client: the secret env:X: its shape is not accepted here"
    )
    assert "hunter2" not in str(problem)


def test_a_literal_secret_is_refused_with_a_hint_and_is_not_quoted() -> None:
    for written in [
        "hunter2-secret",
        "{api_key: 'hunter2:secret'}",
        "{file: hunter2-secret, env: x}",
        "{fle: hunter2-secret}",
        "{file: [hunter2-secret]}",
        "{systemd: hunter2/secret}",
        "{env: X, as: hunter2-secret}",
        "[hunter2-secret]",
    ]:
        tree = document.read(f"outputs:\n  main:\n    type: elasticsearch\n    credential: {written}\n", file="p.yaml")

        with pytest.raises(PolicyError, match=r"p\.yaml:4:17: outputs\.main\.credential") as caught:
            references(tree, INSTALLED)

        assert "hunter2" not in str(caught.value)


def test_what_is_wrong_with_a_reference_is_said() -> None:
    for written, message in [
        ("{api_key: id:secret}", "a policy must not contain a secret"),
        ("{vault: A}", "exactly one kind: {file: PATH}"),
        ("{env: A, file: b}", "exactly one kind: {file: PATH}"),
        ("{fil: keys/es}", '(did you mean "file"?)'),
        ("{env: 5}", "`env` is followed by a text"),
        ("{file: }", "`file` is followed by a text"),
        ("{file: a, password: b}", "a policy must not contain a secret"),
    ]:
        with pytest.raises(PolicyError, match=re.escape(message)):
            references(
                document.read(f"outputs:\n  main:\n    type: elasticsearch\n    credential: {written}\n"), INSTALLED
            )


def test_the_shapes_of_a_secrets_content() -> None:
    for content, shape in [
        ("id:secret\n", "api_key"),
        ("id:secret\r\n", "api_key"),
        (base64.b64encode(b"id:secret").decode(), "api_key"),
        ("username: elastic\npassword: x y\n", "basic"),
        ('{"bearer_token": "t"}', "bearer_token"),
        ("certificate: |\n  -----BEGIN\nkey: |\n  -----BEGIN\n", "certificate"),
    ]:
        assert interpreted(content).shape_name == shape


def test_a_bare_text_is_what_the_reference_says_it_is() -> None:
    assert interpreted("eyJ.x.y\n", "bearer_token").fields == {"bearer_token": "eyJ.x.y"}


def test_content_that_is_no_secret_is_refused_without_quoting_it() -> None:
    for content in ["", "\n", "  ", "hunter2.x", "a b: c", "{hunter2", "- hunter2", "api_key: [hunter2]"]:
        with pytest.raises(ValueError) as caught:
            interpreted(content)

        assert "hunter2" not in str(caught.value)


@given(st.text())
def test_any_content_is_a_credential_or_a_value_error(content: str) -> None:
    with contextlib.suppress(ValueError):
        assert interpreted(content).fields


def test_secrets_are_read_from_files_variables_and_systemd(tmp_path: Path) -> None:
    (tmp_path / "es").write_text("id:file\n")
    environment = {"KEY": "id:env", "CREDENTIALS_DIRECTORY": str(tmp_path)}

    assert read(Reference("file", FileSecret(str(tmp_path / "es"))), {}).fields == {"api_key": "id:file"}
    assert read(Reference("env", EnvironmentSecret("KEY")), environment).fields == {"api_key": "id:env"}
    assert read(Reference("systemd", SystemdSecret("es")), environment).fields == {"api_key": "id:file"}


def test_the_mark_that_an_editor_puts_before_a_file_is_no_part_of_the_secret(tmp_path: Path) -> None:
    (tmp_path / "es").write_text("id:file\n", encoding="utf-8-sig")

    assert read(Reference("file", FileSecret(str(tmp_path / "es"))), {}).fields == {"api_key": "id:file"}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (Reference("file", FileSecret("/absent")), "file:/absent cannot be read: No such file or directory"),
        (Reference("file", FileSecret("/dev/zero")), "file:/dev/zero cannot be read: it is not a regular file"),
        (Reference("env", EnvironmentSecret("NONE")), "env:NONE is not set in the supervisor's environment"),
        (Reference("systemd", SystemdSecret("es")), "CREDENTIALS_DIRECTORY is not set"),
    ],
)
def test_a_secret_that_cannot_be_read_is_named(reference: Reference, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(reference, {})


# -- ids ---------------------------------------------------------------------------------------------------------------


def found(secret: str, source: str = "file:/es", unit: str = "outputs.main") -> Found:
    return Found(Credential.parse({"api_key": secret}), "es", source, (unit,))


def adopted(ledger: Ledger, *secrets: Found) -> list[str]:
    kept = identified(ledger.known, secrets)
    ledger.adopt(Wanted(document.read(""), "", ",".join(one.id for one in kept), {one.id: one for one in kept}))
    return [one.id for one in kept]


def test_a_changed_content_has_a_new_id_and_an_unchanged_one_its_old() -> None:
    ledger = Ledger()
    first = adopted(ledger, found("id:a"))
    again = adopted(ledger, found("id:a"))
    second = adopted(ledger, found("id:b"))

    assert first == again
    assert first != second
    assert ledger.number == 2


def test_a_content_that_returns_has_its_old_id_only_while_that_was_not_released() -> None:
    ledger = Ledger()
    (first,) = adopted(ledger, found("id:a"))
    adopted(ledger, found("id:b"))
    assert adopted(ledger, found("id:a")) == [first]

    ledger.release(first)

    assert adopted(ledger, found("id:a")) != [first]


def test_two_sources_of_the_same_content_share_an_id() -> None:
    """Else releasing one of them would revoke the key of the other."""
    ledger = Ledger()
    one, other = adopted(ledger, found("id:a", "file:/x", "outputs.x"), found("id:a", "file:/y", "outputs.y"))

    assert one == other
    assert ledger.kept[one].sources == ["file:/x", "file:/y"]
    assert ledger.kept[one].units == ["outputs.x", "outputs.y"]


def test_a_released_secret_is_supplied_to_nobody() -> None:
    ledger = Ledger()
    (first,) = adopted(ledger, found("id:a"))
    assert ledger.supply([first, "other"]) == {first: {"api_key": "id:a"}}

    ledger.release(first)

    assert ledger.supply([first]) == {}
    assert [kept.id for kept in ledger.pending] == [first]


# -- the name ----------------------------------------------------------------------------------------------------------


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


def test_the_name_of_a_credential_is_its_public_part() -> None:
    for fields, name in [
        ({"api_key": "VuaCfGcBCdbkQm:hunter2"}, "VuaCfGcBCdbkQm"),
        ({"api_key": encoded(b"VuaCfGcBCdbkQm:hunter2")}, "VuaCfGcBCdbkQm"),
        ({"api_key": "id:hunter:2"}, "id"),
        ({"api_key": encoded(b"hunter2hunter2")}, ""),
        ({"api_key": encoded(b"i\0d:hunter2")}, ""),
        ({"api_key": encoded(b"\xff:hunter2")}, ""),
        ({"api_key": "hunter2"}, ""),
        ({"username": "ada", "password": "hunter2"}, "ada"),
        ({"bearer_token": "a:hunter2"}, ""),
        ({"token": "a:hunter2"}, ""),
        ({"certificate": "c", "key": "hunter2"}, ""),
    ]:
        kept = Kept("es-1", fields, ["file:/es"], ["outputs.main", "inputs.bulk"])

        assert variables(kept) == {
            "SHIPPER_CREDENTIAL_NAME": name,
            "SHIPPER_CREDENTIAL_ID": "es-1",
            "SHIPPER_CREDENTIAL_SOURCE": "file:/es",
            "SHIPPER_OUTPUTS": "main",
            "SHIPPER_INPUTS": "bulk",
        }
