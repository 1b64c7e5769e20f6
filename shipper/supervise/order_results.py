"""Orders that people give to the sidecar through its supervisor, until they have a result.

An order ends with the sidecar's `result`, or with the sidecar: an order that it had begun is durable and resumes at its
next start, without a result.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

import trio

from shipper.protocol.messages import Result
from shipper.sdk.codes import Code

MOST = 16
"""Orders at a time: each holds a place in the sidecar's memory, and in ours."""


class Orders:
    """Orders that wait for their result."""

    def __init__(self) -> None:
        self._waiting: dict[str, trio.MemorySendChannel[Result]] = {}

    async def give(self, send: Callable[[Mapping[str, Any]], object], name: str, params: Mapping[str, Any]) -> Result:
        """Sends an order to the sidecar and returns its result; after a cancel it is carried out all the same."""
        if len(self._waiting) >= MOST:
            return refused(f"{MOST} orders are under way; give it again when one has ended", Code.TOO_MANY_ACTIONS)
        id = f"order-{secrets.token_hex(6)}"
        answer, waits = trio.open_memory_channel[Result](1)
        self._waiting[id] = answer
        try:
            send({"type": "action", "id": id, "name": name, "params": dict(params)})
            return await waits.receive()
        except trio.EndOfChannel:
            text = "the sidecar has ended; if it had begun the order, it completes it when it runs again"
            return refused(text, Code.NOT_RUNNING, id)
        finally:
            self._waiting.pop(id, None)

    def answered(self, result: Result) -> None:
        """Passes a result of the sidecar to the order that waits for it, if any."""
        if answer := self._waiting.pop(result.id, None):
            answer.send_nowait(result)

    def lost(self) -> None:
        """The sidecar has ended."""
        for answer in self._waiting.values():
            answer.close()


def refused(message: str, code: str, id: str = "") -> Result:
    """Returns the result of an order that is not given, or not answered."""
    return Result(id=id, status="FAILED", message=message, code=code)


def outcome(result: Result) -> dict[str, Any]:
    """Returns the answer to a person who gave an order."""
    return {name: getattr(result, name) for name in ("status", "message", "code", "result")}


def freed(result: Result) -> list[str]:
    """Returns the credentials that an order released."""
    ids = result.result.get("released")
    return [id for id in ids if isinstance(id, str)] if isinstance(ids, list) else []
