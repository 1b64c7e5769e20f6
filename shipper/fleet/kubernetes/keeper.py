"""Ends the leases that nobody renews: the API server has no clock for that.

    all clients that watch or hold a lease ── follow one Lease, `…-keeper…` ──> the one that has it is the keeper
    keeper ── follows all Leases and the records that name one ──> ends what was not renewed

To end a lease, the keeper first lists anew what renews it, since its watch may be late. If it is overdue still, it
deletes the Lease, in the version that it knows; from that instant on no renewal succeeds. A record that renewed it just
before is found by one more list: then its keys stay for the lease's seconds once more. Else they are removed.

Two keepers at a time harm nobody, since each of these writes has its condition; the election only saves requests. So
nothing is fenced here. A keeper that lacks a right says so in the log, and another client takes its place.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import trio

from shipper.apiserver.client import Client
from shipper.apiserver.errors import AlreadyExists, ApiError, Conflict, NotFound
from shipper.apiserver.objects import LEASES, Event, Kind, Object, name, uid, version
from shipper.apiserver.reflector import Reflector
from shipper.fleet.kubernetes.leases import Leases, lease_object, seconds_of
from shipper.fleet.kubernetes.lives import DRIFT, Lives
from shipper.fleet.kubernetes.objects import FLEET, LEASE, RECORDS, REMOVED, Keys, lease_of, seconds_under
from shipper.fleet.kubernetes.removal import delete, remove
from shipper.fleet.store import StoreError
from shipper.process import log

SECONDS = 15.0
"""The lease of the keeper."""
FAREWELL_SECONDS = 2.0
HERD_SECONDS = 5.0
"""All clients see at one instant that the Lease is free; each waits for a random part of this."""
PAUSE_SECONDS = 1.0
BLIND_SECONDS = 60.0

_log = log.get(__name__)


class Keeper:
    """One client's part in it; `run` does nothing before `wanted` is set."""

    def __init__(self, client: Client, keys: Keys, leases: Leases) -> None:
        self.wanted = trio.Event()
        self._client, self._keys, self._leases = client, keys, leases
        self._holder = f"{random.getrandbits(64):016x}"
        self._said = False
        self._blind_since: float | None = None

    async def run(self) -> None:
        """Stands for keeper, and keeps when it is; for ever."""
        await self.wanted.wait()
        while True:
            failed = ""
            try:
                await self._term(await self._elected())
            except* (ApiError, StoreError) as errors:
                failed = str(_first(errors))
                self._say(failed)
            await trio.sleep(random.uniform(0.5, 1.5) * (SECONDS if failed else PAUSE_SECONDS))

    def _say(self, failed: str) -> None:
        if not self._said:
            self._said = True
            _log.warning("this host cannot end leases of the fleet %s: %s", self._keys.fleet, failed)

    def _see(self, trouble: str | None) -> None:
        """Takes a trouble of the watch of the Lease; others say what is wrong with a store that is away for a while."""
        if trouble is None:
            self._blind_since = None
        elif self._blind_since is None:
            self._blind_since = trio.current_time()
        elif trio.current_time() - self._blind_since > BLIND_SECONDS:
            self._say(trouble)

    # -- the election --------------------------------------------------------------------------------------------------

    async def _elected(self) -> Object:
        """Returns the Lease when it is this client's; gives it up if it cannot return it."""
        turn = _Turn()
        seen: list[Object | None] = [None]

        def heed(event: Event) -> None:
            seen[0] = None if event.type == "DELETED" else event.object if event.type != "SYNCED" else seen[0]
            turn.now()

        fields = f"metadata.name={self._keys.keeper}"
        found: Object | None = None
        is_known = False
        try:
            async with trio.open_nursery() as nursery:
                follower = Reflector(self._client, LEASES, fields=fields, heed=heed, trouble=self._see)
                nursery.start_soon(follower.run)
                await follower.synced()
                while found is None:
                    there, seconds = seen[0], 0.0
                    if there is not None:
                        seconds = seconds_of(there) * (1 + DRIFT) + random.uniform(0, HERD_SECONDS)
                    elif is_known:
                        seconds = random.uniform(0, HERD_SECONDS)
                    with trio.move_on_after(seconds) as rest:
                        await turn.wait()
                    is_known = True
                    if rest.cancelled_caught:
                        found = await self._taken(there)
                nursery.cancel_scope.cancel("elected")
        except BaseException:  # also while the follower ends
            if found is not None:
                await self._give_up(found)
            raise
        return found

    async def _taken(self, there: Object | None) -> Object | None:
        """Takes the Lease in the place of this one; returns None if another client was faster.

        On cancel the Lease is given up, if it was taken already.
        """
        metadata: dict[str, Any] = {"name": self._keys.keeper, "labels": {FLEET: self._keys.label}}
        if there is not None:
            metadata |= {"uid": uid(there), "resourceVersion": version(there)}
        wanted = lease_object(metadata, self._holder, SECONDS)
        try:
            if there is None:
                return await self._client.create(LEASES, wanted)
            return await self._client.replace(LEASES, self._keys.keeper, wanted)
        except (AlreadyExists, Conflict, NotFound):
            return None
        except trio.Cancelled:
            await self._give_up(None)
            raise

    async def _give_up(self, mine: Object | None) -> None:
        """Deletes the Lease of this client, which is asked for where it is not known; within seconds, or not at all."""
        with trio.move_on_after(FAREWELL_SECONDS, shield=True), suppress(ApiError):
            if (mine := mine or await self._mine()) is not None:
                await self._client.delete(LEASES, self._keys.keeper, uid=uid(mine), version=version(mine))

    async def _term(self, held: Object) -> None:
        """Keeps until another client may be elected; gives up the Lease then."""
        newest = [held]
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hold, newest, nursery.cancel_scope)
                nursery.start_soon(_Term(self._client, self._keys, self._leases).run)
        finally:
            await self._give_up(newest[0])

    async def _mine(self) -> Object | None:
        """Returns the Lease if this client has it: the answer to a write of it may have been lost."""
        try:
            found = await self._client.get(LEASES, self._keys.keeper)
        except NotFound:
            return None
        spec = found.get("spec")
        return found if isinstance(spec, Mapping) and spec.get("holderIdentity") == self._holder else None

    async def _hold(self, newest: list[Object], term: trio.CancelScope) -> None:
        """Renews the Lease; cancels the term when it may be over."""
        end = trio.current_time() + SECONDS
        while trio.current_time() < end:
            await trio.sleep(SECONDS / 3)
            began = trio.current_time()
            with suppress(ApiError), trio.move_on_at(end):
                if (found := await self._taken(newest[0]) or await self._mine()) is None:
                    break
                newest[0], end = found, began + SECONDS
        term.cancel("another client may be elected")


