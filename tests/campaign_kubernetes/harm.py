"""What happens to members, to their way to the API server, to the API server and to etcd."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random

import trio

from shipper.testing import Reply
from tests.campaign_kubernetes.member import Member
from tests.campaign_kubernetes.stage import LEASE, Stage

POLICIES = "shipperpolicies"
MEMBERS = "shippermembers"
Deed = Callable[[], Awaitable[None]]


class _Nobody(Exception):
    """Something is done to each member already."""


class Harm:
    """Of all kinds; what it does ends by itself."""

    def __init__(self, stage: Stage, chance: Random, done: Counter[str]) -> None:
        self.stage, self.done = stage, done
        self._chance = chance
        self.story: list[str] = []
        """What was done, for people, with instants of CLOCK_MONOTONIC."""
        self._slow: dict[str, Reply] = {}
        stage.destination.script = lambda request, documents: self._slow.get(_member(request.path))

    @property
    def kinds(self) -> list[tuple[int, Deed]]:
        """What is done, with weights."""
        return [
            (3, self._kill_member),
            (2, self._kill_supervisor),
            (2, self._kill_sidecar),
            (1, self._restart_member),
            (2, self._stop_member),
            (2, self._stop_supervisor),
            (3, self._delay_watches),
            (2, self._silence_watches),
            (2, self._silence_all),
            (2, self._cut),
            (2, self._refuse),
            (3, self._lose_answers),
            (1, self._throttle),
            (2, self._expire),
            (2, self._slow_destination),
            (1, self._compact),
        ]

    @asynccontextmanager
    async def _one(self, what: str) -> AsyncIterator[Member]:
        """A member to which nothing else is done; raises _Nobody."""
        free = [one for one in self.stage.members if not one.lock.locked() and one.is_running()]
        if not free:
            raise _Nobody
        one = self._chance.choice(free)
        async with one.lock:
            self.done[what] += 1
            one.doing = what
            began = time.monotonic()
            yield one
            one.doing = f"runs, after: {what}"
            self._tell(began, f"{what}: {one.name}")

    def _tell(self, began: float, what: str) -> None:
        self.story.append(f"{began:.3f} to {time.monotonic():.3f}: {what}")

    async def _pause(self, longest: float = LEASE) -> None:
        await trio.sleep(self._chance.choice((0.0, self._chance.uniform(0, 1), self._chance.uniform(0, longest))))

    # -- members -------------------------------------------------------------------------------------------------------

    async def _kill_member(self) -> None:
        with suppress(_Nobody):
            async with self._one("members killed") as member:
                member.kill()
                await self._pause()
                member.start()

    async def _kill_supervisor(self) -> None:
        with suppress(_Nobody):
            async with self._one("supervisors killed") as member:
                member.kill_supervisor()
                await self._pause()
                member.start()

    async def _kill_sidecar(self) -> None:
        with suppress(_Nobody):
            async with self._one("sidecars killed") as member:
                member.signal_sidecar(signal.SIGKILL)

    async def _restart_member(self) -> None:
        with suppress(_Nobody):
            async with self._one("members restarted in order") as member:
                member.end()
                await trio.to_thread.run_sync(member.ended)
                await self._pause(1.0)
                member.start()

    async def _stop_member(self) -> None:
        with suppress(_Nobody):
            async with self._one("members stopped") as member:
                member.pause()
                await self._pause()
                member.go_on()

    async def _stop_supervisor(self) -> None:
        with suppress(_Nobody):
            async with self._one("supervisors stopped") as member:
                member.signal_supervisor(signal.SIGSTOP)
                await self._pause()
                member.signal_supervisor(signal.SIGCONT)

    # -- the way to the server -----------------------------------------------------------------------------------------

    async def _delay_watches(self) -> None:
        with suppress(_Nobody):
            async with self._one("watches delayed") as member:
                with member.proxy.delay(self._chance.choice((0.05, 0.3, 1.5))):
                    await self._pause()

    async def _silence_watches(self) -> None:
        with suppress(_Nobody):
            async with self._one("watches silent") as member:
                with member.proxy.silence(watch=True):
                    await self._pause(1.5 * LEASE)

    async def _silence_all(self) -> None:
        with suppress(_Nobody):
            async with self._one("silent ways") as member:
                with member.proxy.silence():
                    await self._pause(1.5 * LEASE)
                    member.proxy.cut()

    async def _cut(self) -> None:
        with suppress(_Nobody):
            async with self._one("ways cut") as member:
                member.proxy.cut()

    async def _refuse(self) -> None:
        with suppress(_Nobody):
            async with self._one("members without a way") as member:
                with member.proxy.refuse():
                    await self._pause(1.5 * LEASE)

    async def _lose_answers(self) -> None:
        with suppress(_Nobody):
            async with self._one("answers lost") as member:
                path = self._chance.choice((POLICIES, MEMBERS, "leases", ""))
                with member.proxy.lose_answers(times=self._chance.randrange(1, 4), watch=False, path=path):
                    await self._pause()

    async def _throttle(self) -> None:
        with suppress(_Nobody):
            async with self._one("429 answered") as member:
                with member.proxy.throttle(1, times=self._chance.randrange(1, 4)):
                    await self._pause()

    async def _expire(self) -> None:
        with suppress(_Nobody):
            async with self._one("watches expired") as member:
                self.done["410 in watches"] += member.proxy.expire_watches()
                with member.proxy.gone_in_stream(times=1):
                    await self._pause(1.0)

    # -- the destination, the server, etcd -----------------------------------------------------------------------------

    async def _slow_destination(self) -> None:
        name = self._chance.choice(self.stage.members).name
        if name in self._slow:
            return
        self.done["slow destinations"] += 1
        reply = self._chance.choice((Reply(delay=0.3), Reply(delay=1.5), Reply(status=503)))
        self._slow = {**self._slow, name: reply}
        await self._pause()
        self._slow = {one: how for one, how in self._slow.items() if one != name}

    async def _compact(self) -> None:
        async with self.stage.of_etcd:
            self.done["compactions"] += 1
            with suppress(OSError):
                await trio.to_thread.run_sync(self.stage.kubernetes.compact)

    async def restart_server(self) -> None:
        """The API server is killed, and comes back; it remembers no history."""
        async with self.stage.of_server:
            self.done["API servers killed"] += 1
            began = time.monotonic()
            await trio.to_thread.run_sync(self.stage.kubernetes.kill)
            await self._pause(LEASE)
            await trio.to_thread.run_sync(self.stage.kubernetes.start)
            self._tell(began, "API server killed")

    async def restart_etcd(self) -> None:
        """As kill -9 of etcd; the API server stays."""
        async with self.stage.of_server, self.stage.of_etcd:
            self.done["etcd killed"] += 1
            began = time.monotonic()
            await trio.to_thread.run_sync(self.stage.kubernetes.etcd.kill)
            await self._pause(LEASE)
            await trio.to_thread.run_sync(self.stage.kubernetes.start_etcd)
            self._tell(began, "etcd killed")


def _member(path: str) -> str:
    """The member that uses a path of the destination: `/POLICY-web-N/_bulk`."""
    index = path.strip("/").partition("/")[0]
    return index.partition("-")[2]
