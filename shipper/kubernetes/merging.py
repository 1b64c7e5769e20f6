"""Several policies on one member, as one policy. Pure.

Each policy is made self-contained first (`isolated`): its processors become the last ones of its own inputs, and an
input without `outputs` names those of its policy. So nothing of one policy acts on events of another, and a merge is
the union of inputs and outputs by name. Two policies conflict where both have an input or an output of one name, or
another value of a key that a member has once: `queue`, `dead_letters`, `drain`, `log_level`.

    for each policy, the older creationTimestamp first, then the lesser uid:
        the first of its choices that fits beside all before it      (its newest generation, its last good one)

What a policy runs therefore depends on older policies alone: a loser never changes what a winner runs. The order in
which objects have arrived does not matter.

A reference that says which content of its Secret is meant is pinned: `{secret: {name: …, key: …, id: ID}}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from shipper.kubernetes.secret import KIND, KubernetesSecret
from shipper.policy.document import DEEPEST, Mark, Node, children_of, plain
from shipper.policy.registry import Registry, UnknownType
from shipper.sdk.codes import Code
from shipper.sdk.errors import PolicyError, Problem
from shipper.supervise import secrets
from shipper.supervise.secrets import Place, Reference

SECTIONS = ("inputs", "outputs")
SINGLE = ("queue", "dead_letters", "drain", "log_level")
WHERE = "spec.policy"
"""Of a policy in its object."""
_NOWHERE = Mark(1, 1)


class SecretRef(NamedTuple):
    """A reference to a key of a Secret, as the user wrote it."""

    name: str
    key: str
    shape: str = ""
    """What `as` says beside it."""


# -- one policy --------------------------------------------------------------------------------------------------------


def tree_of(value: object, file: str | None = None) -> Node:
    """Returns the tree of a decoded JSON value; raises PolicyError where it is nested too deeply."""
    return _tree_of(value, Mark(1, 1, file), 0)


def _tree_of(value: object, mark: Mark, depth: int) -> Node:
    if depth > DEEPEST:
        text = f"the nesting is deeper than {DEEPEST}; flatten it"
        raise PolicyError([Problem("", mark.line, mark.column, text, mark.file, Code.SYNTAX)])
    if isinstance(value, Mapping):
        children = {str(key): _tree_of(child, mark, depth + 1) for key, child in value.items()}
        return Node(children, mark, dict.fromkeys(children, mark))
    if isinstance(value, list | tuple):
        return Node([_tree_of(child, mark, depth + 1) for child in value], mark)
    assert value is None or isinstance(value, bool | int | float | str)
    return Node(value, mark)


def isolated(tree: Node, registry: Registry) -> Node:
    """Returns a self-contained policy; what is malformed stays, for the schema to refuse."""
    top = _mapping(tree)
    common = top.get("processors")
    steps = common.value if common is not None and isinstance(common.value, list) else []
    names = [Node(name, tree.mark) for name in _mapping(top.get("outputs"))]
    inputs = {name: _isolated(node, steps, names, registry) for name, node in _mapping(top.get("inputs")).items()}
    kept = {key: node for key, node in top.items() if key != "processors" or not inputs or node.value != steps}
    if inputs:
        kept["inputs"] = replace(top["inputs"], value=inputs)
    return replace(tree, value=kept) if isinstance(tree.value, dict) else tree


def _isolated(node: Node, common: list[Node], outputs: list[Node], registry: Registry) -> Node:
    if not isinstance(node.value, dict):
        return node
    added: dict[str, Node] = {}
    if "outputs" not in node.value:
        added["outputs"] = Node(list(outputs), node.mark)
    own = node.value.get("processors", Node([], node.mark))
    if common and isinstance(own.value, list) and _has_events(node.value, registry):
        added["processors"] = replace(own, value=[*own.value, *common])
    return replace(node, value={**node.value, **added}, keys={**dict.fromkeys(added, node.mark), **node.keys})


def _has_events(input: Mapping[str, Node], registry: Registry) -> bool:
    """Whether an input gives events: keyed state alone passes no processors."""
    type = input["type"].value if "type" in input else None
    try:
        return not isinstance(type, str) or registry.find("inputs", type).gives_events is not False
    except UnknownType:
        return True


_OF_INPUT = re.compile(r"inputs\.([^.\[]+)\.(processors\[(\d+)\]|outputs)(.*)")


def written(path: str, policy: Mapping[str, object]) -> str:
    """Returns the place in the user's object of a path in the isolated or the merged policy."""
    found = _OF_INPUT.fullmatch(path)
    inputs = policy.get("inputs")
    input = inputs.get(found[1]) if found and isinstance(inputs, Mapping) else None
    if found and isinstance(input, Mapping):
        own = input.get("processors")
        count = len(own) if isinstance(own, list | tuple) else 0
        if found[3] is not None and int(found[3]) >= count:
            path = f"processors[{int(found[3]) - count}]{found[4]}"
        elif found[2] == "outputs" and "outputs" not in input:
            path = "outputs"
    return f"{WHERE}.{path}" if path else WHERE


