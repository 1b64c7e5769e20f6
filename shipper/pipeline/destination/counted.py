"""Counts the requests of an output that does not count them itself: each `send` counts as one."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from shipper.plugin import Answers, Held, Later, Sender, TooLarge
from shipper.sdk.event import Batch
from shipper.sdk.tallies import Failure, Requests

_FAILURES: Mapping[type[Exception], Failure] = {Later: "later", Held: "held", TooLarge: "too_large"}


class Counted(Sender):
    """A Sender that wraps another one."""

    def __init__(self, sender: Sender, requests: Requests) -> None:
        self._sender, self._requests = sender, requests

    async def send(self, batch: Batch) -> Answers:
        """See `Sender.send`; a cancelled request is not counted."""
        began = trio.current_time()
        try:
            answers = await self._sender.send(batch)
        except Exception as error:
            failure: Failure = next((name for kind, name in _FAILURES.items() if isinstance(error, kind)), "failed")
            self._requests.failed(trio.current_time() - began, failure)
            raise
        self._requests.answered(trio.current_time() - began)
        return answers
