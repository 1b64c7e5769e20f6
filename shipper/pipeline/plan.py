"""A policy becomes a plan: what it would run, with nothing opened. Two plans can be compared.

An output has a lane for log events, or for keyed state, or one for each. Its identity is in their keys: name, type,
every setting that says where events go, and the ids of its credentials. The class of a change follows from the keys
alone: `barrier` if a lane of the active revision is not among the new ones, `none` if the meaning is the same, else
`live`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from shipper.plugin import Material, Processor
from shipper.policy.document import Node, followed, read
from shipper.policy.policy import (
    InputSpec,
    OutputSpec,
    Policy,
    build,
    destination,
    meaning,
    output_settings,
    takes_events,
    takes_state,
)
from shipper.policy.registry import Registry
from shipper.policy.uses import Use, uses
from shipper.sdk.credentials import Shape
from shipper.spool.dead_letters import Limits
from shipper.spool.feeding import Route
from shipper.spool.lane_settings import LaneSettings
from shipper.spool.limits import SpoolLimits
from shipper.spool.revisions import LaneKey, Text
from shipper.values import Change, Revision


class Location(NamedTuple):
    """A place in a policy's text."""

    path: str
    line: int
    column: int


class InputPlan(msgspec.Struct, frozen=True):
    """An input, the processors that its events pass (its own first), and the names of its outputs.

    Log events go to those of `events`, keyed state to those of `state`.
    """

    spec: InputSpec
    processors: tuple[Processor, ...]
    outputs: tuple[str, ...]
    events: tuple[str, ...]
    state: tuple[str, ...]
    credentials: tuple[str, ...]
    """The ids that its settings refer to."""
    branches: Mapping[str, tuple[Processor, ...]] = msgspec.field(default_factory=dict)
    """By output, the processors that its events pass after those; without outputs that have none."""

    def all_processors(self) -> Mapping[tuple[str, int], Processor]:
        """By place: the output of the processor ("" before the outputs), and its number there."""
        lists = {"": self.processors, **self.branches}
        return {(name, number): one for name, those in lists.items() for number, one in enumerate(those)}

    @property
    def identity(self) -> tuple[str, str, Any]:
        """Equal in two plans: the running input is kept and changed in place."""
        return (self.spec.name, self.spec.type, self.spec.config.identity())


class OutputPlan(msgspec.Struct, frozen=True):
    """An output, the identities of its lanes, one for each kind that it takes, and its settings as the spool keeps
    them."""

    spec: OutputSpec
    keys: tuple[LaneKey, ...]
    settings: LaneSettings


class Reference(NamedTuple):
    """A setting that refers to a credential: the id, and the shapes that the input or output takes there."""

    id: str
    part: str
    shapes: tuple[Shape, ...]
    location: Location


class Plan(msgspec.Struct, frozen=True):
    """What a revision would run."""

    at: Revision
    text: str
    sha256: str
    meaning: str
    policy: Policy
    inputs: Mapping[str, InputPlan]
    outputs: Mapping[str, OutputPlan]
    references: tuple[Reference, ...]
    """Every place that refers to a credential, those of outputs first."""

    @property
    def credentials(self) -> Mapping[str, Location]:
        """Returns every credential id of the policy, with the first place that refers to it."""
        return {reference.id: reference.location for reference in reversed(self.references)}

    def change(self, active: str | None, lanes: Collection[LaneKey]) -> Change:
        """Compares with the active revision: the digest of its meaning (None: nothing is active), and its lanes."""
        if self.meaning == active:
            return "none"
        return "live" if active is None or not self.draining(lanes) else "barrier"

    def draining(self, lanes: Collection[LaneKey]) -> Collection[LaneKey]:
        """Returns those of the active revision's lanes that this plan does not have: what waits on them must drain."""
        return set(lanes).difference(*(output.keys for output in self.outputs.values()))

    def keeps_way(self, name: str, before: Plan | None) -> bool:
        """Whether the events of an input go the same way, to the same lanes, as under the plan before."""
        mine = self.inputs.get(name)
        if before is None or mine is None or mine != before.inputs.get(name):
            return False
        return all(self.outputs[output].keys == before.outputs[output].keys for output in mine.outputs)

    def stored(self, change: Change) -> Text:
        """Returns what the spool keeps of the plan."""
        return Text(self.at, self.sha256, self.meaning, change, sorted(self.credentials), self.text)

    @property
    def state(self) -> Sequence[Route]:
        """Returns the inputs of keyed state, as the spool names them."""
        return [
            Route(f"{input.spec.type}/{name}", input.state, input.spec.config.retracts)
            for name, input in self.inputs.items()
            if input.spec.config.gives_state
        ]

    @property
    def warnings(self) -> frozenset[tuple[str, str]]:
        """Returns the warnings of its outputs, each with the name of the output."""
        return frozenset(
            (name, warning) for name, output in self.outputs.items() for warning in output.spec.config.warnings()
        )

    @property
    def limits(self) -> SpoolLimits:
        """Returns the settings for the spool."""
        letters, drain = self.policy.dead_letters, self.policy.drain
        limits = Limits(int(letters.max_bytes), letters.when_full)
        return SpoolLimits(limits, drain.deadline, drain.on_deadline, drain.never_reached)


