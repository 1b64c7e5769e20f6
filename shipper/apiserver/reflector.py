"""Follows the objects of one kind for ever, through whatever happens to connections and servers.

    all objects ──> watch after `seen` ──┬─ ended, broken, or silent ──> watch after `seen` again
         ^                               ├─ 410 Gone ─────────────┐
         └──────────── a gap ────────────┴─ the server is behind ─┘

All objects come first in the watch itself (`sendInitialEvents`); of a server that does not know that, they are listed.
Both are quorum reads. What was missed in a gap is told as the changes that lead to the newest state (`reflection`).

A watch of a version that the server does not have yet is silent: an etcd that was restored from a copy goes on from an
older one. So each time when a watch is begun anew, the version of a list is asked for beside it, and an older one than
was seen is a gap. A quiet resource has a watch that says nothing, too, and is watched anew about each minute.

There is no pause before the first attempt after a good watch, or for a gap, and then one that grows. Events are handed
over in the moment in which they are read, so what is not read yet waits in the connection, not here.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from itertools import chain, repeat

import trio

from shipper.apiserver.client import Client
from shipper.apiserver.errors import ApiError, Busy, Forbidden, Gone, Invalid, Unauthorized
from shipper.apiserver.objects import Event, Kind, Object, name, version
from shipper.apiserver.reflection import Reflection
from shipper.apiserver.versions import is_older
from shipper.apiserver.watching import Silent
from shipper.process.environment import REAL, Environment
from shipper.sdk.retry import backoff

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
GOOD_SECONDS = 5.0
"""A watch that lasts so long, or that brings a change, was no failed attempt."""
INITIAL_SECONDS = 30.0
"""For all objects in a watch; a server that ignores the wish for them never says that they are complete."""
LIST_SECONDS = 60.0
_COUNT = re.compile(r"(?<=have not been seen) for [0-9]+ s(?=: )")


class Reflector:
    """Follows the objects that the selectors select; `run` it in a nursery.

    `heed` is called once for each change, in order, without a wait in between: it must not block, and what it raises
    ends `run`. `trouble` gets a sentence for each failed attempt, with the time since the first one, and None when it
    is over. `caught_up` is told each version up to which everything was handed over: of lists and of bookmarks.
    `refused` is told each attempt that fails for lack of a right, before `trouble` is. With `metadata_only` objects
    have nothing but their metadata, and no content of a Secret comes here.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        heed: Callable[[Event], None],
        trouble: Callable[[str | None], None],
        caught_up: Callable[[str], None] = lambda version: None,
        refused: Callable[[ApiError], None] = lambda error: None,
        environment: Environment = REAL,
    ) -> None:
        self._client, self._kind, self._namespace = client, kind, namespace
        self._labels, self._fields, self._metadata_only = labels, fields, metadata_only
        self._heed, self._trouble, self._caught_up, self._refused = heed, trouble, caught_up, refused
        self._environment = environment
        self._reflection = Reflection()
        self._synced = trio.Event()
        self._has_gap = True
        self._can_stream = True
        """Whether the server gives all objects in a watch."""
        self._failing: float | None = None
        """Since when attempts fail."""
        self._changes = 0
        """How many were handed over, but for those of lists."""
        self._is_new = False
        """Whether no watch has been good since the last list."""
        self._pauses = self._new_pauses()
        self._short = self._new_short()
        """Pauses after watches that brought a change, and were short."""

    @property
    def objects(self) -> Mapping[str, Object]:
        """The objects by name, as far as they were seen; complete after `synced`."""
        return self._reflection.objects

    @property
    def seen(self) -> str:
        """The newest version of an event, a bookmark or a list."""
        return self._reflection.seen

    async def synced(self) -> None:
        """Returns when all objects were handed over once."""
        await self._synced.wait()

    async def run(self) -> None:
        """Follows until it is cancelled."""
        while True:
            began, changes, wanted = trio.current_time(), self._changes, 0.0
            had_gap = self._has_gap
            try:
                await (self._begin() if self._has_gap else self._go_on())
            except Gone:
                self._has_gap = True
            except Silent:
                pass
            except ApiError as error:
                self._complain(error)
                wanted = error.retry_after if isinstance(error, Busy) else 0.0
            is_long = trio.current_time() - began >= GOOD_SECONDS
            if is_long:
                self._short = self._new_short()
            if is_long or self._changes > changes:
                self._is_new = False
                self._pauses = self._new_pauses(0.0 if is_long else next(self._short))
            elif self._has_gap and not had_gap and not self._is_new:
                self._pauses = self._new_pauses()
            await trio.sleep(max(next(self._pauses), wanted))

    def _new_pauses(self, first: float = 0.0) -> Iterator[float]:
        return chain([first], backoff(FIRST_PAUSE, LONGEST_PAUSE, draw=self._environment.draw))

    def _new_short(self) -> Iterator[float]:
        """A server may end each watch after a change, and there may be one all the time."""
        return chain([0.0], repeat(FIRST_PAUSE))

    # -- all objects ---------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        if self._can_stream:
            try:
                await self._begin_by_watch()
            except _CannotStream:
                self._can_stream = False
            else:
                return
        found = await self._client.list(
            self._kind,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            metadata_only=self._metadata_only,
            seconds=LIST_SECONDS,
        )
        self._take_all(found.items, found.version)
        async with self._watch(after=self.seen) as events:
            await self._follow(events)

    async def _begin_by_watch(self) -> None:
        objects: dict[str, Object] = {}
        at = None
        try:
            with trio.move_on_after(INITIAL_SECONDS) as scope:
                async with self._watch(after="", initial=True) as events:
                    async for event in events:
                        if event.type == "SYNCED":
                            at = version(event.object)
                            break
                        _collect(objects, event)
                    if at is not None:
                        scope.deadline = float("inf")
                        self._take_all(objects.values(), at)
                        await self._follow(events)
        except ApiError as error:
            if at is None and (isinstance(error, Invalid) or error.status == 500):
                raise _CannotStream from None
            raise
        if at is None:
            raise _CannotStream

    def _take_all(self, items: Iterable[Object], at: str) -> None:
        self._has_gap = False
        for change in self._reflection.relisted(items, at):
            self._heed(change)
        self._is_new = True
        self._recover()
        self._synced.set()
        self._caught_up(at)

    # -- changes -------------------------------------------------------------------------------------------------------

    async def _go_on(self) -> None:
        failed: list[ApiError] = []
        async with self._watch(after=self.seen) as events, trio.open_nursery() as nursery:
            nursery.start_soon(self._check, nursery.cancel_scope)
            try:
                await self._follow(events)
            except ApiError as error:
                failed.append(error)
            nursery.cancel_scope.cancel("the watch has ended")
        if failed:
            raise failed[0]

    async def _follow(self, events: AsyncIterator[Event]) -> None:
        async for event in events:
            if event.type == "SYNCED":
                self._reflection.caught_up(version(event.object))
                self._caught_up(version(event.object))
            else:
                for change in self._reflection.take(event):
                    self._changes += 1
                    self._heed(change)
            self._recover()

    async def _check(self, watch: trio.CancelScope) -> None:
        """Ends the watch if the server is behind what was seen."""
        with suppress(ApiError):  # the watch itself says what is wrong, or the next one is checked
            seen = self.seen
            there = await self._client.version(self._kind, namespace=self._namespace, fields=self._fields)
            self._recover()
            if is_older(there, seen):
                self._has_gap = True
                watch.cancel("the server is behind what was seen")

    def _watch(self, *, after: str, initial: bool = False) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        return self._client.watch(
            self._kind,
            after=after,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            metadata_only=self._metadata_only,
            initial=initial,
        )

    # -- troubles ------------------------------------------------------------------------------------------------------

    @property
    def _what(self) -> str:
        selected = f" ({', '.join(filter(None, (self._labels, self._fields)))})" if self._labels or self._fields else ""
        return f"{self._kind.plural}{selected} in namespace {self._namespace or self._client.namespace}"

    def _complain(self, error: ApiError) -> None:
        if isinstance(error, Forbidden | Unauthorized):
            self._refused(error)
        now = trio.current_time()
        self._failing = now if self._failing is None else self._failing
        self._trouble(f"changes of {self._what} have not been seen for {now - self._failing:.0f} s: {error}")

    def _recover(self) -> None:
        if self._failing is not None:
            self._failing = None
            self._trouble(None)


def uncounted(trouble: str) -> str:
    """Returns a trouble without the time since its first attempt: the same text as long as the cause is the same."""
    return _COUNT.sub("", trouble)


class _CannotStream(Exception):
    """The server does not give all objects in a watch."""


def _collect(objects: dict[str, Object], event: Event) -> None:
    """Takes an event before all objects are there: changes may come among them."""
    if event.type == "DELETED":
        objects.pop(name(event.object), None)
    else:
        objects[name(event.object)] = event.object
