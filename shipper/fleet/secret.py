"""The kind of reference `{fleet: NAME}`: a secret that the fleet keeps, set by `shipper fleet secret set NAME`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from shipper.sdk.secret_source import SecretSource, Unreadable, text_of

_NAME = r"[a-z0-9][a-z0-9_-]{0,62}"


def is_name(text: str) -> bool:
    """Returns whether a secret of the fleet may have this name."""
    return re.fullmatch(_NAME, text) is not None


class FleetSecret(SecretSource, frozen=True):
    """`{fleet: NAME}`. The version of the policy pins which content it is."""

    schema: ClassVar[Mapping[str, Any]] = {"type": "string", "pattern": f"^{_NAME}$", "examples": ["es"]}

    @classmethod
    def parse(cls, kind: str, value: object, keys: Mapping[str, object], folder: Path | None) -> FleetSecret:
        name = text_of(kind, value)
        if not is_name(name):
            raise ValueError("`fleet` is followed by a name of a-z, 0-9, _ and -, at most 63 characters")
        return cls(name)

    def read(self, environment: Mapping[str, str]) -> bytes:
        raise Unreadable("is a secret of the fleet, and this host is in no fleet")
