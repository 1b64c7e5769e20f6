"""Loads the batches of a lane's entries, from memory or disk, within the memory that there is.

Entries are combined by their sealed size; how much that becomes (`Batch.size`) is known only after loading. So an
ordinary request first borrows its share of memory and takes as many entries as fit; an entry that does not fit goes
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import msgspec

from shipper.pipeline.memory.loans import MOST_UNPACKED, REQUEST_BYTES, Borrower, Lender, Loan
from shipper.pipeline.memory.recent import Recent
from shipper.sdk.event import Batch
from shipper.spool.parts.queue import Queue
from shipper.spool.queue import Entry
from shipper.spool.schema import BATCH, SLOT

Loaded = list[tuple[Entry, Batch]]


class Load(msgspec.Struct):
    """What was loaded, with the memory that it takes, and the entries that are left to be loaded.

    Not among them are those that stay unreadable after a repair, and slots that were superseded meanwhile.
    """

    left: Sequence[Entry]
    loan: Loan | None = None
    loaded: Loaded = msgspec.field(default_factory=list)
    damaged: list[Entry] = msgspec.field(default_factory=list)
    gone: list[Entry] = msgspec.field(default_factory=list)


class LaneMemory:
    """The memory of the lane with the id `lane`: what it borrows for its requests, and what was just stored for it."""

    def __init__(self, lane: int, queue: Queue, lender: Lender, recent: Recent) -> None:
        self.loans = Borrower(lender)
        self._lane, self._queue, self._recent = lane, queue, recent

    def keep(self, seq: int, batch: Batch) -> None:
        """Keeps a batch that was just stored, if there is room."""
        self._recent.keep(self._lane, seq, batch)

    def forget(self) -> None:
        """Gives back what was kept: the lane waits."""
        self._recent.forget(self._lane)

    async def load(
        self, entries: Sequence[Entry], most_text: int, is_ending: Callable[[], bool], *, whole: bool = False
    ) -> Load:
        """Loads as many entries as an ordinary request has memory for, else one alone; `whole`: all of them.

        Unless one entry has more, they have at most `most_text` bytes of text. Nothing is loaded if the session ends.
        """
        load, room = Load(entries), _room(entries, most_text)
        if not (self.loans.is_careful or is_ending()):
            load.loan = await self.loans.borrow(room)
        if load.loan is not None:
            await self._load(load, entries, (room, most_text))
            if len(load.left) == len(entries) or (whole and load.left):
                load.loan.give_back()
                load = Load(entries)
        if len(load.left) == len(entries) and not is_ending():
            alone = entries if whole else entries[:1]
            load.loan = await self.loans.borrow(max(_unpacked(alone), REQUEST_BYTES + 1))
            if load.loan is not None:
                await self._load(load, alone, None)
                load.left = entries[len(alone) :]
        if load.loan is not None:
            load.loan.hold(sum(batch.size for _, batch in load.loaded))
        return load

    async def _load(self, load: Load, entries: Sequence[Entry], limits: tuple[int, int] | None) -> None:
        """Loads entries, up to the first that goes beyond the limits: bytes that it takes, and of text.

        Unreadable entries are repaired first; only those that stay damaged count as damaged.
        """
        every = entries
        found = {entry.seq: batch for entry in entries if (batch := self._recently(entry)) is not None}
        for repaired in (False, True):
            missing = [entry for entry in entries if entry.seq not in found]
            if not missing:
                break
            if repaired:
                await self._queue.ground.repair_once()
            loaded, beyond = await self._queue.load(self._lane, missing, None if limits is None else limits[0])
            found |= loaded
            entries = entries[: entries.index(beyond[0])] if beyond else entries
        if limits is not None:
            entries = fitting(entries, found, limits[0], lambda batch: batch.size)
            entries = fitting(entries, found, limits[1], lambda batch: len(batch.body)) or entries[:1]
        load.left = every[len(entries) :]
        for entry in load.left:
            if entry.seq in found and entry.kind == BATCH:
                self._recent.keep(self._lane, entry.seq, found[entry.seq])
        for entry in entries:
            batch = found.get(entry.seq)
            if batch is None:
                load.damaged.append(entry)
            elif not batch.count:
                load.gone.append(entry)
            else:
                load.loaded.append((await self._counted(entry, batch), batch))

    def _recently(self, entry: Entry) -> Batch | None:
        return self._recent.take(self._lane, entry.seq) if entry.kind == BATCH else None

    async def _counted(self, entry: Entry, batch: Batch) -> Entry:
        if entry.kind == SLOT:
            return entry._replace(place=batch.seq)
        if batch.count == entry.events:
            return entry
        return await self._queue.recount(self._lane, entry, batch.count)


def _unpacked(entries: Sequence[Entry]) -> int:
    return sum(entry.size for entry in entries) * MOST_UNPACKED


def _room(entries: Sequence[Entry], most_text: int) -> int:
    """Returns what these entries may take; more than usual only for an output that wants large requests."""
    if most_text <= REQUEST_BYTES:
        return REQUEST_BYTES
    return max(REQUEST_BYTES, min(_unpacked(entries), 2 * most_text))


def fitting(
    entries: Sequence[Entry], found: Mapping[int, Batch], limit: int, size: Callable[[Batch], int]
) -> list[Entry]:
    """Returns the first entries, as many as have `limit` bytes together; those that were not found have none."""
    sizes = accumulate(size(found[entry.seq]) if entry.seq in found else 0 for entry in entries)
    return [entry for entry, size in zip(entries, sizes, strict=True) if size <= limit]
