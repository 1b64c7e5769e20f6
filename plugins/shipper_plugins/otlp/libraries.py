"""The libraries of the extra `otlp`, which may be missing. No I/O.

`opentelemetry-proto` on protobuf's C reader, h2 and h11. An import takes 0.11 s and 9 MiB in all; a record of 6
attributes takes 3 µs to parse and 8 to become an event. gRPC is h2 and two small modules of our own: grpcio (7.4 MB of
C) has threads of its own, listens on no socket that it is given, and cannot abort a connection; grpclib is another
loop's.
"""

from __future__ import annotations

from shipper_plugins import extras

_NEEDED = ("opentelemetry.proto.collector.logs.v1", "google.protobuf", "h2", "h11")


def check() -> None:
    """Raises ValueError, with the command that installs them, where one is missing."""
    extras.check("otlp", _NEEDED)
