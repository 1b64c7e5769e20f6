"""What an output is, what the shipper offers to it, and what it opens: a sender."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import msgspec

from shipper.sdk import hooks
from shipper.sdk.aio import Asyncio
from shipper.sdk.answers import Answers
from shipper.sdk.asking import Question, Tell, TellPrepared
from shipper.sdk.credentials import Credential
from shipper.sdk.errors import BadOption
from shipper.sdk.event import Batch
from shipper.sdk.feeding import MOST_LINGER, Feeding
from shipper.sdk.lineage import Lineages
from shipper.sdk.meters import Meters
from shipper.sdk.peers import Principal, Waits
from shipper.sdk.settings import Settings
from shipper.sdk.state import RoutedState
from shipper.sdk.tallies import Requests
from shipper.sdk.units import Duration


def _nobody_asks() -> None:
    """Of a context that is made by hand."""


async def _nothing_to_store() -> None:
    """Of a context that is made by hand."""


def _always() -> bool:
    return True


def _of_no_use(said: bool) -> None:
    """Of a context that is made by hand."""


def _unheard(text: str | None, code: str) -> None:
    """Of a context that is made by hand."""


def _none_below() -> int:
    return 0


def _nothing_waits() -> Waits:
    return Waits()


def _nobody_beside() -> Sequence[Principal]:
    return ()


def _nothing_known(origin: bytes, name: str) -> bytes | None:
    return None


@dataclass(frozen=True, slots=True)
class OutputContext:
    """What the shipper offers to one lane of an output."""

    name: str
    aio: Asyncio
    credentials: Mapping[str, Credential] = field(default_factory=dict)
    """By id, the secrets that the settings refer to; complete when the output is opened."""
    requests: Requests = field(default_factory=Requests, repr=False, kw_only=True)
    """Takes the result and the duration of each request of an output with `counts_requests`."""
    meters: Meters = field(default_factory=Meters, repr=False, compare=False, kw_only=True)
    """The output's own counters, by names of its own; shown in `observed` and in the metrics, kept over revisions."""
    begins: Callable[[], Awaitable[None]] = field(default=_nothing_to_store, repr=False, compare=False, kw_only=True)
    """To await in trio's thread once a connection stands, before the first byte of a request: when it returns, it is
    durable that events may be on their way. Once or often, cheap from the second time on. Raises NotBegun where that
    cannot be stored. See `Output.contacts`.
    """
    may_begin: Callable[[], bool] = field(default=_always, repr=False, compare=False, kw_only=True)
    """Whether a request may begin now: not after the supervisor's lease has ended, nor with a withdrawn secret.

    The lane checks it before each `send`. An output whose requests begin later checks it again, from any thread, right
    before each request, and raises NotBegun if it is False.
    """
    lane: int = field(default=0, kw_only=True)
    """The number of this lane, unique in the state directory and the same after a restart."""
    lowest: Callable[[], int] = field(default=_none_below, repr=False, compare=False, kw_only=True)
    """Below this place (`Batch.place`) every event of this lane has its final answer, durably. In trio's thread."""
    waits: Callable[[], Waits] = field(default=_nothing_waits, repr=False, compare=False, kw_only=True)
    """Returns what waits on this lane; cheap, in trio's thread."""
    state: RoutedState | None = field(default=None, repr=False, compare=False, kw_only=True)
    """The keyed state that goes to this lane, to compare it with that of the destination."""
    taken: Callable[[], None] = field(default=_nobody_asks, repr=False, compare=False, kw_only=True)
    """To call in trio's thread when the destination has taken the events of a `send` and will answer later, perhaps
    after hours. The lane goes on with other events then. See `Sender.send`."""
    delivers: Callable[[bool], None] = field(default=_of_no_use, repr=False, compare=False, kw_only=True)
    """To call, by an output that `relays`, each time that it learns whether the destination's final answers come from
    the end of the way."""
    lineages: Lineages | None = field(default=None, repr=False, compare=False, kw_only=True)
    """What each state directory of a destination that is a shipper has confirmed."""
    prove: Callable[[bytes, str], bytes | None] = field(default=_nothing_known, repr=False, compare=False, kw_only=True)
    """Returns the proof (`is_proven`) that the events of an origin are those of the edge of this name; None for an
    origin that was not drawn in this state directory, or whose secret is lost. In trio's thread."""
    beside: Callable[[], Sequence[Principal]] = field(default=_nobody_beside, repr=False, compare=False, kw_only=True)
    """Returns the principals (`Sender.principal`) of the senders of all lanes of the same destination, also of closed
    ones: an output of several hosts can begin at the host that they use, for example while a credential changes. In
    trio's thread."""
    notice: Callable[[str | None, str], None] = field(default=_unheard, repr=False, compare=False, kw_only=True)
    """Makes the output DEGRADED, by a text and a code, though it delivers events; None ends that. Shown while nothing
    else is wrong."""


