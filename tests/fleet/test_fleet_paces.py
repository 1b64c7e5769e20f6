"""A store that answers at once that somebody else was faster, for ever, is not asked without a pause."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from shipper.apiserver.errors import Conflict
from shipper.fleet.election import Election
from shipper.fleet.etcd.store import Etcd
from shipper.fleet.kubernetes.leases import Leases
from shipper.fleet.records import HEAD, Head, Leader
from shipper.fleet.seal import Seals
from shipper.fleet.store import Compacted, Entry, Found, Lease, StoreUnreachable, Swapped

SEALS = Seals("prod", [b"k" * 32])
SECONDS = 100.0
MOST = 3 * SECONDS
"""Requests in these seconds: the longest pause of one is a second, and half of that on the average."""


class Faster:
    """An API server whose every object was written by somebody else since it was read."""

    def __init__(self) -> None:
        self.asked = 0

    async def get(self, *args: Any, **named: Any) -> dict[str, Any]:
        return await self._answer({"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}})

    async def list(self, *args: Any, **named: Any) -> Any:
        spec = {"leaseDurationSeconds": 1}
        under = {"metadata": {"name": "a", "labels": {}, "annotations": {}}, "spec": spec}
        return await self._answer(SimpleNamespace(items=[under]))

    async def replace(self, *args: Any, **named: Any) -> dict[str, Any]:
        await self._answer(None)
        raise Conflict("it was changed")

    async def delete(self, *args: Any, **named: Any) -> None:
        await self._answer(None)

    async def _answer(self, answer: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        return answer


KEYS: Any = SimpleNamespace(lease=lambda id: f"lease-{id}", label="prod", selector=lambda: "", key=lambda found: None)


async def test_a_lease_that_somebody_always_writes_first(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.fleet.kubernetes.leases.seconds_under", lambda item: 1.0)
    for act in ("renew", "revoke"):
        server = Faster()
        with trio.move_on_after(SECONDS):
            await getattr(Leases(server, KEYS), act)(Lease(1, 15.0))  # type: ignore[arg-type]

        assert 10 < server.asked < 2 * MOST, act


async def test_a_head_that_somebody_always_writes_first(autojump_clock: MockClock) -> None:
    class Store:
        asked = 0

        async def read(self, key: str) -> Found:
            await trio.lowlevel.checkpoint()
            return Found(Entry(HEAD, SEALS.seal(HEAD, Head("prod")), 1, 1), 1)

        async def swap(self, key: str, value: bytes | None, *, expected: int) -> Swapped:
            self.asked += 1
            return Swapped(False, None, 1)

    store = Store()
    with trio.move_on_after(SECONDS):
        await Election(store, SEALS, Leader("a", "b"), 15.0)._raised()  # type: ignore[arg-type]

    assert 10 < store.asked < MOST


async def test_a_listing_that_is_always_compacted(autojump_clock: MockClock) -> None:
    class Gateway:
        asked = 0

        async def call(self, *args: Any) -> Any:
            await trio.lowlevel.checkpoint()
            self.asked += 1
            raise Compacted("too late")

    gateway = Gateway()
    keys = SimpleNamespace(range=lambda prefix: ("a", "b"), shown=lambda prefix: prefix)
    began = trio.current_time()
    with pytest.raises(StoreUnreachable):
        await Etcd(gateway, keys).list("a")  # type: ignore[arg-type]

    assert gateway.asked < 20 + 3 * (trio.current_time() - began)
