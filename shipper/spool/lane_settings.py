"""An output's settings as a lane stores them: sealed, with the paths to the ids of its credentials.

The spool knows no plugin, so it cannot find these ids by the types of settings; the maker of a lane supplies the paths.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from shipper.sdk.trees import changed, part

Path = tuple[str | int, ...]


class LaneSettings(NamedTuple):
    """JSON-able values, and the paths in them to ids of credentials."""

    values: Mapping[str, Any]
    paths: tuple[Path, ...] = ()

    @property
    def credentials(self) -> tuple[str, ...]:
        """Returns the ids, sorted, each once."""
        return tuple(sorted({part(self.values, path) for path in self.paths}))

    def rebound(self, old: str, new: str) -> LaneSettings:
        """Returns these settings with `new` in place of `old`."""
        values: Any = dict(self.values)
        for path in self.paths:
            values = changed(values, path, lambda id: new if id == old else id)
        return self._replace(values=values)

    def packed(self) -> bytes:
        return json.dumps({"settings": self.values, "credentials": self.paths}).encode()

    @classmethod
    def unpack(cls, packed: bytes) -> LaneSettings:
        """Returns unpacked settings; an earlier version packed them without paths, with at most one id."""
        kept = json.loads(packed)
        if kept.keys() != {"settings", "credentials"}:
            return cls(kept, (("credential",),) if kept.get("credential") is not None else ())
        return cls(kept["settings"], tuple(map(tuple, kept["credentials"])))
