"""Turns the answers for events into settlements in the spool, and reports an output that has only dead letters.

Before a request that is to stay the same, it stores what that is composed of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import trio

from shipper.pipeline.attempts.attempt import Attempt
from shipper.pipeline.attempts.stable import Stable
from shipper.pipeline.destination.pool import Link
from shipper.process import log
from shipper.sdk.codes import Code, Why
from shipper.sdk.units import events_in_words
from shipper.spool.dead_letters import Full
from shipper.spool.parts.letters import Letters
from shipper.spool.parts.queue import Queue
from shipper.spool.queue import Entry, Settlement
from shipper.values import Counts

_log = log.get(__name__)

ELSEWHERE = "the destination keeps their dead letters"
QUIET_SECONDS = 10.0
"""Seconds between two lines of the log about dead letters."""


class Settling:
    """Settles for one session of a lane; `patience`: for how many seconds what is to be written may wait.

    Notes with the `link` what was answered.
    """

    def __init__(self, link: Link, queue: Queue, letters: Letters, patience: Callable[[], float]) -> None:
        self.rejected: Why | None = None
        """What to report, with the cause, of an output that has only dead letters."""
        self.letters = letters
        self._link, self._output, self._queue, self._patience = link, link.key.output, queue, patience
        self._rejected = 0
        self._quiet_until = 0.0

    async def composed(self, stable: Stable, positions: Sequence[int]) -> str | None:
        """Returns the id of the request for these events, which is durable; None if they are in another request."""
        name = stable.name(positions)
        if name is None:
            parts, instead = stable.parts(positions), stable.covering(positions)
            name = await self._queue.compose(self._link.lane, parts, instead)
            if name is not None:
                stable.composed(positions, name)
        return name

    async def forget(self, request: str) -> None:
        """Forgets a request of which no event is left."""
        await self._queue.forget_requests([request])

    async def settle(
        self, attempt: Attempt, parts: Sequence[tuple[Entry, range]]
    ) -> tuple[dict[int, Settlement | None], frozenset[int]]:
        """Writes the answers for each entry, by `seq`; None for an entry without any.

        Returns the slots that hold another version by now; nothing was written for these. Rejected events for which the
        dead-letter store has no room stay open; the others of their entry do not.
        """
        fits: Mapping[int, Collection[int]] | None = None
        is_awaited = any(entry.is_awaited for entry, _ in parts)
        while True:
            settlements = settlements_of(self._output, attempt, parts, fits)
            try:
                answered = () if attempt.stable is None else attempt.stable.answered
                renewed = await self._write(settlements, is_awaited=is_awaited, answered=answered)
            except Full as full:  # once more: another lane was quicker, and then none is written
                if attempt.stable is not None:
                    return dict.fromkeys(settlements), frozenset()
                fits = full.fits if fits is None else {}
            else:
                break
        for seq, settlement in settlements.items():
            if settlement is not None and seq not in renewed:
                self._see_to_letters(settlement)
        return settlements, renewed

    async def damaged(self, entry: Entry) -> None:
        """Settles an entry whose events can no longer be read; not cancelled."""
        _log.error("stored events are damaged", output=self._output, events=entry.events)
        with trio.CancelScope(shield=True):
            await self._write({entry.seq: Settlement(Counts(damaged=entry.events))}, is_awaited=entry.is_awaited)

    async def _write(
        self, settlements: Mapping[int, Settlement | None], *, is_awaited: bool, answered: Collection[str] = ()
    ) -> frozenset[int]:
        """Where an input waits for the answers, a barrier of another shipper may wait for them too."""
        changed = {seq: settlement for seq, settlement in settlements.items() if settlement is not None}
        if not changed:
            return frozenset()
        patience = 0.0 if is_awaited else self._patience()
        noted = await self._queue.settle(self._link.lane, changed, patience=patience, answered=answered)
        self._link.counters["letters_dropped"] += noted.letters_dropped
        for seq, settlement in changed.items():
            if seq in noted.renewed:
                continue
            self._link.confirmed.note(settlement)
            for name in ("delivered", "duplicate", "dead_letter", "dropped", "damaged", "superseded"):
                self._link.counters[name] += getattr(settlement.counts, name)
        if noted.lanes:
            self._link.pool.moved(noted.lanes)
        return noted.renewed

    def _see_to_letters(self, settlement: Settlement) -> None:
        """Logs dead letters; an output that has only dead letters is not doing its job."""
        if settlement.counts.answered > settlement.counts.dead_letter:
            self._rejected, self.rejected = 0, None
        else:
            self._rejected += settlement.counts.dead_letter
            reason = settlement.letters[-1].reason if settlement.letters else ELSEWHERE
            text = f"{events_in_words(self._rejected)} refused for good in a row, the last: {reason}"
            self.rejected = Why(text, Code.REJECTED)
        if settlement.letters and trio.current_time() >= self._quiet_until:
            self._quiet_until = trio.current_time() + QUIET_SECONDS
            events, reason = len(settlement.letters), settlement.letters[-1].reason
            _log.warning("events became dead letters", output=self._output, events=events, reason=reason)


def settlements_of(
    output: str, attempt: Attempt, parts: Sequence[tuple[Entry, range]], fits: Mapping[int, Collection[int]] | None
) -> dict[int, Settlement | None]:
    """Returns what to write for each entry, by `seq`; None where nothing has changed. `fits`: by entry, the dead
    letters that have room; None: all have."""
    return {
        entry.seq: attempt.settlement(
            output, part, letters=None if fits is None else fits.get(entry.seq, ()), place=entry.place
        )
        for entry, part in parts
    }
