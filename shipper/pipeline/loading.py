"""Loads the batches of a lane's entries, from memory or disk, within the memory that there is.

Entries are combined by their sealed size; how much that becomes (`Batch.size`) is known only after loading. So an
ordinary request first borrows its share of memory and takes as many entries as fit; an entry that does not fit goes
alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import accumulate

from shipper.pipeline.loans import MOST_UNPACKED, REQUEST_BYTES, Borrower, Loan
from shipper.pipeline.recent import Recent
from shipper.sdk.event import Batch
from shipper.spool.queue import Entry
from shipper.spool.schema import BATCH, SLOT
from shipper.spool.spool import Spool

Loaded = list[tuple[Entry, Batch]]


class Loading:
    """Loads for the lane with the id `lane`, at most `most_bytes` at once unless one entry has more. `is_ending`:
    whether the session ends, and nothing more is to be sent.

    `on_damage` is called for an entry that stays unreadable after a repair, `on_gone` for a slot that was superseded
    meanwhile; both are left out.
    """

    def __init__(
        self,
        *,
        lane: int,
        spool: Spool,
        recent: Recent,
        loans: Borrower,
        most_bytes: int,
        is_ending: Callable[[], bool],
        on_damage: Callable[[Entry], Awaitable[None]],
        on_gone: Callable[[Entry], None],
    ) -> None:
        self._lane, self._spool, self._recent, self._loans = lane, spool, recent, loans
        self._most_bytes, self._is_ending, self._on_damage = most_bytes, is_ending, on_damage
        self._on_gone = on_gone

    async def load(self, entries: Sequence[Entry]) -> tuple[Loan | None, Loaded, Sequence[Entry]]:
        """Loads as many entries as an ordinary request has memory for, else one alone; none if the session ends.

        Returns the loan, the entries with their batches, and the remaining entries.
        """
        loan, loaded, left = None, Loaded(), entries
        if not self._loans.is_careful and not self._is_ending() and (loan := await self._loans.borrow()) is not None:
            loaded, left = await self._load(entries, REQUEST_BYTES)
            if len(left) == len(entries):
                loan.give_back()
        if len(left) == len(entries) and not self._is_ending():
            loan = await self._loans.borrow(max(entries[0].size * MOST_UNPACKED, REQUEST_BYTES + 1))
            if loan is not None:
                (loaded, _), left = await self._load(entries[:1], None), entries[1:]
        if loan is not None:
            loan.hold(sum(batch.size for _, batch in loaded))
        return loan, loaded, left

    async def _load(self, entries: Sequence[Entry], limit: int | None) -> tuple[Loaded, Sequence[Entry]]:
        """Loads entries, and returns those from the first on that goes beyond `limit` bytes.

        Unreadable entries are repaired first; only those that stay damaged count as damaged.
        """
        every = entries
        found = {entry.seq: batch for entry in entries if (batch := self._recently(entry)) is not None}
        for repaired in (False, True):
            missing = [entry for entry in entries if entry.seq not in found]
            if not missing:
                break
            if repaired:
                await self._spool.repair_once()
            loaded, beyond = await self._spool.load_all(self._lane, missing, limit)
            found |= loaded
            entries = entries[: entries.index(beyond[0])] if beyond else entries
        entries = fitting(entries, found, limit, lambda batch: batch.size)
        entries = fitting(entries, found, self._most_bytes, lambda batch: len(batch.body)) or entries[:1]
        left = every[len(entries) :]
        for entry in left:
            if entry.seq in found and entry.kind == BATCH:
                self._recent.keep(self._lane, entry.seq, found[entry.seq])
        for entry in entries:
            if entry.seq not in found:
                await self._on_damage(entry)
            elif not found[entry.seq].count:
                self._on_gone(entry)
        sound = [(entry, found[entry.seq]) for entry in entries if entry.seq in found and found[entry.seq].count]
        return [(await self._counted(entry, batch), batch) for entry, batch in sound], left

    def _recently(self, entry: Entry) -> Batch | None:
        return self._recent.take(self._lane, entry.seq) if entry.kind == BATCH else None

    async def _counted(self, entry: Entry, batch: Batch) -> Entry:
        if entry.kind == SLOT:
            return entry._replace(place=batch.seq)
        if batch.count == entry.events:
            return entry
        return await self._spool.recount(self._lane, entry, batch.count)


def fitting(
    entries: Sequence[Entry], found: Mapping[int, Batch], limit: int | None, size: Callable[[Batch], int]
) -> list[Entry]:
    """Returns the first entries, as many as have `limit` bytes together; those that were not found have none."""
    sizes = accumulate(size(found[entry.seq]) if entry.seq in found else 0 for entry in entries)
    return [entry for entry, size in zip(entries, sizes, strict=True) if limit is None or size <= limit]
