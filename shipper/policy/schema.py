"""The JSON Schema (2020-12) of a policy file, with every installed plugin.

It is for editors: `# yaml-language-server: $schema=…` gives completion and texts from the docstrings. It covers policy
files before references and variables are resolved: `{file: …}` instead of the id of a credential, and `${NAME}` in
place of any scalar. The structs are walked as in `settings`, and `msgspec` makes the schema of a scalar; its schema of
a whole struct fails on our defaults (a `Size` is no type of JSON) and has no texts of fields.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from shipper.plugin import Material, Processor
from shipper.policy import cases
from shipper.policy.policy import NAME, VERSION, DeadLetters, Drain, LogLevel, Queue
from shipper.policy.registry import BASES, Kind, Registry, UnknownType
from shipper.policy.secret_sources import installed
from shipper.policy.settings import annotated, arms_of, bare, erased, exported, is_struct, items_of, tag_of, values_of
from shipper.sdk.credentials import BARE, CredentialId
from shipper.sdk.secret_source import SecretSource
from shipper.sdk.units import Duration, Size

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_VARIABLE: Schema = {"type": "string", "pattern": r"\$\{"}


def _or_variable(scalar: Schema) -> Schema:
    """Returns the schema of a scalar or a variable."""
    return scalar if scalar in ({}, _TEXT) else {"anyOf": [scalar, _VARIABLE]}


_SIZE: Schema = {
    **_or_variable({"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?([KMGT]i?)?B$"}),
    "examples": ["512KiB", "1GiB"],
}
_DURATION: Schema = {
    **_or_variable({"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?(ms|s|m|h|d)$"}),
    "examples": ["250ms", "30s", "15m", "4h"],
}
_MATERIAL: Schema = {"type": "string", "description": "The path of a PEM file.", "examples": ["/etc/shipper/ca.pem"]}


def _credential(sources: Mapping[str, type[SecretSource]]) -> Schema:
    """Returns the schema of an id, or a reference of any kind."""
    id = {"type": "string", "description": "The id of a secret that comes beside the policy."}
    shape = {"enum": list(BARE)}
    references = (
        {
            "type": "object",
            "properties": {kind: {**source.schema}, **source.keys, "as": shape},
            "required": [kind],
            "additionalProperties": False,
        }
        for kind, source in sources.items()
    )
    examples = [{kind: one} for kind, source in sources.items() for one in source.schema.get("examples", ())[:1]]
    return {"anyOf": [id, *references], "examples": examples}


def json_schema(registry: Registry) -> Schema:
    """Returns the schema of a policy; a plugin that cannot be loaded is left out, and named in `$comment`."""
    return _Generator(registry).policy()


def text(schema: Schema) -> bytes:
    """Returns the schema as a file for editors, without the last line end."""
    return msgspec.json.format(msgspec.json.encode(schema))


class _Generator:
    """Collects the definitions of one schema."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.credential = _credential(installed().usable())
        self.definitions: dict[str, Schema] = {}
        self.broken: list[str] = []

    def policy(self) -> Schema:
        for kind in BASES:
            self.plugins(kind)
        schema: Schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "shipper policy",
            "type": "object",
            "properties": {
                "version": {**_or_variable({"const": VERSION}), "description": "The version of the format."},
                "inputs": _named("input", "Where events come from, by name."),
                "processors": _processors("Run on every event, in order, after those of its input."),
                "outputs": _named("output", "Where events go, by name."),
                "queue": self.struct(Queue),
                "dead_letters": self.struct(DeadLetters),
                "drain": self.struct(Drain),
                "log_level": {**_or_variable(msgspec.json.schema(LogLevel)), "default": "info"},
                cases.SECTION: dict(cases.SCHEMA),
            },
            "required": ["version"],
            "additionalProperties": False,
            "$defs": self.definitions,
        }
        return {**schema, "$comment": "left out: " + "; ".join(self.broken)} if self.broken else schema

    def plugins(self, kind: Kind) -> None:
        """Adds one definition for each plugin, and one that selects among them by `type`."""
        single = kind[:-1]
        loaded: list[str] = []
        for type in self.registry.types(kind):
            try:
                self.definitions[f"{single}.{type}"] = self.plugin(kind, type)
                loaded.append(type)
            except UnknownType as error:
                self.broken.append(str(error))
        self.definitions[single] = {
            "type": "object",
            "properties": {"type": _or_variable({"enum": loaded})},
            "required": ["type"],
            "allOf": [
                {
                    "if": {"properties": {"type": {"const": type}}, "required": ["type"]},
                    "then": {"$ref": f"#/$defs/{single}.{type}"},
                }
                for type in loaded
            ],
        }

    def plugin(self, kind: Kind, type: str) -> Schema:
        plugin = self.registry.find(kind, type)
        schema = self.struct(plugin)
        if issubclass(plugin, Processor) and plugin.keeps:
            schema["description"] = (
                f"{schema.get('description', '')}\n\nIt keeps, until the process ends: {plugin.keeps}"
            )
        own: Schema = {"type": {"const": type}}
        if kind == "inputs":
            outputs = {"description": "Names of outputs (default: all).", "type": "array", "items": _TEXT}
            own |= {"processors": _processors("Run before the policy's own."), "outputs": outputs}
        if kind == "outputs":
            own |= {"processors": _processors("Run on the events for this output alone, before its queue.")}
        return {**schema, "properties": own | schema["properties"]}

    def struct(self, struct: type[msgspec.Struct]) -> Schema:
        """Returns the schema of a struct, with docstrings as descriptions, and defaults as in a policy."""
        texts = field_texts(struct)
        fields = msgspec.structs.fields(struct)
        tag = tag_of(struct)
        properties: Schema = {} if tag is None else {tag[0]: {"const": tag[1]}}
        properties |= {field.encode_name: self.field(field, texts.get(field.name)) for field in fields}
        schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
        if required := [*([] if tag is None else tag[:1]), *(field.encode_name for field in fields if field.required)]:
            schema["required"] = required
        return schema | ({"description": inspect.cleandoc(struct.__doc__)} if struct.__doc__ else {})

    def field(self, field: msgspec.structs.FieldInfo, text: str | None) -> Schema:
        schema = dict(self.annotation(field.type))
        if text:
            schema["description"] = text
        factory = field.default_factory
        default = field.default if factory is msgspec.NODEFAULT else factory()
        if default is not msgspec.NODEFAULT and default is not None:
            schema["default"] = _written(default)
        return schema

    def annotation(self, annotation: Any) -> Schema:
        kind, optional, metas = bare(annotation)
        schema = self.kind(kind, metas)
        if not optional:
            return schema
        if kind is CredentialId:
            return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
        return {"anyOf": [schema, *([{"const": "never"}] if kind is Duration else []), {"type": "null"}]}

    def kind(self, kind: Any, metas: list[msgspec.Meta]) -> Schema:
        """Returns the schema of a type that is not optional."""
        for own, schema in (
            (Size, _SIZE),
            (Duration, _DURATION),
            (Material, _MATERIAL),
            (CredentialId, self.credential),
        ):
            if kind is own:
                return schema
        if is_struct(kind):
            return self.reference(kind)
        if any(map(is_struct, arms_of(kind))):
            return {"anyOf": [self.annotation(arm) for arm in arms_of(kind)]}
        if (item := items_of(kind)) is not None:
            return _leaf(erased(kind, metas)) | {"items": self.annotation(item)}
        if (value := values_of(kind)) is not None:
            return _leaf(erased(kind, metas)) | {"additionalProperties": self.annotation(value)}
        return _or_variable(_leaf(annotated(kind, metas)))

    def reference(self, struct: type[msgspec.Struct]) -> Schema:
        """Returns a reference to a definition of a nested struct, since it may contain itself (a condition of
        conditions)."""
        name = f"{struct.__module__}.{struct.__qualname__}"
        if name not in self.definitions:
            self.definitions[name] = {}
            self.definitions[name] = self.struct(struct)
        return {"$ref": f"#/$defs/{name}"}


