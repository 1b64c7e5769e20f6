"""The options of `shipper supervise`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shipper.supervise.config import Config
from shipper.supervise.spare import Spare


@dataclass(frozen=True, slots=True)
class Options:
    """Durations in seconds."""

    paths: Sequence[Path]
    state: Path
    config: Config
    grace: float = 20.0
    once: bool = False
    once_timeout: float = math.inf
    spare: Spare | None = None
    """What the first sidecar can be."""
