"""The plan of a policy of this host, and where its secrets come from. It reads variables and PEM files, and no secret.

The id of a secret is made from its reference as it is written, so that the same reference has the same id in two
policies, wherever their files are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shipper.fleet.changes import imagined_pem
from shipper.pipeline.plan import Plan, make
from shipper.plugin import Material
from shipper.policy import document
from shipper.policy.cases import Case, read_cases
from shipper.policy.document import Node
from shipper.policy.policy import Policy, build, takes_events
from shipper.policy.registry import Registry
from shipper.sdk.errors import PolicyError, Problem
from shipper.supervise import sources
from shipper.supervise.secrets import Place, Reference, everywhere
from shipper.values import Revision


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and the references to its secrets by the ids in it. An id that the policy itself has is not among
    them."""

    plan: Plan
    tree: Node = field(repr=False)
    references: Mapping[str, Reference]
    names: Mapping[str, str]
    """The references as they are written, by id."""
    tests: Sequence[Node] = field(default=(), repr=False)
    """The sections `tests` of its files."""


def planned(
    paths: Sequence[Path],
    environment: Mapping[str, str],
    registry: Registry,
    material: Callable[[str], Material] = Material.read,
) -> Planned:
    """Returns the plan of the policy of files and directories of files, merged as a supervisor does; `material`
    returns the content of a PEM file.

    Raises PolicyError with all problems. Blocks on files.
    """
    read = sources.read(paths, environment)
    tree = read.tree
    references: dict[str, Reference] = {}
    names: dict[str, str] = {}
    problems: list[Problem] = []

    def id_of(place: Place) -> Node:
        if not isinstance(place.node.value, dict):
            return place.node
        try:
            reference = Reference.parse(place.node)
            written = Reference.parse(replace(place.node, mark=place.node.mark._replace(file=None)))
        except ValueError as error:
            problems.append(place.problem(str(error)))
            return Node("refused", place.node.mark)
        id = f"{reference.label}-{hashlib.sha256(repr(written).encode()).hexdigest()[:8]}"
        references[id], names[id] = reference, str(written)
        return Node(id, place.node.mark)

    substituted = everywhere(tree, registry, id_of)
    try:
        build(substituted, registry, material)
    except PolicyError as error:
        problems += error.problems
    if problems:
        raise PolicyError(problems)
    return Planned(
        make(Revision(0, 0), document.write(substituted), registry, material), tree, references, names, read.tests
    )


def imagined(path: str) -> Material:
    """Returns the content of a PEM file, or a certificate of nobody: elsewhere than on its host, a policy has to be
    tried without it."""
    try:
        return Material.read(path)
    except ValueError:
        return Material(path, imagined_pem())


def cases_of(sections: Sequence[Node], policy: Policy) -> Sequence[Case]:
    """Returns the cases of the sections `tests` of a policy's files; raises PolicyError with all problems."""
    every = [name for name, spec in policy.outputs.items() if takes_events(spec.config)]
    inputs = {
        name: tuple(one for one in every if spec.outputs is None or one in spec.outputs)
        for name, spec in policy.inputs.items()
    }
    cases: list[Case] = []
    problems: list[Problem] = []
    for section in sections:
        try:
            cases += read_cases(section, inputs)
        except PolicyError as error:
            problems += error.problems
    if problems:
        raise PolicyError(problems)
    return cases
