"""Exception groups of a failure and a cancel, as a plugin with a nursery raises if a task fails while it is cancelled.

Such a group is no `Exception`, since it contains a cancel. If it propagated, the cancel would end its scope, and the
failure the whole process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio


@contextmanager
def failures_apart(note: Callable[[Exception], None]) -> Iterator[None]:
    """Passes a failure within the block to `note`, which may raise; a cancel in the same group is raised alone.

    A single failure is taken out of its group, so that its name and place can be reported.
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
    """Returns the only failure in a group, however deep; otherwise the error itself."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
