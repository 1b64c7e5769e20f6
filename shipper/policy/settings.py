"""Makes structs of settings from a document, and JSON values from structs.

A struct is read field by field from the tree of the text, not by one `msgspec.convert`, which stops at the first
problem and names a path: an author needs all problems and their lines. Only scalars and unusual types go through
msgspec.

Errors must not leak secrets. A policy must not contain one; if it does, the message is a hint without the value.
Messages quote keys that look like names, and never values.
"""

from __future__ import annotations

import hashlib
import json
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from shipper.policy.document import MOST_PROBLEMS, Mark, Node, below, children_of, followed, plain, shown, suggest
from shipper.process.groups import contained, named
from shipper.sdk.codes import Code
from shipper.sdk.credentials import CredentialId
from shipper.sdk.errors import BadOption, Problem
from shipper.sdk.tls import ClientTls, Material, client_context
from shipper.sdk.units import Duration, Size

SECRET_HINT = (
    "a policy must not contain a secret: write `credential: {file: …}` (or env, systemd) in a policy file, which the "
    "supervising agent resolves; in a policy that comes with its secrets beside it, write the id of the secret"
)
_SECRET_KEYS = frozenset(
    {"api_key", "apikey", "api-key", "password", "passwd", "passphrase", "token", "bearer_token", "access_token"}
    | {"refresh_token", "auth_token", "secret", "secret_key", "secret_access_key", "client_secret", "private_key"}
    | {"key", "authorization"}
)
_HARMLESS_IN_MAPS = frozenset({"key"})

S = TypeVar("S", bound=msgspec.Struct)


# -- types -------------------------------------------------------------------------------------------------------------


def resolved(type: Any) -> Any:
    """Returns the type behind an alias (`type X = …`) or a NewType; any other type unchanged."""
    alias = getattr(typing, "TypeAliasType", ())
    while isinstance(type, (alias, typing.NewType)):
        type = type.__supertype__ if isinstance(type, typing.NewType) else type.__value__
    return type


def bare(type: Any) -> tuple[Any, bool, list[msgspec.Meta]]:
    """Returns a field's type without `Annotated` and `| None`, whether it had `None`, and the metadata of
    `Annotated`."""
    metas: list[msgspec.Meta] = []
    optional = False
    while True:
        type = resolved(type)
        if get_origin(type) is Annotated:
            metas += [meta for meta in type.__metadata__ if isinstance(meta, msgspec.Meta)]
            type = type.__origin__
            continue
        others = [arm for arm in get_args(type) if arm is not types.NoneType]
        if get_origin(type) in (Union, types.UnionType) and len(others) == 1 < len(get_args(type)):
            type, optional = others[0], True
            continue
        return type, optional, metas


def is_struct(type: Any) -> bool:
    return isinstance(type, msgspec.StructMeta)


def tag_of(struct: Any) -> tuple[str, str | int] | None:
    """Returns the key and value of a struct's tag in a union, or None."""
    config = struct.__struct_config__
    return None if config.tag is None else (config.tag_field, config.tag)


def arms_of(type: Any) -> list[Any]:
    """Returns the types of a union, without None; empty for any other type."""
    union = get_origin(type) in (Union, types.UnionType)
    return [bare(arm)[0] for arm in get_args(type) if arm is not types.NoneType] if union else []


@cache
def fields_of(struct: Any) -> Mapping[str, msgspec.structs.FieldInfo]:
    """Returns the fields of a struct by their names in a policy; cached, since resolving annotations takes 50 µs."""
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


def items_of(type: Any) -> Any:
    """Returns the type of the items of a list, set or tuple of any length; None for any other type."""
    arguments = get_args(type)
    if get_origin(type) is tuple:
        return arguments[0] if len(arguments) == 2 and arguments[1] is Ellipsis else None
    return arguments[0] if get_origin(type) in (list, set, frozenset) else None


def values_of(type: Any) -> Any:
    """Returns the type of the values of a mapping with string keys; None for any other type."""
    arguments = get_args(type)
    return arguments[1] if get_origin(type) in (dict, Mapping) and bare(arguments[0])[0] is str else None


def annotated(type: Any, metas: Iterable[msgspec.Meta]) -> Any:
    """Returns the type with limits."""
    for meta in metas:
        type = Annotated[type, meta]
    return type


