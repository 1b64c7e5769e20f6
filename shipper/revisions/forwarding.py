"""Forwards events that wait for a destination that was never reached to their output's new one, without an order.

A wrong first setting (a typo in a host, a missing CA) is corrected seconds later; events that entered meanwhile are
bound to a destination that never answered. After each cut, each order and each start the spool lists such lanes
(`spool.forward` has the rule), and each is forwarded by a durable order. Several corrections in a row take several
steps: events that went to a second wrong destination are forwarded from there.

Other events wait like those of any drain, DEGRADED, for their destination, their deadline, or an order.
"""

from __future__ import annotations

from shipper.process import log
from shipper.process.signal import Signal
from shipper.revisions.orders import Orders
from shipper.spool.parts.drains import Drains

_log = log.get(__name__)


class Forwarding:
    """Looks whenever `news` is set: a revision became active, or an order was carried out."""

    def __init__(self, *, drains: Drains, orders: Orders) -> None:
        self.news = Signal()
        self._drains, self._orders = drains, orders

    async def run(self) -> None:
        """Looks once, in case that a crash prevented an order, and then at all `news`."""
        while True:
            await self.look()
            await self.news.wait()

    async def look(self) -> None:
        """Forwards the lanes whose destination was never reached."""
        for lane in await self._drains.never_reached():
            problem = await self._orders.forward_lane(lane, unasked=True)
            if problem is not None:
                _log.info("a drain is not forwarded, though its destination never answered", lane=lane, cause=problem)
