"""What the judges need of an object at one version, read without the program's own shapes of objects.

A policy is known by its marks (`mark`), a secret's content by its name (`content`): what stands before its colon.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

CANARY = "canary-of-a-key"
BAD = "bad"
_BEGINS = "n-"
_MARK = re.compile(r"mark-([a-z]+)-(\d+)-([a-z]*)\.")

Object = dict[str, Any]


def mark(policy: str, number: int, *, bad: bool = False) -> str:
    """Returns the text by which an edit of a policy is known again; numbers rise, over all its lineages."""
    return f"mark-{policy}-{number}-{BAD if bad else ''}."


class Mark(NamedTuple):
    """An edit of a policy."""

    number: int
    bad: bool = False
    """No member can run it."""


def marks(text: str) -> dict[str, Mark]:
    """Returns the newest mark of each policy that is found in a text."""
    found: dict[str, Mark] = {}
    for policy, number, flag in _MARK.findall(text):
        found[policy] = max(Mark(int(number), flag == BAD), found.get(policy, Mark(-1)))
    return found


def content(secret: str, key: str, number: int) -> str:
    """Returns the content of a secret's key; `name_of` tells its name, which is no secret."""
    return f"{_BEGINS}{secret}.{key}.{number}:{CANARY}-{secret}-{key}-{number}-7c1e"


def name_of(content: str) -> str:
    return content.partition(":")[0].removeprefix(_BEGINS)


# -- objects -----------------------------------------------------------------------------------------------------------


class Condition(NamedTuple):
    """A condition of a policy."""

    status: str
    generation: int
    reason: str
    message: str = ""


class Sending(NamedTuple):
    """How the output of a policy sends."""

    timeout: str = ""
    secret: str = ""
    key: str = ""


class Policy(NamedTuple):
    """A ShipperPolicy at a version."""

    name: str
    uid: str
    generation: int
    mark: Mark | None
    labels: Mapping[str, str]
    """Which members run it."""
    sends: Sending
    deleting: bool
    finalizers: tuple[str, ...]
    observed: int
    leader: int
    conditions: Mapping[str, Condition]
    waiting: tuple[str, ...]

    def drained(self) -> int:
        """Returns the generation of which it says that it is drained; 0 for none."""
        one = self.conditions.get("Drained")
        return one.generation if one and one.status == "True" else 0


class Entry(NamedTuple):
    """What a member says of a policy."""

    generation: int
    stage: str
    removed: bool
    nack: str
    nacked: int
    """The generation that it refuses; 0 for none."""


class Use(NamedTuple):
    """A content of which a member says that it uses it."""

    secret: str
    uid: str
    key: str
    version: int


class Member(NamedTuple):
    """A ShipperMember at a version."""

    name: str
    uid: str
    labels: Mapping[str, str]
    entries: Mapping[str, Entry]
    """By the uid of the policy."""
    using: tuple[Use, ...]
    state: str


class Release(NamedTuple):
    """The bound of a key of a secret."""

    secret: str
    uid: str
    key: str
    before: int


class Secret(NamedTuple):
    """A ShipperSecret at a version."""

    name: str
    uid: str
    leader: int
    releases: tuple[Release, ...]
    blocked_by: tuple[str, ...]


class Content(NamedTuple):
    """A Secret at a version: what a third party has written there."""

    name: str
    uid: str
    keys: Mapping[str, str]
    """The name of the content of each key."""


Record = Policy | Member | Secret | Content


class Deleted(NamedTuple):
    """An object is gone."""

    kind: str
    name: str


def read(obj: Object) -> Record | None:
    """Returns the record of an object of `shipper.dev`; None for one of another kind."""
    readers = {"ShipperPolicy": _policy, "ShipperMember": _member, "ShipperSecret": _secret}
    reader = readers.get(obj.get("kind", ""))
    return reader(obj) if reader else None


def _policy(obj: Object) -> Policy:
    metadata, spec, status = obj["metadata"], obj.get("spec", {}), obj.get("status") or {}
    conditions = {
        one["type"]: Condition(
            one["status"], one.get("observedGeneration", 0), one.get("reason", ""), one.get("message", "")
        )
        for one in status.get("conditions", ())
    }
    return Policy(
        metadata["name"],
        metadata["uid"],
        metadata.get("generation", 0),
        marks(json.dumps(spec.get("policy"))).get(metadata["name"]),
        (spec.get("members") or {}).get("matchLabels") or {},
        _sending(spec.get("policy") or {}),
        "deletionTimestamp" in metadata,
        tuple(metadata.get("finalizers", ())),
        status.get("observedGeneration", 0),
        status.get("leader", 0),
        conditions,
        tuple(one["member"] for one in status.get("waiting", ())),
    )


def _sending(policy: Object) -> Sending:
    for output in (policy.get("outputs") or {}).values():
        secret = (output.get("credential") or {}).get("secret") or {}
        return Sending(output.get("timeout", ""), secret.get("name", ""), secret.get("key", ""))
    return Sending()


def _member(obj: Object) -> Member:
    metadata, status = obj["metadata"], obj.get("status") or {}
    using = [Use(one["secret"], one["uid"], one["key"], int(one["resourceVersion"])) for one in status.get("using", ())]
    return Member(
        metadata["name"],
        metadata["uid"],
        metadata.get("labels") or {},
        {one["uid"]: _entry(one) for one in status.get("policies", ())},
        tuple(using),
        status.get("state", ""),
    )


def _entry(said: Object) -> Entry:
    nack = said.get("nack") or {}
    return Entry(
        said.get("generation", 0),
        said.get("stage", "announced"),
        bool(said.get("removed")),
        nack.get("reason", ""),
        nack.get("generation", 0),
    )


def _secret(obj: Object) -> Secret:
    metadata, status = obj["metadata"], obj.get("status") or {}
    releases = [
        Release(one["secret"], one["uid"], one["key"], int(one.get("releasedBefore") or 0))
        for one in status.get("credentials", ())
    ]
    blocking = tuple(one["member"] for one in status.get("blockedBy", ()))
    return Secret(metadata["name"], metadata["uid"], status.get("leader", 0), tuple(releases), blocking)


_UID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CONTENT = re.compile(_BEGINS.encode() + rb"([a-z]+)\.([a-z_]+)\.(\d+):" + CANARY.encode())


def read_secret(name: str, raw: bytes) -> Content:
    """Returns the record of a Secret as etcd keeps it, in a form of its own."""
    uid = _UID.search(raw)
    keys = {
        key.decode(): f"{of.decode()}.{key.decode()}.{number.decode()}" for of, key, number in _CONTENT.findall(raw)
    }
    return Content(name, uid[0].decode() if uid else "", keys)
