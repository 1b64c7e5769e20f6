"""The two ends of a hop, as the demo drives them: edges that relay, and the principal that lets them in."""

from __future__ import annotations

import json
from pathlib import Path

from shipper_demo.access_log import AccessLog
from shipper_demo.inventory import Inventory
from shipper_demo.key import Key, answer_to
from shipper_demo.sidecar import Sidecar
from shipper_demo.tally import Tally
from shipper_demo.wire import Wire

_COLLECTION = "machines"
_BACKOFF = {"first": "50ms", "longest": "500ms"}


class Edge:
    """Follows a log and an inventory of its own, and relays both over a wire of its own."""

    def __init__(self, name: str, directory: Path, record: Path) -> None:
        self.name = name
        self.log = AccessLog(directory / f"{name}.log")
        self.inventory = Inventory(directory / f"{name}-{_COLLECTION}")
        self.wire = Wire()
        self.sidecar = Sidecar(name, directory / name)
        self.tally = Tally(record, name)
        self.key = Key.drawn(f"{name}-1")

    @property
    def under_way(self) -> int:
        """How many lines are written and have not arrived."""
        return self.tally.lost(self.log.written)

    async def use(self, key: Key) -> int:
        """Relay with this key from now on; returns the revision of the policy."""
        self.key = key
        log = {"type": "file", "paths": [str(self.log.path)], "data_stream": {"dataset": self.name}}
        documents = str(self.inventory.directory / "*.json")
        state = {"type": "state", "paths": [documents], "collection": _COLLECTION}
        host = f"http://127.0.0.1:{self.wire.port}"
        up = {"type": "relay", "name": self.name, "hosts": [host], "credential": key.name, "backoff": _BACKOFF}
        return await self.sidecar.offer(_policy({"log": log, "state": state}, {"principal": up}), {key.name: key})


class Principal:
    """Takes what edges relay, and delivers it."""

    def __init__(self, directory: Path, port: int, backend: int, key: Key) -> None:
        self.port = port
        self.sidecar = Sidecar("the principal", directory / "principal")
        self.key = key
        """For the backend, which listens on the port `backend`."""
        self._backend = backend
        self._doors: dict[str, list[Key]] = {}

    def admit(self, edge: str, key: Key) -> None:
        """Let an edge in with this key too, from the next `change` on."""
        self._doors.setdefault(edge, []).append(key)

    def revoke(self, edge: str, key: Key) -> None:
        """Let nobody in with this key, from the next `change` on."""
        self._doors[edge].remove(key)

    async def change(self) -> int:
        """Make what was decided active; returns the revision of the policy."""
        edges = {
            edge: {"credentials": [key.name for key in keys], "collections": [_COLLECTION]}
            for edge, keys in self._doors.items()
        }
        door = {"type": "relay", "address": f"127.0.0.1:{self.port}", "edges": edges}
        host = f"http://127.0.0.1:{self._backend}"
        out = {"type": "elasticsearch", "hosts": [host], "credential": self.key.name, "backoff": _BACKOFF}
        keys = [self.key, *(key for keys in self._doors.values() for key in keys)]
        return await self.sidecar.offer(_policy({"edges": door}, {"backend": out}), {key.name: key for key in keys})

    async def answer_to(self, key: Key) -> int:
        """The HTTP status of an edge's request with this key, made just now."""
        return await answer_to(key, self.port, "POST /v1/relay/heartbeat")


def _policy(inputs: dict[str, object], outputs: dict[str, object]) -> str:
    return json.dumps({"version": 1, "inputs": inputs, "outputs": outputs}, indent=2)
