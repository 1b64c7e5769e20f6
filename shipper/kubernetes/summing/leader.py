"""The part of a member that may be elected, and then sums up status.

    election ── token ──> Term: reflectors ──> picture ──> due ──> judged ──> written

See `Leader`; `term` has what one time of leading does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from shipper.apiserver.client import Client
from shipper.kubernetes.events import Events
from shipper.kubernetes.kinds import POLICIES
from shipper.kubernetes.summing.election import Election, Leadership, Unfit
from shipper.kubernetes.summing.term import Term
from shipper.process.environment import REAL, Environment


class Leader:
    """A candidate. `run` it in a nursery for as long as the member takes part."""

    def __init__(
        self,
        client: Client,
        identity: str,
        seconds: float,
        *,
        trouble: Callable[[str, str | None], None],
        say: Callable[[str], None],
        events: Events | None = None,
        environment: Environment = REAL,
    ) -> None:
        """`identity`: the holder of its Leases, that of this process alone; `seconds`: the lease.

        `trouble` gets a cause with a sentence, or with None when it is over. `say` gets sentences for the log.
        """
        self._election = Election(client, identity, seconds, trouble=trouble, environment=environment)
        self._client, self._trouble, self._say, self._environment = client, trouble, say, environment
        self._events = events
        self._token: int | None = None

    @property
    def token(self) -> int | None:
        """The token with which it leads; None if it does not."""
        return self._token

    async def run(self) -> NoReturn:
        """Takes part in elections, and leads when elected. When it is cancelled, it gives the Lease back, in 2 s at
        most."""
        await self._election.run(self._lead)

    async def _lead(self, leadership: Leadership) -> None:
        term = Term(
            self._client,
            leadership,
            trouble=self._trouble,
            say=self._say,
            events=self._events,
            environment=self._environment,
        )
        self._token = leadership.token
        self._say(f"this member sums up the status of policies and Secrets (token {leadership.token})")
        try:
            await term.run()
        except* Unfit:
            self._say("this member cannot sum up status, and lets another one try")
            raise
        finally:
            self._token = None
            term.troubles.clear()
            if self._events is not None:
                self._events.forget(POLICIES)
            self._say("this member does not sum up status any more")
