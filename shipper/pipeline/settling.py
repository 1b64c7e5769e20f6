"""The answers for events become settlements in the spool; and what dead letters say of an output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import trio

from shipper.pipeline.attempt import Attempt
from shipper.pipeline.confirmed import Confirmations
from shipper.process import log
from shipper.sdk.units import events_in_words
from shipper.spool.dead_letters import Full
from shipper.spool.queue import Entry, Settlement
from shipper.spool.spool import Spool
from shipper.values import Counts

_log = log.get(__name__)

ELSEWHERE = "the destination keeps their dead letters"
QUIET_SECONDS = 10.0
"""Between two lines of the log about dead letters."""


class Settling:
    """Of one session of a lane; `is_quiet` says whether nobody waits for what is to be written.

    `counters` counts final answers by their names, and dead letters that were dropped to make room. `on_moved` is
    called with the lanes that were given something to do by what was settled.
    """

    def __init__(
        self,
        *,
        lane: int,
        output: str,
        spool: Spool,
        counters: Counter[str],
        confirmed: Confirmations,
        is_quiet: Callable[[], bool],
        on_moved: Callable[[Collection[int]], None],
    ) -> None:
        self.rejected_reason: str | None = None
        """That an output has nothing but dead letters, and why."""
        self._lane, self._output, self._spool = lane, output, spool
        self._counters, self._is_quiet, self._on_moved = counters, is_quiet, on_moved
        self._confirmed = confirmed
        self._rejected = 0
        self._quiet_until = 0.0

    async def settle(
        self, attempt: Attempt, parts: Sequence[tuple[Entry, range]]
    ) -> tuple[dict[int, Settlement | None], frozenset[int]]:
        """Write what was answered for each entry, by `seq`; None for one of which nothing was.

        Returns the slots besides that hold another version by now: of these nothing was written.
        Rejected events for which the dead-letter store has no room stay as they are, and only they.
        """
        fits: Mapping[int, Collection[int]] | None = None
        while True:
            settlements = {
                entry.seq: attempt.settlement(
                    self._output, part, letters=None if fits is None else fits.get(entry.seq, ()), place=entry.place
                )
                for entry, part in parts
            }
            try:
                renewed = await self._write(settlements)
            except Full as full:  # once more: another lane was quicker, and then none is written
                fits = full.fits if fits is None else {}
            else:
                break
        for seq, settlement in settlements.items():
            if settlement is not None and seq not in renewed:
                self._see_to_letters(settlement)
        return settlements, renewed

    async def damaged(self, entry: Entry) -> None:
        """Settle an entry whose events cannot be read any more."""
        _log.error("stored events are damaged", output=self._output, events=entry.events)
        await self._write({entry.seq: Settlement(Counts(damaged=entry.events))})

    async def _write(self, settlements: Mapping[int, Settlement | None]) -> frozenset[int]:
        changed = {seq: settlement for seq, settlement in settlements.items() if settlement is not None}
        if not changed:
            return frozenset()
        noted = await self._spool.settle(self._lane, changed, patient=self._is_quiet())
        self._counters["letters_dropped"] += noted.letters_dropped
        for seq, settlement in changed.items():
            if seq in noted.renewed:
                continue
            self._confirmed.note(settlement)
            for name in ("delivered", "duplicate", "dead_letter", "dropped", "damaged", "superseded"):
                self._counters[name] += getattr(settlement.counts, name)
        if noted.lanes:
            self._on_moved(noted.lanes)
        return noted.renewed

    def _see_to_letters(self, settlement: Settlement) -> None:
        """Dead letters are logged; an output that has nothing but dead letters is not doing its job."""
        if settlement.counts.answered > settlement.counts.dead_letter:
            self._rejected, self.rejected_reason = 0, None
        else:
            self._rejected += settlement.counts.dead_letter
            reason = settlement.letters[-1].reason if settlement.letters else ELSEWHERE
            self.rejected_reason = f"{events_in_words(self._rejected)} refused for good in a row, the last: {reason}"
        if settlement.letters and trio.current_time() >= self._quiet_until:
            self._quiet_until = trio.current_time() + QUIET_SECONDS
            events, reason = len(settlement.letters), settlement.letters[-1].reason
            _log.warning("events became dead letters", output=self._output, events=events, reason=reason)
