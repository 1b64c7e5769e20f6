"""Reads the wanted policy from its origin, and lists every path that it depends on.

A secret is one of this host, which a reference finds, or the source of policies supplies it with an id of its own
(`Given`). The policy is validated here as in the sidecar, so that a mistake is reported at its place in the text and
never sent. `policy.meaning` decides whether two readings mean the same: comments and the order of keys do not matter,
the bytes of a certificate file do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from shipper.policy import document, policy
from shipper.policy.document import Node
from shipper.policy.idle import idle
from shipper.policy.policy import Policy
from shipper.policy.registry import Registry, UnknownType
from shipper.sdk.codes import Code
from shipper.sdk.credentials import Credential, Shape
from shipper.sdk.errors import PolicyError, Problem
from shipper.sdk.secret_source import Absent
from shipper.sdk.tls import Material
from shipper.sdk.unshown import Unshown
from shipper.supervise import secrets
from shipper.supervise.ledger import Found, Wanted, identified
from shipper.supervise.secrets import Place, Reference, SecretsAbsent
from shipper.supervise.sources import Origin


class Given(Unshown, frozen=True):
    """A secret that the source of policies supplies, and the id that it has given to it."""

    id: str
    content: bytes


Giving = Callable[[Reference], Given | None]
"""Returns the source's own secret for a reference; None for a reference that this host resolves."""


class Desired:
    """Reads one origin. `watched` are the paths of the last reading, even a failed one."""

    def __init__(
        self,
        origin: Origin,
        environment: Mapping[str, str],
        registry: Registry,
        *,
        once: bool = False,
        given: Giving = lambda reference: None,
    ) -> None:
        self.watched: frozenset[Path] = frozenset()
        self.secret_variables: frozenset[str] = frozenset()
        self.poll_seconds = math.inf
        """The interval for reading sources that cannot be watched."""
        self._origin = origin
        self._environment = environment
        self._registry = registry
        self._once = once
        self._given = given

    def read(self, known: Mapping[bytes, str]) -> Wanted:
        """Returns the wanted policy, with the known ids for known contents; blocks on files.

        Raises PolicyError, or SecretsAbsent if that is the only problem.
        """
        seen = {*self._origin.paths()}
        try:
            return self._read(known, seen)
        finally:
            self.watched = frozenset(seen)

    def _read(self, known: Mapping[bytes, str], seen: set[Path]) -> Wanted:
        read = self._origin.read(self._environment)
        tree = read.tree
        if self._once:
            tree = ending(tree, self._registry)
        uses = secrets.references(tree, self._registry)
        self.secret_variables |= {name for reference in uses for name in reference.source.variables}
        self.poll_seconds = min((one.source.poll_seconds or math.inf for one in uses), default=math.inf)
        try:
            kept = identified(known, self._found(uses, seen))
        except SecretsAbsent:
            placeholders = {one: f"{one.label}-{at}" for at, one in enumerate(uses)}
            self._valid(secrets.substituted(tree, self._registry, placeholders), seen)
            raise
        ids = dict(zip(uses, (one.id for one in kept), strict=True))
        tree = secrets.substituted(tree, self._registry, ids)
        valid = self._valid(tree, seen)
        credentials = {one.id: one for one in kept}
        reused = frozenset(credentials.keys() & set(known.values()))
        warnings = (*read.idle, *idle(valid, tree), *_exposed(uses))
        return Wanted(tree, document.write(tree), policy.meaning(valid), credentials, reused, warnings)

    def _valid(self, tree: Node, seen: set[Path]) -> Policy:
        try:
            valid = policy.build(tree, self._registry)
        except PolicyError as error:
            seen.update(_named(tree, error.problems))
            raise
        seen.update(_materials(valid))
        return valid

    def _found(self, uses: Mapping[Reference, list[Place]], seen: set[Path]) -> list[Found]:
        found: list[Found] = []
        problems: list[Problem] = []
        absent = True
        for reference, places in uses.items():
            shapes = tuple(dict.fromkeys(shape for place in places for shape in place.shapes))
            try:
                given = self._given(reference)
                seen.update(secrets.watched(reference, self._environment) if given is None else ())
                credential = self._credential(reference, given, shapes)
            except ValueError as error:
                absent = absent and isinstance(error, Absent)
                problems += [place.problem(str(error), Code.SECRET_UNAVAILABLE) for place in places]
            else:
                misfits = [problem for place in places if (problem := place.misfit(reference, credential))]
                absent = absent and not misfits
                problems += misfits
                units = tuple(".".join(place.path.split(".")[:2]) for place in places)
                id = given.id if given else ""
                found.append(Found(credential, reference.label, str(reference), units, id, shapes))
        if problems:
            raise (SecretsAbsent if absent else PolicyError)(problems)
        return found

    def _credential(self, reference: Reference, given: Given | None, shapes: Sequence[Shape]) -> Credential:
        if given is None:
            return secrets.read(reference, self._environment, shapes)
        return secrets.of_content(reference, given.content, shapes)


def _exposed(uses: Mapping[Reference, list[Place]]) -> Iterator[Problem]:
    """Yields the secrets that others can read, each at its first place."""
    for reference, (first, *_) in uses.items():
        if (how := secrets.exposed(reference)) is not None:
            yield first.problem(how)


def ending(tree: Node, registry: Registry) -> Node:
    """Returns the tree with inputs that end at the end of their data; malformed ones stay, for the schema to refuse."""
    inputs = tree.value.get("inputs") if isinstance(tree.value, dict) else None
    if inputs is None or not isinstance(inputs.value, dict):
        return tree
    changed = {name: _ending(node, registry) for name, node in inputs.value.items()}
    assert isinstance(tree.value, dict)
    return replace(tree, value={**tree.value, "inputs": replace(inputs, value=changed)})


def _ending(node: Node, registry: Registry) -> Node:
    type = node.value["type"].value if isinstance(node.value, dict) and "type" in node.value else None
    if not isinstance(node.value, dict) or not isinstance(type, str):
        return node
    try:
        settings = registry.find("inputs", type).ending
    except UnknownType:
        return node
    return replace(node, value={**node.value, **{key: Node(value, node.mark) for key, value in settings.items()}})


def _materials(valid: Policy) -> Iterator[Path]:
    """Yields the PEM files that the policy names, anywhere in the settings of its plugins."""
    pending: list[Any] = [valid]
    while pending:
        value = pending.pop()
        if isinstance(value, Material):
            yield Path(value.path).absolute()
        elif isinstance(value, msgspec.Struct):
            pending += [getattr(value, name) for name in value.__struct_fields__]
        elif isinstance(value, Mapping):
            pending += value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            pending += value


def _named(tree: Node, problems: Sequence[Problem]) -> Iterator[Path]:
    """Yields the values at the problems as paths: each may be that of a PEM file that appears later."""
    uses = {(problem.file, problem.line, problem.column) for problem in problems}
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node.value, dict):
            pending += node.value.values()
        elif isinstance(node.value, list):
            pending += node.value
        elif isinstance(node.value, str) and node.value.isprintable() and _location(node) in uses:
            yield Path(node.value).absolute()


def _location(node: Node) -> tuple[str | None, int, int]:
    return node.mark.file, node.mark.line, node.mark.column
