"""The interface between the core and a door: a channel that takes policies and reports their progress.

The conversation over standard input and output (`conversation`) is the first door. Another one, for example Elastic
Agent's control protocol V2 over gRPC, needs:

-   Numbers of its own. V2 numbers the configuration of each unit separately (`config_state_idx`). The door assigns the
    `Revision` of each `Offer`, rising and above `stages`, and maps statements back to those numbers.
-   One policy from several units. In V2 the inputs and outputs of a policy are units that are sent separately: the door
    composes the text of one policy from all of them, and offers that.
-   A state for each unit. `Observed.units` has one for each input and output; the door derives the state of a unit that
    does not run yet from the statements of its revision.
-   A check-in as `observe`: it requests the current `Observed`.
-   `drained` and released credentials, which have no message in V2, as an extension.
-   Receipts with acknowledgements: for an undelivered statement, `delivered` is never called. The credentials of a
    `Receipt` are then listed again, at the latest by the next process; after a reconnect, the door repeats the highest
    statement of each revision itself.

One door is open at a time: revisions have one order, and credentials one owner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import trio

from shipper.protocol.messages import Action, Observed, Result, Stop
from shipper.revisions.offer import Offer
from shipper.revisions.statements import Statement


class Core(Protocol):
    """The core, as a door uses it."""

    async def offer(self, offer: Offer) -> None:
        """Checks a policy; accepts or refuses it. Statements report its progress."""

    @property
    def is_full(self) -> bool:
        """Whether offers have no room, as while the disk hangs; then read no more messages."""

    async def has_room(self) -> None:
        """Waits until offers have room."""

    async def supply(self, credentials: Mapping[str, object]) -> None:
        """Takes secrets by their ids; None withdraws one. Raises CredentialError."""

    def renew_lease(self, until: float | None) -> None:
        """Allows requests to begin until this instant of CLOCK_BOOTTIME; None: without an end."""

    def act(self, order: Action) -> None:
        """Performs an action; `Door.result` takes its one result."""

    def observe(self, supervisor: Any) -> None:
        """Requests one call of `Door.observed`.

        `supervisor` is the status of the supervisor, a `Supervision`; any other value is ignored.
        """

    def ask(self, credentials: Collection[str]) -> None:
        """Asks the destinations of these credentials whether they accept them, where nothing is sent; see
        `Observed.credentials_accepted`."""


class Door(Protocol):
    """A door, as the core uses it. Its methods that send never wait for the peer."""

    def say(self, statement: Statement, delivered: Callable[[], None]) -> None:
        """Sends a statement, in the order of calls; calls `delivered` only once its delivery is certain."""

    def result(self, result: Result) -> None:
        """Sends the result of an action."""

    def observed(self, observed: Observed) -> None:
        """Sends the status; the newest replaces one that still waits."""

    async def run(self, core: Core) -> Stop:
        """Serves until it returns a `Stop`; the end of the connection and `interrupt` count as a default one."""

    async def stopping(self, grace: trio.CancelScope, core: Core) -> None:
        """Serves while the core stops; may shorten the grace, never prolong it."""

    def interrupt(self) -> None:
        """Ends `run`, as a stop of the peer does."""
