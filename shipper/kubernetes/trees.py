"""Variables in the values of policies from Kubernetes, and a policy as an origin.

Who may write a ShipperPolicy is often not who may read the files and the environment of a host. So `${NAME}` is
refused, unless the member's own settings allow it; `$$` is one `$` in both cases, as in policy files. A replaced value
counts as a plain scalar, so that `${PORT}` can be a number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from shipper.policy import document
from shipper.policy.document import Node, Value, below
from shipper.sdk.codes import Code
from shipper.sdk.errors import PolicyError, Problem
from shipper.supervise.sources import Read
from shipper.supervise.variables import replaced


def without_variables(tree: Node, environment: Mapping[str, str] | None) -> Node:
    """Returns a tree with its variables replaced; with None they are refused. Raises PolicyError with every problem."""
    problems: list[Problem] = []

    def changed(node: Node, path: str) -> Node:
        if isinstance(node.value, dict):
            return replace(node, value={key: changed(child, below(path, key)) for key, child in node.value.items()})
        if isinstance(node.value, list):
            return replace(node, value=[changed(child, below(path, at)) for at, child in enumerate(node.value)])
        if not isinstance(node.value, str) or "$" not in node.value:
            return node
        try:
            return replace(node, value=_replaced(node.value, environment))
        except ValueError as error:
            mark = node.mark
            problems.append(Problem(path, mark.line, mark.column, str(error), mark.file, Code.BAD_VALUE))
            return node

    found = changed(tree, "")
    if problems:
        raise PolicyError(problems)
    return found


def _replaced(text: str, environment: Mapping[str, str] | None) -> Value:
    is_free = "${" not in text.replace("$$", "")
    if environment is None and not is_free:
        raise ValueError(
            "a policy from Kubernetes may not read variables of a host; write the value itself, or set "
            "`allow_host_references: true` in `kubernetes` of each member's --config; write $$ for one $"
        )
    found = replaced(text, environment or {})
    return found if is_free else document.resolve(found)


@dataclass(frozen=True, slots=True)
class PolicyTree:
    """A tree as an origin of policies, as `shipper.supervise.sources.Origin` has it."""

    tree: Node = field(repr=False)
    allows_host: bool = False

    def paths(self) -> Collection[Path]:
        return ()

    def read(self, environment: Mapping[str, str]) -> Read:
        return Read(without_variables(self.tree, environment if self.allows_host else None))
