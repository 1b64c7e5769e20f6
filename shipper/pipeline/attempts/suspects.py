"""Entries on which an output failed with an error outside its contract, as by a bug. No I/O.

One event that the output cannot handle may cause such an error, or the output itself. So an entry is sent again as a
whole; after `FAILURES` in a row it is sent in halves, until each failing event is alone. If others of the entry were
delivered, the remaining ones must fail as often once more. They become dead letters only if the output works otherwise:
another event of the same entry, or of the same session, got its final answer, or a witness did. A witness is a later
entry on which the output has not failed; it is sent before the suspect, and shows that no failure until then was of the
output as a whole. Without any of these, everything stays queued and is tried again with growing waits: an output that
fails on everything gives up nothing.

A wrong number of answers is such an error too; an output must translate truncated answers to Later. An error that the
way to the destination may cause, such as a lost connection, makes no entry suspect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import trio

from shipper.process.groups import only
from shipper.sdk.codes import Code
from shipper.sdk.errors import PluginFault, StartFailed, raised_at

FAILURES = 3
"""Failures in a row, on one entry."""
MOST = 64
"""Entries that are remembered; of more, those that failed last."""
WITNESSES = 3
"""Witnesses that are tried in vain before a suspect is sent; the next time there are others."""
_OF_THE_WAY = (
    OSError,
    EOFError,
    MemoryError,
    StartFailed,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
)


class Suspects:
    """Entries are named by their `seq`."""

    def __init__(self) -> None:
        self._failures: dict[int, int] = {}
        self._witnessed: set[int] = set()
        self._isolated: set[int] = set()

    def failed(self, seq: int) -> None:
        """Notes that the output failed on this entry once more."""
        self._failures[seq] = self._failures.pop(seq, 0) + 1
        if len(self._failures) > MOST:
            self.settled(next(iter(self._failures)))

    def output_works(self) -> None:
        """Notes that a witness was delivered which was sent after all of these failures."""
        self._witnessed.update(self._failures)

    def is_witnessed(self, seq: int) -> bool:
        """Whether the output has worked on others since it failed on this entry."""
        return seq in self._witnessed

    def settled(self, seq: int) -> None:
        """Forgets an entry: all its events have their final answers."""
        self._failures.pop(seq, None)
        self._witnessed.discard(seq)
        self._isolated.discard(seq)

    def isolated(self, seq: int) -> None:
        """Counts anew: only the events that failed alone are left of this entry."""
        self._failures[seq] = 0
        self._witnessed.add(seq)
        self._isolated.add(seq)

    def is_isolated(self, seq: int) -> bool:
        """Whether only events that failed alone are left of it."""
        return seq in self._isolated

    def __contains__(self, seq: int) -> bool:
        return seq in self._failures

    def are_known(self, seqs: Collection[int]) -> bool:
        """Whether the output failed so often on one of these that single events are searched."""
        return any(self._failures.get(seq, 0) >= FAILURES for seq in seqs)


def blames_event(error: Exception) -> bool:
    """Whether an event may be the cause of an unexpected error, rather than the way to the destination."""
    return not any(isinstance(each, _OF_THE_WAY) for each in _with_causes(error))


def said(error: Exception) -> str:
    """Returns an unexpected error of an output as a text that quotes no event."""
    return str(error) if isinstance(error, PluginFault) else f"the output failed: {raised_at(only(error))}"


def code_of(error: Exception) -> str:
    """Returns the code of an unexpected error of an output."""
    return error.code if isinstance(error, PluginFault) else Code.INTERNAL_ERROR


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yields the error, those in it if it is a group, and their causes."""
    open, seen = [error], set[int]()
    while open:
        each = open.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            open += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
            open += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