def erased(kind: Any, metas: Iterable[msgspec.Meta]) -> Any:
    """Returns a collection type with items of any type, and the same limits."""
    if kind is Any:
        return Any
    origin, arguments = get_origin(kind), get_args(kind)
    parameters = {tuple: (Any, ...), dict: (*arguments[:1], Any), Mapping: (*arguments[:1], Any)}.get(origin, Any)
    return annotated((dict if origin is Mapping else origin)[parameters], metas)


# -- from a document ---------------------------------------------------------------------------------------------------


class TooMany(Exception):
    """Enough problems were found."""


class Reader:
    """Reads one document, and collects its `problems`."""

    def __init__(self, material: Callable[[str], Material] = Material.read) -> None:
        """`material` returns the content of a PEM file, and raises ValueError."""
        self.problems: list[Problem] = []
        self._read_material = material

    def problem(self, path: str, at: Mark, message: str, code: str = Code.BAD_VALUE) -> None:
        """Adds a problem; raises TooMany once there are enough."""
        self.problems.append(Problem(path, at.line, at.column, message, at.file, code))
        if len(self.problems) >= MOST_PROBLEMS:
            raise TooMany

    def struct(self, struct: type[S], node: Node, path: str, reserved: Collection[str] = ()) -> S | None:
        """Returns the struct of a mapping, without `reserved` keys; None if there was a problem."""
        before = len(self.problems)
        children = self.children(node, path)
        fields = fields_of(struct)
        values: dict[str, Any] = {}
        for key, child in children.items():
            if key in fields:
                values[fields[key].name] = self.value(fields[key].type, child, below(path, key))
            elif key in ("credential", "credentials") and _leaks(child) and not _is_reference(child):
                self.problem(below(path, key), child.mark, SECRET_HINT, Code.SECRET_IN_POLICY)
            elif key not in (*reserved, *(tag_of(struct) or ())[:1]):
                self.unknown(key, [*fields, *reserved], node.keys.get(key, child.mark), path)
        for key in fields:
            if fields[key].required and key not in children:
                self.problem(below(path, key), node.mark, f'the key "{key}" is missing', Code.MISSING_KEY)
        return self.made(struct, values, node, path) if len(self.problems) == before else None

    def children(self, node: Node, path: str, wanted: str = "a mapping") -> dict[str, Node]:
        """Returns the entries of a mapping; none after adding a problem."""
        if isinstance(node.value, dict):
            return node.value
        self.problem(path, node.mark, f"expected {wanted}, got {_kind(node)}")
        return {}

    def made(self, struct: type[S], values: dict[str, Any], node: Node, path: str) -> S | None:
        """Makes the struct; a plugin is foreign code, so any exception becomes a problem of this place."""
        try:
            with contained():
                made = struct(**values)
            if isinstance(made, ClientTls) and made.ca is not None:
                client_context(made)
            return made
        except ValueError as error:
            node, path = followed(node, path, error.at if isinstance(error, BadOption) else ())
            self.problem(path, node.mark, str(error), Code.BAD_OPTION)
        except Exception as error:
            text = f"{struct.__name__} failed on these settings: {named(error)}"
            self.problem(path, node.mark, text, Code.BAD_OPTION)
        return None

    def unknown(self, key: str, known: Iterable[str], at: Mark, path: str) -> None:
        """Adds the problem of an unknown key."""
        known = sorted(known)
        if key.lower() in _SECRET_KEYS:
            self.problem(below(path, key), at, SECRET_HINT, Code.SECRET_IN_POLICY)
        else:
            hint = suggest(key, known) or (f"; known here: {', '.join(known)}" if known else "")
            self.problem(below(path, key), at, f'unknown key "{shown(key)}"{hint}', Code.UNKNOWN_KEY)

    def value(self, type: Any, node: Node, path: str) -> Any:
        """Returns the value of a field; any value after adding a problem."""
        kind, optional, metas = bare(type)
        if optional and (node.value is None or (kind is Duration and node.value == "never")):
            return None
        if kind is Material:
            return self.material(node, path)
        if kind is CredentialId:
            return self.credential(node, path)
        if (arm := _fitting(arms_of(kind), node)) is not None:
            return self.value(annotated(arm, metas), node, path)
        if is_struct(kind):
            return self.struct(kind, node, path)
        if isinstance(node.value, list) and (kind is Any or items_of(kind) is not None):
            return self.checked(kind, metas, self.items, node, path)
        if isinstance(node.value, dict) and (kind is Any or values_of(kind) is not None):
            return self.checked(kind, metas, self.entries, node, path)
        return node.value if kind is Any else self.leaf(kind, metas, node, path)

    def checked(
        self, kind: Any, metas: list[msgspec.Meta], read: Callable[[Any, Node, str], Any], node: Node, path: str
    ) -> Any:
        """Reads each part of a list or mapping, and then checks the limits of the whole."""
        before = len(self.problems)
        parts = read(kind, node, path)
        return self.convert(erased(kind, metas), parts, node, path) if len(self.problems) == before else None

    def items(self, kind: Any, node: Node, path: str) -> list[Any]:
        """Returns the items of a list."""
        assert isinstance(node.value, list)
        item = Any if kind is Any else items_of(kind)
        return [self.value(item, child, below(path, at)) for at, child in enumerate(node.value)]

    def entries(self, kind: Any, node: Node, path: str) -> dict[str, Any]:
        """Returns the entries of a mapping with free keys."""
        assert isinstance(node.value, dict)
        item = Any if kind is Any else values_of(kind)
        for key in node.value:
            if key.lower() in _SECRET_KEYS - _HARMLESS_IN_MAPS:
                self.problem(below(path, key), node.keys[key], SECRET_HINT, Code.SECRET_IN_POLICY)
        return {key: self.value(item, child, below(path, key)) for key, child in node.value.items()}

    def material(self, node: Node, path: str) -> Material | None:
        """Returns the present content of the file at a path."""
        name = node.value
        if not isinstance(name, str) or "\n" in name or "-----BEGIN" in name:
            self.problem(path, node.mark, "expected the path of a PEM file")
        else:
            try:
                return self._read_material(name)
            except ValueError as error:
                self.problem(path, node.mark, str(error), Code.FILE_UNREADABLE)
        return None

    def credential(self, node: Node, path: str) -> CredentialId | None:
        """Returns the id of a secret."""
        if _leaks(node):
            self.problem(path, node.mark, SECRET_HINT, Code.SECRET_IN_POLICY)
            return None
        text = self.convert(Annotated[str, msgspec.Meta(min_length=1)], plain(node), node, path)
        return None if text is None else CredentialId(text)

    def leaf(self, kind: Any, metas: list[msgspec.Meta], node: Node, path: str) -> Any:
        """Returns a scalar, or a value of a type that is read as a whole."""
        if get_origin(kind) is Literal and isinstance(node.value, str) and node.value not in get_args(kind):
            choices = [str(choice) for choice in get_args(kind)]
            self.problem(path, node.mark, f"expected one of {', '.join(choices)}{suggest(node.value, choices)}")
            return None
        return self.convert(annotated(kind, metas), plain(node), node, path)

    def convert(self, type: Any, value: Any, node: Node, path: str) -> Any:
        """Returns a plain value converted by msgspec."""
        try:
            with contained():
                return msgspec.convert(value, type, dec_hook=_written)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$")
            node, path = followed(node, path, [key or int(at) for key, at in _PLACE.findall(place)])
            self.problem(path, node.mark, _described(type, message) or _reworded(message))
        except Exception as error:
            text = f"the plugin's option cannot take this: {named(error)}"
            self.problem(path, node.mark, text, Code.BAD_OPTION)
        return None

    def scan(self, node: Node, path: str = "") -> None:
        """Adds a problem for every string that looks like a secret, at any place."""
        if isinstance(node.value, str) and _SECRET_VALUE.search(node.value):
            self.problem(path, node.mark, SECRET_HINT, Code.SECRET_IN_POLICY)
        for key, child in children_of(node):
            self.scan(child, below(path, key))


