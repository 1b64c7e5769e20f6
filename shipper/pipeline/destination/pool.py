"""The pool of destinations: who uses one, with which credentials, and what is known of it. `Delivery` owns it.

    Pool    all destinations of the process
    Link    one lane's use of its destination: a client of its own, with the secrets of the lane's credentials

A destination is an output, its type and its address. Log events and keyed state have lanes of their own there, and so
has each set of credentials. No client serves two lanes: a barrier is settled, and a credential released, once the
clients of those lanes are closed that use it, and what other lanes have open does not matter for that. A session of a
relay belongs to a client, and so do its connections, of which there are three at most.

The links of a destination share what they learn: the host of several that is used (`Pool.beside`), that it answers
again (`Pool.answers_again`), and that it accepts their credentials (`Pool.accepted`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

import msgspec
import trio

from shipper.pipeline.destination.accepted import is_accepted
from shipper.pipeline.destination.client import Client
from shipper.pipeline.destination.confirmed import Confirmations
from shipper.pipeline.destination.counts import OutputCounts
from shipper.pipeline.destination.hold import hold
from shipper.pipeline.destination.lease import Lease
from shipper.pipeline.destination.routed import Routed
from shipper.pipeline.keyring import Keyring
from shipper.pipeline.sources import Sources
from shipper.pipeline.tap import Taps
from shipper.plugin import Output, OutputContext, Sender
from shipper.process import log
from shipper.process.environment import REAL, Environment
from shipper.process.groups import contained
from shipper.process.signal import Signal
from shipper.sdk.aio import Asyncio
from shipper.sdk.codes import Why
from shipper.sdk.errors import raised_at
from shipper.sdk.peers import Confirms, Principal
from shipper.spool.parts.destination import Destination
from shipper.spool.revisions import LaneKey, LaneRow
from shipper.spool.spool import Spool

_log = log.get(__name__)

ASK_SECONDS = 60.0
"""For how long a destination is asked whether it accepts credentials."""


class Means(msgspec.Struct, frozen=True):
    """What lanes need of the process."""

    spool: Spool
    keyring: Keyring
    aio: Asyncio
    taps: Taps
    lease: Lease = msgspec.field(default_factory=Lease)
    sources: Sources = msgspec.field(default_factory=Sources)
    environment: Environment = REAL


class User(Protocol):
    """The lane of a link."""

    @property
    def active(self) -> bool:
        """Whether the active revision routes events to it."""

    def poke(self) -> None:
        """Something that it needs has changed, perhaps for the better."""

    def hasten(self) -> None:
        """Its destination took events of another lane."""

    def look(self) -> None:
        """There may be something to do."""

    def look_at_barrier(self) -> None:
        """The same, and perhaps nothing is left that waits for the destination."""

    def cut_off(self) -> None:
        """It may send no more: its client is closed."""

    def lowest(self) -> int:
        """See `OutputContext.lowest`."""

    def taken(self) -> None:
        """See `OutputContext.taken`."""

    def notice(self, text: str | None, code: str) -> None:
        """See `OutputContext.notice`."""


class Pool:
    """The links of all lanes, by lane; `changed` is called when what is shown has changed."""

    def __init__(self, means: Means, changed: Callable[[], None]) -> None:
        self.means, self.changed = means, changed
        self.links: dict[int, Link] = {}
        self.counts = OutputCounts()
        self._asked: frozenset[str] = frozenset()
        self._holds = means.lease.holds()
        """Whether the lease held at the last look."""
        self._renewed = Signal()

    def link(self, row: LaneRow, output: Output, user: User) -> Link:
        """Links a lane with its destination."""
        self.counts.requests_of(row.key)
        self.counts.meters_of(row.key)
        link = self.links[row.id] = Link(self, row, output, user)
        return link

    def unlink(self, lane: int) -> None:
        """A lane is gone, and its client closed."""
        gone = self.links.pop(lane)
        self.counts.gone(gone.key, gone.counters, [link.key for link in self.links.values()])

    # -- one destination -----------------------------------------------------------------------------------------------

    def beside(self, key: LaneKey) -> list[Principal]:
        """Returns whom the lanes of this lane's destination relay to, or did last."""
        said = [link.relayed_to() for link in self._at(key)]
        return [principal for principal in said if principal is not None]

    def answers_again(self, key: LaneKey) -> None:
        """The destination took events of this lane: its other ones need not wait until they would ask it again."""
        for link in self._at(key):
            if link.key != key:
                link.user.hasten()

    def _at(self, key: LaneKey) -> list[Link]:
        return [link for link in self.links.values() if _place(link.key) == _place(key)]

    # -- keyed state ---------------------------------------------------------------------------------------------------

    def moved(self, lanes: Collection[int]) -> None:
        """What waited on these lanes was superseded, or has another place: they have something to do."""
        for lane in lanes:
            if lane in self.links:
                self.links[lane].user.look_at_barrier()

    # -- credentials ---------------------------------------------------------------------------------------------------

    def needed(self) -> set[str]:
        """Returns the credentials that queued events need."""
        figures = self.means.spool.figures
        return {
            id for lane, link in self.links.items() if figures.of_lanes([lane]).events for id in link.key.credentials
        }

    def accepted(self) -> list[str]:
        """Returns the credentials that every active destination with them has accepted, whichever lane learned it."""
        good = {link.key._replace(state=False) for link in self.links.values() if link.is_accepted}
        active = [link.key._replace(state=False) for link in self.links.values() if link.user.active]
        used = {id for key in active for id in key.credentials}
        return sorted(used - {id for key in active if key not in good for id in key.credentials})

    def ask(self, credentials: Collection[str]) -> None:
        """Asks the destinations of the active lanes with these credentials whether they accept them, and those of lanes
        that become active before it is called again: who asks may be ahead of a revision."""
        self._asked = frozenset(credentials)
        self.ask_again()

    def ask_again(self) -> None:
        """Asks those of lanes that have become active since `ask`."""
        for link in self._with(self._asked):
            if link.user.active:
                link.ask()

    def supplied(self, credentials: Collection[str]) -> None:
        """Secrets have arrived: the lanes that use them try at once."""
        for link in self._with(credentials):
            link.user.poke()

    def withdrawn(self, credentials: Collection[str]) -> None:
        """Secrets were withdrawn: the connections of their lanes are aborted, and the events held."""
        for link in self._with(credentials):
            link.user.cut_off()

    def _with(self, credentials: Collection[str]) -> list[Link]:
        return [link for link in self.links.values() if not set(link.key.credentials).isdisjoint(credentials)]

    # -- the lease -----------------------------------------------------------------------------------------------------

    def renew_lease(self, until: float | None) -> None:
        """See `Lease.renew`. If the old lease had lapsed, all connections are aborted, even if this one holds."""
        self._look_at_lease()
        self.means.lease.renew(until)
        self._look_at_lease()
        self._renewed.set()
        self.changed()

    async def watch_lease(self) -> None:
        """Aborts all connections when the lease has lapsed, for ever."""
        while True:
            with trio.move_on_after(self.means.lease.look_seconds if self._holds else math.inf):
                await self._renewed.wait()
            self._look_at_lease()

    def _look_at_lease(self) -> None:
        before, self._holds = self._holds, self.means.lease.holds()
        if before == self._holds:
            return
        for link in self.links.values():
            if self._holds:
                link.user.look()
            else:
                link.user.cut_off()
        self.changed()


