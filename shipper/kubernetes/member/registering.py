"""The ShipperMember of a member, but for its status: made at the start, and corrected once by each process."""

from __future__ import annotations

import msgspec

from shipper.apiserver.objects import Object, labels, uid, version
from shipper.kubernetes.kinds import MEMBERS, MemberSpec
from shipper.kubernetes.member.steps import Terms


def created(terms: Terms) -> Object:
    """Returns the object of a new member."""
    return {
        "apiVersion": MEMBERS.api_version,
        "kind": MEMBERS.name,
        "metadata": {"name": terms.name, "labels": dict(terms.labels)},
        "spec": _spec(terms.spec),
    }


def adjusted(found: Object, terms: Terms) -> Object | None:
    """Returns the merge-patch that gives an object the labels and the spec of this process; None if it has them.

    Labels that people have added stay, and so does `keeps`, which the API server lets nobody change.
    """
    there = found.get("spec") or {}
    wanted = {**_spec(terms.spec), **({"keeps": there["keeps"]} if "keeps" in there else {})}
    if {**labels(found), **terms.labels} == labels(found) and there == wanted:
        return None
    spec = {**dict.fromkeys(there), **wanted}
    metadata = {"uid": uid(found), "resourceVersion": version(found), "labels": dict(terms.labels)}
    return {"metadata": metadata, "spec": spec}


def _spec(spec: MemberSpec) -> Object:
    found: Object = msgspec.to_builtins(spec)
    return {key: value for key, value in found.items() if value is not None}