# -- references --------------------------------------------------------------------------------------------------------


def references(tree: Node, registry: Registry) -> dict[SecretRef, tuple[str, ...]]:
    """Returns each reference to a Secret with its paths; raises PolicyError for malformed ones. Others are left out."""
    found = secrets.references(tree, registry)
    refs = {_ref(one): tuple(place.path for place in places) for one, places in found.items()}
    return {ref: paths for ref, paths in refs.items() if ref is not None}


def pinned(tree: Node, registry: Registry, ids: Mapping[SecretRef, str]) -> Node:
    """Returns the policy with the content of each reference to a Secret decided; all of them are in `ids`."""

    def pin(place: Place) -> Node:
        ref = _ref(Reference.parse(place.node))
        if ref is None or not isinstance(place.node.value, dict):
            return place.node
        secret = place.node.value[KIND]
        named = {**_mapping(secret), "id": Node(ids[ref], secret.mark)}
        return replace(place.node, value={**place.node.value, KIND: replace(secret, value=named)})

    return secrets.everywhere(tree, registry, pin)


def _ref(reference: Reference) -> SecretRef | None:
    source = reference.source
    if not isinstance(source, KubernetesSecret):
        return None
    return SecretRef(source.secret, source.key, reference.shape or "")


# -- several -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy, and what it may run, the best first."""

    name: str
    uid: str
    created: str
    choices: Sequence[Node] = field(repr=False)
    """Isolated and valid."""

    @property
    def order(self) -> tuple[str, str]:
        """The lesser one wins."""
        return self.created, self.uid


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a choice does not fit."""

    path: str
    """In the policy."""
    winner: str
    """The name of the older policy."""

    def __str__(self) -> str:
        kind = self.path.partition(".")[0]
        what = f"an {kind[:-1]} of this name" if kind in SECTIONS else "another value of this key"
        return f"the older policy {self.winner} has {what}; rename it here, or there"


@dataclass(frozen=True, slots=True)
class Merge:
    """One policy of several."""

    tree: Node = field(repr=False)
    chosen: Mapping[str, int | None]
    """By uid, which choice is in the merge; None: nothing of this policy is."""
    conflicts: Mapping[str, Conflict]
    """By uid, why the first choice is not in it, where that is another policy."""
    owners: Mapping[str, str]
    """The uid of the policy that has brought a part, such as `inputs.access` or `queue`."""

    def owner(self, path: str) -> str | None:
        """Returns the uid of the policy to which a path of the merge leads; None if that is not one."""
        first, _, rest = path.partition(".")
        name = re.split(r"[.\[]", rest, maxsplit=1)[0]
        return self.owners.get(f"{first}.{name}" if first in SECTIONS else first.partition("[")[0])


def merge(candidates: Iterable[Candidate]) -> Merge:
    """Returns the merge of policies; their order does not matter."""
    merging = _Merging()
    chosen: dict[str, int | None] = {}
    conflicts: dict[str, Conflict] = {}
    for one in sorted(candidates, key=lambda one: one.order):
        found = [merging.conflict(choice) for choice in one.choices]
        chosen[one.uid] = next((at for at, conflict in enumerate(found) if conflict is None), None)
        if found and found[0] is not None:
            conflicts[one.uid] = found[0]
        if (at := chosen[one.uid]) is not None:
            merging.add(one, one.choices[at])
    return Merge(merging.tree, chosen, conflicts, {path: owner.uid for path, owner in merging.owners.items()})


class _Merging:
    def __init__(self) -> None:
        self.top: dict[str, Node] = {}
        self.owners: dict[str, Candidate] = {}

    @property
    def tree(self) -> Node:
        version = self.top.get("version", Node(1, _NOWHERE))
        top = {"version": version, **{key: node for key, node in self.top.items() if key != "version"}}
        return Node(top, _NOWHERE, dict.fromkeys(top, _NOWHERE))

    def conflict(self, tree: Node) -> Conflict | None:
        for path, node in _parts(tree):
            if path in self.owners and not (path in SINGLE and plain(node) == plain(self.top[path])):
                return Conflict(path, self.owners[path].name)
        return None

    def add(self, one: Candidate, tree: Node) -> None:
        for path, _ in _parts(tree):
            self.owners.setdefault(path, one)
        for key, node in _mapping(tree).items():
            before = self.top.get(key)
            if key in SECTIONS and before is not None and isinstance(node.value, dict):
                both = {**_mapping(before), **node.value}
                self.top[key] = Node(both, before.mark, {**before.keys, **node.keys})
            elif key not in SECTIONS or isinstance(node.value, dict):
                self.top.setdefault(key, node)


def _parts(tree: Node) -> Iterable[tuple[str, Node]]:
    """Yields what only one policy may have."""
    for key, node in children_of(tree):
        if key in SECTIONS:
            yield from ((f"{key}.{name}", child) for name, child in children_of(node))
        elif key in SINGLE:
            yield str(key), node


def _mapping(node: Node | None) -> dict[str, Node]:
    return node.value if node is not None and isinstance(node.value, dict) else {}
