"""The audit log of the API server: who has written what, and how the object was then."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.campaign_kubernetes import records
from tests.campaign_kubernetes.records import Record

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class Write(NamedTuple):
    """A write that the server has answered."""

    at: float
    """When it came, in Unix seconds."""
    answered: float
    user: str
    agent: str
    verb: str
    resource: str
    sub: str
    name: str
    code: int
    version: int
    """The resourceVersion of the object that the answer shows; 0 without one."""
    record: Record | None
    token: int = 0
    """Of a Lease: how often its holder has changed."""
    holder: str = ""
    bounds: str = ""
    """Of a Lease: what a leader has written into it."""


def read(path: Path, namespace: str) -> Iterator[Write]:
    """Yields the writes of a namespace, in the order of the log; a line that a kill has torn is passed over."""
    with path.open("rb") as file:
        yield from parsed(file, namespace)


def parsed(lines: Iterable[bytes], namespace: str) -> Iterator[Write]:
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        of = event.get("objectRef") or {}
        if event["stage"] == "ResponseComplete" and event["verb"] in WRITES and of.get("namespace") == namespace:
            yield _write(event, of)


def _write(event: dict[str, Any], of: dict[str, str]) -> Write:
    answer = event.get("responseObject") or {}
    metadata, spec = answer.get("metadata") or {}, answer.get("spec") or {}
    is_lease = of.get("resource") == "leases"
    return Write(
        _instant(event["requestReceivedTimestamp"]),
        _instant(event["stageTimestamp"]),
        event["user"].get("username", ""),
        event.get("userAgent", ""),
        event["verb"],
        of.get("resource", ""),
        of.get("subresource", ""),
        of.get("name") or metadata.get("name", ""),
        (event.get("responseStatus") or {}).get("code", 0),
        int(metadata.get("resourceVersion") or 0),
        records.read(answer),
        (spec.get("leaseTransitions") or 0) if is_lease else 0,
        (spec.get("holderIdentity") or "") if is_lease else "",
        ((metadata.get("annotations") or {}).get("shipper.dev/released") or "") if is_lease else "",
    )


def _instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
