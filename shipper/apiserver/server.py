"""The address of an API server."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from shipper.sdk.endpoints import Endpoint
from shipper.sdk.errors import BadOption

_FORM = "the address of an API server is https://host:6443, perhaps with a path, and without a user or a query"


@dataclass(frozen=True, slots=True)
class Server:
    """A host and a port, with or without TLS, and the prefix of each path."""

    endpoint: Endpoint
    secure: bool
    prefix: str = ""

    @classmethod
    def parse(cls, url: str) -> Server:
        """Raises BadOption for anything but `https://host`, `http://host`, with or without port and path."""
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise BadOption(_FORM) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise BadOption(_FORM)
        if parts.username is not None or parts.password is not None or not parts.path.isascii():
            raise BadOption(_FORM)
        name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return cls(Endpoint.parse(f"{name}:{port}"), parts.scheme == "https", parts.path.rstrip("/"))

    def __str__(self) -> str:
        return self.endpoint.address
