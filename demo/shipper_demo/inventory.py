"""The keyed state of an edge: a directory with a document for each machine, which come, change and go."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from shipper.sdk.errors import ShipperError

MACHINES = 200
_STEP_SECONDS = 0.1
_GOES = 0.2


class Inventory:
    """Writes documents, each under another name first, so that nobody reads half of one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.documents: dict[str, dict[str, Any] | None] = {}
        """What there is by key; None: it was there, and is deleted."""
        self._random = random.Random()
        self._changes = 0

    async def change(self) -> None:
        """Write, write again and remove documents until cancelled. Raises ShipperError where the disk takes no more."""
        while True:
            try:
                self._turn()
            except OSError as error:
                raise ShipperError(f"the demo's inventory cannot be written: {error.strerror}") from None
            await trio.sleep(_STEP_SECONDS)

    def _turn(self) -> None:
        for _ in range(3):
            key = f"machine-{self._random.randrange(MACHINES)}"
            self._changes += 1
            if self.documents.get(key) is not None and self._random.random() < _GOES:
                (self.directory / f"{key}.json").unlink()
                self.documents[key] = None
            else:
                document = {"rack": self._random.randrange(40), "change": self._changes}
                new = self.directory / f"{key}.new"
                new.write_text(json.dumps(document))
                new.replace(self.directory / f"{key}.json")
                self.documents[key] = document

    def equal(self, there: Mapping[str, Any]) -> int:
        """How many keys are the same there, the deleted ones too, less those that are there only."""
        strange = [key for key in there if key not in self.documents and there[key] is not None]
        same = [key for key, document in self.documents.items() if there.get(key) == document]
        return len(same) - len(strange)
