"""One life of a lane's client: what its output opened, from the attempt to open it until it is closed.

Only leaving the block closes a client, and nothing gives up waiting for that: a credential is released when every
connection that uses it is closed, and not before. So an output that hangs there holds up its lane; the status shows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import trio

from shipper.pipeline import door
from shipper.pipeline.destination.counted import Counted
from shipper.pipeline.destination.fenced import Fenced
from shipper.pipeline.libraries import load
from shipper.plugin import Output, OutputContext, Sender
from shipper.process import log
from shipper.process.groups import contained, failures_apart
from shipper.sdk.codes import Code, Why
from shipper.sdk.errors import raised_at
from shipper.sdk.peers import Principal

_log = log.get(__name__)

STUCK_SECONDS = 5.0
"""Seconds of opening or closing after which that is reported."""


class Client:
    """The open output of a lane; `cut_off` aborts everything that is under way with it.

    `lives_on`: whether the client may outlive a session.
    """

    def __init__(self, output: Output, context: OutputContext, *, lives_on: bool, cut_off: Callable[[], None]) -> None:
        self.lives_on = lives_on
        self.is_stale = False
        """Whether no session may begin with it any more: it is suspect, or has old settings or credentials."""
        self._output, self._context, self._cut_off = output, context, cut_off
        self._sender: Sender | None = None
        self._doing: Literal["opening", "closing"] | None = None
        self._since = 0.0

    def stuck(self) -> Why | None:
        """Returns what to report of an output that hangs while opening or closing."""
        seconds = trio.current_time() - self._since
        if self._doing is None or seconds <= STUCK_SECONDS:
            return None
        return Why(f"its output has been {self._doing} for {seconds // 5 * 5:.0f} s", Code.CLIENT_STUCK)

    def principal(self) -> Principal | None:
        """Returns what the sender says of the shipper that it relays to; None while it is not open, or says nothing."""
        return None if self._sender is None else self._sender.principal()

    def ending(self) -> None:
        """Tells the sender that the lane hands out no more for a while."""
        if self._sender is None:
            return
        try:
            with contained():
                self._sender.ending()
        except Exception as error:
            self.is_stale = True
            _log.error("an output failed", output=self._context.name, error=raised_at(error))

    async def live(self, work: Callable[[Sender], Awaitable[None]], failed: Callable[[Exception], None]) -> None:
        """Opens the output, does the work with it, and closes it.

        Calls `failed` with an error of opening, closing or a task of the output; raises that of the work.
        """
        ours: Exception | None = None
        try:
            with failures_apart(failed):
                self._begin("opening")
                await load(f"output {self._context.name}", self._output)
                async with self._output.open(self._context) as made:
                    self._doing, self._sender = None, (sender := door.opened(made, Sender))
                    try:
                        await work(self._guarded(sender))
                    except Exception as error:
                        ours = error
                    finally:
                        self._sender = None
                        self._begin("closing")
        finally:
            self._doing = None
        if ours is not None:
            raise ours

    def _guarded(self, sender: Sender) -> Sender:
        counted = sender if self._output.counts_requests else Counted(sender, self._context.requests)
        return Fenced(counted, self._context.may_begin, self._cut_off)

    def _begin(self, what: Literal["opening", "closing"]) -> None:
        self._doing, self._since = what, trio.current_time()
