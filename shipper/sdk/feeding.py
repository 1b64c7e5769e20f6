"""How an output takes its events: sizes, order, retries. Checked when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

from shipper.sdk.errors import PluginFault

MOST_LINGER = 5.0
"""Seconds. A lane that delivers nothing for 10 s, though it holds events, does not look healthy."""
MOST_IN_FLIGHT = 64
MOST_BYTES = 2 << 20
"""What one request may take of the memory for all requests."""
MOST_STABLE_BYTES = 64 << 20
MOST_STABLE_LINGER = 600.0

Life = Literal["session", "lane"]


@dataclass(frozen=True, slots=True)
class Feeding:
    """The value of `Output.feeding`. Raises PluginFault for an impossible value."""

    bytes: int = 2 << 20
    """The most bytes of text that are joined for one request, at most 2 MiB (64 MiB where `stable`). A batch that
    entered larger is still sent as one: the output splits it, or raises TooLarge."""
    events: int = 4000
    """The most events that are joined for one request."""
    linger: float = 0.25
    """The longest wait of events, after a request, for more to share the next one, in seconds. A drain, a barrier, an
    order or a stop ends the wait. At most 5 s (10 min where `stable`)."""
    in_flight: int = 2
    """Requests under way at once, of a lane: of log events, or of keyed state; 1 where `ordered`."""
    answers_later: bool = False
    """Whether `send` may wait for answers that the destination gives long after it has taken what was sent (see
    `OutputContext.taken`)."""
    ordered: bool = False
    """Whether each log event of a lane waits for the earlier ones: one request is under way, and events without a final
    answer are sent again before later ones. An event that is put off, held or without room as a dead letter stops the
    lane; a rejected one becomes a dead letter, and the lane continues. Within a request the output itself keeps the
    order: from the first event that was not accepted on, it answers LATER. Lanes deliver in parallel, so there is no
    order between events from before and after a change of destination or credential."""
    backoff: tuple[float, float] = (1.0, 60.0)
    """After a failure: the longest wait before the second attempt, and the longest of all, in seconds."""
    grouping: tuple[str, ...] = ()
    """Names of fields whose values `send` needs once for a batch, such as `data_stream` or `resource`. Batches are
    joined only if they share the same values of these fields, which then stay in `Batch.shared`, and have one route;
    others are passed over for that, so events of one group keep their order. A dotted name means its top-level field.
    Values of single events stay there."""
    mixes: bool = False
    """Whether one request may have several groups, and several routes. Then batches are joined although they differ in
    these; `Batch.ways` has the fields and the route of each event, which `each_shared` and `each_route` return."""
    apart: bool = False
    """Whether each batch is sent alone, whole or what is left of it, and never joined with others: so it has its own
    `Batch.origin`, `seq` and `items`. It waits for no others then. Keyed state is joined with keyed state all the same:
    each version has its own identity."""
    stable: bool = False
    """Whether requests of log events stay the same: which events one has, in which order, is durable before it is sent,
    and is the same in each attempt and after each crash, until all of them have their final answers. `Batch.request`
    has its id, by which a destination knows it again: as the key of an object, for example.

    Such a request is answered as a whole: if one event is put off, all of them are sent again, after a backoff and
    before others. Events leave it in two ways. By an order or by damage: it keeps its id without them. Or since `send`
    raises TooLarge, or fails on them again and again: each half becomes a request with an id of its own. A request has
    the events of at most 8192 batches of the queue, and costs one more durable write. One above 2 MiB waits until
    others have returned their memory."""
    compressed: bool = False
    """Whether `bytes` are those of the events as the queue stores them, compressed by DEFLATE; only where `stable`. Not
    more than 64 MiB of text are joined all the same."""
    client: Life = "session"
    """How long the result of `Output.open` stays open. A session ends with each failure of the destination; an active
    lane keeps its client beyond that, unless the error is a bug of the output (not Later, Held, TooLarge, NotBegun or
    an OSError). Settings, credentials, a lapsed lease, an order and the end of the lane always close it."""

    is_open_idle: bool = False
    """Whether `Output.open` is called though nothing is to be sent: for a destination that has to know of this sender,
    or with which it agrees on keyed state. It is called again after a failure. Only of an active lane."""

    def __post_init__(self) -> None:
        for name, (is_sound, must) in self._bounds().items():
            if not is_sound:
                given = repr(getattr(self, name))[:_LONGEST_VALUE]
                raise PluginFault(f"an output cannot be fed as it states: {name} must be {must}, not {given}")
        if self.ordered:
            object.__setattr__(self, "in_flight", 1)

    def of_state(self) -> Feeding:
        """Returns how keyed state is sent: no request of it stays the same, as newer versions take the place of older
        ones."""
        if not self.stable:
            return self
        size, linger = min(self.bytes, MOST_BYTES), min(self.linger, MOST_LINGER)
        return replace(self, stable=False, compressed=False, bytes=size, linger=linger)

    def _bounds(self) -> dict[str, tuple[bool, str]]:
        """Returns, by field, whether its value is possible, and what it must be."""
        pair = self.backoff if isinstance(self.backoff, tuple) and len(self.backoff) == 2 else (0, 0)
        waits = all(map(_is_number, pair)) and 0 < pair[0] <= pair[1] < math.inf
        most_linger, most_bytes = (
            (MOST_STABLE_LINGER, MOST_STABLE_BYTES) if self.stable is True else (MOST_LINGER, MOST_BYTES)
        )
        linger = _is_number(self.linger) and 0 <= self.linger <= most_linger
        names = isinstance(self.grouping, tuple) and all(isinstance(name, str) for name in self.grouping)
        flags = ("answers_later", "ordered", "mixes", "apart", "stable", "is_open_idle")
        return {
            "bytes": (_is_count(self.bytes, most_bytes), f"a whole number of bytes from 1 to {most_bytes}"),
            "events": (_is_count(self.events), "a whole number of events, at least 1"),
            "linger": (linger, f"a number of seconds from 0 to {most_linger:g}"),
            "in_flight": (
                _is_count(self.in_flight, MOST_IN_FLIGHT),
                f"a whole number of requests from 1 to {MOST_IN_FLIGHT}",
            ),
            "backoff": (waits, "two numbers of seconds above 0, the first one not above the second"),
            "compressed": (
                self.compressed is False or self.compressed is self.stable is True,
                "False if not stable",
            ),
            "grouping": (names, "a tuple of the names of fields"),
            "client": (self.client in get_args(Life), f"one of {', '.join(get_args(Life))}"),
            **{name: (isinstance(getattr(self, name), bool), "True or False") for name in flags},
        }


_LONGEST_VALUE = 100


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most
