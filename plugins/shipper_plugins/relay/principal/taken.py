"""What a receiver remembers of the parts that it took from one link of an edge, so that each event enters once. No I/O.

A link is one queue of a sender. What was taken is remembered by the identity of its events, (origin, seq, items), until
the sender says that it has read the answer: until its low-water mark has passed the part's place. So the memory is as
large as what is under way, however long the link lives. It is stored as a position of the input, in the transaction
that stores the events; `Memory` is a value, and each change makes a new one.

A part that was taken comes again with the same digest, and gets the same answer. A part with another digest is refused
and never acknowledged: two different batches have one identity. A part may also come with more or fewer events than
before, since the sender halves what is too large and sends what is left of a batch. With more, those that were taken
are compared by their digest; with fewer, the items alone show that they were taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from shipper.plugin import Batch
from shipper_plugins.relay.frames import FrameError, Generation

MOST_ENTRIES: Final = 1024
"""The most entries of one link. A sender that never confirms what it has read is put off beyond that."""
MOST_SPANS: Final = 4096
"""The most runs of items of one part."""
MOST_SPANS_OF_ALL: Final = 32 * MOST_SPANS
"""The most runs of all parts of one link together: its memory is stored as a whole with each part. A sender has at most
32 parts on their way, so none is put off for ever by the others."""
MOST_ROOM: Final = 8 << 20
"""The most bytes of answers (`Taken.room`) that one link awaits: more than 32 parts with the most events need; and 1024
parts of 8192 events, where each is a whole batch."""

_ITEM_BYTES: Final = 9
_OF_A_SHIPPER: Final = re.compile(r"[A-Za-z0-9_-]{22}-[0-9]+-[0-9]+", re.ASCII)

Spans = tuple[tuple[int, int], ...]
"""Items as rising runs, each with its first and its last item, with a gap between any two."""


class Conflict(FrameError):
    """A part has the identity of another one that was taken."""

    def __init__(self) -> None:
        super().__init__("another part was taken under the identity of this one", "identity_conflict")


class Crowded(Exception):
    """The sender must confirm what it has read first."""


class Taken(msgspec.Struct, frozen=True, array_like=True):
    """A part that was taken."""

    place: int
    origin: bytes
    seq: int
    spans: Spans
    digest: bytes
    awaited: bool = False
    """Whether its sender waits for the final answers."""

    @property
    def room(self) -> int:
        """The most bytes that its answers take: a byte for each event, and its item beside it unless these count from
        0."""
        events = sum(last - first + 1 for first, last in self.spans) if self.awaited else 0
        return events if self.spans == ((0, events - 1),) else events * (1 + _ITEM_BYTES)

    def key(self, edge: str) -> str:
        """The key under which its answers are kept; nothing else that was taken of this edge has the same."""
        return f"{edge}/{self.origin.hex()}/{self.seq}/{self.spans[0][0]}"

    def is_of(self, batch: Batch) -> bool:
        """Whether it has events of a part of the same batch."""
        items = range(batch.count) if batch.items is None else batch.items
        return not frozenset(items).isdisjoint(numbers(self.spans))


class Memory(msgspec.Struct, frozen=True):
    """The memory of one link; `generation` is its newest session, `used` counts the sessions of the edge up to that
    one."""

    generation: Generation
    used: int = 0
    entries: tuple[Taken, ...] = ()
    highest: int = 0
    """The highest place of a part that was ever confirmed."""
    room: int = 0
    """The sum of the rooms of its entries."""

    def pack(self) -> bytes:
        """Returns it as a position of the input."""
        return msgspec.msgpack.encode(_Packed(_VERSION, self.generation, self.used, self.entries, self.highest))

    @classmethod
    def unpack(cls, packed: bytes) -> Memory:
        """Reads what `pack` has made; raises ValueError for anything else."""
        try:
            read = _packed_of(packed)
        except msgspec.MsgspecError as error:
            raise ValueError("not the memory of a link") from error
        if read.version != _VERSION:
            raise ValueError("the memory of a link as another version of this program keeps it")
        room = sum(one.room for one in read.entries)
        return cls(read.generation, read.used, read.entries, read.highest, room)

    def above(self, low: int) -> Memory:
        """Returns it without the parts below the low-water mark."""
        return self._keeping([one.place >= low for one in self.entries])

    def without(self, gone: Collection[Taken]) -> Memory:
        """Returns it without these parts: they enter anew if they come again."""
        return self._keeping([one not in gone for one in self.entries])

    def _keeping(self, kept: Sequence[bool]) -> Memory:
        if all(kept):
            return self
        entries = tuple([one for one, stays in zip(self.entries, kept, strict=True) if stays])
        freed = sum([one.room for one, stays in zip(self.entries, kept, strict=True) if not stays])
        return replace(self, entries=entries, room=self.room - freed)

    def begun(self, generation: Generation, used: int) -> Memory:
        """Returns it in a newer session."""
        return replace(self, generation=generation, used=used)

    def reaching(self, place: int) -> Memory:
        """Returns it with the part at this place confirmed, whichever link that was taken from."""
        return self if place <= self.highest else replace(self, highest=place)

    def taking(self, fresh: Iterable[Taken]) -> Memory:
        """Returns it with these parts. Raises Crowded."""
        entries = (*self.entries, *fresh)
        if len(entries) > MOST_ENTRIES or sum([len(one.spans) for one in entries]) > MOST_SPANS_OF_ALL:
            raise Crowded
        room = self.room + sum([one.room for one in entries[len(self.entries) :]])
        if room > MOST_ROOM:
            raise Crowded
        return replace(self, entries=entries, room=room)

    def of(self, origin: bytes, seq: int) -> list[Taken]:
        """Returns the parts of one batch."""
        return [one for one in self.entries if one.seq == seq and one.origin == origin]


_VERSION: Final = 1


class _Packed(msgspec.Struct, array_like=True):
    version: int
    generation: Generation
    used: int
    entries: tuple[Taken, ...]
    highest: int = 0


_packed_of = msgspec.msgpack.Decoder(_Packed).decode  # for all threads, before there are any; see shipper.sdk.packing


def fresh(batch: Batch, digest: bytes, known: Sequence[Taken], digest_of: Callable[[Batch], bytes]) -> Sequence[int]:
    """Returns the positions of its events that were not taken, given all that was taken of the same batch. Raises
    Conflict."""
    if not known:
        return range(batch.count)
    items = range(batch.count) if batch.items is None else batch.items
    mine = frozenset(items)
    taken: set[int] = set()
    for one in known:
        theirs = frozenset(numbers(one.spans))
        if mine.isdisjoint(theirs):
            continue
        if theirs <= mine:
            same = batch if theirs == mine else batch.pick([at for at, item in enumerate(items) if item in theirs])
            if (digest if same is batch else digest_of(same)) != one.digest:
                raise Conflict
        taken |= theirs
    return [at for at, item in enumerate(items) if item not in taken]


def spans(items: Iterable[int]) -> Spans:
    """Returns items as runs."""
    runs: list[tuple[int, int]] = []
    for item in sorted(set(items)):
        if runs and runs[-1][1] == item - 1:
            runs[-1] = (runs[-1][0], item)
        else:
            runs.append((item, item))
    return tuple(runs)


def numbers(runs: Spans) -> Iterable[int]:
    """Returns the items of runs."""
    return [item for first, last in runs for item in range(first, last + 1)]


def without_foreign(batch: Batch) -> Batch:
    """Returns the batch without given ids that have the form of those of shippers: such events get an id of the batch's
    own identity."""
    if batch.ids is None or not any(id is not None and _OF_A_SHIPPER.fullmatch(id) for id in batch.ids):
        return batch
    return batch.with_columns(ids=[None if id is None or _OF_A_SHIPPER.fullmatch(id) else id for id in batch.ids])


def taken(batch: Batch, place: int, digest: bytes, *, awaited: bool = False) -> Taken:
    """Returns what to remember of a part. Raises FrameError if its items are too many runs."""
    runs = spans(batch.items) if batch.items is not None else ((0, batch.count - 1),)
    if len(runs) > MOST_SPANS:
        raise FrameError("the items of a part are in too many runs")
    return Taken(place, batch.origin, batch.seq, runs, digest, awaited)
