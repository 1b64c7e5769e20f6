"""Which of several hosts gets the next request: they take turns; one that fails is left out until a probe succeeds.

    in ── a request fails ──> out ── a probe is answered, or a request ──> in

While some host is in, only those that are in get requests. Without any, each attempt asks all of them, the one that
failed longest ago first; then the lane waits longer and longer between two attempts. A single host is always in.

A probe is a request that carries no event. The first comes after a second at most, and the wait doubles with each that
fails, up to `PROBE_LONGEST`. A host whose probes succeed but whose requests fail goes on with longer waits: only an
answered request makes them short again. `Rotation` decides, without I/O; `Probes` asks.

All of this lives as long as the client of a lane. That of an active lane outlives failures of the destination
(`Feeding.client`), that of a lane that drains does not. So each opening begins at another host: otherwise a bad one
would get the first request of each attempt, and the drain would never end.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count

import trio

from shipper.plugin import Code, Later, NotBegun, OutputContext, backoff
from shipper.sdk.http_answer import address

PROBE_FIRST, PROBE_LONGEST = 1.0, 30.0
PROBE_SECONDS = 10.0
"""Of one probe; a host that takes longer is not answering."""

_log = logging.getLogger(__name__)
_beginnings = count()


class Rotation:
    """The turns of hosts, and those that are out."""

    def __init__(self, hosts: Sequence[str], first: int = 0) -> None:
        self._hosts = hosts
        self._turn = first
        self._out: dict[str, None] = {}
        """In the order in which they failed."""
        self._failures: dict[str, int] = {}
        """How often a host was taken out since it answered a request."""

    def order(self) -> list[str]:
        """Returns the hosts for the next request, the first choice first."""
        self._turn = (self._turn + 1) % len(self._hosts)
        turned = [*self._hosts[self._turn :], *self._hosts[: self._turn]]
        return [host for host in turned if host not in self._out] or list(self._out)

    @property
    def out(self) -> Sequence[str]:
        """The hosts that get no requests, the one that failed longest ago first."""
        return tuple(self._out)

    def failed(self, host: str) -> bool:
        """Takes a host out, or to the end of those that are; returns whether it was in."""
        if len(self._hosts) == 1:
            return False
        was_in = host not in self._out
        self._out.pop(host, None)
        self._out[host] = None
        self._failures[host] = self._failures.get(host, 0) + was_in
        return was_in

    def probed(self, host: str) -> None:
        """Takes a host in that answered a probe."""
        self._out.pop(host, None)

    def answered(self, host: str) -> None:
        """Takes a host in that answered a request."""
        self._out.pop(host, None)
        self._failures.pop(host, None)

    def first_wait(self, host: str) -> float:
        """Returns the longest wait before its next first probe, in seconds."""
        return min(PROBE_FIRST * (1 << min(self._failures.get(host, 1) - 1, 16)), PROBE_LONGEST)


class Probes:
    """Asks the hosts that are out, each in a task of its own, until it answers."""

    def __init__(
        self,
        rotation: Rotation,
        ask: Callable[[str], Awaitable[object]],
        context: OutputContext,
        nursery: trio.Nursery | None,
    ) -> None:
        self._rotation, self._ask, self._context, self._nursery = rotation, ask, context, nursery
        self._asked = set[str]()
        self._one = trio.CapacityLimiter(1)
        self._late: dict[str, str] = {}
        """Why hosts are out that did not answer their first probe."""

    def failed(self, host: str, why: Later) -> None:
        """Takes a host out, and begins to probe it; `why` has no text of the host."""
        if self._rotation.failed(host):
            text = "output %s: %s gets no requests until it answers a probe: %s"
            _log.warning(text, self._name, address(host), str(why))  # a record may live longer than the request
        if self._nursery is not None and host not in self._asked and host in self._rotation.out:
            self._asked.add(host)
            self._nursery.start_soon(self._until_it_answers, host)

    def answered(self, host: str) -> None:
        """Takes a host in that answered a request."""
        self._rotation.answered(host)

    async def _until_it_answers(self, host: str) -> None:
        try:
            for seconds in backoff(self._rotation.first_wait(host), PROBE_LONGEST):
                await trio.sleep(seconds)
                if host not in self._rotation.out or await self._is_answered(host):
                    break
            self._rotation.probed(host)
            _log.info("output %s: %s gets requests again", self._name, address(host))
        finally:
            self._asked.discard(host)
            self._note(host, None)

    async def _is_answered(self, host: str) -> bool:
        why = f"{address(host)}: no answer within {PROBE_SECONDS:g}s"
        try:
            async with self._one:
                with trio.move_on_after(PROBE_SECONDS):
                    await self._ask(host)
                    return True
        except NotBegun:
            return False
        except Later as error:
            why = str(error)
        self._note(host, why)
        return False

    def _note(self, host: str, why: str | None) -> None:
        self._late.pop(host, None)
        if why is not None:
            self._late[host] = why
        if self._late:
            self._context.notice(f"hosts that get no requests: {'; '.join(self._late.values())}", Code.UNAVAILABLE)
        else:
            self._context.notice(None, Code.OK)

    @property
    def _name(self) -> str:
        return self._context.name


@asynccontextmanager
async def probing(
    hosts: Sequence[str], ask: Callable[[str], Awaitable[object]], context: OutputContext
) -> AsyncIterator[tuple[Rotation, Probes]]:
    """The turns of these hosts, and their probes, which end with the block.

    `ask` sends a probe to a host; it raises Later or NotBegun if the host is not to get requests.
    """
    rotation = Rotation(hosts, next(_beginnings) % len(hosts))
    if len(hosts) == 1:
        yield rotation, Probes(rotation, ask, context, None)
        return
    async with trio.open_nursery() as nursery:
        yield rotation, Probes(rotation, ask, context, nursery)
        nursery.cancel_scope.cancel()
