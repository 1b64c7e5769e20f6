"""Counts the requests of an output that does not count them itself: each `send` counts as one."""

from __future__ import annotations

import trio

from shipper.plugin import Answers, Held, Later, Requests, Sender, TooLarge
from shipper.sdk.event import Batch


class Counted:
    """A Sender that wraps another one."""

    def __init__(self, sender: Sender, requests: Requests) -> None:
        self._sender, self._requests = sender, requests

    async def send(self, batch: Batch) -> Answers:
        """See `Sender.send`; a cancelled request is not counted."""
        began = trio.current_time()
        try:
            answers = await self._sender.send(batch)
        except Later:
            self._requests.failed(trio.current_time() - began, "later")
            raise
        except Held:
            self._requests.failed(trio.current_time() - began, "held")
            raise
        except TooLarge:
            self._requests.failed(trio.current_time() - began, "too_large")
            raise
        except Exception:
            self._requests.failed(trio.current_time() - began, "failed")
            raise
        self._requests.answered(trio.current_time() - began)
        return answers
