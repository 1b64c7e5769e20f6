"""Answers at the address `http` of a member: those of the sidecar, and to probes while there is none.

A member that no policy selects has no sidecar, and one whose sidecar is being restarted has none for a moment. A
kubelet must not restart the Pod for that: `/livez` says then that the supervisor lives, and `/readyz` why nothing is
shipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from shipper.membership.door import Answer, Door, Refused, Request, refusal
from shipper.membership.http import OF_SIDECAR, serve
from shipper.membership.page import Page
from shipper.status.http import parse_address

OF_SIDECAR_ALONE = "127.0.0.1:0"
"""The address of the sidecar, where the supervisor has that of the configuration."""
UNSERVED = "http_unserved"
"""The cause of the trouble that the address cannot be used."""
WAITS = "there is no sidecar: no policy selects this member yet, or it is being started"


@asynccontextmanager
async def answering(address: str | None, sidecar: Callable[[], str | None]) -> AsyncIterator[str | None]:
    """Answers at an address while the block runs; yields the bound `host:port`, or None if there is none.

    `sidecar` returns the address at which the sidecar answers, or None. Raises OptionError for an invalid address.
    """
    if address is None:
        yield None
        return
    door = Door(parse_address(address)[0])
    async with serve(address, door, _unknown, sidecar, without=_without_sidecar, page=Page().answer) as bound:
        yield bound


def _without_sidecar(path: str) -> Answer | None:
    if path == "/livez":
        return _json(200, {"alive": True, "reason": ""})
    if path == "/readyz":
        return _json(503, {"ready": False, "reason": WAITS})
    return None


def _json(status: int, body: object) -> Answer:
    return Answer(status, msgspec.json.encode(body))


async def _unknown(request: Request) -> Answer:
    raise Refused(refusal(404, "not_found", f"unknown path; there are {', '.join(OF_SIDECAR)}"))
