"""The contract between a fleet and the store in which it is kept, with the laws that every store must obey.

    linearizable   `read`, `list` and `swap` take effect at one instant between call and return, for all clients
    swap           writes one key if its last change is the expected one, and nothing else; revisions only grow
    watch          yields every change of the watched keys after a revision, in order, once; a gap is an error
    lease          a key under a lease is not removed before the lease's seconds have passed since the start of its last
                   successful renewal; without renewals it is removed, and watchers see that
    trouble        a call returns or raises within `SECONDS`; a watch that may have fallen behind raises. Nothing hangs

Who removes the keys of a lease that has ended differs. etcd does it itself. An API server has no clock for this, so
there it is done by an observer that has seen the lease unchanged for its seconds by a clock of its own: any client that
watches, or holds a lease, is one. So where nobody watches, a key may stay long after its lease, and one look at it
proves that its lease was granted, not that somebody lives; who has to know watches, for the lease's seconds or longer.

A revision is one counter for the whole store. Values are bytes, at most `Store.largest`. Keys are text below the
fleet's own prefix, which callers never see: `head`, `members/web-1`.

Each store passes `tests/fleet/conformance.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from shipper.sdk.errors import ShipperError

SECONDS = 10.0
"""The longest call, all attempts at all hosts included."""
PROMPT = 3.0
"""The longest reading of one key for somebody who waits, and would rather be told that the store is away."""
ABSENT = 0
"""The revision of a key that does not exist."""


class StoreError(ShipperError):
    """A call failed; the text has the host and the cause, and no value."""


class StoreUnreachable(StoreError):
    """No host of the store answers, or none has a quorum. The effect of a `swap` is then unknown."""


class StoreRefused(StoreError):
    """The store refuses this client: a wrong password or certificate, a missing right, no space."""


class LeaseEnded(StoreRefused):
    """The lease does not exist any more."""


class Compacted(StoreError):
    """The store has no longer every change since the revision: `list`, and watch from there."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A key and its value."""

    key: str
    value: bytes = field(repr=False)
    revision: int
    """Of its last change; `swap` compares this."""
    created: int
    """Of its creation; a key that was deleted and created again has another one."""
    leased: bool = False
    """Whether it is under a lease, and so is removed with it."""


def held(entry: Entry | None) -> Entry | None:
    """Returns an entry under a lease, and None for any other: a copy without one proves nothing, and never ends."""
    return entry if entry is not None and entry.leased else None


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to `read`, as of revision `at` of the store."""

    entry: Entry | None
    at: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The answer to `list`: all entries, by key, as of revision `at`; watch after `at`."""

    entries: Sequence[Entry]
    at: int


@dataclass(frozen=True, slots=True)
class Swapped:
    """The answer to `swap`."""

    done: bool
    entry: Entry | None
    """The key's entry at `at`, after this swap or instead of it; None if the key is absent."""
    at: int


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a key; `entry` is None if it was removed, by a swap or with its lease."""

    key: str
    entry: Entry | None
    at: int


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease of the store."""

    id: int
    seconds: float


class Store(Protocol):
    """A store; each method raises StoreError, and may be cancelled: the effect of a swap is unknown then."""

    @property
    def largest(self) -> int:
        """The most bytes of a value: 1 MiB and what a record has around it, or more."""
        ...

    @property
    def relist(self) -> float:
        """Seconds after which an observer lists again what it watches; infinite if a watch cannot die unnoticed."""
        ...

    async def read(self, key: str, *, seconds: float = SECONDS) -> Found:
        """Returns the key's entry; the call takes at most `seconds`."""
        ...

    async def list(self, prefix: str, *, keys_only: bool = False) -> Listing:
        """Returns the entries of all keys that begin with `prefix`, at one revision; with `keys_only` their values are
        empty, and are not transferred."""
        ...

    async def swap(
        self,
        key: str,
        value: bytes | None,
        *,
        expected: int,
        lease: Lease | None = None,
        renews: Lease | None = None,
    ) -> Swapped:
        """Writes the value, or removes the key for None, if the revision of the key is `expected` (`ABSENT`: none).

        Under a `lease`, the key is removed with it; a swap without one takes the key from its lease. A lease that
        has ended raises LeaseEnded, and nothing is written.

        With `renews`, a successful swap also renews that lease, as `renew` does from the start of this call, in as few
        writes as the store can. `renews` is not for removals. A lease that has ended raises LeaseEnded; the effect of
        the swap is unknown then.
        """
        ...

    def watch(self, prefix: str, after: int) -> AbstractAsyncContextManager[AsyncIterator[Sequence[Change]]]:
        """Yields the changes of keys that begin with `prefix`, all of one revision or more at a time.

        The iteration raises Compacted, or StoreUnreachable after the watch could not be resumed for `SECONDS`; then
        watch again. It resumes a broken connection by itself.
        """
        ...

    async def grant(self, seconds: float) -> Lease:
        """Returns a new lease; the store may round up to its own step."""
        ...

    async def renew(self, lease: Lease) -> bool:
        """Renews a lease for its seconds, counted from the start of this call; returns whether it had not ended."""
        ...

    async def revoke(self, lease: Lease) -> None:
        """Ends a lease, and removes its keys."""
        ...
