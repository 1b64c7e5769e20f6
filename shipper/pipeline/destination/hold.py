"""Why a lane may send nothing, though its destination did not refuse it: decided before each request, without I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shipper.pipeline.destination.lease import Lease
from shipper.pipeline.keyring import Keyring
from shipper.sdk.codes import Code


class Hold(NamedTuple):
    """What holds a lane: a code, and a text."""

    code: Code
    problem: str


def hold(credentials: Iterable[str], keyring: Keyring, lease: Lease) -> Hold | None:
    """Returns what holds a lane with these credentials now; None if it may send. From any thread."""
    for id in credentials:
        if id not in keyring:
            if id in keyring.withdrawn:
                return Hold(Code.CREDENTIAL_WITHDRAWN, f"credential {id} was withdrawn, events held")
            return Hold(Code.CREDENTIAL_MISSING, f"credential {id} is missing, events held")
    return None if lease.holds() else Hold(Code.LEASE_LAPSED, "lease lapsed, events held")
