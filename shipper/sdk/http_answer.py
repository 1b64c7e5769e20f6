"""PUBLIC: what a request came to: an answer over HTTP, or none. `http` asks, and imports aiohttp; this decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from shipper import __version__
from shipper.sdk.errors import Later
from shipper.sdk.tallies import Failure

USER_AGENT = f"shipper/{__version__}"
"""How this program names itself."""


class NoAnswer(Later):
    """A request without an answer; `failure` is its kind, for metrics."""

    def __init__(self, reason: str, failure: Failure, code: str) -> None:
        super().__init__(reason, code=code)
        self.failure = failure


class Unreachable(NoAnswer):
    """No connection could be made: nothing was sent."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. The body of one that is not 2xx is cut after 64 KiB."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def address(host: str) -> str:
    """Returns the `name:port` of a host's URL."""
    url = urlsplit(host)
    name = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    return f"{name}:{url.port or (443 if url.scheme == 'https' else 80)}"
