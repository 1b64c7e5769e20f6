"""A test that hangs fails by name within three minutes, and takes no other down with it.

Each phase of a test (setup, call, teardown) has 180 seconds (`--limit=180`; 0: no limit), or what its mark says:
`@pytest.mark.timeout(600)`. That measures nothing: what takes 30 seconds on a quiet machine ends in time on a slow one.
What starts a server on the way says so itself: `with hangs.allow(120): ...`.

At the limit the process gets its own SIGINT, for which Python and trio have a way that leaves nothing half done: a loop
that is cut off elsewhere counts as running for ever, and every later test of the process would fail. What is deaf to
that (a thread that is waited for, code that catches everything) ends the process 10 seconds later, with the stack of
every thread: pytest-xdist fails that test by name, and starts another worker for the rest.

The failure says where each task of trio waited, by its innermost frames.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
import trio

LIMIT = 180.0
DEAF = 10.0
"""Seconds between the interrupt and the end of the process."""


class Watch:
    """The time that the phase under way has left; one a process."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """The limit of the phase under way; 0 between phases."""
        self.hung = False
        self.waiting: list[str] = []
        """Where each task was when the limit was reached."""
        self.stacks = 2  # the process's own standard error: pytest's capture would swallow it
        self._ends = 0.0

    def begin(self, seconds: float) -> None:
        self.seconds, self.hung = seconds, False
        self._set(time.monotonic() + seconds)

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.seconds = 0.0

    def extend(self, seconds: float) -> None:
        """Gives the phase under way more time, if there is one."""
        if self.seconds:
            self.seconds += seconds
            self._set(self._ends + seconds)

    def left(self) -> float:
        return self._ends - time.monotonic()

    def ring(self, signum: int, frame: FrameType | None) -> None:
        if self.hung:
            faulthandler.dump_traceback(self.stacks)
            os.write(self.stacks, "\n".join([*waiting(), ""]).encode())
            os._exit(70)
        self.hung, self.waiting = True, waiting()
        signal.setitimer(signal.ITIMER_REAL, DEAF)
        signal.raise_signal(signal.SIGINT)

    def _set(self, ends: float) -> None:
        self._ends = ends
        signal.setitimer(signal.ITIMER_REAL, max(self.left(), 0.001))


_WATCH = Watch()


def waiting() -> list[str]:
    """Where each task of the trio loop of this thread waits, a line each; nothing outside of a loop."""
    try:
        root = trio.lowlevel.current_root_task()
    except RuntimeError:
        return []
    return _tasks(root, 0) if root else []


def _tasks(task: trio.lowlevel.Task, depth: int) -> list[str]:
    frames = [(frame.f_code, line) for frame, line in task.iter_await_frames()]
    ours = [f"{code.co_qualname}:{line}" for code, line in frames if "/trio/" not in code.co_filename]
    below = [
        line for nursery in task.child_nurseries for child in nursery.child_tasks for line in _tasks(child, depth + 1)
    ]
    return [f"{'  ' * depth}{task.name}: {' > '.join(ours[-4:])}", *below]


@contextmanager
def allow(seconds: float) -> Iterator[None]:
    """What is done inside may take `seconds` beside those of the test; what it does not use is taken back."""
    before = _WATCH.left()
    _WATCH.extend(seconds)
    try:
        yield
    finally:
        if not _WATCH.hung:
            _WATCH.extend(min(before - _WATCH.left(), 0))


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "how long each phase of a test without a mark of its own may take (default: 180); 0: no limit for any"
    parser.addoption("--limit", type=float, default=LIMIT, metavar="SECONDS", help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "timeout(seconds): how long each phase of the test may take, if not 180 seconds")
    signal.signal(signal.SIGALRM, _WATCH.ring)
    _WATCH.stacks = os.dup(2)


@contextmanager
def _watched(item: pytest.Item) -> Iterator[None]:
    mark, seconds = item.get_closest_marker("timeout"), float(item.config.getoption("--limit"))
    if not seconds:
        yield
        return
    _WATCH.begin(float(mark.args[0]) if mark else seconds)
    cut: BaseException | None = None
    try:
        yield
    except BaseException as error:
        if not _WATCH.hung:
            raise
        cut = error
    finally:
        limit = _WATCH.seconds
        _WATCH.end()
    if _WATCH.hung:
        told = "\n".join([f"hangs: not done after {limit:g} s (tests/hangs.py)", *_WATCH.waiting])
        raise pytest.fail.Exception(told) from cut


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with _watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with _watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with _watched(item):
        return (yield)
