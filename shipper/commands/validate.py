"""`shipper validate`: what a supervisor would say of policy files on this host.

Variables and PEM files are read as they are here. Secrets are not: a file that refers to them can be checked where
they must not be, so only the form of a reference is looked at. An id, as policies for `shipper run` have it, is
accepted too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shipper.document import Node
from shipper.errors import PolicyError, Problem

if TYPE_CHECKING:
    from shipper.policy import Policy
    from shipper.registry import Registry

REFUSED = 78


@dataclass(frozen=True, slots=True)
class Checked:
    """One argument of the command line, and either its policy or its problems."""

    path: Path
    policy: Policy | None
    problems: Sequence[Problem] = ()


@click.command("validate")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="How to print the result.")
def command(files: Sequence[Path], form: str) -> None:
    """Check policy files and name every mistake by its place.

    Each FILE is one policy; a directory is one as well, merged from its *.yaml and *.yml files. The exit status is 78
    if any is refused.

    \b
    Example:       shipper validate policy.yaml
    In CI:         shipper validate --format json policies/*.yaml
    """
    from shipper.registry import Registry

    registry = Registry.installed()
    results = [check(path, registry) for path in files]
    if form == "json":
        click.echo(json.dumps([_json(result) for result in results], indent=2))
    else:
        click.echo("\n".join(line for result in results for line in _lines(result)))
    if any(result.policy is None for result in results):
        click.get_current_context().exit(REFUSED)


def check(path: Path, registry: Registry) -> Checked:
    """The policy of a file or a directory, read as a supervisor reads it, but for the secrets."""
    from shipper.policy import build
    from shipper.supervise.sources import read_tree

    problems: list[Problem] = []
    try:
        policy = build(references(read_tree([path], os.environ), problems), registry)
    except PolicyError as error:
        problems += error.problems
    return Checked(path, None if problems else policy, problems)


def references(tree: Node, problems: list[Problem]) -> Node:
    """The tree of a policy with an id in place of every reference to a secret; those that are none are noted.

    What is no mapping is left for the schema to refuse, unless it is an id.
    """
    from shipper.supervise.secrets import Reference, everywhere, problem

    def placeholder(path: str, node: Node) -> Node:
        if not isinstance(node.value, dict):
            return node
        try:
            return Node(Reference.parse(node).label, node.mark)
        except ValueError as error:
            problems.append(problem(path, node, str(error)))
            return Node("refused", node.mark)

    return everywhere(tree, placeholder)


def _lines(result: Checked) -> list[str]:
    if result.policy is None:
        return [str(problem) for problem in result.problems]
    counts = [_count(len(result.policy.inputs), "input"), _count(len(result.policy.outputs), "output")]
    warnings = [f"{result.path}: warning: {warning}" for warning in _warnings(result.policy)]
    return [f"{result.path}: ok, {', '.join(counts)}", *warnings]


def _warnings(policy: Policy) -> list[str]:
    """What is valid, and yet hardly meant."""
    if policy.inputs and not policy.outputs:
        return ["there are inputs and no outputs: nothing is delivered"]
    return []


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _json(result: Checked) -> dict[str, Any]:
    errors = [
        {"file": p.file, "line": p.line, "column": p.column, "path": p.path, "message": p.message}
        for p in result.problems
    ]
    found = (
        {}
        if result.policy is None
        else {
            "inputs": len(result.policy.inputs),
            "outputs": len(result.policy.outputs),
            "warnings": _warnings(result.policy),
        }
    )
    return {"file": str(result.path), "valid": result.policy is not None, **found, "errors": errors}
