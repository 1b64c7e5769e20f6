"""A door is a way in: through it somebody sends policies, and hears what became of them.

The conversation over standard input and output (`conversation`) is the first door. What another one needs, of which
Elastic Agent's control protocol V2 over gRPC is the example:

-   Numbers of its own. V2 numbers the configuration of each unit by itself (`config_state_idx`). The door gives out the
    `Revision` of each `Offer`, in its order and above what `stages` says, and maps statements back to those numbers.
-   One policy of several units. The parts of a policy, its inputs and outputs, are units there, and each comes by
    itself: the door composes the text of one policy of those that it was told of, and offers that.
-   A state for each unit. `Observed.units` has one for each input and output; the state of a unit that does not run yet
    is the door's own, from the statements of the revision that has it.
-   A check-in as `observe`: it asks for the `Observed` of now.
-   `drained` and released credentials, which V2 has no message for, as an extension.
-   Receipts as its peer acknowledges them: for a statement that was not delivered, `delivered` is never called. What a
    `Receipt` listed is listed again then, at the latest by the next process; over a connection that comes back, the
    door repeats the highest statement of each revision itself.

One door is open at a time: revisions have one order, and credentials one owner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import trio

from shipper.protocol.messages import Action, Observed, Result, Stop
from shipper.revisions.offer import Offer
from shipper.revisions.statements import Statement


class Core(Protocol):
    """What a door leads to."""

    async def offer(self, offer: Offer) -> None:
        """Check a policy, and put it on its way or refuse it; statements say what becomes of it."""

    @property
    def is_full(self) -> bool:
        """Whether offers have no room, as while the disk hangs; then take no more from outside."""

    async def has_room(self) -> None:
        """Wait until offers have room."""

    async def supply(self, credentials: Mapping[str, object]) -> None:
        """Take secrets by their ids, and withdraw those that are None. Raises CredentialError."""

    def renew_lease(self, until: float | None) -> None:
        """Let requests begin until this instant of CLOCK_BOOTTIME; None: without an end."""

    def act(self, order: Action) -> None:
        """Carry out an order; its one result comes by `Door.result`."""

    def observe(self, supervisor: Any) -> None:
        """Have `Door.observed` called once soon.

        `supervisor` is how the other side stands, as `Supervision`; anything else is ignored.
        """


class Door(Protocol):
    """What the core says, and how it is served. What a door is given to say never waits for those outside."""

    def say(self, statement: Statement, delivered: Callable[[], None]) -> None:
        """Say it after all that was given before, and call `delivered` once it surely went out, or never."""

    def result(self, result: Result) -> None:
        """Say what became of an order."""

    def observed(self, observed: Observed) -> None:
        """Say how all stands; the newest replaces one that still waits."""

    async def run(self, core: Core) -> Stop:
        """Serve until told to stop; the end of the connection, and `interrupt`, are a `Stop` by default."""

    async def stopping(self, grace: trio.CancelScope, core: Core) -> None:
        """Go on while the core stops: the grace may be ended sooner, never later."""

    def interrupt(self) -> None:
        """Stop, as if told to."""
