"""Revocations under way: released credentials for which `on_release` runs, or waits for its next attempt.

Without such a command a released credential is only reported, and forgotten.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from shipper.supervise.config import OnRelease
from shipper.supervise.ledger import Kept
from shipper.supervise.revoke import Revoker
from shipper.supervise.standing import Everywhere, Troubles, unrevoked


class Revocations:
    """Revokes credentials with one `Revoker`, and so with its limit of commands at a time; each credential once at a
    time."""

    def __init__(
        self,
        config: OnRelease | None,
        environment: Callable[[], Mapping[str, str]],
        troubles: Troubles | Everywhere,
        say: Callable[..., None],
        done: Callable[[str], Awaitable[None]],
    ) -> None:
        """`done(id)` stores that a credential is revoked; `troubles` and `say` get the failures meanwhile."""
        self._revoker = Revoker(config, environment, self._failed) if config is not None else None
        self._troubles, self._say, self._done = troubles, say, done
        self._under_way: set[str] = set()
        self._fewer = trio.Event()

    def begin(self, nursery: trio.Nursery, kept: Kept, *, again: bool = False) -> None:
        """Reports a released credential, unless `again`, and revokes it, with retries until it succeeds.

        A revocation under way is not begun twice. After a cancel the next process begins it again.
        """
        if kept.id in self._under_way:
            return
        if not again:
            self._say("released", credential=kept.id, name=kept.name, sources=kept.sources)
        self._under_way.add(kept.id)
        nursery.start_soon(self._revoke, kept)

    async def ended(self) -> None:
        """Waits until none is under way."""
        while self._under_way:
            self._fewer = trio.Event()
            await self._fewer.wait()

    async def _revoke(self, kept: Kept) -> None:
        if self._revoker is not None:
            await self._revoker.revoke(kept)
            self._troubles.over(unrevoked(kept.id))
        await self._done(kept.id)
        if self._revoker is not None:
            self._say("revoked", credential=kept.id, name=kept.name)
        self._under_way.discard(kept.id)
        self._fewer.set()

    def _failed(self, id: str, reason: str, seconds: float) -> None:
        self._troubles.begin(unrevoked(id), [reason], kind="on_release")
        self._say("revoke_failed", state="DEGRADED", credential=id, reason=reason, seconds=seconds)
