"""PUBLIC: what the author of a plugin needs to test it; the project's own tests use the same parts.

    async def test_it_emits_each_line() -> None:
        context = RecordingInputContext()
        async with trio.open_nursery() as nursery, MyInput(path="…").open(context) as source:
            nursery.start_soon(source.run)
            await context.wait_for(3)
            nursery.cancel_scope.cancel()

- `context`: `RecordingInputContext` stands in for the shipper behind an input.
- `destination`: `BulkDestination`, a real HTTP server on loopback that speaks the bulk API and misbehaves on request.
- `inputs`, `processors`, `outputs`: what each of them must hold, as assertions: cancelled at each wait, closed,
  restarted, rolled back.
- `stalled`: a peer that answers nothing, to see what is sent after an output was closed.

Nothing here replaces a part of a plugin: sockets, files and requests are real. aiohttp is needed by `destination` only.
"""

from __future__ import annotations

from shipper.testing.context import RecordingInputContext
from shipper.testing.destination import BulkDestination, Document, Reply, Request, open_destination
from shipper.testing.inputs import check_input, check_state_input
from shipper.testing.outputs import check_close, check_output
from shipper.testing.processors import check_processor, check_stage
from shipper.testing.stalled import StalledPeer, open_stalled_peer

__all__ = [
    "BulkDestination",
    "Document",
    "RecordingInputContext",
    "Reply",
    "Request",
    "StalledPeer",
    "check_close",
    "check_input",
    "check_output",
    "check_processor",
    "check_stage",
    "check_state_input",
    "open_destination",
    "open_stalled_peer",
]