# Each `://` starts a scan that ends at the next slash, so this is linear in the length of the text.
_SECRET_VALUE = re.compile(r"://[^/?#\s@:]*:[^/?#\s@]*@|-----BEGIN [A-Z ]*PRIVATE KEY-----")
_PLACE = re.compile(r"\.([A-Za-z0-9_]+)|\[([0-9]+)\]")
_WORDS = {"array": "list", "object": "mapping", "str": "string", "int": "integer", "float": "number", "bool": "boolean"}


def _leaks(node: Node) -> bool:
    """Whether a value looks like a secret in place of its id: its shape, `id:secret`, or one long random string."""
    if isinstance(node.value, list):
        return any(map(_leaks, node.value))
    if isinstance(node.value, str):
        random = len(node.value) >= 20 and all(re.search(part, node.value) for part in ("[a-z]", "[A-Z]", "[0-9]"))
        return random or re.search(r"[:=\s]", node.value) is not None
    return isinstance(node.value, dict)


def _fitting(arms: Iterable[Any], node: Node) -> Any:
    """Returns the type of a union that fits the node, if it is read part by part; None if it is read as a whole."""
    for arm in arms:
        if is_struct(arm) and isinstance(node.value, dict):
            tag = tag_of(arm)
            if tag is None or (tag[0] in node.value and node.value[tag[0]].value == tag[1]):
                return arm
        elif (isinstance(node.value, list) and items_of(arm) is not None) or (
            isinstance(node.value, dict) and values_of(arm) is not None
        ):
            return arm
    return None


