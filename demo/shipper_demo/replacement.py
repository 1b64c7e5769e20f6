"""The replacement of the key that the fleet shares, from its publish to the old key's revocation. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from shipper_demo.key import Key
from shipper_demo.process import Said
from shipper_demo.revoking import Wish
from shipper_demo.waits import Waits


@dataclass(slots=True)
class Replacement:
    """Moments are `trio.current_time()`, and None as long as it has not happened."""

    old: Key
    new: Key
    waits: Waits | None = None
    """Since the version with the new key is published."""
    published_at: float | None = None
    drained_at: float | None = None
    """When `shipper fleet wait` had ended with its answer."""
    status: int | None = None
    """Its exit status."""
    answer: Said = field(default_factory=dict)
    wish: Wish | None = None
    """Of the member whose `on_release` had the old key revoked."""
    used: int = 0
    """How many requests had shown the old key when the fleet released it."""
    revoked_at: float | None = None
    refused: int | None = None
    """What the destination says to the old key since."""

    @property
    def is_under_way(self) -> bool:
        """Whether there will be more to tell."""
        return self.published_at is not None and (self.drained_at is None or self.refused is None)

    @property
    def waited_for(self) -> list[str]:
        """The members for which the answer waits now."""
        return self.waits.now if self.waits is not None and self.drained_at is None else []

    def published(self, version: str, now: float) -> None:
        """The version with the new key has begun."""
        self.waits, self.published_at = Waits(version), now

    def heard(self, fleet: Said, now: float) -> None:
        """Note the fleet as it is now, as long as it is waited for."""
        if self.waits is not None and self.drained_at is None:
            self.waits.heard(fleet, now)

    def drained(self, status: int, answer: Said, now: float) -> None:
        """The answer about the version is there; nothing waits for it any more."""
        self.status, self.answer, self.drained_at = status, answer, now

    def may_revoke(self, wish: Wish) -> bool:
        """Whether a command has the old key revoked, and no other member did with a higher token."""
        return wish.key == self.old.name and (self.wish is None or wish.token >= self.wish.token)

    def released(self, wish: Wish, used: int) -> None:
        """The fleet has released the old key: note who says so first, and how often the key was used before."""
        if self.wish is None:
            self.used = used
        self.wish = wish

    def revoked(self, refused: int, now: float) -> None:
        """The destination refuses the old key."""
        self.revoked_at = self.revoked_at or now
        self.refused = refused

    def after(self, moment: float | None) -> str:
        """How long after the publish something happened, in words."""
        if moment is None or self.published_at is None:
            return "not at all"
        return f"after {moment - self.published_at:.1f} s"
