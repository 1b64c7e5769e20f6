"""`throttle`: limits the rate of events.

    {type: throttle, rate: 100, burst: 500, fields: [service.name]}

Each key (the values of `fields`; without them all events together) has a bucket of `burst` tokens that fills with
`rate` a second; an event takes one. An event without a token is dropped and counted, or tagged `throttled`.

Each input has buckets of its own, even if the processor belongs to the policy or to an output.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, ClassVar, Literal

import msgspec

from shipper.plugin import BadOption, Batch, Fields, Ledger, Part, Processor, Stage, StageContext
from shipper.sdk.fields import check_names
from shipper_plugins.processors import keys


class Throttle(Processor, frozen=True, kw_only=True):
    """Limits the events per second of each key."""

    keeps: ClassVar[str] = (
        "a bucket for each of at most `max_keys` keys. Beyond that the least recently seen key is forgotten; if it "
        "comes again, its bucket is full."
    )

    rate: Annotated[float, msgspec.Meta(gt=0)]
    """Events per second."""
    burst: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Events that may pass at once after a pause (default: those of one second, at least 1)."""
    fields: tuple[str, ...] = ()
    """The fields whose values are the key (default: all events have one key)."""
    when_over: Literal["drop", "tag"] = "drop"
    """How to handle an event above the rate: `drop` and count it, or `tag` it with `throttled`."""
    max_keys: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    """How many keys are remembered."""

    def __post_init__(self) -> None:
        check_names("fields", self.fields)
        if self.rate > 1e12:
            raise BadOption(f"must be at most 1e12, not {self.rate:g}", "rate")

    @asynccontextmanager
    async def open(self, context: StageContext) -> AsyncIterator[Stage]:
        """Acquires nothing."""
        yield _Throttle(self, context)


class _Throttle(Stage):
    def __init__(self, settings: Throttle, context: StageContext) -> None:
        self._settings, self._context = settings, context
        self._burst = float(settings.burst if settings.burst is not None else max(1, int(settings.rate)))
        self._buckets: Ledger[bytes, tuple[float, float]] = Ledger(settings.max_keys)
        self._over = 0
        self._counted = context.meters.counter("events_over", "Events that were more than the rate allows.")

    def process(self, part: Part) -> Sequence[Part]:
        """Returns the part; drops or tags the events above the rate."""
        batch, now = part.batch, self._context.now()
        names = self._settings.fields
        over = [at for at, key in enumerate(_keys(batch, names)) if not self._take(key, now)]
        if not over:
            return [part]
        self._over += len(over)
        if self._settings.when_over == "tag":
            return [part._replace(batch=_tagged(batch, set(over)))]
        dropped = set(over)
        return [part._replace(batch=batch.pick([at for at in range(batch.count) if at not in dropped]))]

    def _take(self, key: bytes, now: float) -> bool:
        """Takes a token of a bucket; returns False if it has none."""
        tokens, at = self._buckets.get(key) or (self._burst, now)
        tokens = min(self._burst, tokens + max(0.0, now - at) * self._settings.rate)
        is_there = tokens >= 1
        self._buckets.put(key, (tokens - is_there, now))
        return is_there

    @property
    def due(self) -> float | None:
        """At once if there are many new keys; the processor holds no events."""
        return self._context.now() if self._buckets.full else None

    def commit(self) -> None:
        """Keeps the tokens spent."""
        self._buckets.commit()
        self._counted.add(self._over)
        self._over = 0

    def rollback(self) -> None:
        """Gives back the tokens since the last commit."""
        self._buckets.rollback()
        self._over = 0


def _keys(batch: Batch, names: Sequence[str]) -> Sequence[bytes]:
    return list(keys.digests(batch, names)) if names else [b""] * batch.count


def _tagged(batch: Batch, over: set[int]) -> Batch:
    events = batch.own()
    shared = batch.shared.get("tags")
    return batch.replace([_with_tag(event, shared) if at in over else event for at, event in enumerate(events)])


def _with_tag(event: Fields, shared: object) -> Fields:
    old = event.get("tags", shared)
    tags = list(old) if isinstance(old, list) else [] if old is None else [old]
    return {**event, "tags": [*tags, "throttled"]}
