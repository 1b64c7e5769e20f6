"""The watches of a member: policies, each Secret that they refer to, and its own ShipperMember.

They begin when the machine wants it (`Standing.follows`), after this process has said what it uses. A Secret is watched
as long as a policy refers to it, by its name, so that the right to it can be granted by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from shipper.apiserver.client import Client
from shipper.apiserver.errors import ApiError
from shipper.apiserver.objects import SECRETS, Event
from shipper.apiserver.reflector import Reflector
from shipper.kubernetes.kinds import MEMBERS, POLICIES
from shipper.kubernetes.member.machine import Member
from shipper.kubernetes.membership.troubles import Troubles
from shipper.process.environment import Environment

MOST_SECRETS = 100
"""Each has a connection of its own."""
REFUSED_SECONDS = 5.0
"""For which the right to a Secret that was read before may be missing: a server that starts does not know it yet."""


@dataclass(slots=True)
class _Secret:
    """The watch of a Secret."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    reflector: Reflector | None = None
    is_denied: bool = False
    refused_since: float | None = None


class Following:
    """`run` it once, beside the task that performs the member's steps; `look` after each of them."""

    def __init__(
        self, client: Client, member: Member, troubles: Troubles, environment: Environment, *, wake: Callable[[], None]
    ) -> None:
        """`wake` is called after each event for the member."""
        self._client, self._member, self._troubles, self._wake = client, member, troubles, wake
        self._environment, self._clock = environment, environment.boottime
        self._secrets: dict[str, _Secret] = {}
        self._refused: frozenset[str] = frozenset()
        self._looked = trio.Event()

    @property
    def watched(self) -> list[str]:
        """The names of the Secrets that are watched now."""
        return sorted(self._secrets)

    def look(self) -> None:
        """Begins and ends watches as the machine wants it now."""
        self._looked.set()

    async def run(self) -> None:
        """Watches for ever."""
        async with trio.open_nursery() as nursery:
            while not self._member.standing.follows:
                await self._next()
            nursery.start_soon(self._policies)
            nursery.start_soon(self._own)
            while True:
                self._update(nursery)
                await self._next()

    async def _next(self) -> None:
        await self._looked.wait()
        self._looked = trio.Event()

    def _update(self, nursery: trio.Nursery) -> None:
        """Ends the watches of Secrets to which nothing refers any more, and begins the others."""
        wanted = self._member.running.secrets
        for name in [*self._secrets]:
            if name not in wanted:
                self._secrets.pop(name).scope.cancel("no policy refers to this Secret")
                self._member.running.unwatched(name)
        new = sorted(wanted - self._secrets.keys())
        room = MOST_SECRETS - len(self._secrets)
        for name in new[:room]:
            self._member.running.unwatched(name)  # a read may have found it before
            self._secrets[name] = one = _Secret()
            nursery.start_soon(self._secret, name, one)
        self._refuse(frozenset(new[room:]))

    def _refuse(self, names: frozenset[str]) -> None:
        for name in sorted(names - self._refused):
            self._member.running.denied(
                name, f"a member watches at most {MOST_SECRETS} Secrets; use fewer in its policies"
            )
            self._wake()
        self._refused = names

    async def _policies(self) -> None:
        def heed(event: Event) -> None:
            self._member.running.saw_policy(event)
            self._wake()

        def trouble(message: str | None) -> None:
            self._troubles.watch("policies", message)

        await Reflector(self._client, POLICIES, heed=heed, trouble=trouble, environment=self._environment).run()

    async def _own(self) -> None:
        def heed(event: Event) -> None:
            self._member.saw_own(event, now=self._clock())
            self._wake()

        def caught_up(version: str) -> None:
            self._member.caught_up(version)
            self._wake()

        def trouble(message: str | None) -> None:
            self._troubles.watch("own", message)

        await Reflector(
            self._client,
            MEMBERS,
            fields=f"metadata.name={self._member.terms.name}",
            heed=heed,
            trouble=trouble,
            caught_up=caught_up,
            environment=self._environment,
        ).run()

    async def _secret(self, name: str, one: _Secret) -> None:
        def heed(event: Event) -> None:
            if self._secrets.get(name) is one:
                one.is_denied = False
                self._member.running.saw_secret(name, event)
                self._wake()

        def refused(error: ApiError) -> None:
            now = self._clock()
            one.refused_since = now if one.refused_since is None else one.refused_since
            was_read = one.reflector is not None and one.reflector.seen
            if was_read and now < one.refused_since + REFUSED_SECONDS:
                return
            one.is_denied = True
            self._member.running.denied(name, str(error))
            self._wake()

        def trouble(message: str | None) -> None:
            if message is None:
                one.refused_since = None
            if message is None and one.is_denied:
                self._again(one, heed)
            self._troubles.watch(f"secret {name}", None if one.is_denied else message)

        with one.scope:
            one.reflector = Reflector(
                self._client,
                SECRETS,
                fields=f"metadata.name={name}",
                heed=heed,
                trouble=trouble,
                refused=refused,
                environment=self._environment,
            )
            await one.reflector.run()
        self._troubles.watch(f"secret {name}", None)

    def _again(self, one: _Secret, heed: Callable[[Event], None]) -> None:
        """Tells what is there after a right was missing for a while, which need not have changed meanwhile."""
        if one.reflector is None:
            return
        for found in one.reflector.objects.values():
            heed(Event("MODIFIED", found))
        heed(Event("SYNCED", {"metadata": {"resourceVersion": one.reflector.seen}}))
