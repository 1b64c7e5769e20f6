"""Checks the text of a policy for a fleet, and finds what it changes. Pure: nothing is read but the text.

Each host replaces its own variables, reads its own files and finds its own secrets, so none of them is looked at here.
In place of a variable without a default stands a value that fits; a setting that no such value fits is not checked. In
place of every PEM file stands a certificate that belongs to nobody. A path of a file is absolute: the directory of who
publishes means nothing on the hosts.
"""

from __future__ import annotations

import datetime
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import msgspec

from shipper.fleet.secret import FleetSecret
from shipper.pipeline.plan import lane_keys
from shipper.policy.document import Node, below, children_of
from shipper.policy.idle import idle
from shipper.policy.policy import Policy, build, meaning
from shipper.policy.registry import Registry, UnknownType
from shipper.sdk.codes import Code
from shipper.sdk.errors import PolicyError, Problem
from shipper.sdk.tls import Material
from shipper.supervise import sources
from shipper.supervise.secret_sources import FileSecret
from shipper.supervise.secrets import Place, Reference, references, substituted
from shipper.supervise.variables import imagined
from shipper.values import Change

_NAMED: tuple[Callable[[str], str], ...] = (
    lambda name: name.lower(),
    lambda name: f"https://{_host(name)}:9200",
    lambda name: f"127.0.0.1:{20000 + zlib.crc32(name.encode()) % 20000}",
    lambda name: f"udp://127.0.0.1:{20000 + zlib.crc32(name.encode()) % 20000}",
    lambda name: f"/{name.lower()}",
    lambda name: "1",
    lambda name: "1MiB",
    lambda name: "1s",
    lambda name: "true",
)
"""What a variable may be, from its name; the first one that fits is taken."""
_RELATIVE = "a relative path has no meaning on the hosts of a fleet; write an absolute one"


@dataclass(frozen=True)
class Candidate:
    """A text that may be published."""

    text: str = field(repr=False)
    policy: Policy | None = field(repr=False)
    """None if it depends on variables too much."""
    names: tuple[str, ...]
    """The secrets of the fleet that it names."""
    unchecked: tuple[str, ...] = ()
    """Paths of settings that depend on variables and were not checked."""
    warnings: tuple[str, ...] = ()
    """Parts that have no effect."""


class Changes(msgspec.Struct, frozen=True):
    """What a version changes on each host that has the version before it."""

    change: Change | None
    """None: not known."""
    added: list[str] = []
    """Inputs and outputs, as `outputs.main`."""
    removed: list[str] = []
    changed: list[str] = []
    """Also of `processors`, `queue` and the other parts."""
    drained: list[str] = []
    """Outputs that drain: their events go to where they went before, with the credentials of before."""
    new_secrets: dict[str, str] = {}
    """The ids of secrets that the version before did not pin."""
    dropped_secrets: dict[str, str] = {}
    """The ids that are pinned no more; they are released when every member has reached the version."""
    unchecked: list[str] = []
    warnings: list[str] = []
    """Parts that have no effect, such as an output to which no input sends."""


class Plan(msgspec.Struct, frozen=True):
    """What a publish would do."""

    newest: str | None
    """The version before it."""
    changes: Changes
    members: int
    """Members that are to take it."""


def read(text: str, registry: Registry, *, file: str | None = None) -> Candidate:
    """Returns the candidate; raises PolicyError with all problems that do not depend on variables."""
    return _read(text, registry, file, {})


def plan(
    before: str | None, pinned: Mapping[str, str], after: Candidate, pins: Mapping[str, str], registry: Registry
) -> Changes:
    """Returns what `after` changes with the ids `pins`, against the text and the pins of the newest version (None:
    there is none, or its text cannot be known)."""
    new = {name: id for name, id in pins.items() if pinned.get(name) != id}
    dropped = {name: id for name, id in pinned.items() if pins.get(name) != id}
    unchecked, warnings = list(after.unchecked), list(after.warnings)
    unchanged = Changes(None, new_secrets=new, dropped_secrets=dropped, unchecked=unchecked, warnings=warnings)
    now = _read(after.text, registry, None, pins).policy
    try:
        old = Policy() if before is None else _read(before, registry, None, pinned).policy
    except PolicyError:  # a plugin of the version before is not installed here
        old = None
    if now is None or old is None:
        return unchanged
    return _compared(old, now, unchanged)


def _compared(old: Policy, now: Policy, known: Changes) -> Changes:
    before, after = dict(_parts(old)), dict(_parts(now))
    lanes = {key for spec in now.outputs.values() for key in lane_keys(spec)}
    drained = [f"outputs.{name}" for name, spec in old.outputs.items() if not lanes.issuperset(lane_keys(spec))]
    change: Change = "barrier" if drained else "none" if meaning(old) == meaning(now) else "live"
    return msgspec.structs.replace(
        known,
        change=change,
        added=[path for path in after if path not in before],
        removed=[path for path in before if path not in after],
        changed=[path for path in after if path in before and before[path] != after[path]],
        drained=drained,
    )


