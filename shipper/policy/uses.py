"""Finds the references to secrets in settings, by the type `CredentialId`, at any depth.

It walks a type and a tree together. The tree is a policy's text with its places (`Node`), or the JSON-able values of
settings; in a union, the arm that the tree fits counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

import msgspec

from shipper.policy.document import Node
from shipper.policy.settings import exported, fields_of, is_struct, resolved, tag_of
from shipper.sdk.credentials import SHAPES, CredentialId, Shape, Takes

Path = tuple[str | int, ...]


class Use(NamedTuple):
    """A setting that refers to a secret: its path, the id, and the accepted shapes."""

    path: Path
    id: str
    shapes: tuple[Shape, ...]


class Place(NamedTuple):
    """A place for an id, and the tree at it."""

    path: Path
    tree: Any
    shapes: tuple[Shape, ...]


def uses(config: msgspec.Struct) -> tuple[Use, ...]:
    """Returns every reference of a plugin's settings, in order; the path is one of `exported` settings."""
    return tuple(
        Use(path, str(id), shapes) for path, id, shapes in places(type(config), exported(config)) if isinstance(id, str)
    )


def places(annotation: Any, tree: Any, path: Path = ()) -> Iterator[Place]:
    """Yields every place for an id at which the tree has a value."""
    content: Any = tree.value if isinstance(tree, Node) else tree
    if content is None:
        return
    for kind, shapes in _arms(annotation):
        if kind is CredentialId:
            yield Place(path, tree, shapes)
        for key, inside in _parts(kind, content):
            yield from places(inside, content[key], (*path, key))


@cache
def shapes_of(struct: type[msgspec.Struct]) -> frozenset[Shape]:
    """Returns every shape that settings of this class accept."""
    found: set[Shape] = set()
    seen: list[Any] = []
    pending: list[Any] = [struct]
    while pending:
        for kind, shapes in _arms(pending.pop()):
            if kind is CredentialId:
                found.update(shapes)
            elif kind not in seen:
                seen.append(kind)
                pending += [field.type for field in fields_of(kind).values()] if is_struct(kind) else get_args(kind)
    return frozenset(found)


def _arms(annotation: Any, shapes: tuple[Shape, ...] = SHAPES) -> Iterator[tuple[Any, tuple[Shape, ...]]]:
    """Yields the types that a value may have, each with the accepted shapes if it is a CredentialId."""
    annotation = resolved(annotation)
    if get_origin(annotation) is Annotated:
        said = [meta.shapes for meta in annotation.__metadata__ if isinstance(meta, Takes)]
        yield from _arms(annotation.__origin__, said[-1] if said else shapes)
    elif get_origin(annotation) in (Union, UnionType):
        for arm in get_args(annotation):
            yield from _arms(arm, shapes)
    else:
        yield annotation, shapes


def _parts(kind: Any, content: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the keys of a mapping or list of this type, each with the type of its value."""
    arguments = get_args(kind)
    if is_struct(kind) and isinstance(content, dict) and _has_tag(kind, content):
        yield from ((key, field.type) for key, field in fields_of(kind).items() if key in content)
    elif isinstance(content, dict) and len(arguments) == 2 and get_origin(kind) is not tuple:
        yield from ((key, arguments[1]) for key in content)
    elif isinstance(content, list) and get_origin(kind) is tuple and Ellipsis not in arguments:
        yield from ((at, inside) for at, inside in zip(range(len(content)), arguments, strict=False))
    elif isinstance(content, list) and arguments:
        yield from ((at, arguments[0]) for at in range(len(content)))


def _has_tag(struct: Any, content: dict[str, Any]) -> bool:
    tag = tag_of(struct)
    if tag is None:
        return True
    found = content.get(tag[0])
    return (found.value if isinstance(found, Node) else found) == tag[1]


def changed(tree: Node, annotation: Any, change: Callable[[Place], Node]) -> Node:
    """Returns the tree with the result of `change` at each place for an id."""
    for place in list(places(annotation, tree)):
        tree = _replaced(tree, place.path, change(place))
    return tree


def _replaced(tree: Node, path: Path, part: Node) -> Node:
    if not path:
        return part
    key, rest = path[0], path[1:]
    content: Any = tree.value.copy()  # type: ignore[union-attr]
    content[key] = _replaced(content[key], rest, part)
    return replace(tree, value=content)
