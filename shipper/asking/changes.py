"""What changes from one policy to another: the class of the change, which outputs drain, which inputs are replaced.

The plans decide it, as in a running shipper (`pipeline.plan`); this module only lists what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shipper.asking.planned import imagined, planned
from shipper.pipeline.plan import InputPlan, OutputPlan, Plan, make
from shipper.plugin import Settings
from shipper.policy.policy import Policy
from shipper.policy.registry import Registry
from shipper.policy.settings import exported
from shipper.supervise.desired import Desired
from shipper.supervise.ledger import Wanted
from shipper.supervise.sources import PolicyFiles
from shipper.values import Change, Revision

What = Literal["added", "removed", "changed", "replaced"]
"""`replaced` is an input that is closed, and opened anew."""


@dataclass(frozen=True, slots=True)
class Part:
    """An input or output that changes, such as `outputs.main`; `settings` are the names of those that differ."""

    name: str
    what: What
    settings: Sequence[str] = ()
    drains: bool = False
    """Whether what waits for it must have its final answer before the change is drained."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a policy changes. `released` are the secrets that may be revoked when it is drained."""

    change: Change
    parts: Sequence[Part]
    settings: Sequence[str]
    """Of the policy itself, such as `queue.max_bytes`."""
    released: Sequence[str]


def between(old: Path, new: Path, environment: Mapping[str, str], registry: Registry, *, with_secrets: bool) -> Changes:
    """Returns what changes from one policy (a file or a directory) to another; raises PolicyError. Blocks on files.

    Without the secrets, two references count as two secrets; with them, those of equal content count as one.
    """
    if not with_secrets:
        before, after = (planned([path], environment, registry, imagined) for path in (old, new))
        return compared(before.plan, after.plan, before.names)
    first = Desired(PolicyFiles((old,)), environment, registry).read({})
    known = {kept.canonical: id for id, kept in first.credentials.items()}
    second = Desired(PolicyFiles((new,)), environment, registry).read(known)
    names = {id: ", ".join(kept.sources) for id, kept in first.credentials.items()}
    return compared(_plan(first, registry), _plan(second, registry), names)


def _plan(wanted: Wanted, registry: Registry) -> Plan:
    return make(Revision(0, 0), wanted.text, registry)


def compared(old: Plan, new: Plan, secrets: Mapping[str, str]) -> Changes:
    """Returns what changes; `secrets` has the names of the old plan's secrets by their ids."""
    lanes = [key for output in old.outputs.values() for key in output.keys]
    draining = {lane.output for lane in new.draining(lanes)}
    released = [secrets.get(id, id) for id in old.credentials if id not in new.credentials]
    return Changes(
        new.change(old.meaning, lanes),
        [*_inputs(old.inputs, new.inputs), *_outputs(old.outputs, new.outputs, draining)],
        list(_rest(old.policy, new.policy)),
        sorted(released),
    )


def _inputs(old: Mapping[str, InputPlan], new: Mapping[str, InputPlan]) -> Iterator[Part]:
    for name in dict.fromkeys((*old, *new)):
        before, after, unit = old.get(name), new.get(name), f"inputs.{name}"
        if before is None or after is None:
            yield Part(unit, "added" if before is None else "removed")
        elif settings := list(_of_input(before, after)):
            yield Part(unit, "changed" if before.identity == after.identity else "replaced", settings)


def _of_input(before: InputPlan, after: InputPlan) -> Iterator[str]:
    yield from _differing(before.spec.type, before.spec.config, after.spec.type, after.spec.config)
    if before.processors != after.processors:
        yield "processors"
    if set(before.outputs) != set(after.outputs):
        yield "outputs"


def _outputs(old: Mapping[str, OutputPlan], new: Mapping[str, OutputPlan], draining: set[str]) -> Iterator[Part]:
    for name in dict.fromkeys((*old, *new)):
        before, after, unit = old.get(name), new.get(name), f"outputs.{name}"
        if before is None or after is None:
            yield Part(unit, "added" if before is None else "removed", drains=name in draining)
        elif settings := list(_of_output(before, after)):
            yield Part(unit, "changed", settings, drains=name in draining)


def _of_output(before: OutputPlan, after: OutputPlan) -> Iterator[str]:
    yield from _differing(before.spec.type, before.spec.config, after.spec.type, after.spec.config)
    if before.spec.processors != after.spec.processors:
        yield "processors"


def _differing(old_type: str, old: Settings, new_type: str, new: Settings) -> Iterator[str]:
    """Yields the names of the settings that differ."""
    if old_type != new_type:
        yield "type"
        return
    before: Mapping[str, Any] = exported(old, paths=False)
    after: Mapping[str, Any] = exported(new, paths=False)
    yield from (name for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name))


def _rest(old: Policy, new: Policy) -> Iterator[str]:
    for section in ("queue", "dead_letters", "drain"):
        before, after = getattr(old, section), getattr(new, section)
        yield from (f"{section}.{name}" for name in _differing("", before, "", after))
    if old.log_level != new.log_level:
        yield "log_level"