def _parts(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yields each part of a policy with a digest of its meaning; the rest is always there."""
    for name, input in policy.inputs.items():
        yield f"inputs.{name}", meaning(Policy(inputs={name: input}))
    for name, output in policy.outputs.items():
        yield f"outputs.{name}", meaning(Policy(outputs={name: output}))
    for key in Policy.__struct_fields__:
        if key not in ("inputs", "outputs"):
            yield key, meaning(Policy(**{key: getattr(policy, key)}))


# -- a policy without its hosts ----------------------------------------------------------------------------------------


@dataclass
class _Imagined:
    """What stands for the variables of one text: for each path with variables, the number of the kind of value."""

    kinds: dict[str, int] = field(default_factory=dict)
    led: set[str] = field(default_factory=set)
    """Paths of values that begin with a variable."""

    def replaced(self, node: Node, path: str, quoted: bool) -> str:
        names: list[str] = []

        def value(name: str) -> str:
            names.append(name)
            return _NAMED[self.kinds.get(path, 0)](name)

        text = imagined(str(node.value), value)
        if names:
            self.kinds.setdefault(path, 0)
        if names and str(node.value).startswith("${"):
            self.led.add(path)
        return text

    def concerned(self, problem: Problem) -> list[str]:
        """Returns the paths with variables that may be the cause of a problem."""
        if problem.code in (Code.UNKNOWN_KEY, Code.SECRET_IN_POLICY):
            return []
        may_be = self.led if problem.message == _RELATIVE else self.kinds
        return [path for path in may_be if _is_below(path, problem.path) or _is_below(problem.path, path)]

    def another(self, problems: Collection[Problem]) -> bool:
        """Takes the next kind of value where there were problems; returns whether there was one."""
        paths = {path for problem in problems for path in self.concerned(problem)}
        more = [path for path in paths if self.kinds[path] + 1 < len(_NAMED)]
        for path in more:
            self.kinds[path] += 1
        return bool(more)


def _read(text: str, registry: Registry, file: str | None, ids: Mapping[str, str]) -> Candidate:
    """Returns the candidate whose secrets have these ids, as far as they are known."""
    imagined = _Imagined()
    while True:
        names: tuple[str, ...] = ()
        try:
            tree = sources.tree_of(text, file, imagined.replaced)
            found = _references(tree, registry, imagined)
            names = tuple(sorted({one.source.name for one in found if isinstance(one.source, FleetSecret)}))
            tree = substituted(tree, registry, {one: _id(one, ids) for one in found})
            policy = build(tree, registry, _material)
            return Candidate(text, policy, names, warnings=tuple(map(str, idle(policy, tree))))
        except PolicyError as error:
            real = [problem for problem in error.problems if not imagined.concerned(problem)]
            if real:
                raise PolicyError(real) from None
            if not imagined.another(error.problems):
                return Candidate(text, None, names, tuple(sorted({problem.path for problem in error.problems})))


def _references(tree: Node, registry: Registry, imagined: _Imagined) -> dict[Reference, list[Place]]:
    """Returns the references of a tree; raises PolicyError, also for the name of a secret of the fleet with a variable,
    since a version pins it, and for a variable in place of a reference."""
    try:
        found = references(tree, registry)
        problems = [
            problem
            for one, places in found.items()
            for place in places
            if (problem := _unfit(one, place, imagined)) is not None
        ]
        problems += _relative_paths(tree, registry)
    except PolicyError as error:
        problems = [
            replace(one, code=Code.SECRET_IN_POLICY) if one.path in imagined.kinds else one for one in error.problems
        ]
    if problems:
        raise PolicyError(problems)
    return found


def _unfit(reference: Reference, place: Place, imagined: _Imagined) -> Problem | None:
    """Returns the problem of a reference that does not mean the same on every host."""
    if isinstance(reference.source, FleetSecret):
        if not any(_is_below(path, place.path) for path in imagined.kinds):
            return None
        text = "the name of a secret of the fleet has no variables; write it out"
        return place.problem(text, Code.SECRET_IN_POLICY)
    if isinstance(reference.source, FileSecret) and not os.path.isabs(_as_written(place.node).source.name):
        return place._replace(path=below(place.path, reference.kind)).problem(_RELATIVE)
    return None


def _relative_paths(tree: Node, registry: Registry) -> Iterator[Problem]:
    """Yields a problem for each relative path of a file in the settings of an output."""
    outputs = dict(children_of(tree)).get("outputs")
    for name, output in children_of(outputs) if outputs is not None else ():
        settings = dict(children_of(output))
        type = settings.get("type")
        try:
            paths = registry.find("outputs", str(type.value)).paths if type is not None else ()
        except UnknownType:
            continue
        for key, node in settings.items():
            if key in paths and isinstance(node.value, str) and not os.path.isabs(node.value):
                path = below(below("outputs", name), key)
                yield Problem(path, node.mark.line, node.mark.column, _RELATIVE, node.mark.file, Code.BAD_VALUE)


def _as_written(node: Node) -> Reference:
    """Returns the reference of a node as if it was in no file, whose directory relative paths would count from."""
    return Reference.parse(replace(node, mark=node.mark._replace(file=None)))


def _id(reference: Reference, ids: Mapping[str, str]) -> str:
    """Returns an id in place of a reference; those of hosts' own secrets are the same in all texts."""
    name = reference.source.name
    return (
        ids.get(name, name)
        if isinstance(reference.source, FleetSecret)
        else re.sub(r"[^A-Za-z0-9]+", "-", str(reference))
    )


def _is_below(path: str, above: str) -> bool:
    return path == above or path.startswith((f"{above}.", f"{above}["))


def _host(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "host"


def _material(path: str) -> Material:
    """Returns a certificate and its key in place of a PEM file; another path has another content.

    Raises ValueError for a relative path.
    """
    if not os.path.isabs(path):
        raise ValueError(_RELATIVE)
    return Material(path, f"{path}\n{imagined_pem()}")


@cache
def imagined_pem() -> str:
    """Returns a certificate and its key, of nobody, in place of those of a host."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = generate_private_key(SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nobody")])
    start = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
    builder: Any = x509.CertificateBuilder(name, name, key.public_key(), 1, start, start.replace(year=2100))
    certificate = builder.sign(key, SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return str((certificate.public_bytes(Encoding.PEM) + private).decode())
