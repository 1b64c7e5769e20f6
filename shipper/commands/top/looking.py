"""Asks a shipper, its supervisor, and its fleet, as far as it has them, for their documents.

A member of a fleet answers for all of it at its `http` address. It is asked there only where it asks for no token, and
not at every look: each answer is a look of the member into the store.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from shipper.commands.status import exit_status
from shipper.commands.status import look as ask_supervisor
from shipper.control import asking
from shipper.sdk.hosts import is_loopback
from shipper.status import fleet, view
from shipper.status.fleet import Fleet
from shipper.status.rates import Samples
from shipper.status.view import View

FLEET_SECONDS = 5.0
"""Between two questions about the fleet."""
_PATIENCE_SECONDS = 3.0
_LARGEST_ANSWER = 16 << 20


class Look(NamedTuple):
    """What there was to see."""

    view: View
    fleet: Fleet | None = None
    """None: it is in no fleet, or does not answer for it here."""


class Looking:
    """The looks at one state directory; rates come from the looks before."""

    def __init__(self, state: Path) -> None:
        self._state, self._samples = state, Samples()
        self._fleet: Fleet | None = None
        self._fleet_at = -FLEET_SECONDS
        self.status = 0
        """The exit status of the last look, that of `shipper status`."""

    def look(self) -> Look:
        """Returns what there is to see now, within some seconds. Raises OptionError for no state directory."""
        document = self.document()
        directory = str(self._state) if document.get("supervisor") else ""
        rates = self._samples.rates(document, time.monotonic())
        return Look(view.of(document, rates, directory=directory), self._looked_at_fleet(document))

    def _looked_at_fleet(self, document: Mapping[str, Any]) -> Fleet | None:
        now = time.monotonic()
        if now - self._fleet_at >= FLEET_SECONDS:
            address = (document.get("fleet") or {}).get("http") or ""
            self._fleet = _fleet(address) if address else None
            self._fleet_at = time.monotonic()
        return self._fleet

    def document(self) -> Mapping[str, Any]:
        """Returns what is said now: the document of `shipper status --json` with the counters. Raises OptionError."""
        document = self._asked()
        self.status = exit_status(document)
        return document

    def _asked(self) -> Mapping[str, Any]:
        served = asking.status(self._state)
        if served is not None and not (self._state / "sidecar").is_dir():
            return {**served, "running": True}  # `shipper run`, whose supervisor is not ours
        return view.joined(ask_supervisor(self._state), served)


def _fleet(address: str) -> Fleet | None:
    """Returns the fleet of a member that answers at an address of this host; None if it does not answer to anybody."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not is_loopback(host):
        return None
    connection = HTTPConnection(host, int(port), timeout=_PATIENCE_SECONDS)
    try:
        connection.request("GET", "/fleet/members")
        answer = connection.getresponse()
        raw = answer.read(_LARGEST_ANSWER)
        return fleet.of(json.loads(raw)) if answer.status == 200 else None
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()
