"""The border around the code of a plugin: whatever it raises stays with its unit.

    raised by a plugin                                             becomes
    an Exception                                                   itself, without a group around it alone
    SystemExit, KeyboardInterrupt, GeneratorExit, a cancel of      PluginFault, which names it and its place
    asyncio, a cancel of trio that nobody around it asked for,
    a group with one of these
    a cancel of ours, also beside failures in a group              the cancel, and the failure apart

A group of a failure and a cancel, as a plugin with a nursery raises if a task fails while it is cancelled, is no
`Exception`. If it propagated, the cancel would end its scope, and the failure the whole process; so would any other
error that is no `Exception`.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from shipper.sdk.errors import PluginFault, anew, raised_at


@contextmanager
def failures_apart(note: Callable[[Exception], None]) -> Iterator[None]:
    """Passes a failure within the block to `note`, which may raise; a cancel in the same group is raised alone.

    A single failure is taken out of its group, so that its name and place can be reported.
    """
    try:
        yield
    except BaseException as error:
        if _is_ours(error):
            raise
        note(_failure(error))
        cancelled = _cancel_in(error)
        if cancelled is not None:
            raise cancelled from None


@contextmanager
def contained() -> Iterator[None]:
    """Lets only an Exception, or a cancel of ours, out of the block, in which a plugin's code runs.

    A failure beside a cancel of ours stays in its group, for `failures_apart`.
    """
    try:
        yield
    except BaseException as error:
        is_plain = isinstance(error, Exception) and not isinstance(error, ExceptionGroup)
        if is_plain or _is_ours(error) or _cancel_in(error) is not None:
            raise
        raise anew(_failure(error)) from None


def only(error: Exception) -> Exception:
    """Returns the only failure in a group, however deep; otherwise the error itself."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def named(error: Exception) -> str:
    """Returns the name of an error of a plugin; its text might quote anything."""
    return str(error) if isinstance(error, PluginFault) else type(error).__name__


def _is_ours(error: BaseException) -> bool:
    """Whether nothing in it is a plugin's: a cancel that we asked for, or the key that a person has pressed."""
    if any(isinstance(one, KeyboardInterrupt) for one in _foreign(error)) and _interrupts():
        return True
    rest = error.split(trio.Cancelled)[1] if isinstance(error, BaseExceptionGroup) else error
    return (rest is None or isinstance(rest, trio.Cancelled)) and _are_cancelled()


def _cancel_in(error: BaseException) -> BaseException | None:
    """Returns the cancels of ours in a group."""
    if not isinstance(error, BaseExceptionGroup) or not _are_cancelled():
        return None
    return error.split(trio.Cancelled)[0]


def _failure(error: BaseException) -> Exception:
    """Returns what a plugin has raised, without a cancel of ours, as an Exception."""
    if isinstance(error, BaseExceptionGroup) and _are_cancelled():
        error = error.split(trio.Cancelled)[1] or error
    if isinstance(error, Exception):
        return only(error)
    leaf = next(_foreign(error))
    return PluginFault(f"the plugin raised {raised_at(leaf)}")


def _foreign(error: BaseException) -> Iterator[BaseException]:
    """Yields the errors that are no Exception."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _foreign(one)
    elif not isinstance(error, Exception):
        yield error


def _are_cancelled() -> bool:
    """Whether a scope around this block is cancelled; False in a worker thread."""
    try:
        return trio.current_effective_deadline() == -math.inf
    except RuntimeError:
        return False


def _interrupts() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt in this process: not where it takes the signal itself."""
    taken_by = signal.getsignal(signal.SIGINT)
    return taken_by is signal.default_int_handler or getattr(taken_by, "__module__", "") == "trio._core._ki"
