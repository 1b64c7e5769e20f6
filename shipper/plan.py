"""A policy becomes a plan: what it would run, with nothing opened; and two plans are compared.

An output's identity is its lane's key: name, type, everything that says where, and the credential's id. The class of a
change follows from the keys alone: `barrier` if a lane of the active revision is not among the new ones, `none` if the
meaning is the same, else `live`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from shipper.messages import Change, Revision
from shipper.plugin import Processor
from shipper.policy import InputSpec, OutputSpec, Policy, destination, meaning, output_settings, parse
from shipper.registry import Registry
from shipper.spool.revisions import LaneKey, Text


@dataclass(frozen=True, slots=True)
class InputPlan:
    """An input, the processors its events pass (its own first), and the names of its outputs."""

    spec: InputSpec
    processors: tuple[Processor, ...]
    outputs: tuple[str, ...]

    @property
    def place(self) -> tuple[str, str, Any]:
        """Equal in two plans: the running input is kept and changed in place."""
        return (self.spec.name, self.spec.type, self.spec.config.place())


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
    credentials: Mapping[str, str]
    """Every credential id the policy refers to, with the place that does."""

    def change(self, active: str | None, lanes: Collection[LaneKey]) -> Change:
        """Against the active revision: the digest of its meaning (None: nothing is active), and its lanes."""
        if self.meaning == active:
            return "none"
        kept = {output.key for output in self.outputs.values()}
        return "live" if active is None or kept.issuperset(lanes) else "barrier"

    def stored(self, change: Change) -> Text:
        """What the spool keeps of it."""
        return Text(self.at, self.sha256, self.meaning, change, sorted(self.credentials), self.text)


def digest(text: str) -> str:
    """The sha256 of a policy text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def make(at: Revision, text: str, registry: Registry) -> Plan:
    """Read a policy and plan it. Raises PolicyError; opens nothing, but reads the files it names."""
    policy = parse(text, registry)
    outputs = {name: _output(spec) for name, spec in policy.outputs.items()}
    inputs = {name: _input(spec, policy) for name, spec in policy.inputs.items()}
    return Plan(at, text, digest(text), meaning(policy), policy, inputs, outputs, _credentials(policy))


def _input(spec: InputSpec, policy: Policy) -> InputPlan:
    outputs = spec.outputs if spec.outputs is not None else tuple(policy.outputs)
    return InputPlan(spec, (*spec.processors, *policy.processors), outputs)


def _output(spec: OutputSpec) -> OutputPlan:
    key = LaneKey(spec.name, spec.type, destination(spec), spec.config.credential)
    return OutputPlan(spec, key, output_settings(spec))


def _credentials(policy: Policy) -> dict[str, str]:
    ids: dict[str, str] = {}
    for name, output in policy.outputs.items():
        if output.config.credential is not None:
            ids.setdefault(output.config.credential, f"outputs.{name}.credential")
    for name, input in policy.inputs.items():
        for id in input.config.credential_ids():
            ids.setdefault(id, f"inputs.{name}.credentials")
    return ids
