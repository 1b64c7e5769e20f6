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
from functools import partial
from typing import NoReturn

import trio

from shipper.apiserver.client import Client
from shipper.apiserver.errors import AlreadyExists, ApiError, Conflict, Forbidden, Gone, Invalid, NotFound, Unauthorized
from shipper.kubernetes.summing.seat import Lost, Seat
from shipper.kubernetes.summing.troubles import Troubles
from shipper.process.environment import REAL, Environment
from shipper.sdk.retry import backoff, hasty

REFUSED_SECONDS = 60.0
FAREWELL_SECONDS = 2.0
FIRST_TURN, LONGEST_TURN = 0.2, 10.0
"""Pauses between turns in which this candidate did not lead, or not for as long."""
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
        self._seat = Seat(client, identity, seconds, environment)
        self._seconds, self._troubles, self._environment = seconds, Troubles(trouble), environment
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
                    nursery.start_soon(self._seat.reflector(partial(self._trouble, UNREACHABLE)).run)
                    await self._elect(act)
            except* ApiError as found:
                self._trouble(UNREACHABLE, f"no election: {_first(found)}")
                await trio.sleep(next(self._pauses))

    def _trouble(self, cause: str, text: str | None) -> None:
        if text is None:
            self._troubles.over(cause)
        else:
            self._troubles.failed(cause, cause, text)

    # -- candidate -----------------------------------------------------------------------------------------------------

    async def _permitted(self) -> None:
        """Returns when the Lease can be read; raises ApiError of another cause."""
        while True:
            try:
                await self._seat.look()
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

    async def _elect(self, act: Callable[[Leadership], Awaitable[object]]) -> NoReturn:
        turns = hasty(FIRST_TURN, LONGEST_TURN, draw=self._environment.draw)
        while True:
            if self._is_unfit:
                self._is_unfit = False
                await trio.sleep(REFUSED_SECONDS * self._environment.draw.uniform(0.5, 1))
            await self._seat.vacant()
            began = self._environment.boottime()
            try:
                token = await self._seat.take(self.floor)
            except (Conflict, AlreadyExists, NotFound, Gone):
                await self._seat.look()
                await trio.sleep(next(turns))
                continue
            except (Forbidden, Unauthorized, Invalid) as error:
                await self._refused(error)
                continue
            self._trouble(FORBIDDEN, None)
            self._heal()
            await self._lead(Leadership(token, began + self._lasts, self._environment), act)
            if self._environment.boottime() - began >= LONGEST_TURN:
                turns = hasty(FIRST_TURN, LONGEST_TURN, draw=self._environment.draw)
            else:
                await trio.sleep(next(turns))

    @property
    def _lasts(self) -> float:
        return self._seconds * LEADS

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
                await self._seat.release(leadership.token)

    async def _keep(self, leadership: Leadership, scope: trio.CancelScope) -> None:
        """Renews the Lease; cancels the scope before it may be over."""
        wait = self._seconds / 3
        while leadership.holds():
            with trio.move_on_after(min(wait, self._left(leadership))):
                await self._seat.lost(leadership.token)
                break
            began = self._environment.boottime()
            with trio.move_on_after(self._left(leadership)):
                try:
                    await self._seat.renew(leadership.token)
                except Lost:
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

    def _left(self, leadership: Leadership) -> float:
        return max(0.0, leadership.until - self._environment.boottime())


def _first(found: BaseExceptionGroup[ApiError]) -> BaseException:
    first: BaseException = found
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def _tokens(found: BaseExceptionGroup[Superseded]) -> list[int]:
    return [
        token for one in found.exceptions for token in ([one.token] if isinstance(one, Superseded) else _tokens(one))
    ]
