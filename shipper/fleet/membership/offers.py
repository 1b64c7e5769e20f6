"""What the agent of a member is to run: the newest version, or the one that an earlier process has kept."""

from __future__ import annotations

from collections.abc import Callable

from shipper.fleet.home import Home
from shipper.fleet.member.machine import Member
from shipper.fleet.membership.offered import Offered
from shipper.fleet.memory import Kept
from shipper.fleet.records import Version
from shipper.fleet.seal import Unauthentic
from shipper.membership import offers


class Offers(offers.Offers[Offered]):
    """The newest version."""

    def __init__(self, home: Home, authentic: Callable[[Kept], Offered]) -> None:
        super().__init__()
        self._home = home
        self._kept = _opened(home, authentic)
        self._joins = False
        """Whether this process found that it is no member any more, or not yet."""
        self._fetched: tuple[Kept, Offered] | None = None

    @property
    def kept(self) -> Version | None:
        """The version of an earlier process that may be offered again."""
        return self._kept.version if self._kept is not None else None

    def fetched(self, kept: Kept, offered: Offered) -> None:
        """This is what `offer` offers."""
        self._fetched = kept, offered

    async def offer(self) -> Version:
        """Keeps what was fetched durably, offers it, and returns its version; raises OSError."""
        assert self._fetched is not None
        kept, offered = self._fetched
        await self._home.keep(kept)
        self._fetched = None
        self.give(offered)
        return kept.version

    def offer_kept(self, member: Member) -> None:
        """Offers the version of an earlier process, unless its name is taken: with it the sidecar gets the newest local
        secrets, whatever the store does. If this host turned out to be a joiner, the fleet may have released what an
        older version names: only the newest one is offered then, once it is registered."""
        self._joins = self._joins or (member.place == "ours" and not member.registered)
        is_member = member.memory.state == "member" and member.place in ("unknown", "apart", "ours")
        if not self._late or self._kept is None or not is_member:
            return
        if not self._joins or (member.registered and self._kept.version == member.known.current):
            self.give(self._kept)

    def give(self, offer: Offered) -> None:
        """Offers a version, after which the kept one is not offered any more."""
        self._kept = None
        super().give(offer)


def _opened(home: Home, authentic: Callable[[Kept], Offered]) -> Offered | None:
    """Returns the version of an earlier process, if this is still a member's directory."""
    if home.kept is None or home.memory.state != "member":
        return None
    try:
        return authentic(home.kept)
    except (Unauthentic, KeyError):
        return None
