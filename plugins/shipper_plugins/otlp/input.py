"""The `otlp` input: receives logs of OpenTelemetry over gRPC and over HTTP, in protobuf and in JSON.

    inputs:
      apps:
        type: otlp
        grpc: 0.0.0.0:4317
        http: 0.0.0.0:4318
        credentials: [apps-2]
        tls: {certificate: /etc/shipper/tls.crt, key: /etc/shipper/tls.key}

    Server (shipper.sdk.server) ──> server.grpc, server.http: one connection ──> server.intake: one request ──> emit

`shipper_plugins.otlp.events` turns records into events. A request is answered when its records are durable. Without
room it is answered RESOURCE_EXHAUSTED (429) with a time to retry; invalid records are counted in the answer (a partial
success), and the others stored. Paths of other signals (traces, metrics) are answered UNIMPLEMENTED (404).

Its identity is the set of addresses, so a revision that adds or removes a key, or brings a new certificate, changes the
running input: the next request with a removed key is refused, on an old connection too. Connections that have shown a
removed key, or have another certificate, end after the requests under way.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
import trio

from shipper.plugin import (
    API_KEY,
    BASIC,
    BEARER_TOKEN,
    BadOption,
    Code,
    Credential,
    CredentialId,
    DataStream,
    Endpoint,
    Input,
    InputContext,
    Material,
    Size,
    Source,
    StartFailed,
    takes,
)
from shipper.sdk.endpoints import Scheme
from shipper.sdk.forms import Form
from shipper_plugins.elasticsearch.input import ServerTls
from shipper_plugins.elasticsearch.server.door import fingerprint
from shipper_plugins.loopback import is_loopback
from shipper_plugins.otlp.libraries import check

if TYPE_CHECKING:
    from shipper.sdk.server import Server
    from shipper_plugins.otlp.server.intake import Intake

_log = logging.getLogger(__name__)

_SCHEMES: tuple[Scheme, ...] = ("tcp",)
_PROTOCOLS = {"grpc": "h2", "http": "http/1.1"}

Key = Annotated[CredentialId, takes(BEARER_TOKEN, BASIC, API_KEY)]


class OtlpServerTls(ServerTls, frozen=True, kw_only=True):
    """The certificate that the input shows, and the authorities of clients' certificates."""

    client_ca: Material | None = None
    """PEM file of the authorities of clients' certificates (default: clients need none)."""

    def context(self, credentials: Mapping[str, Credential]) -> ssl.SSLContext:
        """See `ServerTls.context`."""
        context = super().context(credentials)
        if self.client_ca is not None:
            try:
                context.load_verify_locations(cadata=self.client_ca.pem)
            except ssl.SSLError:
                raise ValueError("client_ca holds no certificate") from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class OtlpInput(Input, frozen=True, kw_only=True):
    """Receives logs of OpenTelemetry (OTLP) over gRPC and HTTP."""

    forwards: ClassVar[bool] = True

    grpc: str | None = "127.0.0.1:4317"
    """`host:port` to listen on for gRPC; null: not at all. Other than loopback only with `tls` and `credentials`."""
    http: str | None = "127.0.0.1:4318"
    """`host:port` to listen on for HTTP, with logs posted to `/v1/logs`; null: not at all."""
    credentials: Annotated[tuple[Key, ...], msgspec.Meta(min_length=1)] | None = None
    """The ids of the keys of clients, each a bearer_token, a username with its password, or an api_key (default:
    clients need none)."""
    tls: OtlpServerTls | None = None
    """Serve TLS; with `client_ca`, only to clients with a certificate, which need no key then."""
    max_body_bytes: Size = Size(8 << 20)
    """The largest body of a request, as received."""
    max_decompressed_bytes: Size = Size(8 << 20)
    """The largest body of a request, decompressed."""
    data_stream: DataStream = msgspec.field(default_factory=lambda: DataStream(dataset="generic.otel"))
    """The data stream of the events; Elasticsearch maps those of OpenTelemetry by datasets that end with `.otel`."""

    def __post_init__(self) -> None:
        check()
        endpoints = self.endpoints()
        if not endpoints:
            raise BadOption("grpc or http must be an address, and neither is", "grpc")
        for option, endpoint in endpoints.items():
            if not is_loopback(endpoint.host) and not self._is_guarded:
                raise BadOption("an address other than loopback needs tls, and credentials or tls.client_ca", option)
        if len(set(endpoints.values())) < len(endpoints):
            raise BadOption("grpc and http need different addresses", "http")
        for option in ("max_body_bytes", "max_decompressed_bytes"):
            if not 1 <= getattr(self, option) <= 1 << 30:
                raise BadOption(f"must be above 0 and at most 1GiB, not {getattr(self, option)}", option)

    @property
    def _is_guarded(self) -> bool:
        return self.tls is not None and (self.credentials is not None or self.tls.client_ca is not None)

    def endpoints(self) -> dict[str, Endpoint]:
        """Returns the addresses by option; raises BadOption."""
        texts = {"grpc": self.grpc, "http": self.http}
        return {
            option: Endpoint.parse(text, option, schemes=_SCHEMES) for option, text in texts.items() if text is not None
        }

    def identity(self) -> Any:
        return tuple(self.endpoints().items())

    def listens(self) -> Sequence[Endpoint]:
        return tuple(self.endpoints().values())

    def load(self) -> None:
        """See `Input.load`: the libraries of the extra `otlp`."""
        import shipper_plugins.otlp.server.grpc
        import shipper_plugins.otlp.server.http  # noqa: F401

    @classmethod
    def form(cls) -> Form:
        """See `Input.form`: records as they came."""
        from shipper_plugins.otlp.records import Records

        return Records()

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        receiver = _OtlpReceiver(self, context)
        await receiver.listen()
        yield receiver

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

    def contexts(self, credentials: Mapping[str, Credential]) -> dict[str, ssl.SSLContext | None]:
        """Returns the contexts of new connections by option; raises ValueError for a wrong credential."""
        return {option: self._tls(option, credentials) for option in self.endpoints()}

    def _tls(self, option: str, credentials: Mapping[str, Credential]) -> ssl.SSLContext | None:
        if self.tls is None:
            return None
        context = self.tls.context(credentials)
        context.set_alpn_protocols([_PROTOCOLS[option]])
        return context


