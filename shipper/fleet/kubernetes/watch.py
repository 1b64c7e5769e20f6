"""A watch of keys that outlives its connections: it goes on after the last version that it has handed out.

The client ends a watch that says nothing, so a quiet one is begun anew about each minute. Each time, the version of a
list is asked for beside it: a watch of a version that the server does not have yet is silent, as after a restore.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager

import trio

from shipper.apiserver.client import Client
from shipper.apiserver.errors import ApiError, Busy, Unreachable
from shipper.apiserver.objects import Event, labels, version
from shipper.apiserver.watching import Silent
from shipper.fleet.kubernetes.answers import problem
from shipper.fleet.kubernetes.objects import RECORDS, REMOVED, Keys, revision
from shipper.fleet.store import SECONDS, Change, Compacted, StoreUnreachable
from shipper.sdk.retry import backoff

ALIVE_SECONDS = 1.0
"""A connection that lasts so long was no failed attempt."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


class Watch:
    """Iterates over the changes after a revision; see `Store.watch`."""

    def __init__(self, client: Client, keys: Keys, prefix: str, after: int) -> None:
        self._client, self._keys, self._prefix, self._after = client, keys, prefix, after
        self._purpose = f"watch {keys.shown(prefix)}"
        self._block: AbstractAsyncContextManager[AsyncIterator[Event]] | None = None
        self._events: AsyncIterator[Event] | None = None
        self._since = 0.0
        self._failing: float | None = None
        self._pauses: Iterator[float] = backoff(FIRST_PAUSE, LONGEST_PAUSE)

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Sequence[Change]:
        while True:
            try:
                change = await self._next()
            except BaseException:
                await self.aclose()
                raise
            if change is not None:
                return [change]

    async def aclose(self) -> None:
        """Ends the connection."""
        block, self._block, self._events = self._block, None, None
        if block is not None:
            with trio.CancelScope(shield=True):
                await block.__aexit__(None, None, None)

    async def _next(self) -> Change | None:
        """Returns a change; None if there is more to wait for."""
        try:
            events = self._events or await self._open()
            event = await anext(events, None)
        except Silent:
            await self.aclose()
        except ApiError as error:
            await self._pause(error)
        else:
            if event is not None:
                return self._change(event)
            if trio.current_time() - self._since < ALIVE_SECONDS:
                await self._pause(Unreachable(f"{self._client.host}: it ends each watch at once"))
            await self.aclose()
        return None

    # -- a connection --------------------------------------------------------------------------------------------------

    async def _open(self) -> AsyncIterator[Event]:
        block = self._client.watch(RECORDS, after=str(self._after), labels=self._keys.selector(self._prefix))
        self._events = await block.__aenter__()
        self._block, self._since = block, trio.current_time()
        await self._check()
        return self._events

    async def _check(self) -> None:
        """Raises Compacted if the store is older than what was seen of it: it was restored."""
        there = revision(await self._client.version(RECORDS))
        if there < self._after:
            raise Compacted(f"{self._purpose}: the store is older than revision {self._after}: it was restored")

    def _change(self, event: Event) -> Change | None:
        at = revision(version(event.object))
        if at <= self._after:
            return None
        self._after = at
        if event.type == "SYNCED":
            return None
        key = self._keys.key(event.object)
        if key is None or not key.startswith(self._prefix):
            return None
        if event.type != "DELETED":
            return Change(key, self._keys.entry(key, event.object), at)
        return None if REMOVED in labels(event.object) else Change(key, None, at)

    # -- failures ------------------------------------------------------------------------------------------------------

    async def _pause(self, error: ApiError) -> None:
        """Waits before the next attempt; raises the StoreError if no connection has lasted for SECONDS, or if no
        attempt will help."""
        was_open, since = self._block is not None, self._since
        await self.aclose()
        found = problem(error, self._purpose)
        if not isinstance(found, StoreUnreachable):
            raise found
        now = trio.current_time()
        if self._failing is None or (was_open and now - since >= ALIVE_SECONDS):
            self._failing = now
            self._pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        wanted = error.retry_after if isinstance(error, Busy) else 0.0
        if now - self._failing + wanted >= SECONDS:
            self._failing = None
            raise found
        await trio.sleep(max(next(self._pauses), wanted))
