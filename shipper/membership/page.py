"""The page of a member at `/` of its address: what its sidecar's `/status` says, and the fleet, where there is one.

Whoever may ask `/status` sees the page, and the part about the fleet whoever may ask about that. These see what the
supervisor knows, too, where the sidecar has no server, or does not answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
import trio

from shipper.membership.door import Answer
from shipper.status import view
from shipper.status.fleet import Fleet
from shipper.status.page import document
from shipper.status.page.document import Content
from shipper.status.rates import Samples

SIDECAR = "nothing is known of the sidecar: {}"


class Page:
    """The page of one member; `glance` returns its fleet as it was seen last, None before that, with the reason if it
    cannot be seen now, and is missing where there is no fleet; `told` is what the supervisor says to `shipper status`.
    """

    def __init__(
        self,
        glance: Callable[[], Awaitable[tuple[Fleet | None, str]]] | None = None,
        told: Callable[[], Awaitable[Mapping[str, Any]]] | None = None,
    ) -> None:
        self._glance, self._told = glance, told
        self._samples = Samples()
        self._one = trio.Lock()

    async def answer(self, path: str, served: bytes | None, reason: str, may_ask: bool) -> Answer:
        """Returns the page, or a file of it.

        `served` is what the sidecar said of its status, None if it said nothing, for a `reason` in words. `may_ask`:
        whether who looks may ask about the fleet.
        """
        if path in document.FILES:
            return _answer(await trio.to_thread.run_sync(document.file, path))
        async with self._one:
            found, problem = await self._glance() if may_ask and self._glance is not None else (None, "")
            told = await self._told() if may_ask and served is None and self._told is not None else None
            now = trio.current_time()
            seen = served if told is None else told
            return _answer(await trio.to_thread.run_sync(self._drawn, seen, reason, found, problem, now))

    def _drawn(
        self,
        seen: bytes | Mapping[str, Any] | None,
        reason: str,
        found: Fleet | None,
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