class Link:
    """The use that one lane makes of its destination, with an `output` whose settings may change."""

    def __init__(self, pool: Pool, row: LaneRow, output: Output, user: User) -> None:
        self.lane, self.key, self.output, self.user = row.id, row.key, output, user
        self.contact = Destination(pool.means.spool, row.id)
        self.counters: Counter[str] = Counter()
        """Final answers by name, and retries, in this process."""
        self.confirmed = Confirmations(row.confirmed, row.confirmed_versions)
        self.delivers = not output.relays
        """Whether a final answer comes from the end of the way, as far as is known."""
        self.client: Client | None = None
        self.pool = pool
        self._is_to_ask = self._is_good = False
        """Whether it is to be asked whether it accepts the credentials, and whether it has said so."""
        self._says_nothing = False
        """Whether its sender failed to name the principal."""
        self._last: Principal | None = None
        """The principal of the last client that was closed."""

    # -- whether anything may be sent ----------------------------------------------------------------------------------

    def hold(self) -> Why | None:
        """Returns why nothing may be sent, whatever the destination answers; from any thread."""
        return hold(self.key.credentials, self.pool.means.keyring, self.pool.means.lease)

    def may_begin(self) -> bool:
        """Whether a request may begin now; from any thread."""
        return self.hold() is None

    # -- a client ------------------------------------------------------------------------------------------------------

    async def live(
        self, work: Callable[[Sender], Awaitable[None]], failed: Callable[[Exception], None], *, lives_on: bool
    ) -> None:
        """One life of a client; see `Client.live`."""

        async def use(sender: Sender) -> None:
            try:
                await work(sender)
            finally:
                if (there := self.relayed_to()) is not None:
                    self._last = there._replace(connected_seconds=None)

        self.client = Client(self.output, self.context(), lives_on=lives_on, cut_off=self.user.cut_off)
        try:
            await self.client.live(use, failed)
        finally:
            self.client = None

    def context(self) -> OutputContext:
        """Returns what the output is offered, with the secrets as they are now."""
        key, means, lane, user = self.key, self.pool.means, self.lane, self.user
        return OutputContext(
            key.output,
            means.aio,
            means.keyring.of(key.credentials),
            requests=self.pool.counts.requests_of(key),
            meters=self.pool.counts.meters_of(key),
            begins=self.contact.begins,
            may_begin=self.may_begin,
            lane=lane,
            lowest=user.lowest,
            waits=lambda: means.spool.figures.waits(lane),
            state=Routed(means.spool.state, lane, means.sources, self.pool.moved) if key.state else None,
            taken=user.taken,
            delivers=self._note_delivers,
            lineages=self.contact,
            prove=means.spool.prove,
            beside=lambda: self.pool.beside(key),
            notice=user.notice,
        )

    # -- what it said --------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Asks it, as soon as nothing is to be sent, whether it accepts the credentials; see `is_accepted`."""
        if not self.is_accepted and self.output.can_ask:
            self._is_to_ask = True
            self.user.look()

    @property
    def is_to_ask(self) -> bool:
        """Whether it is to be asked now, if nothing is to be sent."""
        return self._is_to_ask and self.user.active and self.may_begin() and not self.is_accepted

    async def ask_now(self) -> None:
        """Asks it once whether it accepts the credentials; a cancel leaves no connection open."""
        with trio.move_on_after(ASK_SECONDS):
            self._is_good = await is_accepted(self.output, self.context())
        self._is_to_ask = False
        self.pool.changed()

    @property
    def is_accepted(self) -> bool:
        """Whether it has accepted the credentials once, in this process: it took an event, or a session, or it was
        asked."""
        took = self.counters["delivered"] or self.counters["duplicate"]
        there = self.principal()
        return self._is_good or bool(took) or (there is not None and there.connected_seconds is not None)

    @property
    def confirms(self) -> Confirms:
        """Returns what a confirmation of it is worth."""
        if not self.output.relays:
            return "delivered"
        there = self.principal()
        return self.confirmed.weakest(None if there is None else there.confirms)

    def principal(self) -> Principal | None:
        """Returns the shipper that its sender relays to, while the sender is open."""
        if self.client is None or self._says_nothing:
            return None
        try:
            with contained():
                return self.client.principal()
        except Exception as error:
            self._says_nothing = True
            _log.error("an output cannot say whom it relays to", output=self.key.output, error=raised_at(error))
            return None

    def relayed_to(self) -> Principal | None:
        """Returns the shipper that it relays to; that of the client before, while this one has reached none."""
        there = self.principal()
        return self._last if there is None or there.confirms is None else there

    def _note_delivers(self, delivers: bool) -> None:
        self.delivers = delivers


def _place(key: LaneKey) -> tuple[str, str, str]:
    return key.output, key.type, key.destination
