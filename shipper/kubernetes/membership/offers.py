"""What the agent of a member is to run: the newest vector, or the one that an earlier process has kept."""

from __future__ import annotations

from shipper.kubernetes.member.machine import Member
from shipper.kubernetes.member.steps import Vector
from shipper.membership import offers


class Offers(offers.Offers[Vector]):
    """The newest vector, which is durable and announced."""

    def offer_kept(self, member: Member) -> None:
        """Offers what an earlier process has run, if nothing newer came: with it the sidecar runs, whatever the API
        server does."""
        if self._late and self.newest is None and (kept := member.running.kept) is not None:
            self.give(kept)
