"""The `elasticsearch` input: receives bulk requests of Beats, Logstash, Vector, Fluent Bit and the official clients.

    inputs:
      apps:
        type: elasticsearch
        address: 0.0.0.0:9200
        credentials: [apps-2]
        tls: {certificate: /etc/shipper/tls.crt, key: /etc/shipper/tls.key}

Its identity is the address, so a revision that adds or removes a key, or brings a new certificate, changes the running
input: one assignment replaces the door (see `server.server`). Sockets and connections stay, an admitted request
completes, and the next one with a removed key is refused, on a kept-alive connection too. But connections that have
shown a removed key, or have another certificate, end after the request under way: what is released is used no more.

This module has the settings of a policy. `server.server`, `server.connections` and `server.http` speak HTTP; without
I/O are `server.request`, which reads a body (its lines: `server.line`, `server.action`, `server.document`),
`server.answer`, which makes the answers, `server.door`, which admits requests, and `shipper.sdk.rooms`, which chooses
the connections to close.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from shipper.plugin import (
    API_KEY,
    BASIC,
    CERTIFICATE,
    BadOption,
    Batch,
    Code,
    Credential,
    CredentialId,
    Endpoint,
    Input,
    InputContext,
    Material,
    Settings,
    Size,
    Source,
    StartFailed,
    takes,
)
from shipper.sdk.endpoints import Scheme
from shipper.sdk.tls import server_context
from shipper_plugins.elasticsearch.server.door import Door, fingerprint
from shipper_plugins.loopback import is_loopback

if TYPE_CHECKING:
    from shipper_plugins.elasticsearch.server.server import BulkServer

_log = logging.getLogger(__name__)

_SCHEMES: tuple[Scheme, ...] = ("tcp",)
_DEFAULT_BYTES = Size(100 << 20)


Key = Annotated[CredentialId, takes(API_KEY, BASIC)]


class ServerTls(Settings, frozen=True, kw_only=True):
    """The certificate that the input shows: two files, or a credential of shape certificate."""

    certificate: Material | None = None
    """PEM file of the certificate, with its chain."""
    key: Material | None = None
    """PEM file of its key."""
    credential: Annotated[CredentialId, takes(CERTIFICATE)] | None = None
    """The id of a credential {certificate, key}, instead of the files."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None) or (self.certificate is None) == (self.credential is None):
            raise ValueError("tls is {certificate: …, key: …}, two files, or {credential: …}")
        if self.certificate is not None and self.key is not None:
            server_context(self.certificate.pem, self.key.pem)

    def is_kept(self, before: ServerTls | None, credentials: Mapping[str, Credential]) -> bool:
        """Returns whether the certificate is unchanged, and its credential was not withdrawn."""
        return self == before and (self.credential is None or self.credential in credentials)

    def context(self, credentials: Mapping[str, Credential]) -> ssl.SSLContext:
        """Returns the context of the certificate; raises ValueError for a missing or wrong credential."""
        if self.certificate is not None and self.key is not None:
            return server_context(self.certificate.pem, self.key.pem)
        credential = credentials.get(self.credential or "")
        if credential is None or not credential.fits(CERTIFICATE):
            raise ValueError("the credential of tls is not of the shape {certificate, key}")
        return server_context(credential.fields["certificate"], credential.fields["key"])