class _OtlpReceiver(Source):
    """A running receiver."""

    def __init__(self, settings: OtlpInput, context: InputContext) -> None:
        from shipper.sdk.server import Server
        from shipper_plugins.otlp.server.grpc import talk as over_grpc
        from shipper_plugins.otlp.server.http import talk as over_http
        from shipper_plugins.otlp.server.intake import Door, Intake

        self._context, self._settings = context, settings
        try:
            keys, contexts = settings.keys(context.credentials), settings.contexts(context.credentials)
        except ValueError as error:
            raise StartFailed(str(error), code=Code.CREDENTIAL_INVALID) from None
        self._door = Door
        self._intake: Intake = Intake(self._made(settings, keys), context.emit)
        talks = {"grpc": over_grpc, "http": over_http}
        self._servers: dict[str, Server] = {
            option: Server(self._intake.handler(talks[option]), tls=tls, tell=self._teller(option))
            for option, tls in contexts.items()
        }
        self._closed: str | None = None
        self._crowded: dict[str, str | None] = {}

    async def listen(self) -> None:
        """Raises StartFailed."""
        endpoints = self._settings.endpoints()
        self._listeners = {option: await self._context.listen(endpoint) for option, endpoint in endpoints.items()}

    async def run(self) -> None:
        """See `Source.run`."""
        self._report()
        async with trio.open_nursery() as nursery:
            for option, server in self._servers.items():
                nursery.start_soon(server.serve, self._listeners[option])

    def change(self, settings: OtlpInput, credentials: Mapping[str, Credential]) -> None:
        """See `Source.change`; with a credential of the wrong shape, all requests are refused, and that is reported."""
        before, self._settings = self._settings, settings
        try:
            keys = settings.keys(credentials)
            is_kept = (
                settings.tls == before.tls if settings.tls is None else settings.tls.is_kept(before.tls, credentials)
            )
            if not is_kept or self._closed:
                for option, tls in settings.contexts(credentials).items():
                    self._servers[option].tls = tls
            self._intake.door, self._closed = self._made(settings, keys), None
        except ValueError as error:
            self._intake.door, self._closed = self._made(settings, ()), str(error)
            for server in self._servers.values():
                server.tls = None if settings.tls is None else _nobody()
        self._report()

    async def changed(self) -> None:
        """See `Source.changed`: closes connections with another certificate or a removed key."""
        async with trio.open_nursery() as nursery:
            for server in self._servers.values():
                nursery.start_soon(server.renew, self._intake.door.keys or ())

    def _made(self, settings: OtlpInput, keys: tuple[bytes, ...] | None) -> Any:
        return self._door(
            keys=keys,
            is_tls=settings.tls is not None,
            max_body_bytes=settings.max_body_bytes,
            max_decompressed_bytes=settings.max_decompressed_bytes,
        )

    def _teller(self, option: str) -> Any:
        def tell(turned_away: int, problem: str | None) -> None:
            if problem is not None:
                _log.warning("input %s: %s", self._context.name, problem)
            self._crowded[option] = problem
            self._context.turned_away(turned_away)
            self._report()

        return tell

    def _report(self) -> None:
        problem = "; ".join(filter(None, (self._closed, *self._crowded.values())))
        self._context.report(problem or None, code=Code.CREDENTIAL_INVALID if self._closed else Code.CROWDED)


def _nobody() -> ssl.SSLContext:
    """Returns a context without a certificate, so that every handshake fails."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
