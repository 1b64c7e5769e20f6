"""A log shipper sidecar that says `drained`."""

__version__ = "0.1.0"
