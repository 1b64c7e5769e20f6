"""A policy becomes a plan: what it would run, with nothing opened; and two plans are compared.

An output's identity is its lane's key: name, type, everything that says where, and the credential's id. The class of a
change follows from the keys alone: `barrier` if a lane of the active revision is not among the new ones, `none` if the
meaning is the same, else `live`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shipper.plugin import Processor
from shipper.policy.document import Node, below, read
from shipper.policy.policy import InputSpec, OutputSpec, Policy, build, destination, meaning, output_settings
from shipper.policy.registry import Registry
from shipper.spool.dead_letters import Limits
from shipper.spool.limits import SpoolLimits
from shipper.spool.revisions import LaneKey, Text
from shipper.values import Change, Revision


class Location(NamedTuple):
    """Where something stands in a policy's text."""

    path: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class InputPlan:
    """An input, the processors its events pass (its own first), and the names of its outputs."""

    spec: InputSpec
    processors: tuple[Processor, ...]
    outputs: tuple[str, ...]

    @property
    def identity(self) -> tuple[str, str, Any]:
        """Equal in two plans: the running input is kept and changed in place."""
        return (self.spec.name, self.spec.type, self.spec.config.identity())


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """An output, its lane's identity, and its settings as the spool keeps them."""

    spec: OutputSpec
    key: LaneKey
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a revision would run."""

    at: Revision
    text: str
    sha256: str
    meaning: str
    policy: Policy
    inputs: Mapping[str, InputPlan]
    outputs: Mapping[str, OutputPlan]
    credentials: Mapping[str, Location]
    """Every credential id the policy refers to, with the first place that does."""

    def change(self, active: str | None, lanes: Collection[LaneKey]) -> Change:
        """Against the active revision: the digest of its meaning (None: nothing is active), and its lanes."""
        if self.meaning == active:
            return "none"
        kept = {output.key for output in self.outputs.values()}
        return "live" if active is None or kept.issuperset(lanes) else "barrier"

    def stored(self, change: Change) -> Text:
        """What the spool keeps of it."""
        return Text(self.at, self.sha256, self.meaning, change, sorted(self.credentials), self.text)

    @property
    def warnings(self) -> frozenset[tuple[str, str]]:
        """What its outputs warn of, each with the name of the output."""
        return frozenset(
            (name, warning) for name, output in self.outputs.items() for warning in output.spec.config.warnings()
        )

    @property
    def limits(self) -> SpoolLimits:
        """What it wants of the spool."""
        letters, drain = self.policy.dead_letters, self.policy.drain
        limits = Limits(int(letters.max_bytes), letters.when_full)
        return SpoolLimits(limits, drain.deadline, drain.on_deadline, drain.never_reached)


def digest(text: str) -> str:
    """The sha256 of a policy text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def make(at: Revision, text: str, registry: Registry) -> Plan:
    """Read a policy and plan it. Raises PolicyError; opens nothing, but reads the files it names."""
    root = read(text)
    policy = build(root, registry)
    outputs = {name: _output(spec) for name, spec in policy.outputs.items()}
    inputs = {name: _input(spec, policy) for name, spec in policy.inputs.items()}
    return Plan(at, text, digest(text), meaning(policy), policy, inputs, outputs, _credentials(policy, root))


def _input(spec: InputSpec, policy: Policy) -> InputPlan:
    outputs = spec.outputs if spec.outputs is not None else tuple(policy.outputs)
    return InputPlan(spec, (*spec.processors, *policy.processors), outputs)


def _output(spec: OutputSpec) -> OutputPlan:
    key = LaneKey(spec.name, spec.type, destination(spec), spec.config.credential)
    return OutputPlan(spec, key, output_settings(spec))


def _credentials(policy: Policy, root: Node) -> dict[str, Location]:
    parts: dict[str, tuple[str, str]] = {}
    for name, output in policy.outputs.items():
        if output.config.credential is not None:
            parts.setdefault(output.config.credential, ("outputs", name))
    for name, input in policy.inputs.items():
        for id in input.config.credential_ids():
            parts.setdefault(id, ("inputs", name))
    found = dict(reversed(list(_locations(root))))
    return {id: found.get((*part, id), Location(".".join(part), 1, 1)) for id, part in parts.items()}


def _locations(root: Node) -> Iterator[tuple[tuple[str, str, str], Location]]:
    """By section, part and id: where a credential is named."""
    for section, parts in _entries(root).items():
        for name, part in _entries(parts).items():
            for path, node in _named(part, below(section, name)):
                yield (section, name, str(node.value)), Location(path, node.mark.line, node.mark.column)


def _entries(node: Node) -> Mapping[str, Node]:
    return node.value if isinstance(node.value, dict) else {}


def _named(node: Node, path: str, is_id: bool = False) -> Iterator[tuple[str, Node]]:
    """The ids in a part, which stand under `credential` and `credentials`, with their paths."""
    match node.value:
        case str() if is_id:
            yield path, node
        case dict() as entries:
            for key, child in entries.items():
                yield from _named(child, below(path, key), key in ("credential", "credentials"))
        case list() as items:
            for at, child in enumerate(items):
                yield from _named(child, below(path, at), is_id)
