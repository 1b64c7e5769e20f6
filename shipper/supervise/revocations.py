"""The revocations under way: released credentials for which `on_release` runs, or waits for its next attempt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from shipper.supervise.config import OnRelease
from shipper.supervise.ledger import Kept
from shipper.supervise.revoke import Revoker
from shipper.supervise.standing import Troubles, unrevoked


class Revocations:
    """They share one `Revoker`, and so its limit of commands at a time."""

    def __init__(
        self,
        config: OnRelease,
        environment: Callable[[], Mapping[str, str]],
        troubles: Troubles,
        say: Callable[..., None],
        done: Callable[[str], Awaitable[None]],
    ) -> None:
        """`done(id)` makes durable that a credential is revoked; the others are told of what fails meanwhile."""
        self._revoker = Revoker(config, environment, self._failed)
        self._troubles, self._say, self._done = troubles, say, done
        self._under_way = 0
        self._fewer = trio.Event()

    def begin(self, nursery: trio.Nursery, kept: Kept) -> None:
        """Revoke a credential, however long it takes; cancelled, it is begun again by the next process."""
        self._under_way += 1
        nursery.start_soon(self._revoke, kept)

    async def ended(self) -> None:
        """Wait until none is under way."""
        while self._under_way:
            self._fewer = trio.Event()
            await self._fewer.wait()

    async def _revoke(self, kept: Kept) -> None:
        await self._revoker.revoke(kept)
        self._troubles.over(unrevoked(kept.id))
        await self._done(kept.id)
        self._under_way -= 1
        self._fewer.set()

    def _failed(self, id: str, reason: str, seconds: float) -> None:
        self._troubles.begin(unrevoked(id), [reason], kind="on_release")
        self._say("revoke_failed", state="DEGRADED", credential=id, reason=reason, seconds=seconds)
