"""Revocations under way: released credentials for which `on_release` runs, or waits for its next attempt.

Without such a command a released credential is only reported, and forgotten.

A backend ends a credential by its name. So one with the name of another that is in use (the old password of a user, a
key that came again) is not revoked, but *waits*, until the other one is released:

    ann:old  released ── waits for ann:new                 ── revoked
    ann:new  in use ──────────────────── released ── revoked

Nothing of this is stored: the ledger has what is released and what is in use, so that the next process decides the
same. Of those that wait in one place, the newest stands for all: a password that changes each day leaves one of them.
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
        *,
        used_as: Callable[[Kept], str] = lambda kept: "",
        covered: Callable[[str], None] = lambda id: None,
    ) -> None:
        """`done(id)` stores that a credential is revoked; `troubles` and `say` get the failures meanwhile.

        `used_as(kept)` returns the id of the credential in use that ends with this one, empty without any; `covered` is
        called with the id of a credential that waits, and that the revocation of a newer one ends, too.
        """
        self._config = config
        self._revoker = Revoker(config, environment, self._failed, self._may) if config is not None else None
        self._troubles, self._say, self._done = troubles, say, done
        self._used_as, self._covered = used_as, covered
        self._under_way: set[str] = set()
        self._waiting: dict[str, tuple[Kept, str]] = {}
        """Those that wait, each with the id that it waits for."""
        self._fewer = trio.Event()

    @property
    def waiting(self) -> dict[str, str]:
        """Returns the credentials that wait, each with the id that it waits for."""
        return {id: used for id, (_, used) in self._waiting.items()}

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
        """Whether no credential in use ends with this one; else it waits, which is reported once."""
        used = self._used_as(kept)
        if not used:
            return True
        if self.waiting.get(kept.id) != used:
            for older in [one for one, _ in self._waiting.values() if _covers(kept, one)]:
                del self._waiting[older.id]
                self._covered(older.id)
            self._waiting[kept.id] = kept, used
            self._say("release_waits", credential=kept.id, name=kept.name, sources=kept.sources, used=used)
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
