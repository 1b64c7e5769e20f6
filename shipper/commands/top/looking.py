"""Asks a shipper, and its supervisor if it has one, for their documents."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shipper.commands.status import exit_status
from shipper.commands.status import look as ask_supervisor
from shipper.control import asking
from shipper.status import view
from shipper.status.rates import Samples
from shipper.status.view import View


class Looking:
    """The looks at one state directory; rates come from the looks before."""

    def __init__(self, state: Path) -> None:
        self._state, self._samples = state, Samples()
        self.status = 0
        """The exit status of the last look, that of `shipper status`."""

    def look(self) -> View:
        """Returns what there is to see now, within some seconds. Raises OptionError for no state directory."""
        document = self._document()
        self.status = exit_status(document)
        directory = str(self._state) if document.get("supervisor") else ""
        return view.of(document, self._samples.rates(document, time.monotonic()), directory=directory)

    def _document(self) -> Mapping[str, Any]:
        served = asking.status(self._state)
        if served is not None and not (self._state / "sidecar").is_dir():
            return {**served, "running": True}  # `shipper run`, whose supervisor is not ours
        return view.joined(ask_supervisor(self._state), served)
