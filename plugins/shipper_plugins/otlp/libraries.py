"""The libraries of the extra `otlp`, which may be missing. No I/O.

`opentelemetry-proto` on protobuf's C reader, h2 and h11. An import takes 0.11 s and 9 MiB in all; a record of 6
attributes takes 3 µs to parse and 8 to become an event. gRPC is h2 and two small modules of our own: grpcio (7.4 MB of
C) has threads of its own, listens on no socket that it is given, and cannot abort a connection; grpclib is another
loop's.
"""

from __future__ import annotations

from importlib import util

from shipper.plugin import StartFailed

INSTALL = "pip install 'shipper[otlp]'"
_NEEDED = ("opentelemetry.proto.collector.logs.v1", "google.protobuf", "h2", "h11")


def check() -> None:
    """Raises StartFailed, with the command that installs them, where one is missing."""
    missing = [name for name in _NEEDED if not _is_there(name)]
    if missing:
        raise StartFailed(f"{' and '.join(missing)} not installed; run {INSTALL}")


def _is_there(name: str) -> bool:
    try:
        return util.find_spec(name) is not None
    except ImportError:  # of a package above it
        return False
