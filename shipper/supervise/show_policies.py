"""What `shipper status` shows of a member of Kubernetes: who it is, its policies, and the Secrets that it uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

Row: TypeAlias = tuple[str, ...]


def overview(kubernetes: Mapping[str, Any]) -> Iterator[str]:
    """Yields what a member says of its part in its namespace."""
    why = f" ({kubernetes['reason']})" if kubernetes["reason"] else ""
    yield f"{kubernetes['member']} in namespace {kubernetes['namespace']}: {kubernetes['state']}{why}"
    yield f"runs {', '.join(kubernetes['runs'])}" if kubernetes["runs"] else "runs no policy"
    if kubernetes["lease_seconds"] is not None:
        yield f"lease {kubernetes['lease_seconds']:.1f} s"


def policies(kubernetes: Mapping[str, Any]) -> Iterator[Row]:
    """Yields each policy with its generation, its stage, and what it waits for or why it is refused."""
    waits = {one["policy"]: one["reason"] for one in kubernetes.get("waits", ())}
    for one in kubernetes.get("policies", ()):
        removed = "removed, " if one["removed"] else ""
        stage = f"generation {one['generation']}" if one["generation"] else "no generation"
        refused = ""
        if nack := one["nack"]:
            refused = f"refused {nack['generation']} ({nack['reason']}): {_at(nack)}{nack['message']}"
        behind = f"waits for {', '.join(one['waits_for'])}" if one["waits_for"] else ""
        notes = "; ".join(filter(None, (refused, behind, "" if refused else waits.get(one["name"], ""))))
        yield one["name"], stage, f"{removed}{one['stage']}", notes
    known = {one["name"] for one in kubernetes.get("policies", ())}
    yield from ((name, "no generation", "waiting", why) for name, why in waits.items() if name not in known)


def secrets(kubernetes: Mapping[str, Any]) -> Iterator[Row]:
    """Yields each content of a Secret that the member may use, by its version."""
    for one in kubernetes.get("secrets", ()):
        yield f"{one['secret']}/{one['key']}", f"resourceVersion {one['resource_version']}"


def _at(nack: Mapping[str, Any]) -> str:
    return f"{nack['path']}: " if nack["path"] else ""
