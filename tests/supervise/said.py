"""What a sidecar says, for tests that need no process."""

from __future__ import annotations

from collections.abc import Sequence

from shipper.protocol.messages import Ready
from shipper.values import Revisions

NOTHING = Revisions()


def ready(
    revisions: Revisions = NOTHING, *, in_use: Sequence[str] = (), wants: Sequence[str] = (), can: Sequence[str] = ()
) -> Ready:
    return Ready(
        version="0",
        pid=1,
        instance="",
        http=None,
        revisions=revisions,
        credentials_in_use=in_use,
        credentials_wanted=wants,
        capabilities=can,
    )
