"""Sends a series of revisions, each with another credential, and so with a lane of its own."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import Any

from tests.benchmarks.child import Shipper
from tests.benchmarks.job import access_lines
from tests.benchmarks.pipeline import IMPATIENT, Backoff, activate, bulk_output, file_input


class Rotation:
    """A shipper whose log goes to a sink, with another credential for each revision."""

    def __init__(self, child: Shipper, place: Path, port: int, backoff: Backoff = IMPATIENT, **more: Any) -> None:
        self.child, self.port, self.backoff, self.more = child, port, backoff, more
        self.log = place / "app.log"
        self.log.touch()
        self.inputs = {"log": file_input(self.log)}
        self.revision = 0
        self.lines = 0

    def write(self, lines: int) -> None:
        """Append to the log."""
        with self.log.open("a") as file:
            file.writelines(islice(access_lines(lines), lines))
        self.lines += lines

    def turn(self) -> float:
        """The next revision, until it is active; returns what that took."""
        self.revision += 1
        output = self.output(f"c{self.revision}")
        begun = time.monotonic()
        activate(self.child, self.revision, self.inputs, {"main": output}, **self.more)
        return time.monotonic() - begun

    def output(self, credential: str) -> dict[str, Any]:
        """The output of a revision."""
        return bulk_output(self.port, credential=credential, backoff=self.backoff)

    def until_drained(self) -> float:
        """Until `drained` of the newest revision is read; returns when that was."""
        self.child.wait("ack", stage="drained", revision=self.revision)
        return time.monotonic()
