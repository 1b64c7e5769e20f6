"""`dedupe`: drops repetitions of an event within a window.

    {type: dedupe, fields: [host.name, message], window: 5m}

Events are equal if they have the same values of `fields`; without `fields`, if they differ in `@timestamp` and `log`
only (a repeated line has another offset). An event is dropped, and counted, if an equal one passed less than `window`
ago; the window begins with the one that passed.

Each input remembers its own events, even if the processor belongs to the policy or to an output.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, ClassVar

import msgspec

from shipper.plugin import BadOption, Duration, Ledger, Part, Processor, Stage, StageContext
from shipper.sdk.fields import check_names
from shipper_plugins.processors import keys


class Dedupe(Processor, frozen=True, kw_only=True):
    """Drops events that are equal to one that passed within the window."""

    keeps: ClassVar[str] = (
        "a digest of each of the last `max_entries` events that passed within the window. Beyond that the oldest is "
        "forgotten; if an equal event comes then, it passes."
    )

    fields: tuple[str, ...] = ()
    """The fields that make events equal (default: all but `@timestamp` and `log`)."""
    window: Duration = Duration(60)
    """How long an event is remembered after it passed."""
    max_entries: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 100_000
    """How many events are remembered."""

    def __post_init__(self) -> None:
        check_names("fields", self.fields)
        if self.window <= 0:
            raise BadOption(f"must be above 0, not {self.window}", "window")

    @asynccontextmanager
    async def open(self, context: StageContext) -> AsyncIterator[Stage]:
        """Acquires nothing."""
        yield _Dedupe(self, context)


class _Dedupe(Stage):
    def __init__(self, settings: Dedupe, context: StageContext) -> None:
        self._settings, self._context = settings, context
        self._passed: Ledger[bytes, float] = Ledger(settings.max_entries)
        self._dropped = 0
        self._counted = context.meters.counter("events_dropped", "Events that were equal to one before.")

    def process(self, part: Part) -> Sequence[Part]:
        """Returns the part without repeated events."""
        batch, now = part.batch, self._context.now()
        names = self._settings.fields
        digests = list(keys.digests(batch, names) if names else keys.whole_digests(batch))
        first = [at for at, digest in enumerate(digests) if self._is_first(digest, now)]
        self._dropped += batch.count - len(first)
        return [part if len(first) == batch.count else part._replace(batch=batch.pick(first))]

    def _is_first(self, digest: bytes, now: float) -> bool:
        passed = self._passed.get(digest)
        if passed is not None and now - passed < self._settings.window:
            return False
        self._passed.put(digest, now)
        return True

    @property
    def due(self) -> float | None:
        """At once if there are many new digests; the processor holds no events."""
        return self._context.now() if self._passed.full else None

    def commit(self) -> None:
        """Remembers the events that passed."""
        oldest = self._context.now() - self._settings.window
        self._passed.commit(lambda passed: passed <= oldest)
        self._counted.add(self._dropped)
        self._dropped = 0

    def rollback(self) -> None:
        """Forgets the events that passed since the last commit."""
        self._passed.rollback()
        self._dropped = 0