class ElasticsearchInput(Input, frozen=True, kw_only=True):
    """Receives events over HTTP, like Elasticsearch's bulk API."""

    forwards: ClassVar[bool] = True

    address: str
    """`host:port` to listen on; other than loopback only with `tls` and `credentials`."""
    credentials: Annotated[tuple[Key, ...], msgspec.Meta(min_length=1)] | None = None
    """The ids of the keys of clients, each an api_key or a username with its password (default: clients need none)."""
    tls: ServerTls | None = None
    """Serve HTTPS."""
    max_body_bytes: Size = _DEFAULT_BYTES
    """The largest body of a request, as received."""
    max_decompressed_bytes: Size = _DEFAULT_BYTES
    """The largest body of a request, decompressed."""

    def __post_init__(self) -> None:
        if not is_loopback(self.endpoint.host) and (self.tls is None or self.credentials is None):
            raise BadOption("an address other than loopback needs both tls and credentials", "address")
        for option in ("max_body_bytes", "max_decompressed_bytes"):
            if getattr(self, option) < 1:
                raise BadOption(f"must be above 0, not {getattr(self, option)}", option)

    def identity(self) -> Any:
        return self.endpoint

    @property
    def endpoint(self) -> Endpoint:
        """The address; raises BadOption."""
        return Endpoint.parse(self.address, "address", schemes=_SCHEMES)

    def listens(self) -> Sequence[Endpoint]:
        return (self.endpoint,)

    def load(self) -> None:
        """See `Input.load`: aiohttp.web, and the readers of requests."""
        import shipper_plugins.elasticsearch.server.server  # noqa: F401

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        from shipper_plugins.elasticsearch.server.server import BulkServer

        receiver = _Receiver(self, context, BulkServer)
        await receiver.listen(self.endpoint)
        yield receiver

    def door(self, credentials: Mapping[str, Credential], tls: ssl.SSLContext | None = None) -> Door:
        """Returns the door of these settings; raises ValueError for a credential of the wrong shape.

        `tls` is an existing context of the same certificate and key, to be reused.
        """
        return Door(
            keys=None if self.credentials is None else _keys(self.credentials, credentials),
            tls=None if self.tls is None else tls or self.tls.context(credentials),
            stream=self.data_stream,
            max_body_bytes=self.max_body_bytes,
            max_decompressed_bytes=self.max_decompressed_bytes,
        )


class _Receiver(Source):
    """A running receiver."""

    def __init__(self, settings: ElasticsearchInput, context: InputContext, server: type[BulkServer]) -> None:
        self._context = context
        self._tls = settings.tls
        try:
            door = settings.door(context.credentials)
        except ValueError as error:
            raise StartFailed(str(error), code=Code.CREDENTIAL_INVALID) from None
        self._server = server(door, self._store, self._tell)
        self._closed: str | None = None
        self._crowded: str | None = None

    async def listen(self, endpoint: Endpoint) -> None:
        """Raises StartFailed."""
        self._listener = await self._context.listen(endpoint)

    async def run(self) -> None:
        """See `Source.run`; when cancelled, requests under way have a second to end."""
        self._report()
        await self._context.aio.call(self._server.serve, self._listener)

    def change(self, settings: ElasticsearchInput, credentials: Mapping[str, Credential]) -> None:
        """See `Source.change`; with a credential of the wrong shape, all requests are refused, and that is reported."""
        is_kept = settings.tls is not None and settings.tls.is_kept(self._tls, credentials)
        tls = self._server.door.tls if is_kept else None
        try:
            self._server.door = settings.door(credentials, tls)
            self._tls, self._closed = settings.tls, None
        except ValueError as error:
            self._server.close_door(tls=tls if tls or settings.tls is None else _nobody())
            self._tls, self._closed = settings.tls if tls else None, str(error)
        self._report()

    async def changed(self) -> None:
        """See `Source.changed`: closes connections with another certificate or a removed key."""
        await self._context.aio.call(self._server.renew)

    def _report(self) -> None:
        problem = "; ".join(filter(None, (self._closed, self._crowded)))
        self._context.report(problem or None, code=Code.CREDENTIAL_INVALID if self._closed else Code.CROWDED)

    async def _store(self, batches: Sequence[Batch]) -> None:
        """In the asyncio thread: stores all batches of a request at once."""

        async def emit() -> None:
            await self._context.emit(*batches, wait=False)

        await self._context.aio.answer(emit)

    async def _tell(self, turned_away: int, problem: str | None) -> None:
        """In the asyncio thread: counts, logs and reports connections that are turned away."""
        if problem is not None:
            _log.warning("input %s: %s", self._context.name, problem)

        async def tell() -> None:
            self._crowded = problem
            self._context.turned_away(turned_away)
            self._report()

        await self._context.aio.answer(tell)


def _nobody() -> ssl.SSLContext:
    """Returns a context without a certificate, so that every handshake fails."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def _keys(ids: Sequence[str], credentials: Mapping[str, Credential]) -> tuple[bytes, ...]:
    """Returns the fingerprints of the credentials that were not withdrawn."""
    chosen = [credentials[id] for id in ids if id in credentials]
    if not chosen or not all(credential.fits(API_KEY, BASIC) for credential in chosen):
        raise ValueError("the input needs credentials of the shapes {api_key} or {username, password}")
    return tuple(fingerprint(credential.authorization()) for credential in chosen)
