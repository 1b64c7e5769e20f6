"""The CRDs define exactly what the program reads and writes, and bound all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as inspect
import pytest
import yaml

from shipper.kubernetes import kinds
from shipper.sdk.units import Duration

CRDS = Path(__file__).parents[2] / "packaging/kubernetes/crds"
Schema = dict[str, Any]
PARTS = {
    ("shipperpolicies", "spec"): kinds.PolicySpec,
    ("shipperpolicies", "status"): kinds.PolicyStatus,
    ("shippermembers", "spec"): kinds.MemberSpec,
    ("shippermembers", "status"): kinds.MemberStatus,
    ("shippersecrets", "status"): kinds.SecretStatus,
}
SCALARS = {inspect.StrType: "string", inspect.IntType: "integer", inspect.BoolType: "boolean"}


def crd(plural: str) -> Schema:
    found: Schema = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
    return found


def version(plural: str) -> Schema:
    (only,) = crd(plural)["spec"]["versions"]
    found: Schema = only
    return found


def schema(plural: str) -> Schema:
    found: Schema = version(plural)["schema"]["openAPIV3Schema"]
    return found


def test_each_field_of_an_object_is_defined_as_the_program_knows_it() -> None:
    """A field that a CRD does not define is removed by the server without a word."""
    for plural, part in PARTS:
        assert list(differences(inspect.type_info(PARTS[plural, part]), schema(plural)["properties"][part], part)) == []


def test_objects_have_no_other_parts() -> None:
    for plural in ("shipperpolicies", "shippermembers", "shippersecrets"):
        defined = {(plural, part) for part in schema(plural)["properties"]}

        assert defined == {of for of in PARTS if of[0] == plural}


def differences(known: inspect.Type, defined: Schema, at: str) -> Iterator[str]:
    """Where a schema differs from a type of the program."""
    if isinstance(known, inspect.UnionType):
        (known,) = [one for one in known.types if not isinstance(one, inspect.NoneType)]
        if not defined.get("nullable"):
            yield f"{at}: may be null"
    if isinstance(known, inspect.StructType):
        yield from _differences_of_fields(known, defined, at)
    elif isinstance(known, inspect.LiteralType):
        if sorted(known.values) != sorted(defined.get("enum", ())):
            yield f"{at}: one of {known.values}"
    elif isinstance(known, inspect.VarTupleType):
        if defined["type"] != "array":
            yield f"{at}: a list"
        yield from differences(known.item_type, defined["items"], f"{at}[]")
    elif isinstance(known, inspect.DictType):
        if defined["type"] != "object" or "properties" in defined:
            yield f"{at}: a mapping"
    elif SCALARS[type(known)] != defined["type"]:
        yield f"{at}: {SCALARS[type(known)]}"


def _differences_of_fields(known: inspect.StructType, defined: Schema, at: str) -> Iterator[str]:
    fields = {field.encode_name: field for field in known.fields}
    if defined["type"] != "object" or fields.keys() != defined["properties"].keys():
        yield f"{at}: {sorted(fields.keys() ^ defined['properties'].keys())}"
        return
    if missing := {name for name, field in fields.items() if field.required} - set(defined.get("required", ())):
        yield f"{at}: {sorted(missing)} is required"
    for name, field in fields.items():
        within = defined["properties"][name]
        if "default" in within and within["default"] != field.default:
            yield f"{at}.{name}: default {field.default}"
        yield from differences(field.type, within, f"{at}.{name}")


@pytest.mark.parametrize("plural", ["shipperpolicies", "shippermembers", "shippersecrets"])
def test_every_list_mapping_and_text_has_a_bound(plural: str) -> None:
    assert [at for at, part in parts(schema(plural), plural) if not bounded(part)] == []


def bounded(part: Schema) -> bool:
    if part["type"] == "string":
        return "enum" in part or "maxLength" in part or part.get("format") == "date-time"
    if part["type"] == "object":
        return "properties" in part or "maxProperties" in part or "x-kubernetes-preserve-unknown-fields" in part
    return part["type"] != "array" or "maxItems" in part


def parts(of: Schema, at: str) -> Iterator[tuple[str, Schema]]:
    yield at, of
    below = dict(of.get("properties", {}))
    below |= {"[]": of["items"]} if "items" in of else {}
    below |= {"{}": of["additionalProperties"]} if "additionalProperties" in of else {}
    for name, part in below.items():
        yield from parts(part, f"{at}.{name}")


def test_a_deadline_without_a_value_is_one_that_the_program_reads() -> None:
    default = schema("shipperpolicies")["properties"]["spec"]["properties"]["onDelete"]["properties"]["deadline"]

    assert Duration.parse(default["default"]) == 3600


@pytest.mark.parametrize("plural", ["shipperpolicies", "shippermembers", "shippersecrets"])
def test_a_status_is_written_apart(plural: str) -> None:
    """So a report never looks like a change of what is wanted."""
    assert version(plural)["subresources"] == {"status": {}}
    assert crd(plural)["spec"]["group"] == kinds.GROUP


def test_a_status_of_defaults_alone_has_every_field() -> None:
    """`msgspec` writes all fields, so that none of them keeps an old value under a merge patch."""
    written = msgspec.to_builtins(kinds.MemberStatus())

    assert written.keys() == schema("shippermembers")["properties"]["status"]["properties"].keys()
