"""Values that no log and no traceback shows."""

from __future__ import annotations

import msgspec


class Unshown(msgspec.Struct, frozen=True):
    """Its text is the name of its type alone: it holds a secret, or may."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"
