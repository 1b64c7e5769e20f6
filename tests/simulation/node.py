"""One process: its pipes, its signals, its life and death."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from shipper import sidecar
from shipper.spool.store import StoreFailed
from tests.simulation.stage import Stage

_STATE = Path("/nonexistent/state-of-a-simulation")


class Node:
    """A process that can be started again; `hear` is told each line that it wrote, in the instant it is written."""

    def __init__(self, stage: Stage, hear: Callable[[bytes], None]) -> None:
        self.stage, self._hear = stage, hear
        self.is_deaf = False
        """The supervisor does not read: standard output is blocked."""
        self._signals: trio.MemorySendChannel[None] | None = None
        self._input = b""
        self._closed = False
        self._news = trio.Event()
        self._scope = trio.CancelScope()
        stage.on_crash.append(self._killed)

    # -- the supervisor's side -----------------------------------------------------------------------------------------

    def send(self, line: bytes) -> None:
        """Write to its standard input."""
        if not self._closed:
            self._input += line
            self._tell()

    def close(self) -> None:
        """End its standard input."""
        self._closed = True
        self._tell()

    def signal(self) -> None:
        """SIGTERM."""
        if self._signals is not None:
            self._signals.send_nowait(None)

    def set_deaf(self, deaf: bool) -> None:
        """Stop, or begin, to read its standard output."""
        self.is_deaf = deaf
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _killed(self) -> None:
        self._scope.cancel("kill -9")

    # -- its life ------------------------------------------------------------------------------------------------------

    async def live(self, outside: sidecar.Outside, greeting: bytes) -> None:
        """From start to end; however it ended is noted. The greeting is what it reads first."""
        stage = self.stage
        stage.life += 1
        stage.alive = True
        self._input, self._closed, self._scope = greeting, False, trio.CancelScope()
        stage.note("started")
        try:
            with self._scope:
                status = await sidecar.run(sidecar.Options(_STATE), outside)
                stage.note("ended", status=status)
        except BaseException as error:
            if stage.alive:
                if any(isinstance(leaf, trio.Cancelled | KeyboardInterrupt) for leaf in _leaves(error)):
                    raise
                self._note_failure(error)
        finally:
            stage.alive = False
            self._signals = None

    def _note_failure(self, error: BaseException) -> None:
        """What could not be committed at the end is told by the exit status; all else is a failure."""
        if all(isinstance(leaf, StoreFailed) for leaf in _leaves(error)):
            self.stage.note("ended", status=1)
        else:
            self.stage.note("failed", error=", ".join(f"{type(leaf).__name__}: {leaf}" for leaf in _leaves(error)))

    @contextmanager
    def signals(self) -> Iterator[AsyncIterator[None]]:
        """Those that it gets: values here."""
        self._signals, received = trio.open_memory_channel[None](8)
        yield received

    # -- its pipes -----------------------------------------------------------------------------------------------------

    async def read(self) -> bytes:
        """Some bytes of standard input; none at the end."""
        await self.stage.pause("pipes")
        while not self._input and not self._closed:
            await self._news.wait()
        count = self.stage.random("pipes").choice((50, 1000, 65536))
        chunk, self._input = self._input[:count], self._input[count:]
        return chunk

    def is_hung_up(self) -> bool:
        """Whether its standard input was ended, read or not."""
        return self._closed

    async def write(self, text: bytes) -> None:
        """Write lines to standard output; a process may die between two."""
        await self.stage.pause("pipes")
        while self.is_deaf and not self.stage.healed:
            await self._news.wait()
        for line in text.splitlines():
            self.stage.effect()
            self._hear(line)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
