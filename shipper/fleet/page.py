"""The page of a member at `/` of its address: what its sidecar's `/status` says, and the fleet.

Whoever may ask `/status` sees the page, and the part about the fleet whoever may ask about that. These see what the
supervisor knows, too, where the sidecar has no server, or does not answer. The store is asked once for all who look at
the page, and again after FRESH_SECONDS at the earliest.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import orjson
import trio

from shipper.fleet import overview
from shipper.fleet.door import Answer
from shipper.fleet.seal import Unauthentic
from shipper.fleet.store import StoreError
from shipper.status import fleet, view
from shipper.status.page import document
from shipper.status.page.document import Content
from shipper.status.rates import Samples

FRESH_SECONDS = 5.0
"""The age up to which a picture of the fleet is shown again."""
SIDECAR = "nothing is known of the sidecar: {}"


class Page:
    """The page of one member; `ask` returns the overview of its fleet, and is missing where there is none; `told` is
    what the supervisor says to `shipper status`."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[overview.Fleet]] | None = None,
        told: Callable[[], Awaitable[Mapping[str, Any]]] | None = None,
    ) -> None:
        self._ask, self._told = ask, told
        self._samples = Samples()
        self._one = trio.Lock()
        self._fleet: fleet.Fleet | None = None
        self._problem = ""
        self._asked_at = -math.inf

    async def answer(self, path: str, served: bytes | None, reason: str, may_ask: bool) -> Answer:
        """Returns the page, or a file of it.

        `served` is what the sidecar said of its status, None if it said nothing, for a `reason` in words. `may_ask`:
        whether who looks may ask about the fleet.
        """
        if path in document.FILES:
            return _answer(await trio.to_thread.run_sync(document.file, path))
        async with self._one:
            if may_ask and self._ask is not None:
                await self._look(self._ask)
            told = await self._told() if may_ask and served is None and self._told is not None else None
            found, problem = (self._fleet, self._problem) if may_ask else (None, "")
            now = trio.current_time()
            seen = served if told is None else told
            return _answer(await trio.to_thread.run_sync(self._drawn, seen, reason, found, problem, now))

    async def _look(self, ask: Callable[[], Awaitable[overview.Fleet]]) -> None:
        """Asks the store, unless that was done just now. While it is away, the page shows what was seen last."""
        if trio.current_time() < self._asked_at + FRESH_SECONDS:
            return
        try:
            self._fleet = fleet.of(msgspec.to_builtins(await ask()))
            self._problem = ""
        except (StoreError, Unauthentic) as error:
            self._problem = f"the fleet cannot be asked: {error}"
        self._asked_at = trio.current_time()

    def _drawn(
        self,
        seen: bytes | Mapping[str, Any] | None,
        reason: str,
        found: fleet.Fleet | None,
        problem: str,
        now: float,
    ) -> Content:
        if seen is not None:
            try:
                status = orjson.loads(seen) if isinstance(seen, bytes) else seen
                return document.page(view.of(status, self._samples.rates(status, now)), found, problem=problem)
            except (LookupError, TypeError, ValueError, AttributeError):  # of another program, or version
                reason = "its status is not understood"
        unknown = view.View("UNKNOWN", SIDECAR.format(reason), "")
        return document.page(unknown, found, problem=problem)


def _answer(content: Content) -> Answer:
    return Answer(200, content.body, {**document.HEADERS, "Content-Type": content.type})
