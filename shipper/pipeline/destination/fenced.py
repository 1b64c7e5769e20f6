"""Keeps a request from beginning after a lease has lapsed, or with a withdrawn secret."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import trio

from shipper.plugin import Answers, NotBegun, Sender
from shipper.sdk.event import Batch


class Fenced(Sender):
    """A Sender that wraps another one; `cut_off` cancels the session that sends."""

    def __init__(self, sender: Sender, may_begin: Callable[[], bool], cut_off: Callable[[], None]) -> None:
        self._sender, self._may_begin, self._cut_off = sender, may_begin, cut_off

    async def send(self, batch: Batch) -> Answers:
        """See `Sender.send`; checks here once more, since a timer may be late."""
        if self._may_begin():
            with suppress(NotBegun):
                return await self._sender.send(batch)
        self._cut_off()
        return await trio.sleep_forever()  # it was cancelled just now
