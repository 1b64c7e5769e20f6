"""The border of an output: whatever goes wrong while an answer is read is a bad answer, never the fault of the events.

The core takes an exception that it does not know for a fault of the plugin with some event: it halves the batch, and
what fails alone becomes a dead letter. A backend whose answers cannot be read would get rid of sound events that way.
So an output reads each answer within `reading`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shipper.plugin import Code, Held, Later, NotBegun, TooLarge, forget_frames, raised_at


@contextmanager
def reading(host: str | None, *passed: type[Exception]) -> Iterator[None]:
    """Lets the errors of the contract and those of the types `passed` through, and raises Later (`bad_answer`) for any
    other: it names the host, if it is given, and the type of that error and its place."""
    through: tuple[type[Exception], ...] = (Later, Held, TooLarge, NotBegun, *passed)
    try:
        yield
    except through:
        raise
    except Exception as error:
        reason = ": ".join(filter(None, (host, unreadable(error))))
        forget_frames(error)
        raise Later(reason, code=Code.BAD_ANSWER) from None


def unreadable(error: Exception) -> str:
    """Returns what is said of an answer on which its reader failed."""
    return f"the answer cannot be read ({raised_at(error)})"
