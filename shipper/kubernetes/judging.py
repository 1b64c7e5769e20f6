"""Judges one generation of a policy alone, before it is merged with others.

What is wrong with it is its author's to mend, and no reason to keep other policies from running. So each is judged as
the self-contained policy that merging makes of it, and then as it was written, for what that leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shipper.kubernetes.member.steps import Judgement
from shipper.kubernetes.merging import isolated, tree_of
from shipper.kubernetes.secret import KIND, KubernetesSecret
from shipper.kubernetes.trees import without_variables
from shipper.policy import policy
from shipper.policy.document import Node
from shipper.policy.registry import Registry
from shipper.sdk.codes import Code
from shipper.sdk.errors import PolicyError, Problem
from shipper.supervise import secrets
from shipper.supervise.secrets import Place, Reference

_OF_NEWER = {Code.UNKNOWN_KEY, Code.UNKNOWN_PLUGIN}
"""What a newer shipper may know."""


def judge(
    name: str, written: Mapping[str, object], registry: Registry, environment: Mapping[str, str] | None
) -> Judgement:
    """Returns what is wrong with a decoded `spec.policy`; `environment` is None where policies may not read this host.

    Blocks on the files of certificates that it names. Raises nothing.
    """
    try:
        tree = tree_of(written, f"policy {name}")
    except PolicyError as error:
        return _judgement(error.problems)
    alone = isolated(tree, registry)
    return _judgement(_problems(alone, registry, environment) or _problems(tree, registry, environment))


def _problems(tree: Node, registry: Registry, environment: Mapping[str, str] | None) -> Sequence[Problem]:
    try:
        readable = without_variables(tree, environment)
        uses = secrets.references(readable, registry)
        found = [
            problem
            for reference, places in uses.items()
            for place in places
            for problem in _wrong(reference, place, may_read_host=environment is not None)
        ]
        ids = {reference: f"{reference.label}-{at}" for at, reference in enumerate(uses)}
        policy.build(secrets.substituted(readable, registry, ids), registry)
    except PolicyError as error:
        return error.problems
    return found


def _wrong(reference: Reference, place: Place, *, may_read_host: bool) -> Iterator[Problem]:
    if reference.kind == KIND:
        if isinstance(reference.source, KubernetesSecret) and reference.source.id:
            yield place.problem("`secret` is followed by {name: NAME, key: KEY}")
    elif not may_read_host:
        yield place.problem(
            f"a policy from Kubernetes may not read secrets of a host ({reference.kind}); write {{secret: {{name: "
            "NAME, key: KEY}}, or set `allow_host_references: true` in `kubernetes` of each member's --config"
        )


def _judgement(problems: Sequence[Problem]) -> Judgement:
    codes = {problem.code for problem in problems}
    return Judgement(tuple(problems), unsupported=bool(codes) and codes <= _OF_NEWER)
