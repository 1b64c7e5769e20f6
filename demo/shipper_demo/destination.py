"""The demo's destination: a second shipper, whose `elasticsearch` input writes what it receives to a file.

Who may write stands in its policy, so to admit or revoke a key is a revision, and its `active` is the instant from
which the destination acts on it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from shipper_demo.key import Key, answer_to
from shipper_demo.ports import free_port
from shipper_demo.sidecar import Sidecar

_POLICY = """\
version: 1
inputs:
  bulk:
    type: elasticsearch
    address: 127.0.0.1:{port}
    credentials: [{keys}]
outputs:
  record:
    type: file
    path: {record}
    id_field: _id
    rotate_bytes: 1000GiB
"""


class Destination:
    """A running destination; made by `opened`."""

    def __init__(self, sidecar: Sidecar, record: Path, port: int) -> None:
        self.port = port
        self.record = record
        self._sidecar = sidecar
        self._keys: dict[str, Key] = {}
        self._lock = trio.Lock()
        """Held from reading `_keys` on: a key that is admitted meanwhile must not be forgotten."""

    async def admit(self, key: Key) -> None:
        """From the return on, requests with this key are taken."""
        async with self._lock:
            await self._change(self._keys | {key.name: key})

    async def revoke(self, key: Key) -> None:
        """From the return on, every request with this key is refused."""
        async with self._lock:
            await self._change({name: other for name, other in self._keys.items() if name != key.name})

    async def answer_to(self, key: Key) -> int:
        """The HTTP status of a request with this key, made just now."""
        return await answer_to(key, self.port)

    async def _change(self, keys: dict[str, Key]) -> None:
        self._keys = keys
        record = json.dumps(str(self.record))
        await self._sidecar.offer(_POLICY.format(port=self.port, keys=", ".join(keys), record=record), keys)


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Destination]:
    """A destination on a free port of loopback; nobody may write before a key is admitted.

    Leaving the block in order waits until all that it took is in the record.
    """
    sidecar = Sidecar("the demo's destination", directory)
    async with trio.open_nursery() as nursery:
        await nursery.start(sidecar.run)
        yield Destination(sidecar, directory / "record.ndjson", free_port())
        await sidecar.end()
