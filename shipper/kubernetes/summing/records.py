"""The objects that a leader reads, decoded. Pure.

An object that cannot be decoded is of a newer shipper, or was edited by hand. Of such a member nothing is known, so it
delays everything; of such a policy nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from shipper.apiserver.objects import Object, annotation, generation, labels, metadata, name, uid, version
from shipper.kubernetes.kinds import (
    MEMBER_LEASE,
    RELEASED,
    MemberSpec,
    MemberStatus,
    PolicySpec,
    PolicyStatus,
    SecretStatus,
    Struct,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Policy:
    """A ShipperPolicy."""

    name: str
    uid: str
    version: str
    generation: int
    spec: PolicySpec | None
    """None if it cannot be decoded."""
    status: PolicyStatus = field(default_factory=PolicyStatus)
    deleted_at: str = ""
    """When its deletion began; empty if it did not."""
    finalizers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Member:
    """A ShipperMember."""

    name: str
    uid: str = ""
    version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: MemberSpec = field(default_factory=MemberSpec)
    status: MemberStatus | None = field(default_factory=MemberStatus)
    """None if it cannot be decoded."""

    @property
    def directory(self) -> str:
        """The directory that wrote the status; empty if none did."""
        return "" if self.status is None else self.status.process.partition("/")[0]


@dataclass(frozen=True)
class Lease:
    """A Lease, of a member or of the leader."""

    name: str
    uid: str
    version: str
    holder: str
    seconds: float
    renewed: str
    transitions: int
    bounds: Mapping[str, str] = field(default_factory=dict)
    """By `UID/KEY`: contents older than this version must not be used any more."""

    @property
    def member(self) -> str:
        """The name of the member; empty if it is of no member."""
        return self.name.removeprefix(MEMBER_LEASE) if self.name.startswith(MEMBER_LEASE) else ""

    @property
    def directory(self) -> str:
        """The directory of the holder."""
        return self.holder.partition("/")[0]

    @property
    def mark(self) -> tuple[Any, ...]:
        """What a renewal, and nothing else, changes."""
        return self.uid, self.holder, self.renewed, self.transitions


@dataclass(frozen=True)
class Release:
    """A ShipperSecret."""

    name: str
    uid: str
    version: str
    status: SecretStatus | None = field(default_factory=SecretStatus)
    """None if it cannot be decoded."""


class _LeaseSpec(Struct, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


def policy(found: Object) -> Policy:
    """Returns a ShipperPolicy."""
    finalizers = metadata(found).get("finalizers")
    return Policy(
        name(found),
        uid(found),
        version(found),
        generation(found),
        _decoded(found.get("spec"), PolicySpec),
        _decoded(found.get("status") or {}, PolicyStatus) or PolicyStatus(),
        str(metadata(found).get("deletionTimestamp") or ""),
        tuple(str(one) for one in finalizers) if isinstance(finalizers, list) else (),
    )


def member(found: Object) -> Member:
    """Returns a ShipperMember."""
    spec = _decoded(found.get("spec") or {}, MemberSpec)
    status = None if spec is None else _decoded(found.get("status") or {}, MemberStatus)
    return Member(name(found), uid(found), version(found), labels(found), spec or MemberSpec(), status)


def lease(found: Object) -> Lease:
    """Returns a Lease; what it does not say, or says in a wrong way, is empty."""
    spec = _decoded(found.get("spec") or {}, _LeaseSpec) or _LeaseSpec()
    return Lease(
        name(found),
        uid(found),
        version(found),
        spec.holder_identity or "",
        float(spec.lease_duration_seconds or 0),
        spec.renew_time or "",
        spec.lease_transitions or 0,
        bounds(annotation(found, RELEASED)),
    )


def release(found: Object) -> Release:
    """Returns a ShipperSecret."""
    return Release(name(found), uid(found), version(found), _decoded(found.get("status") or {}, SecretStatus))


def bounds(text: str) -> dict[str, str]:
    """Returns what the annotation `shipper.dev/released` says; nothing if it is none."""
    try:
        return msgspec.json.decode(text, type=dict[str, str]) if text else {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def named_keys(tree: Any) -> frozenset[tuple[str, str]]:
    """Returns the (Secret, key) that a policy's text names as credentials."""
    found: set[tuple[str, str]] = set()
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, Mapping):
            of = node.get("secret")
            if isinstance(of, Mapping) and isinstance(of.get("name"), str) and isinstance(of.get("key"), str):
                found.add((of["name"], of["key"]))
            left += node.values()
        elif isinstance(node, list | tuple):
            left += node
    return frozenset(found)


def _decoded(found: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(found, kind)
    except (msgspec.ValidationError, RecursionError):
        return None