def _named(definition: str, description: str) -> Schema:
    names = {"pattern": f"^{NAME}$"}
    values = {"$ref": f"#/$defs/{definition}"}
    return {"description": description, "type": "object", "propertyNames": names, "additionalProperties": values}


def _processors(description: str) -> Schema:
    return {"description": description, "type": "array", "items": {"$ref": "#/$defs/processor"}}


def _leaf(annotation: Any) -> Schema:
    """Returns msgspec's schema of a type; empty if it would need definitions of its own."""
    (schema,), components = msgspec.json.schema_components([annotation], schema_hook=lambda _: {"type": "string"})
    return {} if components else schema


def _written(value: Any) -> Any:
    """Returns a default as in a policy."""
    if isinstance(value, (Size, Duration)):
        return str(value)
    if isinstance(value, msgspec.Struct):
        written = {field.encode_name: _written(getattr(value, field.name)) for field in msgspec.structs.fields(value)}
        return {name: part for name, part in written.items() if part is not None}
    return exported(value)


@cache
def field_texts(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Returns the docstrings of a struct's fields, inherited ones included: string literals below them."""
    texts: dict[str, str] = {}
    for owner in reversed(struct.__mro__):
        if is_struct(owner) and owner is not msgspec.Struct:
            texts |= _own_texts(owner)
    return texts


def _own_texts(struct: type) -> dict[str, str]:
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    except (OSError, TypeError, SyntaxError):  # a plugin without its source has no texts
        return {}
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for statement, following in itertools.pairwise(definition.body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            match following:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    texts[statement.target.id] = inspect.cleandoc(text)
    return texts
