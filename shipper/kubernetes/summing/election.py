"""Elects one member, by the Lease `shipper-leader`.

    no holder, or a Lease unchanged for its seconds and a margin ── swap, token + 1 ──> leads
    leads ── a renewal each third ──> … ── none for long enough, another holder, or superseded ──> does not lead

A Lease is swapped by its resourceVersion, so one candidate gets it. Its end is judged by the candidate's own clock
alone. Nobody's write can be conditional on a Lease, so it only keeps leaders from disturbing each other: the authority
is the token (`leaseTransitions`), which rises with each election, and which a leader writes into an object before it
concludes anything of it (`leader`). A leader stops before its Lease may be over, so that two rarely meet at all.

Somebody may delete the Lease, and the tokens would begin anew: a leader that finds a higher token in an object ends,
and remembers it as `floor`; its next one is higher. So does the leader that really was superseded; the Lease then has
another holder, for whose end it waits.

Without a right to the Lease, this member is no candidate; it says so, and tries again, soon at first: a server that
starts refuses what it allows a second later. In the end it tries each REFUSED_SECONDS.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NoReturn

import trio

from shipper.apiserver.client import Client
from shipper.apiserver.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Unauthorized,
)
from shipper.apiserver.objects import LEASES, Event, Object
from shipper.apiserver.reflector import Reflector
from shipper.apiserver.versions import is_older
from shipper.kubernetes.kinds import LEADER_LEASE
from shipper.kubernetes.summing import records
from shipper.kubernetes.summing.liveness import LONGEST, margin
from shipper.kubernetes.summing.troubles import Troubles
from shipper.process.environment import REAL, Environment
from shipper.sdk.retry import backoff

REFUSED_SECONDS = 60.0
FAREWELL_SECONDS = 2.0
LEADS = 0.95
"""The share of its lease for which a leader leads after the start of a renewal; candidates wait longer than a lease."""
FORBIDDEN, UNREACHABLE = "leader_forbidden", "leader_unreachable"
"""Causes of troubles."""


class Superseded(Exception):
    """An object has a higher token, so another leader has concluded something of it, or tokens began anew."""

    def __init__(self, token: int) -> None:
        super().__init__(f"an object has the token {token} of another leader")
        self.token = token


class Unfit(Exception):
    """This member cannot do what a leader does; others may."""


class Leadership:
    """One time of leading."""

    def __init__(self, token: int, until: float, environment: Environment) -> None:
        self.token = token
        self.until = until
        """By the clock that does not stop while the machine sleeps."""
        self._environment = environment

    def holds(self) -> bool:
        """Whether this member may still conclude something."""
        return self._environment.boottime() < self.until


class Election:
    """One candidate."""

    def __init__(
        self,
        client: Client,
        identity: str,
        seconds: float,
        *,
        trouble: Callable[[str, str | None], None],
        environment: Environment = REAL,
    ) -> None:
        """`identity` is that of this process alone; `seconds`: the lease."""
        self.floor = 0
        """The highest token that was found in an object."""
        self._client, self._identity, self._seconds = client, identity, seconds
        self._troubles, self._environment = Troubles(trouble), environment
        self._seen: records.Lease | None = None
        self._object: Object = {}
        self._since = -math.inf
        """When the Lease was first seen as it is."""
        self._changed = trio.Event()
        self._is_unfit = False
        self._heal()

    async def run(self, act: Callable[[Leadership], Awaitable[object]]) -> NoReturn:
        """Runs `act` each time when this candidate is elected, and cancels it when it leads no longer. Without an end.

        `act` may raise Superseded, or Unfit, after which this candidate stands back for REFUSED_SECONDS.
        """
        while True:
            try:
                await self._permitted()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._follow().run)
                    await self._elect(act)
            except* ApiError as found:
                self._trouble(UNREACHABLE, f"no election: {_first(found)}")
                await trio.sleep(next(self._pauses))

    def _trouble(self, cause: str, text: str | None) -> None:
        if text is None:
            self._troubles.over(cause)
        else:
            self._troubles.failed(cause, cause, text)

    # -- the Lease as it is seen ---------------------------------------------------------------------------------------

    async def _permitted(self) -> None:
        """Returns when the Lease can be read; raises ApiError of another cause."""
        while True:
            try:
                self._saw(await self._client.get(LEASES, LEADER_LEASE))
            except NotFound:
                self._saw(None)
            except (Forbidden, Unauthorized) as error:
                await self._refused(error)
                continue
            self._trouble(FORBIDDEN, None)
            self._trouble(UNREACHABLE, None)
            return

    async def _refused(self, error: ApiError) -> None:
        self._trouble(FORBIDDEN, f"this member cannot be elected to sum up status: {error}")
        await trio.sleep(next(self._refusals))

    def _heal(self) -> None:
        """Begins with short pauses again."""
        self._pauses = backoff(0.2, 10.0, draw=self._environment.draw)
        self._refusals = backoff(1.0, REFUSED_SECONDS, draw=self._environment.draw)

    def _follow(self) -> Reflector:
        def trouble(text: str | None) -> None:
            self._trouble(UNREACHABLE, text)

        return Reflector(
            self._client,
            LEASES,
            fields=f"metadata.name={LEADER_LEASE}",
            heed=self._heed,
            trouble=trouble,
            environment=self._environment,
        )

    def _heed(self, event: Event) -> None:
        if event.type != "SYNCED":
            self._saw(None if event.type == "DELETED" else event.object)

    def _saw(self, found: Object | None) -> None:
        new = None if found is None else records.lease(found)
        old = self._seen
        if new is not None and old is not None and new.uid == old.uid and is_older(new.version, old.version):
            return
        if (old and old.mark) != (new and new.mark):
            self._since = self._environment.boottime()
        self._seen, self._object = new, found or {}
        self._changed.set()
        self._changed = trio.Event()

    # -- candidate -----------------------------------------------------------------------------------------------------

    async def _elect(self, act: Callable[[Leadership], Awaitable[object]]) -> NoReturn:
        while True:
            if self._is_unfit:
                self._is_unfit = False
                await trio.sleep(REFUSED_SECONDS * self._environment.draw.uniform(0.5, 1))
            await self._vacant()
            began = self._environment.boottime()
            try:
                found = await self._take()
            except (Conflict, AlreadyExists, NotFound, Gone):
                await self._look()
                continue
            except (Forbidden, Unauthorized, Invalid) as error:
                await self._refused(error)
                continue
            self._trouble(FORBIDDEN, None)
            self._heal()
            self._saw(found)
            lease = records.lease(found)
            await self._lead(Leadership(lease.transitions, began + self._lasts, self._environment), act)

    async def _vacant(self) -> None:
        """Returns when the Lease may be taken."""
        while True:
            seen, changed = self._seen, self._changed
            if seen is None or seen.holder in ("", self._identity):
                return
            seconds = min(max(seen.seconds, 0.0), LONGEST)
            left = self._since + seconds + margin(seconds) - self._environment.boottime()
            if left <= 0:
                return
            with trio.move_on_after(left):
                await changed.wait()

    async def _look(self) -> None:
        """Reads the Lease by quorum."""
        try:
            self._saw(await self._client.get(LEASES, LEADER_LEASE))
        except NotFound:
            self._saw(None)

    async def _take(self) -> Object:
        """Swaps the Lease for one of ours, with a higher token; raises ApiError."""
        before = self._seen
        token = max(before.transitions if before else 0, self.floor) + 1
        now = self._now()
        spec = {**self._spec(now, token), "acquireTime": now}
        if before is None:
            named = {"apiVersion": LEASES.api_version, "kind": LEASES.name, "metadata": {"name": LEADER_LEASE}}
            return await self._client.create(LEASES, {**named, "spec": spec}, seconds=self._patience)
        return await self._client.replace(LEASES, LEADER_LEASE, {**self._object, "spec": spec}, seconds=self._patience)

    def _spec(self, now: str, token: int) -> Object:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, math.ceil(self._seconds)),
            "renewTime": now,
            "leaseTransitions": token,
        }

    @property
    def _lasts(self) -> float:
        return self._seconds * LEADS

    @property
    def _patience(self) -> float:
        return max(2.0, self._seconds / 2)

    # -- leader --------------------------------------------------------------------------------------------------------

    async def _lead(self, leadership: Leadership, act: Callable[[Leadership], Awaitable[object]]) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep, leadership, nursery.cancel_scope)
                await act(leadership)
                nursery.cancel_scope.cancel("the leader has ended its work")
        except* Superseded as found:
            self.floor = max(self.floor, *_tokens(found))
        except* Unfit:
            self._is_unfit = True
        finally:
            leadership.until = -math.inf
            with trio.move_on_after(FAREWELL_SECONDS, shield=True), suppress(ApiError):
                await self._release(leadership.token)

    async def _keep(self, leadership: Leadership, scope: trio.CancelScope) -> None:
        """Renews the Lease; cancels the scope before it may be over."""
        wait = self._seconds / 3
        while leadership.holds():
            with trio.move_on_after(min(wait, self._left(leadership))):
                await self._lost(leadership.token)
                break
            began = self._environment.boottime()
            with trio.move_on_after(self._left(leadership)):
                try:
                    await self._renew(leadership.token)
                except _Lost:
                    break
                except ApiError as error:
                    self._trouble(UNREACHABLE, f"the leader's Lease was not renewed: {error}")
                    wait = min(1.0, self._seconds / 10)
                    continue
                self._trouble(UNREACHABLE, None)
                wait = self._seconds / 3
                leadership.until = began + self._lasts
        leadership.until = -math.inf
        scope.cancel("the leader's Lease may be over")

    async def _lost(self, token: int) -> None:
        """Returns when another holder was seen."""
        while self._is_ours(token):
            await self._changed.wait()

    def _is_ours(self, token: int) -> bool:
        seen = self._seen
        return seen is not None and (seen.holder, seen.transitions) == (self._identity, token)

    async def _renew(self, token: int) -> None:
        """Renews the Lease; raises _Lost, or ApiError."""
        try:
            spec = {**(self._object.get("spec") or {}), **self._spec(self._now(), token)}
            found = await self._client.replace(LEASES, LEADER_LEASE, {**self._object, "spec": spec})
        except (Conflict, NotFound):
            await self._look()
            if not self._is_ours(token):
                raise _Lost from None
            raise
        self._saw(found)

    async def _release(self, token: int) -> None:
        """Gives the Lease back, so that the next candidate need not wait."""
        if not self._is_ours(token):
            return
        spec = {**(self._object.get("spec") or {}), "holderIdentity": "", "renewTime": self._now()}
        self._saw(await self._client.replace(LEASES, LEADER_LEASE, {**self._object, "spec": spec}))

    def _left(self, leadership: Leadership) -> float:
        return max(0.0, leadership.until - self._environment.boottime())

    def _now(self) -> str:
        return datetime.fromtimestamp(self._environment.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class _Lost(Exception):
    """Another holder has the Lease."""


def _first(found: BaseExceptionGroup[ApiError]) -> BaseException:
    first: BaseException = found
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def _tokens(found: BaseExceptionGroup[Superseded]) -> list[int]:
    return [
        token for one in found.exceptions for token in ([one.token] if isinstance(one, Superseded) else _tokens(one))
    ]
