"""The options of `shipper supervise`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shipper.supervise.config import Config
from shipper.supervise.spare import Spare


class Options(msgspec.Struct, frozen=True):
    """Durations in seconds."""

    paths: Sequence[Path]
    state: Path
    config: Config
    grace: float = 20.0
    once: bool = False
    once_timeout: float = math.inf
    spare: Spare | None = None
    """What the first sidecar can be."""
