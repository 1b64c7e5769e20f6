import json
import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec
import pytest
from click.testing import CliRunner

from shipper.commands.schema import command
from shipper.plugin import ClientTls, CredentialId, Duration, Input, Material, Output, Processor, Settings, Size
from shipper.policy.document import plain, read
from shipper.policy.policy import parse
from shipper.policy.registry import Registry
from shipper.policy.schema import field_texts, json_schema

ROOT = Path(__file__).parents[2]


class Condition(Settings, frozen=True, kw_only=True):
    """What an event must be like."""

    equals: dict[str, str | int] | None = None
    and_: list["Condition"] | None = msgspec.field(default=None, name="and")


class Keep(Processor, frozen=True, kw_only=True):
    """Keeps events."""

    when: Condition


class Tail(Input, frozen=True, kw_only=True):
    """Follows files."""

    paths: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Globs."""
    credentials: tuple[CredentialId, ...] = ()
    from_: Literal["beginning", "end"] = msgspec.field(default="beginning", name="from")
    """Where to begin
    with a new file."""


class Sink(Output, frozen=True, kw_only=True):
    """Takes all."""

    counts_requests: ClassVar = True
    """Not a field."""

    credential: CredentialId | None = None
    """The id of the secret to authenticate with."""
    batch: Size = Size(1 << 20)
    """Largest request."""
    timeout: Duration | None = Duration(90)
    tls: ClientTls = msgspec.field(default_factory=ClientTls)
    extra: Material | None = None
    workers: Annotated[int, msgspec.Meta(ge=1, le=8)] = 4


REGISTRY = Registry({"inputs": {"tail": Tail}, "processors": {"keep": Keep}, "outputs": {"sink": Sink}})
SCHEMA = json_schema(REGISTRY)

VALID = [
    "version: 1",
    """
