"""The libraries of the extra `otlp`, which may be missing. No I/O.

`opentelemetry-proto` with protobuf's C reader, h2 and h11. Their import takes 0.11 s and 9 MiB; a record of 6
attributes takes 3 µs to parse and 8 to become an event. gRPC is h2 and two small modules: grpcio (7.4 MB of C) has
threads of its own, cannot listen on an existing socket, and cannot abort a connection; grpclib needs asyncio.
"""

from __future__ import annotations

from shipper_plugins import extras

_NEEDED = ("opentelemetry.proto.collector.logs.v1", "google.protobuf", "h2", "h11")


def check() -> None:
    """Raises ValueError, with the command that installs them, if one is missing."""
    extras.check("otlp", _NEEDED)
