"""The objects of `shipper.dev/v1`, as packaging/kubernetes defines them; here only what the program reads and writes.

Field names are camelCase in objects. Unknown fields are ignored, so that an older shipper reads the objects of a newer
one; what it writes are merge patches of its own fields.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from shipper.apiserver.objects import Kind

GROUP = "shipper.dev"
POLICIES = Kind(GROUP, "v1", "shipperpolicies", "ShipperPolicy")
MEMBERS = Kind(GROUP, "v1", "shippermembers", "ShipperMember")
RELEASES = Kind(GROUP, "v1", "shippersecrets", "ShipperSecret")
USE_LABEL = "shipper.dev/use"
"""A Secret is used only if it has this label with the value `credential`."""
RELEASED = "shipper.dev/released"
"""The annotation of a member's Lease in which a leader sets bounds: JSON, a resourceVersion for `UID/KEY`."""
MEMBER_LEASE = "shipper-member-"
LEADER_LEASE = "shipper-leader"
DRAIN = "shipper.dev/drain"
"""The finalizer of a policy whose deletion waits until its events are drained."""

Stage = Literal["announced", "received", "active", "drained"]
STAGES: tuple[Stage, ...] = ("announced", "received", "active", "drained")


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """A part of an object."""


class Requirement(Struct, frozen=True):
    """One of `matchExpressions`, as in every label selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class Selector(Struct, frozen=True):
    """Which members run a policy, by their labels; an empty one selects all of the namespace."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()


class OnDelete(Struct, frozen=True):
    """Whether the deletion of a policy waits until its events are drained, and how long at most."""

    drain: bool = False
    deadline: str = "1h"


class PolicySpec(Struct, frozen=True):
    """What the user writes."""

    policy: dict[str, Any]
    members: Selector = Selector()
    ended_members: Literal["wait", "ignore"] = "wait"
    on_delete: OnDelete = OnDelete()


class Condition(Struct, frozen=True):
    """A condition of a policy, of type Received, Active, Drained or Degraded."""

    type: str
    status: Literal["True", "False", "Unknown"]
    observed_generation: int
    reason: str
    message: str = ""
    last_transition_time: str = ""


class Counts(Struct, frozen=True):
    """Members that a policy concerns."""

    registered: int = 0
    active: int = 0
    drained: int = 0
    absent: int = 0
    ended: int = 0
    refused: int = 0


class Waiting(Struct, frozen=True):
    """A member that a policy waits for."""

    member: str
    stage: str
    """The last one that it has reached at the observed generation; empty before the first one."""
    reason: str = ""


class PolicyStatus(Struct, frozen=True):
    """What the leader writes."""

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    members: Counts = Counts()
    waiting: tuple[Waiting, ...] = ()
    waits_for: tuple[str, ...] = ()
    """Names of other policies whose events have to drain first."""
    leader: int = 0
    """The token of the leader that wrote it; a leader with a lower one writes no more."""


class PodName(Struct, frozen=True):
    """The Pod in which a member runs."""

    name: str
    uid: str


class MemberSpec(Struct, frozen=True):
    """Who a member is."""

    node: str = ""
    pod: PodName | None = None
    keeps: Literal["node", "ordinal", "pod"] = "node"
    """What its directory lives as long as; with `pod`, a Pod that is gone has ended the member."""


class SecretVersion(Struct, frozen=True):
    """A Secret as a policy's part of the vector uses it."""

    name: str
    uid: str
    resource_version: str


class Nack(Struct, frozen=True):
    """Why a member does not run a generation."""

    generation: int
    reason: Literal["invalid", "conflict", "secret_missing", "unsupported", "failed"]
    message: str
    path: str = ""


class PolicyReport(Struct, frozen=True):
    """What a member says of one policy."""

    name: str
    uid: str
    generation: int
    """The newest one that it runs, or has announced."""
    stage: Stage = "announced"
    first: bool = False
    """This member has never run this policy before, so no event of an older generation waits here."""
    removed: bool = False
    """It does not run it any more; the entry stays until its events are drained."""
    secrets: tuple[SecretVersion, ...] = ()
    waits_for: tuple[str, ...] = ()
    """Other policies whose events have to drain first."""
    nack: Nack | None = None


class Using(Struct, frozen=True):
    """A content of a Secret that a member uses, or may use from now on."""

    secret: str
    uid: str
    key: str
    resource_version: str
    """The newest one at which this content was seen as the current one."""


class Lost(Struct, frozen=True):
    """What is last known of a directory that another one has followed under the name of its member.

    It may come back with all that it has, so it counts until a person deletes the ShipperMember.
    """

    process: str
    """As in the status that it wrote last."""
    undelivered: int = 0
    policies: tuple[PolicyReport, ...] = ()
    using: tuple[Using, ...] = ()


class MemberStatus(Struct, frozen=True):
    """What a member alone writes."""

    process: str = ""
    """`DIRECTORY/PROCESS`; empty before the first report, so that nothing is known of what it uses."""
    state: Literal["running", "leaving", "left"] = "running"
    fence: Literal["hold", "continue"] = "continue"
    undelivered: int = 0
    degraded: str = ""
    """What is wrong with this member, for people; empty if nothing is."""
    policies: tuple[PolicyReport, ...] = ()
    using: tuple[Using, ...] = ()
    lost: tuple[Lost, ...] = ()


class Release(Struct, frozen=True):
    """The bound of one key of a Secret."""

    secret: str
    uid: str
    key: str
    released_before: str = ""
    """No member uses, or will use, a content older than this version that differs from the one at it; empty if that
    is not known yet."""
    deleted: bool = False
    """The Secret of this uid, or the key in it, is no longer there."""


class Blocking(Struct, frozen=True):
    """A member that delays a bound."""

    member: str
    """A lost directory of a member is `MEMBER/DIRECTORY`."""
    key: str = ""
    """Empty if the member delays all."""
    resource_version: str = ""
    reason: str = "Using"
    """Using, Absent, Lost, Left, Registering (it has not said yet what it uses), or Unreadable."""


class Released(Struct, frozen=True):
    """An entry of the history of a ShipperSecret."""

    key: str
    released_before: str
    at: str
    uid: str = ""


class SecretStatus(Struct, frozen=True):
    """What the leader writes for each Secret in use."""

    credentials: tuple[Release, ...] = ()
    blocked_by: tuple[Blocking, ...] = ()
    history: tuple[Released, ...] = ()
    """The oldest first."""
    leader: int = 0