version: 1
inputs:
  a:
    type: tail
    paths: [/var/log/*.log]
    from: end
    credentials: [one, {file: /run/keys/two}]
    data_stream: {dataset: x}
    outputs: [main]
    processors: [{type: keep, when: {and: [{equals: {a: 1, b: x}}, {and: []}]}}]
outputs:
  main: {type: sink, batch: 5MiB, timeout: never, credential: {env: KEY}, tls: {ca: /ca.pem, verification: full}}
  other: {type: sink, timeout: 30s, batch: "${SIZE:-1MiB}", credential: id, extra: null}
processors: [{type: keep, when: {}}]
queue: {max_bytes: 1GiB, retired_max_bytes: 512KiB}
dead_letters: {max_bytes: 1MB, when_full: hold}
drain: {deadline: 15m, on_deadline: drop}
log_level: debug
""",
    """
version: ${V:-1}
inputs:
  a: {type: tail, paths: ["${P}"], from: "${F}", data_stream: {dataset: "${D}-x", type: "${T:-logs}"}}
outputs:
  main: {type: "${O}", workers: "${W:-4}"}
  other: {type: sink, workers: "${W:-4}", timeout: "${D:-never}", credential: {file: key, as: bearer_token}}
queue: {max_bytes: "${Q}"}
drain: {on_deadline: "${A:-hold}"}
log_level: ${L:-debug}
""",
]
INVALID = [
    "{}",
    "version: 2",
    "{version: 1, extra: 1}",
    "{version: 1, inputs: []}",
    "{version: 1, inputs: {A: {type: tail, paths: [x]}}}",
    "{version: 1, inputs: {a: {type: tale, paths: [x]}}}",
    "{version: 1, inputs: {a: {paths: [x]}}}",
    "{version: 1, inputs: {a: {type: tail}}}",
    "{version: 1, inputs: {a: {type: tail, paths: []}}}",
    "{version: 1, inputs: {a: {type: tail, paths: [x], form: end}}}",
    "{version: 1, inputs: {a: {type: tail, paths: [x], from: middle}}}",
    "{version: 1, inputs: {a: {type: tail, paths: [x], data_stream: {typ: logs}}}}",
    "{version: 1, processors: [{type: keep}]}",
    "{version: 1, processors: [{type: keep, when: {and: [{or: []}]}}]}",
    "{version: 1, outputs: {a: {type: sink, batch: 5}}}",
    "{version: 1, outputs: {a: {type: sink, batch: 5 bananas}}}",
    "{version: 1, outputs: {a: {type: sink, batch: never}}}",
    "{version: 1, outputs: {a: {type: sink, timeout: 5}}}",
    "{version: 1, outputs: {a: {type: sink, workers: 9}}}",
    "{version: 1, outputs: {a: {type: sink, workers: $N}}}",
    "{version: 1, outputs: {a: {type: sink, processors: {}}}}",
    "{version: 1, outputs: {a: {type: sink, credential: {api_key: x}}}}",
    "{version: 1, drain: {deadline: 5}}",
    "{version: 1, drain: {on_deadline: give_up}}",
]


def fits(value, schema, root=SCHEMA):
    """Whether a value fits a schema: the part of JSON Schema that ours uses; anything else is an error of the test."""
    checks = {
        "$ref": lambda ref: fits(value, root["$defs"][ref.removeprefix("#/$defs/")], root),
        "type": lambda name: is_of(value, name),
        "const": lambda const: (type(value), value) == (type(const), const),
        "enum": lambda options: value in options,
        "anyOf": lambda options: any(fits(value, option, root) for option in options),
        "allOf": lambda parts: all(fits(value, part, root) for part in parts),
        "if": lambda test: not fits(value, test, root) or fits(value, schema["then"], root),
        "properties": lambda keys: all(fits(value[key], keys[key], root) for key in keys if key in value),
        "required": lambda keys: all(key in value for key in keys),
        "additionalProperties": lambda rest: all(
            rest is not False and fits(value[key], rest, root)
            for key in value
            if key not in schema.get("properties", {})
        ),
        "propertyNames": lambda names: all(fits(key, names, root) for key in value),
        "items": lambda items: all(fits(item, items, root) for item in value),
        "minItems": lambda least: len(value) >= least,
        "maxItems": lambda most: len(value) <= most,
        "uniqueItems": lambda unique: not unique or len({json.dumps(item) for item in value}) == len(value),
        "pattern": lambda pattern: re.search(pattern, value) is not None,
        "minLength": lambda least: len(value) >= least,
        "maxLength": lambda most: len(value) <= most,
        "minimum": lambda least: value >= least,
        "maximum": lambda most: value <= most,
        "exclusiveMinimum": lambda least: value > least,
        "exclusiveMaximum": lambda most: value < most,
    }
    silent = {"$schema", "$defs", "$comment", "title", "description", "default", "examples", "then"}
    ordered = sorted(schema.keys() - silent, key=lambda key: key != "type")
    return all(checks[key](schema[key]) for key in ordered)


def is_of(value, name):
    classes = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    numbers = {"integer": (int,), "number": (int, float)}
    if name in numbers:
        return isinstance(value, numbers[name]) and not isinstance(value, bool)
    return isinstance(value, classes[name])


def shallow(schema):
    yield schema
    for part in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(part, dict | list):
            yield from shallow(part)


@pytest.mark.parametrize("text", VALID)
def test_a_valid_policy_fits_the_schema(text):
    assert fits(plain(read(text)), SCHEMA)


def test_a_mistake_does_not_fit_the_schema():
    for text in INVALID:
        assert not fits(plain(read(text)), SCHEMA)


@pytest.mark.parametrize("text", [text for text in INVALID if "api_key" not in text])
def test_what_does_not_fit_the_schema_is_refused_by_the_parser_too(text):
    with pytest.raises(Exception, match="line 1, column"):
        parse(text, REGISTRY)


def test_the_schema_is_json_and_every_reference_leads_somewhere():
    parts = shallow(json.loads(json.dumps(SCHEMA)))
    refs = {part["$ref"] for part in parts if isinstance(part, dict) and isinstance(part.get("$ref"), str)}

    assert {"#/$defs/input", "#/$defs/output.sink", "#/$defs/processor"} <= refs
    assert all(ref.removeprefix("#/$defs/") in SCHEMA["$defs"] for ref in refs)


def test_docstrings_of_plugins_and_fields_are_the_descriptions():
    tail, sink = SCHEMA["$defs"]["input.tail"], SCHEMA["$defs"]["output.sink"]

    assert tail["description"] == "Follows files."
    assert tail["properties"]["paths"]["description"] == "Globs."
    assert tail["properties"]["from"]["description"] == "Where to begin\nwith a new file."
    assert tail["properties"]["data_stream"]["description"] == "The data stream of the events."
    assert sink["properties"]["credential"]["description"] == "The id of the secret to authenticate with."
    assert SCHEMA["properties"]["drain"]["properties"]["deadline"]["description"].startswith(
        "How long a barrier may wait"
    )


def test_defaults_and_examples_are_written_as_in_a_policy():
    properties = SCHEMA["$defs"]["output.sink"]["properties"]

    assert (properties["batch"]["default"], properties["timeout"]["default"]) == ("1MiB", "90s")
    assert properties["tls"]["default"] == {"verification": "full"}
    assert properties["workers"]["default"] == 4
    assert {"type": "integer", "minimum": 1, "maximum": 8} in properties["workers"]["anyOf"]
    assert "1GiB" in properties["batch"]["examples"]
    assert "default" not in properties["extra"]


def test_every_default_fits_its_own_schema():
    parts = [part for part in shallow(SCHEMA) if isinstance(part, dict) and "default" in part]

    assert len(parts) > 10
    assert [part for part in parts if not fits(part["default"], part)] == []


def test_texts_of_fields_are_those_below_them_and_nothing_else():
    assert field_texts(Tail)["paths"] == "Globs."
    assert not {"credentials", "counts_requests", "live"} & field_texts(Tail).keys()


def test_a_plugin_without_source_has_no_texts():
    made = msgspec.defstruct("Made", [("a", int, 1)], bases=(Output,), frozen=True)
    definitions = json_schema(Registry({"outputs": {"made": made}}))["$defs"]

    own = definitions["output.made"]["properties"]["a"]
    assert own.keys() == {"anyOf", "default"}
    assert (own["anyOf"][0], own["default"]) == ({"type": "integer"}, 1)


@pytest.fixture(scope="module")
def printed():
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture(scope="module")
def installed(printed):
    return json.loads(printed)


def test_the_command_prints_the_schema_of_what_is_installed(installed):
    assert installed["$defs"]["processor.add_fields"]["properties"]["type"] == {"const": "add_fields"}
    assert "\b" not in CliRunner().invoke(command, ["--help"]).stdout


def test_a_policy_that_comes_along_fits_the_schema_of_what_is_installed_and_leads_an_editor_to_it(printed, installed):
    for path in sorted(ROOT.glob("policies/*.yaml")):
        text = path.read_text()
        schema = path.parent / text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")

        assert fits(plain(read(text)), installed, installed)
        assert schema.read_text() == printed, f"make it anew: shipper schema > {schema.relative_to(ROOT)}"


@pytest.mark.parametrize("page", ["README.md", "docs/policies.md", "docs/ten-minutes.md", "docs/rotating.md"])
def test_every_policy_of_a_page_fits_the_schema_of_what_is_installed(page, installed):
    blocks = re.findall(r"^```yaml[^\n]*\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    policies = [plain(read(block)) for block in blocks if "version: 1" in block]

    assert policies
    assert [policy for policy in policies if not fits(policy, installed, installed)] == []


def test_a_plugin_that_cannot_be_loaded_is_left_out_and_named():
    from importlib.metadata import EntryPoint

    broken = EntryPoint("broken", "shipper_no_such_module:X", "shipper.outputs")
    schema = json_schema(Registry({"outputs": {"broken": broken, "sink": Sink}}))

    assert {"enum": ["sink"]} in schema["$defs"]["output"]["properties"]["type"]["anyOf"]
    assert "broken" in schema["$comment"]
