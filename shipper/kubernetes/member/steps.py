"""The steps of a member, and what its caller brings along: values without behaviour.

Objects are those of the API server, decoded from JSON. A step that writes has an answer, the object as it is then, or
None where it was done on another resourceVersion (409), or the object is gone (404). Every other failure is
`Member.failed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from shipper.apiserver.objects import Object
from shipper.kubernetes.kinds import MemberSpec
from shipper.kubernetes.member.memory import Content, Memory, Part
from shipper.membership.steps import Forget, Grant, Rest, Withdraw
from shipper.policy.document import Node
from shipper.sdk.errors import Problem


@dataclass(frozen=True, slots=True)
class Terms:
    """What one process of a member brings along."""

    name: str
    boot: str
    """Names the state directory on this boot of the machine."""
    process: str
    """A random id of this process."""
    spare: str
    """A new id for the directory, in case it turns out to be older than its own status."""
    lease: float
    """Seconds."""
    spec: MemberSpec = field(default_factory=MemberSpec)
    labels: Mapping[str, str] = field(default_factory=dict)
    hold: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """What is true of the sidecar and of the world now."""

    using: frozenset[str] = frozenset()
    """The ids of the durable ledger that are not released."""
    undelivered: int = 0
    request: float = 0.0
    """Seconds of the longest request of its outputs."""
    degraded: str = ""
    """What is wrong with this member, for people; empty if nothing is."""
    wall: float = 0.0
    """Seconds since 1970, for texts that people read."""


@dataclass(frozen=True, slots=True)
class Denied:
    """A Secret that this member may not read."""

    why: str


SecretFound: TypeAlias = Object | Denied | None
"""A Secret as it was found; None: there is none."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one generation of a policy is, alone: isolated, and with placeholders in place of ids (`merging`)."""

    problems: tuple[Problem, ...] = ()
    """Paths are those of the isolated policy."""
    unsupported: bool = False
    """Whether a newer shipper might accept it."""


@dataclass(frozen=True, slots=True)
class Vector:
    """What the sidecar is to run: generations of policies, and contents of Secrets, read as one."""

    number: int
    name: str
    """`Wanted.version`."""
    tree: Node = field(repr=False)
    """All policies in one; a reference is `{secret: {name: …, key: …, id: ID}}`, where ID is that of a content."""
    parts: tuple[Part, ...]
    contents: Mapping[str, Content] = field(repr=False)
    """By id."""


@dataclass(frozen=True, slots=True)
class Found:
    """The own objects, read by quorum."""

    member: Object | None
    lease: Object | None


# -- steps -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """Read the Lease and then the ShipperMember, by quorum: `looked`."""


@dataclass(frozen=True, slots=True)
class Save:
    """Make this durable: `saved`."""

    memory: Memory


@dataclass(frozen=True, slots=True)
class Create:
    """Create the ShipperMember: `created`; None: there is one (409)."""

    object: Object


@dataclass(frozen=True, slots=True)
class Adjust:
    """Merge-patch labels and spec of the ShipperMember, with uid and resourceVersion: `adjusted`."""

    patch: Object


@dataclass(frozen=True, slots=True)
class Hold:
    """Create the Lease (without a resourceVersion in it) or PUT it: `held`. It claims or renews, or gives up."""

    lease: Object


@dataclass(frozen=True, slots=True)
class Write:
    """Merge-patch the status of the ShipperMember, with uid and resourceVersion: `wrote`."""

    patch: Object


@dataclass(frozen=True, slots=True)
class Reread:
    """List the policies and then read these Secrets, by quorum: `reread`. The watches go on beside it."""

    secrets: frozenset[str]


@dataclass(frozen=True, slots=True)
class Judge:
    """Validate a generation of a policy alone: `judged`. Cancel it if it hangs, and say `failed`."""

    name: str
    uid: str
    generation: int
    policy: Mapping[str, object] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Confirm:
    """Read these Secrets and policies by quorum: `confirmed`."""

    secrets: frozenset[str]
    policies: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Offer:
    """Offer a vector to the agent: `offered`. It is durable and announced already."""

    vector: Vector


Step: TypeAlias = (
    Look | Save | Create | Adjust | Hold | Write | Reread | Judge | Confirm | Offer | Withdraw | Forget | Grant | Rest
)
