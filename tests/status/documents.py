"""Status documents, as shippers and their supervisors make them."""

from __future__ import annotations

from typing import Any

SERVED: dict[str, Any] = {
    "state": "DEGRADED",
    "message": "output main: 401 from 127.0.0.1:9200, events held",
    "code": "unauthorized",
    "revisions": {"received": [0, 8], "active": [0, 7], "drained": [0, 5]},
    "draining": [
        {
            "epoch": 0,
            "revision": 6,
            "events": 812,
            "bytes": 402_113,
            "oldest_seconds": 340.0,
            "outputs": {
                "main": {
                    "events": 812,
                    "reason": "401 from 127.0.0.1:9200, events held",
                    "credentials": ["es-3f9c0a7be2d1"],
                    "held": True,
                    "rebind_to": "es-81d04c5f6a77",
                    "rebind_from": ["es-3f9c0a7be2d1"],
                    "forward": True,
                    "code": "unauthorized",
                }
            },
        }
    ],
    "units": [
        {
            "id": "inputs.access",
            "kind": "input",
            "type": "file",
            "state": "HEALTHY",
            "message": "",
            "code": "ok",
            "figures": {"files": 3, "unread_bytes": 120_000},
        },
        {
            "id": "inputs.apps",
            "kind": "input",
            "type": "elasticsearch",
            "state": "DEGRADED",
            "message": "the queue is full, output main holds the most; intake waits",
            "code": "queue_full",
            "figures": {"connections": 4},
        },
        {
            "id": "outputs.main",
            "kind": "output",
            "type": "elasticsearch",
            "state": "DEGRADED",
            "message": "401 from 127.0.0.1:9200, events held",
            "code": "unauthorized",
            "failing": {"batch": 41, "seconds": 340.0},
        },
        {"id": "outputs.copy", "kind": "output", "type": "file", "state": "HEALTHY", "message": "", "code": "ok"},
    ],
    "queue": {
        "events": 900,
        "bytes": 1 << 29,
        "limit_bytes": 1 << 30,
        "disk_bytes": 600 << 20,
        "oldest_seconds": 340.2,
    },
    "dead_letters": {"events": 14, "bytes": 3000, "oldest_seconds": 86_400.0},
    "dead_letter_reasons": [
        {
            "output": "main",
            "reason": "mapper_parsing_exception: failed to parse field [age]",
            "events": 12,
            "newest_seconds": 40.0,
        },
        {"output": "main", "reason": "index_closed_exception", "events": 2, "newest_seconds": 8000.0},
    ],
    "credentials_in_use": ["es-3f9c0a7be2d1", "es-81d04c5f6a77"],
    "credentials_wanted": [],
    "counters": {
        "main": {"delivered": 9000, "duplicate": 1, "dead_letter": 14, "dropped": 0, "retries": 4},
        "copy": {"delivered": 20_000},
    },
    "turned_away": {"apps": 12},
    "outputs": {
        "main": {
            "requests": 90,
            "responses": {"200": 80, "401": 8},
            "failures": {"timeout": 2},
            "seconds": 9.0,
            "buckets": [0, 0, 90, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            "held": True,
            "next_attempt_seconds": 7.5,
        }
    },
    "inputs": {"access": {"events": 21_000, "bytes": 8_000_000, "filtered": 3, "failures": 4}},
    "plugins": {},
    "edges": [],
    "principals": [],
    "running": True,
    "lease_seconds": None,
    "supervisor": {
        "troubles": [
            {"kind": "policy", "cause": "policy.yaml are not a valid policy", "message": "line 3: unknown key"}
        ],
        "restarts": 1,
        "unrevoked": 1,
        "directory": "/var/lib/shipper",
        "policy": ["/etc/shipper/policy.d"],
        "version": "0.4.0",
        "pid": 812,
        "wanted": [0, 8],
        "credentials": [
            {"id": "es-3f9c0a7be2d1", "name": "es", "units": ["outputs.main"], "released": False, "current": False},
            {"id": "es-81d04c5f6a77", "name": "es", "units": ["outputs.main"], "released": False, "current": True},
            {"id": "es-00aa00aa00aa", "name": "es", "units": [], "released": True, "current": False},
            {"id": "es-00000aaaaaaa", "name": "es", "released": True, "revoked": True, "current": False},
        ],
    },
}
"""Of `/status`: a rotation that waits for a revoked key."""

EDGE: dict[str, Any] = {
    "input": "door",
    "name": "berlin",
    "connected_seconds": 5400.0,
    "heard_seconds": 3.2,
    "waiting_events": 0,
    "versions_behind": 0,
    "keys": 1200,
    "bytes": 4096,
}
PRINCIPAL: dict[str, Any] = {
    "output": "up",
    "host": "principal-1:6789",
    "connected_seconds": None,
    "reason": "connection refused",
    "confirms": "stored",
    "unconfirmed_events": 3,
    "unconfirmed_keys": 1,
    "oldest_seconds": 9.0,
}


def later(**more: Any) -> dict[str, Any]:
    """SERVED after a while in which 500 events were taken and 40 of the drain were delivered."""
    document = {**SERVED, **more}
    document["inputs"] = {"access": {**SERVED["inputs"]["access"], "events": 21_500, "bytes": 8_200_000}}
    document["counters"] = {**SERVED["counters"], "main": {**SERVED["counters"]["main"], "delivered": 9040}}
    document["outputs"] = {"main": {**SERVED["outputs"]["main"], "responses": {"200": 90, "401": 8, "503": 5}}}
    (drain,) = SERVED["draining"]
    document["draining"] = [{**drain, "outputs": {"main": {**drain["outputs"]["main"], "events": 772}}}]
    return document


def asked(served: dict[str, Any] = SERVED) -> dict[str, Any]:
    """The same shipper as `shipper status --json` describes it."""
    beside = ("counters", "turned_away", "outputs", "inputs", "plugins", "supervisor", "running")
    said = served["supervisor"]
    return {
        "state": served["state"],
        "message": served["message"],
        "running": True,
        "troubles": said["troubles"],
        "supervisor": {"pid": 812, "version": "0.4.0"},
        "sidecar": {"state": "running", "pid": 813, "http": "127.0.0.1:6780", "restarts": 1},
        "wanted": said["wanted"],
        "observed": {name: value for name, value in served.items() if name not in beside},
        "credentials": [{**one, "sources": ["file:/etc/shipper/keys/es"]} for one in said["credentials"]],
    }


def fleet(members: int, versions: int = 6) -> dict[str, Any]:
    """A fleet of which some members are behind, each for another reason."""
    found = [_member(number, versions) for number in range(members)]
    kinds = [each["kind"] for each in found]
    return {
        "name": "prod",
        "at": 90,
        "newest": str(versions),
        "state": "behind",
        "counts": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "undelivered": {},
        "members": sorted(found, key=lambda each: each["kind"] == "reached"),
        "versions": [
            {
                "version": str(at),
                "at": 1_790_000_000.0 + at,
                "by": "kim",
                "why": "rotate es",
                "reached": {},
                "ledger": {},
                "counted": 0,
            }
            for at in range(versions, 0, -1)
        ],
        "leader": "web-1",
        "failing": [],
        "warnings": [],
    }


def _member(number: int, versions: int) -> dict[str, Any]:
    kind, behind, why, events, alive = {
        1: ("waiting", 1, "its events drain: 401 from es-1:9200, events held", 812, True),
        17: ("absent", 3, "its lease is over", 90, False),
        42: ("refused", 1, "refused: outputs.main.hosts: unknown host", 0, True),
    }.get(number, ("reached", 0, "", 0, True))
    reached = {"received": versions, "active": versions, "drained": versions - behind}
    if kind == "absent":
        reached = {"received": versions - 2, "active": versions - 2, "drained": versions - 3}
    if kind == "refused":
        reached["active"] = reached["received"] = versions - 1
    return {
        "name": f"web-{number}",
        "kind": kind,
        "behind": behind,
        "stages": {stage: str(at) for stage, at in reached.items()},
        "why": why,
        "problems": [],
        "undelivered": {"events": events, "bytes": events * 500, "oldest_seconds": 0.0},
        "ledger": None,
        "alive": alive,
        "seen": 1_790_000_100.0,
        "since": 1_789_000_000.0,
        "lease": 40.0,
        "fence": False,
        "secrets": ["es es-81d04c5f6a77"],
        "local": "",
        "directory": "d",
        "releases": True,
        "http": "",
    }