def _is_reference(node: Node) -> bool:
    """Whether the node is a reference to a secret, as in policy files."""
    return isinstance(node.value, dict) and node.value.keys() <= {"file", "env", "systemd", "fleet", "as"}


def _kind(node: Node) -> str:
    names = {"dict": "a mapping", "list": "a list", "str": "a string", "NoneType": "nothing"}
    return names.get(type(node.value).__name__, "a number or boolean")


def _written(type: Any, value: Any) -> Any:
    """Returns values of our own types from their text in a policy."""
    if type is Duration:
        return Duration.parse(value)
    if type is CredentialId:
        if _leaks(Node(value, Mark(1, 1))):
            raise ValueError(SECRET_HINT)
        return CredentialId.parse(value)
    if type is Size:
        size = Size.parse(value)
        if size >= 2**63:
            raise ValueError("this size is too large")
        return size
    raise NotImplementedError(type)


def _described(type: Any, message: str) -> str | None:
    """Returns the message for a pattern that does not match, from the pattern's description."""
    if "matching regex" not in message:
        return None
    descriptions = [meta.description for meta in getattr(type, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
    return next((f"expected {description}" for description in descriptions if description), None)


def _reworded(message: str) -> str:
    """Returns msgspec's message in the terms of YAML, without the value."""
    message = re.sub(r"^Invalid (enum )?value .*", "this is not one of the possible values", message, flags=re.S)
    message = re.sub(r"`([a-z |]+)`", lambda m: " or ".join(_WORDS.get(w, w) for w in m[1].split(" | ")), message)
    if message.startswith("Expected string, got ") and message.endswith(("integer", "number", "boolean")):
        message += "; quote it"
    if message.startswith("Expected list, got ") and message.endswith(("string", "integer", "number", "boolean")):
        message += "; write it in brackets, such as [first, second]"
    return message[:1].lower() + message[1:]


# -- to JSON and back --------------------------------------------------------------------------------------------------


def exported(value: Any, *, paths: bool = True) -> Any:
    """Returns JSON-able values of settings, defaults included; without `paths` a file is represented by its content
    alone."""
    if isinstance(value, msgspec.Struct):
        tag = value.__struct_config__.tag
        fields = {
            name: exported(getattr(value, field.name), paths=paths)
            for name, field in fields_of(type(value)).items()
            if paths or not (isinstance(value, Material) and field.name == "path")
        }
        return fields if tag is None else {str(value.__struct_config__.tag_field): tag, **fields}
    if isinstance(value, Mapping):
        return {str(key): exported(child, paths=paths) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [exported(child, paths=paths) for child in value]
    if isinstance(value, (set, frozenset)):
        return sorted((exported(child, paths=paths) for child in value), key=canonical)
    if isinstance(value, (Size, Duration)):
        return int(value) if isinstance(value, Size) else float(value)
    if isinstance(value, CredentialId):
        return str(value)
    return msgspec.to_builtins(value)


def restored(struct: type[S], settings: Mapping[str, Any]) -> S:
    """Returns the struct of exported settings; raises ValueError if they do not fit (any more)."""
    try:
        return msgspec.convert(settings, struct, dec_hook=lambda type, number: type(number))
    except (msgspec.ValidationError, TypeError) as error:
        raise ValueError(_reworded(str(error))) from None


def canonical(exported: Any) -> str:
    """Returns the same JSON text for equal values, in any order of keys."""
    return json.dumps(exported, sort_keys=True, separators=(",", ":"))


def digest(exported: Any) -> str:
    """Returns the SHA-256, in hex, of the canonical text."""
    return hashlib.sha256(canonical(exported).encode()).hexdigest()
