"""What the campaigns of supervisors share: hosts whose sidecars are recorded, and who reads what was written down."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import trio

from tests.campaign_fleet import recorder
from tests.story.fleet import Host

SIDECAR = (sys.executable, "-P", "-m", "shipper", "run")


@dataclass
class Record:
    """Of one sidecar; read on by `again`. Instants are of CLOCK_MONOTONIC."""

    path: Path
    newest: list[str] = field(default_factory=list, kw_only=True)
    """The last lines, for people."""
    _read: int = field(default=0, kw_only=True)

    def again(self) -> Self:
        """Reads what is new."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._read += len(line)
                    self.take(line)
        return self

    def take(self, line: bytes) -> None:
        """Reads a line: an instant, `<` (heard) or `>` (said), and a message."""
        at, _, rest = line.partition(b" ")
        direction, _, message = rest.partition(b" ")
        try:
            said = json.loads(message)
        except ValueError:
            return  # torn, by a kill
        (self._heard if direction == b"<" else self._said)(float(at), said)
        if said["type"] not in ("observed", "lease"):
            self.newest = [*self.newest[-11:], f"{float(at):.3f} {direction.decode()} {_short(said)}"]

    def _heard(self, at: float, message: dict[str, Any]) -> None:
        raise NotImplementedError

    def _said(self, at: float, message: dict[str, Any]) -> None:
        raise NotImplementedError


def _short(message: dict[str, Any]) -> str:
    unshown = ("policy", "sha256", "credentials", "state_keys")
    shown = {key: value for key, value in message.items() if key not in unshown}
    ids = message.get("credentials")
    return json.dumps(shown | ({"credentials": [*ids]} if ids else {}))[:300]


class RecordedHost(Host):
    """`lock` is held by whatever is done to it."""

    transcript: Record

    def __init__(self, directory: Path, name: str, transcript: Record, config: dict[str, Any]) -> None:
        program = [sys.executable, "-S", "-E", recorder.__file__, str(transcript.path), *SIDECAR]
        self.config: dict[str, Any] = {"sidecar": program} | config
        super().__init__(directory, name, name, self.config)
        self.transcript = transcript
        self.variables |= {"MEMBER": name}
        self.lock = trio.Lock()
        self.doing = "runs"
        self.launches = 0
        """Of supervisors."""

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # -- its processes -------------------------------------------------------------------------------------------------

    def groups(self) -> list[int]:
        """Returns the leaders of the process groups of its sidecars."""
        return [one["pid"] for one in self.said("launched")]

    def _signal(self, number: int) -> None:
        self.signal_supervisor(number)
        self.signal_sidecar(number)

    def signal_sidecar(self, number: int) -> None:
        """The recorder, and the program itself; also those of an earlier supervisor, which may still end in order."""
        for group in self.groups()[-3:]:
            with suppress(ProcessLookupError, FileNotFoundError):
                if str(self.transcript.path).encode() in Path(f"/proc/{group}/cmdline").read_bytes():
                    os.killpg(group, number)

    def signal_supervisor(self, number: int) -> None:
        if self.process is not None and self.is_running():
            self.process.send_signal(number)

    def kill_supervisor(self) -> None:
        """Its sidecar sees the end of its standard input."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def end_at_once(self) -> None:
        """Kills what still runs."""
        if self.is_running():
            self.kill()
        self.signal_sidecar(signal.SIGKILL)

    # -- for people ----------------------------------------------------------------------------------------------------

    def picture(self) -> str:
        """What it is doing, in some lines."""
        process = "no process" if self.process is None else f"supervisor {self.process.pid} {self.process.poll()}"
        lines = [f"{self.name}: {self.doing}; {process}; {self.launches} launches; now {time.monotonic():.3f}"]
        lines += [f"    {line}" for line in self.transcript.again().newest]
        with suppress(ValueError, KeyError):
            said = [{key: value for key, value in one.items() if key != "hint"} for one in [*self._reports()][-8:]]
            lines += [f"    said {json.dumps(one)}"[:400] for one in said]
        return "\n".join(lines)
