"""A host of the campaign: its processes, its links to the store, and what is done to it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio

from tests.campaign_fleet import recorder
from tests.campaign_fleet.transcript import Transcript
from tests.campaign_relay.link import Link
from tests.story.fleet import Host

SIDECAR = (sys.executable, "-P", "-m", "shipper", "run")


class Member(Host):
    """`lock` is held by whatever is done to it."""

    def __init__(self, directory: Path, name: str, section: dict[str, Any], links: list[Link]) -> None:
        path = directory / "transcript"
        urls = [f"http://127.0.0.1:{link.port}" for link in links]
        config = {"sidecar": [sys.executable, "-S", "-E", recorder.__file__, str(path), *SIDECAR]}
        self._config: dict[str, Any] = config | {"fleet": section | {"etcd": urls}}
        super().__init__(directory, name, name, self._config)
        self.variables |= {"MEMBER": name}
        self.is_busy = False
        self.transcript = Transcript(path)
        self.links = links
        self.holds = section.get("on_lapse") == "hold"
        self.lock = trio.Lock()
        self.unwell = 0.0
        """Until this instant of CLOCK_MONOTONIC something keeps its events; infinite while it does."""
        self.arrived, self.shipped = 0, 0.0
        """Its lines at the backend, and when the last one came, or none was missing."""
        self.needs_store = True
        """Whether it may need the store before it ships: it is new, or it has left the fleet."""
        self.is_shipping = False
        """Whether something had arrived when something began to be done to it."""
        self.doing = "runs"
        self.launches = 0
        """Of supervisors."""

    def begin(self) -> None:
        """Starts a supervisor."""
        self.launches += 1
        self.start()

    def change_lapse(self) -> None:
        """Gives the next supervisor the other `on_lapse`."""
        self.holds = not self.holds
        self._config["fleet"] |= {"on_lapse": "hold" if self.holds else "continue", "rebind_revoked": True}
        (self.directory / "supervise.yaml").write_text(json.dumps(self._config))

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # -- its processes -------------------------------------------------------------------------------------------------

    def sidecar(self) -> int | None:
        """Returns the leader of the sidecar's process group."""
        return groups[-1] if (groups := self.groups()) else None

    def groups(self) -> list[int]:
        return [one["pid"] for one in self.said("launched")]

    def _signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.signal_sidecar(number)

    def signal_sidecar(self, number: int) -> None:
        """The recorder, and the program itself; also those of an earlier supervisor, which may still end in order."""
        for group in self.groups()[-3:]:
            with suppress(ProcessLookupError, FileNotFoundError):
                if str(self.transcript.path).encode() in Path(f"/proc/{group}/cmdline").read_bytes():
                    os.killpg(group, number)

    def kill_supervisor(self) -> None:
        """Its sidecar sees the end of its standard input."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def signal_supervisor(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end_at_once(self) -> None:
        """Kills what still runs."""
        if self.is_running():
            self.kill()
        self.signal_sidecar(signal.SIGKILL)

    # -- for people ----------------------------------------------------------------------------------------------------

    def picture(self) -> str:
        """What it is doing, in some lines."""
        process = "no process" if self.process is None else f"supervisor {self.process.pid} {self.process.poll()}"
        said = list(self._reports())[-8:]
        lines = [f"{self.name}: {self.doing}; {process}; {self.launches} launches; now {time.monotonic():.3f}"]
        lines += [f"    {line}" for line in self.transcript.again().newest]
        lines += [f"    said { ({key: value for key, value in one.items() if key != 'hint'}) }"[:400] for one in said]
        return "\n".join(lines)
