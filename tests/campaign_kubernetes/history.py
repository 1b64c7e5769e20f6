"""Every version of the objects, in order, as etcd has them: what an API server that is killed cannot forget.

A resourceVersion is etcd's revision, so that the history and the audit log can be laid on each other.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, NamedTuple

from tests.campaign_kubernetes import records
from tests.campaign_kubernetes.records import Deleted, Record

KINDS = {"shipperpolicies": "ShipperPolicy", "shippermembers": "ShipperMember", "shippersecrets": "ShipperSecret"}
_ROOT = "/registry/"


class State(NamedTuple):
    """An object at a version."""

    version: int
    at: float
    """When it was seen, by CLOCK_MONOTONIC; later than it was written."""
    record: Record | Deleted


@dataclass
class History:
    """Of one namespace. `follow` runs in a thread of its own."""

    etcd: str
    namespace: str
    changed: Callable[[], None] = lambda: None
    """Called in the thread after each change."""
    states: list[State] = field(default_factory=list)
    secrets: list[State] = field(default_factory=list)
    """Those of Secrets."""
    newest: dict[tuple[str, str], Record] = field(default_factory=dict)
    """What there is now, by kind and name."""
    gaps: int = 0
    """How often etcd had compacted what was not read yet."""
    shown: list[bytes] = field(default_factory=list)
    """What must not be shown, and was: the keys of etcd, each with a canary."""
    canaries: frozenset[bytes] = frozenset()
    _next: int = 1
    _stopped: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        """Reads on, until `stop`; whatever happens to etcd."""
        while not self._stopped.is_set():
            try:
                self._read()
            except (OSError, ValueError, HTTPException):
                self._stopped.wait(0.05)

    def stop(self) -> None:
        self._stopped.set()

    def _read(self) -> None:
        create = {"key": _coded(_ROOT), "range_end": _coded("/registry0"), "start_revision": str(self._next)}
        body = json.dumps({"create_request": {**create, "progress_notify": True}}).encode()
        with urllib.request.urlopen(f"{self.etcd}/v3/watch", body, timeout=20) as reply:
            for line in reply:
                if self._stopped.is_set():
                    return
                result = json.loads(line)["result"]
                if result.get("canceled"):
                    self._next, self.gaps = int(result.get("compact_revision", self._next)), self.gaps + 1
                    return
                self._take(result)

    def _take(self, result: dict[str, Any]) -> None:
        events = result.get("events", ())
        for event in events:
            self._event(event.get("type", "PUT"), event["kv"])
        if not result.get("created"):
            self._next = max(self._next, int(result["header"]["revision"]) + 1)
        if events:
            self.changed()

    def _event(self, what: str, kv: dict[str, str]) -> None:
        key, version = base64.b64decode(kv["key"]).decode(), int(kv["mod_revision"])
        value = base64.b64decode(kv.get("value", ""))
        parts = key.removeprefix(_ROOT).split("/")
        if parts[0] != "secrets" and any(one in value for one in self.canaries):
            self.shown.append(key.encode())
        if (named := self._named(parts)) is None:
            return
        kind, name = named
        record: Record | Deleted | None
        if what == "DELETE":
            record = Deleted(kind, name)
            self.newest.pop((kind, name), None)
        else:
            record = records.read_secret(name, value) if kind == "Secret" else records.read(json.loads(value))
            if record is None:
                return
            self.newest[kind, name] = record
        state = State(version, time.monotonic(), record)
        self.states.append(state)
        if kind == "Secret":
            self.secrets.append(state)

    def _named(self, parts: list[str]) -> tuple[str, str] | None:
        if parts[:2] == ["secrets", self.namespace] and len(parts) == 3:
            return "Secret", parts[2]
        if parts[0] == "shipper.dev" and parts[1] in KINDS and parts[2:3] == [self.namespace]:
            return KINDS[parts[1]], parts[3]
        return None


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