class Sender:
    """An open output, yielded by `Output.open`. Its class defines `send`, and the other methods if it needs them."""

    def __init_subclass__(cls) -> None:
        """Refuses a name that is nearly one of these: see `shipper.sdk.hooks`."""
        super().__init_subclass__()
        hooks.check(cls, Sender)

    async def send(self, batch: Batch) -> Answers:
        """Delivers a batch; returns an answer for each event.

        At most `Feeding.in_flight` calls are under way at once. An output that takes both log events and keyed state
        is opened once for each. Raises Later, Held or TooLarge if the request as a whole got no answer for its events.
        When it is cancelled, it aborts its connection and never uses it again.

        Any other error, or a wrong number of answers, is shown as a fault of the output, and the events are sent again.
        If that repeats, and the cause is not an OSError, the batch is sent in halves. An event with which `send` fails
        alone becomes a dead letter, provided that others are delivered.
        """
        raise NotImplementedError

    def ending(self) -> None:
        """No more events are handed out for a while, for example after a failure; for a destination that answers later
        (`OutputContext.taken`). Every `send` that waits for such an answer then raises Later, and its events are sent
        again."""

    def principal(self) -> Principal | None:
        """Returns the shipper that it relays to; None if it relays to none. Cheap, called often."""
        return None


MOST_FLUSH = Duration(MOST_LINGER)


class Output(Settings, frozen=True):
    """Where events go. A change of a setting puts a barrier into the queue, except for the settings in `live`."""

    live: ClassVar[frozenset[str]] = frozenset({"workers", "flush"})
    """Settings that do not matter to queued events; they change without a barrier."""
    paths: ClassVar[frozenset[str]] = frozenset()
    """Settings that are paths of files on the host. One policy of many hosts has no relative ones: the directory of who
    publishes it means nothing there."""
    counts_requests: ClassVar[bool] = False
    """Whether its senders report each request to `OutputContext.requests`, so that metrics show status codes. Otherwise
    each `send` counts as one request, answered, or failed with what it raised."""
    relays: ClassVar[bool] = False
    """Whether its destination is another shipper, which may answer when it has stored the events: see
    `OutputContext.delivers`."""

    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    """Requests under way at once, for log events and for keyed state each."""
    flush: Duration = Duration(0.25)
    """How long events wait at most, after a request, for more to go with them in the next one: `0ms` not at all. An
    event after a pause goes at once, and a drain, a barrier or a stop never waits."""

    def __post_init__(self) -> None:
        """A subclass with checks of its own calls this one too."""
        if not 0 <= self.flush <= MOST_FLUSH:
            raise BadOption(f"must be at most {MOST_FLUSH}, not {self.flush}", "flush")

    def __init_subclass__(cls) -> None:
        """Refuses a name that is nearly one of these: see `shipper.sdk.hooks`."""
        super().__init_subclass__()
        hooks.check(cls, Output)

    def takes_state(self) -> bool:
        """Whether it sends batches with `Batch.versions`; depends on the settings alone.

        A batch has versions for all of its events or for none. `send` may answer SUPERSEDED for a version.
        """
        return False

    def takes_events(self) -> bool:
        """Whether it sends batches without `Batch.versions`; depends on the settings alone."""
        return True

    def contacts(self) -> Sequence[str]:
        """Returns the hosts that it asks, as URLs or `host:port`, if it awaits `OutputContext.begins` before it does.

        Then the shipper knows that hosts to which no request ever began, for example after a typo, have received no
        event. Otherwise it must assume that events arrived. Depends on the settings alone.
        """
        return ()

    def feeding(self) -> Feeding:
        """Returns how the lane hands out batches; depends on the settings alone."""
        return Feeding(linger=self.flush, in_flight=self.workers)

    def targets(self, batch: Batch) -> Sequence[str]:
        """Returns the place of each event within the destination, such as an index or a topic. Runs in any thread.

        A target that refuses events (`Answer.of_target`) holds up only its own events.
        """
        return [""] * batch.count

    def warnings(self) -> Sequence[str]:
        """Returns a sentence for each valid but dubious setting, for `validate` and the start of a policy."""
        return ()

    def load(self) -> None:
        """Imports what `open` needs and what is slow to import or may be missing, and does nothing else.

        Called in a worker thread, before a revision with such an output becomes active, and before `open` after a
        restart. An ImportError or StartFailed refuses the revision, with the name of the library.
        """

    def open(self, context: OutputContext) -> AbstractAsyncContextManager[Sender]:
        """Acquires what sending needs, without contacting the destination, which may be down.

        Leaving the block closes every connection; no credential is used after that.
        """
        raise NotImplementedError

    async def ask(self, context: OutputContext, question: Question, tell: Tell) -> None:
        """Asks the destination whether it would take the events of a policy, for a person who waits; sends no event.

        Calls `tell` with each finding as soon as it is known. It may be cancelled at any wait, and then leaves no
        connection open. Raises StartFailed, as `open` does. An output without it says nothing before events are sent.
        """
        raise NotImplementedError

    async def set_up(self, context: OutputContext, question: Question, tell: TellPrepared, *, write: bool) -> None:
        """Tells what the destination should have for the events of a policy, such as index templates, and what it has;
        with `write`, writes what is missing or an older form of its own. Never overwrites what is somebody else's.

        Called again, it writes nothing. Raises as `ask` does. An output without it needs nothing.
        """
        raise NotImplementedError

    @property
    def can_ask(self) -> bool:
        """Whether the class defines `ask`."""
        return type(self).ask is not Output.ask

    @property
    def can_set_up(self) -> bool:
        """Whether the class defines `set_up`."""
        return type(self).set_up is not Output.set_up
