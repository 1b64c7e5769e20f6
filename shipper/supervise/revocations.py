"""Revocations under way: released credentials for which `on_release` runs, or waits for its next attempt.

Without such a command a released credential is only reported, and forgotten.

A released credential may have to *wait* for another one, and says for which (`ledger.Wait`). A backend ends a
credential by its name: so one with the name of another that is in use (the old password of a user, a key that came
again) waits until the other one is released. And a wrong new credential must leave a way back: so the old one waits
until a destination has accepted the new one.

    ann:old  released ── waits for ann:new                 ── revoked
    ann:new  in use ──────────────────── released ── revoked

    id1  released ── waits for id2       ── revoked
    id2  in use ────────────── accepted

Nothing of this is stored: the ledger has what is released and what is in use, so that the next process decides the
same. Of those that wait in one place, the newest stands for all: a password that changes each day leaves one of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from shipper.supervise.config import OnRelease
from shipper.supervise.ledger import Kept, Wait
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
        *,
        waits_for: Callable[[Kept], Wait | None] = lambda kept: None,
        covered: Callable[[str], None] = lambda id: None,
    ) -> None:
        """`done(id)` stores that a credential is revoked; `troubles` and `say` get the failures meanwhile.

        `waits_for(kept)` returns what a credential waits for, None for nothing; `covered` is called with the id of a
        credential that waits, and that the revocation of a newer one ends, too.
        """
        self._config = config
        self._revoker = Revoker(config, environment, self._failed, self._may) if config is not None else None
        self._troubles, self._say, self._done = troubles, say, done
        self._waits_for, self._covered = waits_for, covered
        self._under_way: set[str] = set()
        self._waiting: dict[str, tuple[Kept, Wait]] = {}
        """Those that wait, each with what it waits for."""
        self._fewer = trio.Event()

    @property
    def waiting(self) -> dict[str, Wait]:
        """Returns the credentials that wait, each with what it waits for."""
        return {id: wait for id, (_, wait) in self._waiting.items()}

    def begin(self, nursery: trio.Nursery, kept: Kept, *, again: bool = False) -> None:
        """Reports a released credential, unless `again`, and revokes it, with retries until it succeeds.

        A revocation under way is not begun twice. After a cancel the next process begins it again. One that waits is
        reported as that, and begins with a later call.
        """
        if kept.id in self._under_way or not self._may(kept):
            return
        self._waiting.pop(kept.id, None)
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
        is_revoked = self._revoker is None or await self._revoker.revoke(kept)
        self._troubles.over(unrevoked(kept.id))
        if is_revoked:
            await self._done(kept.id)
        if is_revoked and self._revoker is not None:
            self._say("revoked", credential=kept.id, name=kept.name)
        self._under_way.discard(kept.id)
        self._fewer.set()

    def _may(self, kept: Kept) -> bool:
        """Whether a credential waits for nothing; else that is reported once."""
        wait = self._waits_for(kept)
        if wait is None:
            return True
        if self.waiting.get(kept.id) != wait:
            for older in [one for one, _ in self._waiting.values() if _covers(kept, one)]:
                del self._waiting[older.id]
                self._covered(older.id)
            self._waiting[kept.id] = kept, wait
            fields = {"name": kept.name, "sources": kept.sources, "used": wait.id, "until": wait.until}
            self._say("release_waits", credential=kept.id, **fields)
        return False

    def _failed(self, id: str, reason: str, seconds: float) -> None:
        self._troubles.begin(unrevoked(id), [reason], kind="on_release")
        self._say("revoke_failed", state="DEGRADED", credential=id, reason=reason, seconds=seconds)


def _covers(newer: Kept, older: Kept) -> bool:
    """Whether a command that revokes one credential gets all that it would get for another."""
    return (
        newer.id != older.id
        and newer.known_as == older.known_as
        and {*newer.sources} >= {*older.sources}
        and {*newer.units} >= {*older.units}
    )
