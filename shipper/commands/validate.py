"""`shipper validate`: checks policy files as a supervisor on this host would.

It reads variables and PEM files of this host. It does not read secrets, so that a policy can be checked where its
secrets must not be: it checks the form of a reference, and warns of a missing file or one that others can read. A
missing PEM file is a warning, too. With `--secrets` it reads the secrets, and what is missing is an error. An id, as in
policies for `shipper run`, is accepted too.

With `--against` it says what a policy changes. It has no running shipper to ask, so it compares two policies of files;
a secret whose content changes behind the same reference is not seen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shipper.commands import PATH
from shipper.policy.document import Node
from shipper.sdk.codes import Code
from shipper.sdk.errors import PolicyError, Problem

if TYPE_CHECKING:
    from shipper.asking.changes import Changes, Part
    from shipper.policy.policy import Policy
    from shipper.policy.registry import Registry
    from shipper.sdk.secret_source import SecretSource

REFUSED = 78


@dataclass(frozen=True, slots=True)
class Checked:
    """One argument of the command line, and either its policy or its problems."""

    path: Path
    policy: Policy | None
    problems: Sequence[Problem] = ()
    warnings: Sequence[str] = ()
    changes: Changes | None = None
    """What it changes, if it was compared with another."""


@click.command("validate")
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="How to print the result.")
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@click.option("--secrets", "with_secrets", is_flag=True, help="Read the secrets too: a missing file is an error.")
@click.option(
    "--against", type=PATH, metavar="OLD", help="Say what changes from the policy OLD, and which outputs drain."
)
def command(files: Sequence[Path], form: str, with_secrets: bool, against: Path | None) -> None:
    """Check policy files, and report every mistake with its place.

    Each FILE is one policy; so is a directory, merged from its *.yaml and *.yml files. The exit status is 78 if any is
    refused. A missing file of a secret or certificate is a warning, with --secrets an error.

    \b
    Example:       shipper validate policy.yaml
    In CI:         shipper validate --format json policies/*.yaml
    What changes:  shipper validate --against old.yaml new.yaml
    """
    from shipper.policy.registry import Registry

    registry = Registry.installed()
    results = [check(path, registry, with_secrets=with_secrets) for path in files]
    if against is not None:
        results = [_compared(result, against, registry, with_secrets=with_secrets) for result in results]
    if form == "json":
        click.echo(json.dumps([_json(result) for result in results], indent=2))
    else:
        click.echo("\n".join(line for result in results for line in _lines(result)))
    if any(result.policy is None for result in results):
        click.get_current_context().exit(REFUSED)


def check(path: Path, registry: Registry, *, with_secrets: bool = False) -> Checked:
    """Checks the policy of a file or a directory as a supervisor does; reads secrets only `with_secrets`."""
    from shipper.asking.planned import cases_of
    from shipper.policy.idle import idle
    from shipper.supervise import sources

    problems: list[Problem] = []
    try:
        read = sources.read([path], os.environ)
        tree = read.tree
        substituted = references(tree, registry, problems)
        policy, absent = built(substituted, registry)
        cases_of(read.tests, policy)
    except PolicyError as error:
        problems += error.problems
        return Checked(path, None, problems)
    missing, exposed = secret_files(tree, registry, os.environ, with_secrets=with_secrets) if not problems else ([], [])
    if with_secrets:
        problems += [*absent, *missing]
    unused = [*read.idle, *idle(policy, tree)]
    found = [*unused, *(exposed if with_secrets else [*absent, *missing, *exposed])]
    warnings = [*_warnings(policy), *map(str, found)]
    return Checked(path, None if problems else policy, problems, warnings)


def built(tree: Node, registry: Registry) -> tuple[Policy, list[Problem]]:
    """Returns the policy of a tree, and the absent PEM files that it names, each with its place.

    Raises PolicyError for any other mistake.
    """
    from shipper.asking.planned import imagined
    from shipper.policy.policy import build
    from shipper.sdk.tls import Material

    def material(path: str) -> Material:
        try:
            return Material.read(path)
        except ValueError as error:
            if isinstance(error.__context__, FileNotFoundError):
                return imagined(path)
            raise

    try:
        return build(tree, registry), []
    except PolicyError as error:
        policy = build(tree, registry, material)
        return policy, [replace(problem, code=Code.FILE_MISSING) for problem in error.problems]


def _compared(result: Checked, old: Path, registry: Registry, *, with_secrets: bool) -> Checked:
    """Returns the result with what the policy changes, or with the problems of the old one."""
    from shipper.asking.changes import between

    if result.policy is None:
        return result
    try:
        changes = between(old, result.path, os.environ, registry, with_secrets=with_secrets)
    except PolicyError as error:
        return replace(result, policy=None, problems=error.problems)
    return replace(result, changes=changes)


def references(tree: Node, registry: Registry, problems: list[Problem]) -> Node:
    """Returns the tree of a policy with an id for every reference to a secret; adds a problem for each invalid one.

    The schema refuses any other value that is not an id.
    """
    from shipper.supervise.secrets import Place, Reference, everywhere

    def placeholder(place: Place) -> Node:
        node = place.node
        if not isinstance(node.value, dict):
            return node
        try:
            return Node(Reference.parse(node).label, node.mark)
        except ValueError as error:
            problems.append(place.problem(str(error)))
            return Node("refused", node.mark)

    return everywhere(tree, registry, placeholder)


def secret_files(
    tree: Node, registry: Registry, environment: Mapping[str, str], *, with_secrets: bool
) -> tuple[list[Problem], list[Problem]]:
    """Returns the missing secrets of a valid policy, and those that others can read, each once.

    Inspects files without reading them; reads every secret `with_secrets`.
    """
    from shipper.supervise.secrets import Place, Reference, everywhere, exposed, read

    missing: dict[Reference, Problem] = {}
    found: dict[Reference, Problem] = {}

    def look(place: Place) -> Node:
        if isinstance(place.node.value, dict):
            reference = Reference.parse(place.node)
            try:
                if with_secrets:
                    misfit = place.misfit(reference, read(reference, environment))
                    missing.update({} if misfit is None else {reference: misfit})
                else:
                    _look_at_files(reference.source)
            except OSError as error:
                text = f"the secret {reference} is not here: {error.strerror}"
                missing.setdefault(reference, place.problem(text, Code.SECRET_UNAVAILABLE))
            except ValueError as error:
                missing.setdefault(reference, place.problem(str(error), Code.SECRET_UNAVAILABLE))
            if (how := exposed(reference)) is not None:
                found.setdefault(reference, place.problem(how))
        return place.node

    everywhere(tree, registry, look)
    return list(missing.values()), list(found.values())


def _look_at_files(source: SecretSource) -> None:
    """Raises OSError if a file that the reference itself names is missing."""
    from shipper.sdk.secret_source import Unreadable

    with suppress(Unreadable):  # the supervisor's environment decides which file
        for path in source.paths({}):
            os.stat(path)


def _lines(result: Checked) -> list[str]:
    if result.policy is None:
        return [str(problem) for problem in result.problems]
    counts = [_count(len(result.policy.inputs), "input"), _count(len(result.policy.outputs), "output")]
    warnings = [f"{result.path}: warning: {warning}" for warning in result.warnings]
    changes = [] if result.changes is None else [f"  {line}" for line in _changes(result.changes)]
    return [f"{result.path}: ok, {', '.join(counts)}", *changes, *warnings]


def _changes(changes: Changes) -> Iterator[str]:
    """Yields what a policy changes, in words."""
    yield {
        "none": "changes nothing",
        "live": "changes nothing that is queued: it is drained at once",
        "barrier": "some outputs drain: what they have queued still goes where it went",
    }[changes.change]
    parts = {part.name: _part(part) for part in changes.parts} | dict.fromkeys(changes.settings, "changed")
    width = max(map(len, parts), default=0)
    yield from (f"{name:{width}}  {told}" for name, told in parts.items())
    if changes.released:
        yield f"may be revoked when it is drained: {', '.join(changes.released)}"


def _part(part: Part) -> str:
    told = "changed in place" if part.what == "changed" and part.name.startswith("inputs.") else part.what
    settings = f": {', '.join(part.settings)}" if part.settings else ""
    return f"drains, {told}{settings}" if part.drains else f"{told}{settings}"


def _warnings(policy: Policy) -> list[str]:
    """Returns warnings about valid settings that are probably mistakes."""
    return [f"outputs.{name}: {warning}" for name, spec in policy.outputs.items() for warning in spec.config.warnings()]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _json(result: Checked) -> dict[str, Any]:
    errors = [
        {"file": p.file, "line": p.line, "column": p.column, "path": p.path, "message": p.message, "code": p.code}
        for p in result.problems
    ]
    found = (
        {}
        if result.policy is None
        else {
            "inputs": len(result.policy.inputs),
            "outputs": len(result.policy.outputs),
            "warnings": list(result.warnings),
        }
        | ({} if result.changes is None else {"changes": asdict(result.changes)})
    )
    return {"file": str(result.path), "valid": result.policy is not None, **found, "errors": errors}
