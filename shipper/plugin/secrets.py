"""PUBLIC: kinds of references to secrets, found by entry points of the group `shipper.secret_sources`."""

from __future__ import annotations

from shipper.sdk.secret_source import Absent, SecretSource, Unreadable, text_of

__all__ = [
    "Absent",
    "SecretSource",
    "Unreadable",
    "text_of",
]
