"""Asks the sidecar of a member at its own address: an answer is passed on event by event, or its status is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

import h11
import trio

from shipper.status.http import parse_address

SECONDS = 10.0
"""For a whole answer."""
_PASSED_ON = (b"content-type", b"content-length", b"cache-control", b"x-content-type-options")


async def status(address: str | None) -> tuple[bytes | None, str]:
    """Returns what the sidecar at an address says of its status; None if it says nothing, and why."""
    if address is None:
        return None, "it does not run, or has no address"
    said = _Said()
    request = h11.Request(method="GET", target="/status", headers=[("Host", address)])
    with trio.move_on_after(SECONDS):
        try:
            await ask(address, request, said.put)
        except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError):
            return None, "it has ended"
    if said.status != HTTPStatus.OK or not said.is_whole:
        return None, "it has not answered in time"
    return b"".join(said.blocks), ""


async def ask(address: str, request: h11.Request, put: Callable[[h11.Event], Awaitable[None]]) -> None:
    """Puts the answer of the sidecar to a request; raises OSError, BrokenResourceError or RemoteProtocolError."""
    http = h11.Connection(h11.CLIENT)
    async with await trio.open_tcp_stream(*parse_address(address)) as stream:
        head = h11.Request(method=request.method, target=request.target, headers=[("Host", address)])
        await stream.send_all((http.send(head) or b"") + (http.send(h11.EndOfMessage()) or b""))
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await stream.receive_some())
            elif isinstance(event, h11.Response):
                headers = [(name, value) for name, value in event.headers if name in _PASSED_ON]
                await put(h11.Response(status_code=event.status_code, headers=headers))
            elif isinstance(event, h11.Data):
                await put(h11.Data(data=bytes(event.data)))
            elif isinstance(event, h11.EndOfMessage):
                await put(h11.EndOfMessage())
                return
            else:
                raise OSError("it has ended")


class _Said:
    """Collects an answer of the sidecar."""

    def __init__(self) -> None:
        self.status, self.is_whole = 0, False
        self.blocks: list[bytes] = []

    async def put(self, event: h11.Event) -> None:
        if isinstance(event, h11.Response):
            self.status = event.status_code
        elif isinstance(event, h11.Data):
            self.blocks.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            self.is_whole = True
