"""The `http` input: receives events that programs, devices and webhooks post: JSON, NDJSON, lines of text.

    inputs:
      hooks:
        type: http
        address: 0.0.0.0:8080
        path: /events
        credentials: [hooks-2]
        tls: {certificate: /etc/shipper/tls.crt, key: /etc/shipper/tls.key}

    Server (shipper.sdk.server) ──> http.connection ──> http.intake: one request ──> http.bodies ──> emit

A request is answered 200, with the number of its events, when all of them are durable; with any other status nothing of
it is stored. Without room it is answered 429. A client that got no answer sends again, so an event may be stored twice.
`GET /health` says whether a request would be taken now.

Its identity is the address, so a revision that adds or removes a key, or brings a new certificate, changes the running
input: the next request with a removed key is refused, on an old connection too. Connections that have shown a removed
key, or have another certificate, end after the request under way.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec

from shipper.plugin import (
    API_KEY,
    BASIC,
    BEARER_TOKEN,
    BadOption,
    Code,
    Credential,
    CredentialId,
    Endpoint,
    Input,
    InputContext,
    Size,
    Source,
    StartFailed,
    takes,
)
from shipper.sdk.endpoints import Scheme
from shipper_plugins.elasticsearch.input import ServerTls
from shipper_plugins.elasticsearch.server.door import fingerprint
from shipper_plugins.loopback import is_loopback

if TYPE_CHECKING:
    from shipper_plugins.http.intake import Door

_log = logging.getLogger(__name__)

_SCHEMES: tuple[Scheme, ...] = ("tcp",)

Key = Annotated[CredentialId, takes(BEARER_TOKEN, BASIC, API_KEY)]
Path = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^/[\x21-\x22\x24-\x3e\x40-\x7e]*(?!\n)$",
        max_length=1024,
        description="a path that begins with /, of printable ASCII characters, without ? and #",
    ),
]


class HttpInput(Input, frozen=True, kw_only=True):
    """Receives events over HTTP: JSON, objects one a line, or lines of text."""

    forwards: ClassVar[bool] = True

    address: str
    """`host:port` to listen on; other than loopback only with `tls` and `credentials`."""
    path: Path = "/"
    """The path to which events are posted."""
    health_path: Path | None = "/health"
    """The path at which load balancers and probes ask by GET, without a credential: 200 while events are taken, else
    503 with a reason; null: none."""
    format: Literal["auto", "json", "ndjson", "lines"] = "auto"
    """What a body is: `json` (one object, an array of objects, or objects one a line), `ndjson` (objects one a line),
    `lines` (each line of text is a `message`); `auto`: by the Content-Type."""
    credentials: Annotated[tuple[Key, ...], msgspec.Meta(min_length=1)] | None = None
    """The ids of the keys of clients, each a bearer_token, a username with its password, or an api_key (default:
    clients need none)."""
    tls: ServerTls | None = None
    """Serve HTTPS."""
    max_body_bytes: Size = Size(8 << 20)
    """The largest body of a request, as received."""
    max_decompressed_bytes: Size = Size(8 << 20)
    """The largest body of a request, decompressed."""

    def __post_init__(self) -> None:
        if not is_loopback(self.endpoint.host) and (self.tls is None or self.credentials is None):
            raise BadOption("an address other than loopback needs both tls and credentials", "address")
        for option in ("max_body_bytes", "max_decompressed_bytes"):
            if not 1 <= getattr(self, option) <= 1 << 30:
                raise BadOption(f"must be above 0 and at most 1GiB, not {getattr(self, option)}", option)

    @property
    def endpoint(self) -> Endpoint:
        """The address; raises BadOption."""
        return Endpoint.parse(self.address, "address", schemes=_SCHEMES)

    def identity(self) -> Any:
        return self.endpoint

    def listens(self) -> Sequence[Endpoint]:
        return (self.endpoint,)

    def load(self) -> None:
        """See `Input.load`: h11, and the readers of requests."""
        import shipper_plugins.http.intake  # noqa: F401

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        receiver = _HttpReceiver(self, context)
        await receiver.listen()
        yield receiver

    def door(self, keys: tuple[bytes, ...] | None) -> Door:
        """Returns the door of these settings, for clients with one of these keys; None: they need none."""
        from shipper_plugins.http.intake import Door

        return Door(
            keys=keys,
            is_tls=self.tls is not None,
            path=self.path,
            health_path=self.health_path,
            format=None if self.format == "auto" else self.format,
            stream=msgspec.to_builtins(self.data_stream),
            max_body_bytes=self.max_body_bytes,
            max_decompressed_bytes=self.max_decompressed_bytes,
        )

    def keys(self, credentials: Mapping[str, Credential]) -> tuple[bytes, ...] | None:
        """Returns the fingerprints of the keys; None: clients need none. Raises ValueError if no credential fits."""
        if self.credentials is None:
            return None
        chosen = [credentials[id] for id in self.credentials if id in credentials]
        if not chosen or not all(credential.fits(BEARER_TOKEN, BASIC, API_KEY) for credential in chosen):
            raise ValueError(
                "the input needs credentials of the shapes {bearer_token}, {username, password} or {api_key}"
            )
        return tuple(fingerprint(credential.authorization()) for credential in chosen)


class _HttpReceiver(Source):
    """A running receiver."""

    def __init__(self, settings: HttpInput, context: InputContext) -> None:
        from shipper.sdk.server import Server
        from shipper_plugins.http.intake import Intake

        self._context, self._settings = context, settings
        try:
            door = settings.door(settings.keys(context.credentials))
            tls = None if settings.tls is None else settings.tls.context(context.credentials)
        except ValueError as error:
            raise StartFailed(str(error), code=Code.CREDENTIAL_INVALID) from None
        self._intake = Intake(door, context)
        self._server = Server(self._intake.talk, tls=tls, tell=self._tell)
        self._closed: str | None = None
        self._crowded: str | None = None

    async def listen(self) -> None:
        """Raises StartFailed."""
        self._listener = await self._context.listen(self._settings.endpoint)

    async def run(self) -> None:
        """See `Source.run`."""
        self._report()
        await self._server.serve(self._listener)

    def change(self, settings: HttpInput, credentials: Mapping[str, Credential]) -> None:
        """See `Source.change`; with a credential of the wrong shape, all requests are refused, and that is reported."""
        before, self._settings = self._settings, settings
        try:
            keys = settings.keys(credentials)
            if self._closed or not _is_kept(settings.tls, before.tls, credentials):
                self._server.tls = None if settings.tls is None else settings.tls.context(credentials)
            self._intake.door, self._closed = settings.door(keys), None
        except ValueError as error:
            self._intake.door, self._closed = settings.door(()), str(error)
            self._server.tls = None if settings.tls is None else _nobody()
        self._report()

    async def changed(self) -> None:
        """See `Source.changed`: closes connections with another certificate or a removed key."""
        await self._server.renew(self._intake.door.keys or ())

    def _tell(self, turned_away: int, problem: str | None) -> None:
        if problem is not None:
            _log.warning("input %s: %s", self._context.name, problem)
        self._crowded = problem
        self._context.turned_away(turned_away)
        self._report()

    def _report(self) -> None:
        problem = "; ".join(filter(None, (self._closed, self._crowded)))
        self._context.report(problem or None, code=Code.CREDENTIAL_INVALID if self._closed else Code.CROWDED)


def _is_kept(tls: ServerTls | None, before: ServerTls | None, credentials: Mapping[str, Credential]) -> bool:
    return tls is None if before is None else tls is not None and tls.is_kept(before, credentials)


def _nobody() -> ssl.SSLContext:
    """Returns a context without a certificate, so that every handshake fails."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