class _Turn:
    """An event that happens again and again."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def now(self) -> None:
        self._event.set()
        self._event = trio.Event()

    async def wait(self) -> None:
        await self._event.wait()


class _Term:
    """What a keeper does."""

    def __init__(self, client: Client, keys: Keys, leases: Leases) -> None:
        self._client, self._keys, self._leases = client, keys, leases
        self._lives = Lives()
        self._turn = _Turn()
        self._blind: set[str] = set()
        """Kinds that cannot be followed now: nothing is judged then."""

    async def run(self) -> None:
        """Follows and ends leases, until it is cancelled; raises ApiError for what it may not do."""
        leases = f"{FLEET}={self._keys.label},{LEASE}"
        records = f"{leases},!{REMOVED}"
        async with trio.open_nursery() as nursery:
            for kind, labels, heed in ((LEASES, leases, self._heed_lease), (RECORDS, records, self._heed_record)):
                follower = Reflector(self._client, kind, labels=labels, heed=heed, trouble=partial(self._see, kind))
                nursery.start_soon(follower.run)
                await follower.synced()
            await self._sweep()
            while True:
                await self._rest()
                if not await self._end():
                    await trio.sleep(PAUSE_SECONDS)

    async def _sweep(self) -> None:
        """Deletes the objects of removed keys that were left behind."""
        labels = f"{FLEET}={self._keys.label},{REMOVED}"
        for item in (await self._client.list(RECORDS, labels=labels, metadata_only=True)).items:
            await delete(self._client, item)

    def _see(self, kind: Kind, trouble: str | None) -> None:
        (self._blind.discard if trouble is None else self._blind.add)(kind.plural)
        self._turn.now()

    def _heed_lease(self, event: Event) -> None:
        if event.type == "DELETED":
            self._lives.lost_lease(lease_of(event.object))
        elif event.type != "SYNCED":
            self._saw_lease(event.object)
        self._turn.now()

    def _heed_record(self, event: Event) -> None:
        if event.type == "DELETED":
            self._lives.lost_record(name(event.object))
        elif event.type != "SYNCED":
            self._saw_record(event.object)
        self._turn.now()

    def _saw_lease(self, found: Mapping[str, Any]) -> None:
        at = trio.current_time()
        self._lives.saw_lease(lease_of(found), uid(found), version(found), seconds_of(found), at)

    def _saw_record(self, found: Mapping[str, Any]) -> None:
        at, under = trio.current_time(), seconds_under(found)
        self._lives.saw_record(lease_of(found), name(found), version(found), under, at)

    async def _rest(self) -> None:
        """Returns when a lease is overdue."""
        while self._blind or (due := self._lives.next_due()) is None or due > trio.current_time():
            with trio.move_on_at(math.inf if self._blind or due is None else due):
                await self._turn.wait()

    async def _end(self) -> bool:
        """Ends what is overdue; returns whether there was anything. Raises ApiError."""
        records = await self._look()
        ended = []
        for id in self._lives.overdue(trio.current_time()):
            life = self._lives[id]
            if life is not None and (life.lease is None or await self._leases.end(id, *life.lease)):
                ended.append(id)
        for id in ended:
            self._lives.lost_lease(id)
        if ended:
            records = await self._look()
        over = set(self._lives.overdue(trio.current_time())).intersection(ended)
        for item in records:
            if lease_of(item) in over and seconds_under(item) is not None:
                await remove(self._client, self._keys, item)
                self._lives.lost_record(name(item))
        return bool(ended)

    async def _look(self) -> list[Object]:
        """Lists anew what the lives are judged by; returns the records."""
        labels = f"{FLEET}={self._keys.label},{LEASE}"
        leases = await self._client.list(LEASES, labels=labels)
        records = await self._client.list(RECORDS, labels=f"{labels},!{REMOVED}", metadata_only=True)
        for item in leases.items:
            self._saw_lease(item)
        for item in records.items:
            self._saw_record(item)
        self._lives.lacks({lease_of(item) for item in leases.items}, {name(item) for item in records.items})
        return records.items


def _first(group: BaseExceptionGroup[ApiError | StoreError]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
