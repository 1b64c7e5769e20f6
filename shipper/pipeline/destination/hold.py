"""Why a lane may send nothing, though its destination did not refuse it: decided before each request, without I/O."""

from __future__ import annotations

from collections.abc import Iterable

from shipper.pipeline.destination.lease import Lease
from shipper.pipeline.keyring import Keyring
from shipper.sdk.codes import Code, Why


def hold(credentials: Iterable[str], keyring: Keyring, lease: Lease) -> Why | None:
    """Returns what holds a lane with these credentials now; None if it may send. From any thread."""
    for id in credentials:
        if id not in keyring:
            if id in keyring.withdrawn:
                return Why(f"credential {id} was withdrawn, events held", Code.CREDENTIAL_WITHDRAWN)
            return Why(f"credential {id} is missing, events held", Code.CREDENTIAL_MISSING)
    return None if lease.holds() else Why("lease lapsed, events held", Code.LEASE_LAPSED)
