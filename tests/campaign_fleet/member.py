"""A host of the campaign: its processes, its links to the store, and what is done to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.campaign_fleet.recorded import RecordedHost
from tests.campaign_fleet.transcript import Transcript
from tests.campaign_relay.link import Link


class Member(RecordedHost):
    """With what the campaign knows of it."""

    transcript: Transcript

    def __init__(self, directory: Path, name: str, section: dict[str, Any], links: list[Link]) -> None:
        urls = [f"http://127.0.0.1:{link.port}" for link in links]
        super().__init__(directory, name, Transcript(directory / "transcript"), {"fleet": section | {"etcd": urls}})
        self.is_busy = False
        self.links = links
        self.holds = section.get("on_lapse") == "hold"
        self.unwell = 0.0
        """Until this instant of CLOCK_MONOTONIC something keeps its events; infinite while it does."""
        self.arrived, self.shipped = 0, 0.0
        """Its lines at the backend, and when the last one came, or none was missing."""
        self.needs_store = True
        """Whether it may need the store before it ships: it is new, or it has left the fleet."""
        self.is_shipping = False
        """Whether something had arrived when something began to be done to it."""

    def begin(self) -> None:
        """Starts a supervisor."""
        self.launches += 1
        self.start()

    def change_lapse(self) -> None:
        """Gives the next supervisor the other `on_lapse`."""
        self.holds = not self.holds
        self.config["fleet"] |= {"on_lapse": "hold" if self.holds else "continue", "rebind_revoked": True}
        (self.directory / "supervise.yaml").write_text(json.dumps(self.config))
