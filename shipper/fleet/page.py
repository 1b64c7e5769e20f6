"""The fleet on the page of a member: the store is asked once for all who look, and again after FRESH_SECONDS at the
earliest."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import msgspec
import trio

from shipper.fleet import overview
from shipper.fleet.seal import Unauthentic
from shipper.fleet.store import StoreError
from shipper.status import fleet

FRESH_SECONDS = 5.0
"""The age up to which a picture of the fleet is shown again."""


class Glances:
    """`ask` returns the overview of the fleet, or raises StoreError or Unauthentic."""

    def __init__(self, ask: Callable[[], Awaitable[overview.Fleet]]) -> None:
        self._ask = ask
        self._fleet: fleet.Fleet | None = None
        self._problem = ""
        self._asked_at = -math.inf

    async def glance(self) -> tuple[fleet.Fleet | None, str]:
        """Returns the fleet as it was seen last, and why the store cannot be asked now; call it once at a time."""
        if trio.current_time() >= self._asked_at + FRESH_SECONDS:
            await self._look()
        return self._fleet, self._problem

    async def _look(self) -> None:
        try:
            self._fleet = fleet.of(msgspec.to_builtins(await self._ask()))
            self._problem = ""
        except (StoreError, Unauthentic) as error:
            self._problem = f"the fleet cannot be asked: {error}"
        self._asked_at = trio.current_time()
