"""A failure beside a cancel: what a plugin with a nursery of its own raises if a task fails while it is cancelled.

Such a group is no `Exception`, since a cancel is in it. Whoever lets it pass gives the cancel to the scope that it
belongs to, and the failure to the whole process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio


@contextmanager
def failures_apart(note: Callable[[Exception], None]) -> Iterator[None]:
    """Give what fails within the block to `note`, which may raise; a cancel beside it goes on alone.

    The only failure in a group is given as itself, so that it can be told by its name and place.
    """
    try:
        yield
    except Exception as error:
        note(only(error))
    except BaseExceptionGroup as group:
        cancelled, rest = group.split(trio.Cancelled)
        if cancelled is None or not isinstance(rest, Exception):
            raise
        note(only(rest))
        raise cancelled from None


def only(error: Exception) -> Exception:
    """The only failure in a group, however deep; else the error itself."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
