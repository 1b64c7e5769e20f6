"""A program that a test starts beside the shipper: a broker, a browser, a sender of logs.

    server = Running(["prometheus", …])
    server.wait(lambda: …)          # until it is ready
    server.end()

Whoever waits for it is told at once that it has ended, with the last lines of what it said. Only those are kept.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

LINES = 20
_LONGEST = 1 << 16
_PAUSE = 0.05


class Running:
    """A program that runs, in a session of its own. Options are those of `subprocess.Popen`."""

    def __init__(self, command: Sequence[str | Path], **options: Any) -> None:
        self.command = [str(part) for part in command]
        self._lines: deque[bytes] = deque(maxlen=LINES)
        pipe = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self._process = subprocess.Popen(self.command, **{"start_new_session": True, **pipe, **options})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            while line := output.readline(_LONGEST):
                self._lines.append(line)

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status, when it has ended."""
        return self._process.poll()

    @property
    def said(self) -> str:
        """The last lines of what it said."""
        if self.poll() is not None:
            self._reader.join(1)  # what it said at last; a child of it may keep the pipe
        return b"".join(self._lines.copy()).decode(errors="replace")

    def must_run(self) -> None:
        assert self.poll() is None, f"{self.command[0]} has ended with {self.poll()}; it said:\n{self.said}"

    def wait(self, is_ready: Callable[[], Any], seconds: float) -> None:
        """Until it is ready; an OSError of the question says that it is not. Fails if it ends, or takes longer."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.must_run()
            with suppress(OSError):
                if is_ready():
                    return
            time.sleep(_PAUSE)
        raise AssertionError(f"{self.command[0]} is not ready in {seconds:g} s; it said:\n{self.said}")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, by: signal.Signals = signal.SIGTERM, seconds: float = 60.0) -> bool:
        """Sends a signal, and kills what is left of it after a time; whether it has ended by itself."""
        self.send(by)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            self._reader.join(1)
        return True

    def kill(self) -> None:
        """As kill -9."""
        self.end(signal.SIGKILL)
