"""A version to run, and its name in the answers of the sidecar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shipper.fleet.records import Text, Version


@dataclass(frozen=True, slots=True)
class Offered:
    """A version to run, authentic and complete."""

    version: Version
    text: Text
    secrets: Mapping[str, bytes] = field(repr=False)
    """Contents by name; their ids are `text.secrets`."""

    @property
    def name(self) -> str:
        """`Wanted.version`: the name of the version in answers."""
        return f"{self.version.epoch}.{self.version.number}.{self.version.sha256}"


def parse(name: str) -> Version | None:
    """Returns the version of an `Offered.name`; None for any other text."""
    parts = name.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts[:2]):
        return None
    return Version(int(parts[0]), int(parts[1]), parts[2])