def digest(text: str) -> str:
    """Returns the sha256 of a policy text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def make(at: Revision, text: str, registry: Registry, material: Callable[[str], Material] = Material.read) -> Plan:
    """Reads a policy and plans it. Raises PolicyError; opens nothing, but reads the files that the policy names, by
    `material`."""
    root = read(text)
    policy = build(root, registry, material)
    outputs = {name: _output(spec) for name, spec in policy.outputs.items()}
    inputs = {name: _input(spec, policy) for name, spec in policy.inputs.items()}
    return Plan(at, text, digest(text), meaning(policy), policy, inputs, outputs, tuple(_references(policy, root)))


def _input(spec: InputSpec, policy: Policy) -> InputPlan:
    outputs = spec.outputs if spec.outputs is not None else tuple(policy.outputs)
    events = tuple(name for name in outputs if takes_events(policy.outputs[name].config))
    state = tuple(name for name in outputs if takes_state(policy.outputs[name].config))
    branches = {name: those for name in events if (those := policy.outputs[name].processors)}
    way = (*spec.processors, *policy.processors)
    return InputPlan(spec, way, outputs, events, state, _ids(uses(spec.config)), branches)


def _output(spec: OutputSpec) -> OutputPlan:
    return OutputPlan(spec, lane_keys(spec), lane_settings(spec))


def lane_keys(spec: OutputSpec) -> tuple[LaneKey, ...]:
    """Returns the identities of an output's lanes; one of log events for an output that fails to say what it takes."""
    key = LaneKey(spec.name, spec.type, destination(spec), _ids(uses(spec.config)))
    state = takes_state(spec.config)
    logs = (key,) if takes_events(spec.config) or not state else ()
    return (*logs, key._replace(state=True)) if state else logs


def contacts(spec: OutputSpec) -> tuple[str, ...]:
    """Returns digests of the hosts that an output asks, one for each host and port however they are written.

    Empty where it does not say when it asks them.
    """
    return tuple(sorted({digest(_host_and_port(host)) for host in spec.config.contacts()}))


def _host_and_port(host: str) -> str:
    url = urlsplit(host if "://" in host else f"//{host}")
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    return f"{(url.hostname or '').rstrip('.')}:{port}"


def lane_settings(spec: OutputSpec) -> LaneSettings:
    """Returns an output's settings as its lane keeps them."""
    return LaneSettings(output_settings(spec), tuple(use.path for use in uses(spec.config)))


def _ids(found: Iterable[Use]) -> tuple[str, ...]:
    return tuple(sorted({use.id for use in found}))


def _references(policy: Policy, root: Node) -> Iterator[Reference]:
    sections: tuple[tuple[str, Mapping[str, InputSpec | OutputSpec]], ...]
    sections = ("outputs", policy.outputs), ("inputs", policy.inputs)
    for section, parts in sections:
        for name, spec in parts.items():
            for use in uses(spec.config):
                yield Reference(use.id, section[:-1], use.shapes, _location(root, (section, name, *use.path)))


def _location(root: Node, path: Iterable[str | int]) -> Location:
    """Returns the place of a path in the text, as far as the text has it: a default has none."""
    node, shown = followed(root, "", path)
    return Location(shown, node.mark.line, node.mark.column)
