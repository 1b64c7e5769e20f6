"""A watch of etcd that outlives its connections: it goes on after the last revision that it has handed out.

A connection that says nothing may be dead without a sign: the host is stopped, or a proxy has lost its other half. So
the kernel probes silent hosts (`hosts.SILENT_SECONDS`), and a quiet watch is begun anew about every minute. A watch
follows its gateway to another host as soon as calls have failed. What etcd sends in one answer are whole revisions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import trio

from shipper.fleet.etcd.answers import CertificateRefused, Line, Range, Watched, canceled, decoded, failed
from shipper.fleet.etcd.gateway import Call, Gateway
from shipper.fleet.etcd.hosts import Host
from shipper.fleet.etcd.http import Connection, TooLarge
from shipper.fleet.etcd.keys import Keys
from shipper.fleet.store import SECONDS, Change, Compacted, StoreError, StoreRefused, StoreUnreachable
from shipper.sdk.http_answer import NoAnswer
from shipper.sdk.retry import backoff

QUIET_SECONDS = (45.0, 75.0)
"""A watch that got nothing for so long is begun anew; at random, so that not all members do it together."""
LOOK_SECONDS = 5.0
"""Between two looks at which host the calls prefer."""
ALIVE_SECONDS = 1.0
"""A connection that lasts so long was no failed attempt."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


@dataclass(slots=True)
class _Feed:
    """An open connection of the watch."""

    host: Host
    connection: Connection
    since: float
    until: float
    """Begun anew then, unless something comes."""


class Watch:
    """Iterates over the changes after a revision; see `Store.watch`."""

    def __init__(self, gateway: Gateway, keys: Keys, prefix: str, after: int) -> None:
        self._gateway = gateway
        self._keys = keys
        self._prefix = prefix
        self._after = after
        self._purpose = f"watch {keys.shown(prefix)}"
        self._feed: _Feed | None = None
        self._seen: tuple[str, int] | None = None
        """The id of the cluster and its highest term."""
        self._failing: float | None = None
        self._pauses: Iterator[float] = backoff(FIRST_PAUSE, LONGEST_PAUSE)

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Sequence[Change]:
        while True:
            try:
                feed = self._feed or await self._open()
                line = await self._line(feed)
                changes = [] if line is None else self._changes(feed, line)
            except StoreUnreachable as error:
                await self._pause(error)
            except StoreError:
                await self.aclose()
                raise
            else:
                if line is None:
                    await self.aclose()
                    if trio.current_time() - feed.since < ALIVE_SECONDS:
                        await trio.sleep(next(self._pauses))
                if changes:
                    return changes

    async def aclose(self) -> None:
        """Ends the connection."""
        feed, self._feed = self._feed, None
        if feed is not None:
            await feed.connection.aclose()

    # -- a connection --------------------------------------------------------------------------------------------------

    async def _open(self) -> _Feed:
        host, share = self._gateway.preferred, self._gateway.share
        connection = None
        try:
            with trio.move_on_after(share):
                connection, answer = await self._begun(host)
                await self._check(answer)
                now = trio.current_time()
                self._feed = _Feed(host, connection, now, now + random.uniform(*QUIET_SECONDS))
                return self._feed
            self._gateway.leave(host)
            raise StoreUnreachable(f"{host}: {self._purpose}: no answer within {share:.1f} s")
        except StoreUnreachable:
            self._gateway.leave(host)
            raise
        except CertificateRefused as error:  # another host may not
            self._gateway.leave(host)
            raise StoreUnreachable(str(error)) from None
        finally:
            if connection is not None and self._feed is None:
                await connection.aclose()

    async def _begun(self, host: Host) -> tuple[Connection, Watched]:
        """Returns a connection and etcd's first answer; a token that was revoked is a lack of permission there."""
        token = await self._gateway.token(host)
        try:
            return await self._first(host)
        except StoreRefused:
            if token is None:
                raise
        await self._gateway.token(host, refused=token)
        return await self._first(host)

    async def _first(self, host: Host) -> tuple[Connection, Watched]:
        first, end = self._keys.range(self._prefix)
        create = {"key": first, "range_end": end, "start_revision": str(self._after + 1)}
        connection = await self._gateway.begun(host, Call("/v3/watch", {"create_request": create}, self._purpose))
        try:
            return connection, self._watched(await self._next(connection), str(host))
        except BaseException:
            await connection.aclose()
            raise

    async def _check(self, created: Watched) -> None:
        """Raises Compacted if this store is not a continuation of the one before: it was restored."""
        now = created.header.cluster_id, created.header.raft_term
        seen, self._seen = self._seen, now
        if seen is not None and (now[0] != seen[0] or now[1] < seen[1]):
            raise Compacted(f"{self._purpose}: this is another cluster, or one that was restored")
        if created.header.revision < self._after:  # restored, or a host that is behind
            first, end = self._keys.range(self._prefix)
            look = Call("/v3/kv/range", {"key": first, "range_end": end, "count_only": True}, self._purpose)
            found = await self._gateway.call(look, Range)
            if found.header.revision < self._after:
                raise Compacted(f"{self._purpose}: the store is older than revision {self._after}: it was restored")

    # -- what comes ----------------------------------------------------------------------------------------------------

    async def _line(self, feed: _Feed) -> bytes | None:
        """Returns the next line; None if the watch is to be begun anew."""
        while feed.host is self._gateway.preferred and trio.current_time() < feed.until:
            with trio.move_on_after(LOOK_SECONDS):
                line = await self._next(feed.connection)
                feed.until = trio.current_time() + random.uniform(*QUIET_SECONDS)
                return line
        return None

    async def _next(self, connection: Connection) -> bytes:
        try:
            return await connection.line()
        except TooLarge as error:
            raise Compacted(f"{error}, too many changes at once") from None
        except NoAnswer as error:
            raise StoreUnreachable(f"{error}: {self._purpose}") from None

    def _changes(self, feed: _Feed, line: bytes) -> list[Change]:
        watched = self._watched(line, str(feed.host))
        changes = [
            self._keys.change(event.kv, removed=event.type == "DELETE")
            for event in watched.events
            if event.kv.mod_revision > self._after
        ]
        if changes:
            self._after = changes[-1].at
        return changes

    def _watched(self, line: bytes, host: str) -> Watched:
        answer = decoded(line, Line, host)
        if answer.result is None:
            raise failed(bytes(answer.error), host, 200, self._purpose)
        watched = answer.result
        if watched.compact_revision:
            raise Compacted(f"{host}: {self._purpose}: compacted up to revision {watched.compact_revision}")
        if watched.canceled:
            raise canceled(watched.cancel_reason, host, self._purpose)
        return watched

    # -- failures ------------------------------------------------------------------------------------------------------

    async def _pause(self, error: StoreUnreachable) -> None:
        """Waits before the next attempt; raises the error if no connection has lasted for SECONDS."""
        now = trio.current_time()
        feed = self._feed
        await self.aclose()
        if feed is not None:
            self._gateway.leave(feed.host)
        if self._failing is None or (feed is not None and now - feed.since >= ALIVE_SECONDS):
            self._failing = now
            self._pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        if now - self._failing >= SECONDS:
            self._failing = None
            raise error
        await trio.sleep(next(self._pauses))
