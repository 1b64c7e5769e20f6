"""What waits for a destination that was never reached goes to its output's new one, without an order.

A wrong first setting (a typo in a host, a missing CA) is corrected seconds later; what entered meanwhile is bound to a
destination that never was. After each cut, each order and each start the spool is asked which lanes these are
(`spool.forward` has the rule), and each becomes an order, as durable as one that a person gives. Several corrections in
a row are as many steps: what went to a second wrong place goes on from there.

What this does not take waits as any drain does, DEGRADED, for its destination, its deadline, or an order.
"""

from __future__ import annotations

from shipper.process import log
from shipper.process.signal import Signal
from shipper.revisions.orders import Orders
from shipper.spool.spool import Spool

_log = log.get(__name__)


class Forwarding:
    """Looks whenever `news` is set: a revision became active, or an order was carried out."""

    def __init__(self, *, spool: Spool, orders: Orders) -> None:
        self.news = Signal()
        self._spool, self._orders = spool, orders

    async def run(self) -> None:
        """Look at the start, which carries on what a crash kept from being ordered, and then at news."""
        while True:
            await self.look()
            await self.news.wait()

    async def look(self) -> None:
        """Order what goes without an order."""
        for lane in await self._spool.never_reached():
            problem = await self._orders.forward_lane(lane, unasked=True)
            if problem is not None:
                _log.info("a drain stays where it is, though nobody answers there", lane=lane, cause=problem)
