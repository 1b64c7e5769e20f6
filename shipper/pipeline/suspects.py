"""Entries on which an output failed as a bug makes it fail: with an error that no contract knows. No I/O.

Such an error may come from one event that the output cannot handle, or from the output itself. So an entry is sent
again as a whole, and after `FAILURES` in a row in halves, until each event that fails is alone; if others of it were
delivered, those that are left have to fail as often once more. Then they become dead letters if the output works
otherwise: if another event of the same entry, or of the same session, has its final answer, or if a witness has. That
is a later entry, on which the output has not failed: it is sent before the suspect, and shows that none of the failures
until then was of the output as a whole. Without any of these all stay queued, and are tried again with longer and
longer waits: an output that fails on everything gives up nothing.

An answer for another number of events is such an error too: an output translates answers that were cut short (Later).
What the way to the destination may cause, such as a lost connection, makes no entry suspect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import trio

from shipper.process.groups import only
from shipper.sdk.codes import Code
from shipper.sdk.errors import PluginFault, StartFailed, raised_at

FAILURES = 3
"""In a row, on one entry."""
MOST = 64
"""Entries that are remembered; of more, those that failed last."""
WITNESSES = 3
"""Entries that are asked in vain before a suspect is sent; the next time there are others."""
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
        """The output failed on this entry once more."""
        self._failures[seq] = self._failures.pop(seq, 0) + 1
        if len(self._failures) > MOST:
            self.settled(next(iter(self._failures)))

    def output_works(self) -> None:
        """A witness was delivered, which was sent after all of these failures."""
        self._witnessed.update(self._failures)

    def is_witnessed(self, seq: int) -> bool:
        """Whether the output has worked on others since it failed on this entry."""
        return seq in self._witnessed

    def settled(self, seq: int) -> None:
        """All its events have their final answers: forget it."""
        self._failures.pop(seq, None)
        self._witnessed.discard(seq)
        self._isolated.discard(seq)

    def isolated(self, seq: int) -> None:
        """Of this entry all but the events that failed alone have their final answers: these are counted anew."""
        self._failures[seq] = 0
        self._witnessed.add(seq)
        self._isolated.add(seq)

    def is_isolated(self, seq: int) -> bool:
        """Whether only events that failed alone were left of it."""
        return seq in self._isolated

    def __contains__(self, seq: int) -> bool:
        return seq in self._failures

    def are_known(self, seqs: Collection[int]) -> bool:
        """Whether the output failed often enough on one of these, so that it is looked for single events."""
        return any(self._failures.get(seq, 0) >= FAILURES for seq in seqs)


def blames_event(error: Exception) -> bool:
    """Whether an event may be the cause of an unexpected error, and not the way to the destination."""
    return not any(isinstance(each, _OF_THE_WAY) for each in _with_causes(error))


def said(error: Exception) -> str:
    """An unexpected error of an output in words that do not quote an event."""
    return str(error) if isinstance(error, PluginFault) else f"the output failed: {raised_at(only(error))}"


def code_of(error: Exception) -> str:
    """The code of an unexpected error of an output."""
    return error.code if isinstance(error, PluginFault) else Code.INTERNAL_ERROR


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """The error, those in it if it is a group, and those that it was raised from."""
    open, seen = [error], set[int]()
    while open:
        each = open.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            open += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
            open += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
