"""The `relay` input: the door of a principal, which edges relay their log events and keyed state to.

    inputs:
      edges:
        type: relay
        address: 0.0.0.0:6789
        tls: {certificate: /etc/shipper/tls.crt, key: /etc/shipper/tls.key, client_ca: /etc/shipper/edges.pem}
        edges:
          berlin: {credentials: [berlin-1, berlin-2], san: [berlin.edge.example], collections: [inventory]}

An edge is who its credential says, or its certificate by one of its names. Its name is all that counts from there on:
what was sent under one of its credentials is answered under another.

    POST /v1/relay/session    `frames.Hello`, as JSON          200 `frames.Welcome`
    POST /v1/relay/parts      `frames.encode`                  200 `frames.Answered`
    POST /v1/relay/answers    `frames.Poll`, as JSON           200 `frames.Told`, perhaps after a while
    POST /v1/relay/heartbeat  `frames.Head`, as JSON           200 `frames.Answered`, of nothing
    POST /v1/relay/versions   `state.encode`                   200 `state.StateAnswered`
    POST /v1/relay/compare    `state.Compare`, as JSON         200 `state.Compared`
    POST /v1/relay/surplus    `state.Surplus`, as JSON         200 `state.Named`
    POST /v1/relay/documents  `state.Wanted`, as JSON          200 `state.Given`

    PUT, DELETE /v1/state/{collection}/{key}   a JSON object   200 `{"place": …, "is_new": …}`, once it is durable

The last one is for programs: the edge whose credential it shows is the owner of the key. What a path names is
percent-encoded UTF-8; all behind the collection is the key.

    400 bad_request, protocol   401 unauthorized         403 forbidden           404, 405, 408, 415
    409 edge_cloned: another live process has the name   409 session_over: begin another session
    403 no_events: this door takes keyed state alone
    403 foreign_origin: the events of a part are not proven to be those of this edge, which may not relay for others
    409 identity_conflict: another part was taken under the identity of this one; it is never acknowledged
    413 too_large               422 part_refused: it can never be stored           429 busy, full, with Retry-After

This file says what a policy may ask for. `principal.server` speaks HTTP, `principal.edges` and the modules beside it
decide and store; `relay.frames` and what else both sides share has no I/O.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import trio

from shipper.plugin import (
    API_KEY,
    BEARER_TOKEN,
    BadOption,
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
from shipper.plugin.relay import Edge as KnownEdge
from shipper.plugin.state import Quota
from shipper.sdk.endpoints import Scheme
from shipper_plugins.elasticsearch.input import ServerTls
from shipper_plugins.elasticsearch.server.door import fingerprint
from shipper_plugins.loopback import is_loopback
from shipper_plugins.relay.principal.door import Door
from shipper_plugins.relay.principal.edges import Edges
from shipper_plugins.relay.state import Limits

if TYPE_CHECKING:
    from shipper_plugins.relay.principal.server import RelayServer

_log = logging.getLogger(__name__)

_SCHEMES: tuple[Scheme, ...] = ("tcp",)
MOST_EDGES = 10_000

Key = Annotated[CredentialId, takes(API_KEY, BEARER_TOKEN)]
Name = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?(?!\n)$",
        max_length=100,
        description="a name of small letters, digits and . _ - inside",
    ),
]
Collection = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
San = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class RelayTls(ServerTls, frozen=True, kw_only=True):
    """The certificate that the input shows, and the authorities that it trusts."""

    client_ca: Material | None = None
    """PEM file of the authorities that sign the certificates of edges."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.client_ca is not None:
            _trust(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.client_ca)

    def context(self, credentials: Mapping[str, Credential]) -> ssl.SSLContext:
        """Raises ValueError for a credential that is no certificate."""
        context = super().context(credentials)
        if self.client_ca is not None:
            _trust(context, self.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


def _trust(context: ssl.SSLContext, authorities: Material) -> None:
    try:
        context.load_verify_locations(cadata=authorities.pem)
    except ssl.SSLError as error:
        raise ValueError(f"client_ca is no certificate: {error.reason or 'bad PEM'}") from None


class Edge(Settings, frozen=True, kw_only=True):
    """One edge, and how it is recognised."""

    credentials: tuple[Key, ...] = ()
    """The ids of its keys, each an api_key or a bearer_token; any of them will do."""
    san: tuple[San, ...] = ()
    """Names in its certificate, any of which will do: DNS names, URIs or IP addresses, as written there."""
    collections: tuple[Collection, ...] = ()
    """The collections of keyed state that it may write (default: it may write no state)."""
    relays: bool = False
    """Whether it is a principal itself, and sends what other shippers have accepted (default: it sends only its own log
    events, and others are refused)."""
    max_keys: Annotated[int, msgspec.Meta(ge=1)] = 100_000
    """The most keys that it may have, without deleted ones."""
    max_document_bytes: Size = Size(1 << 20)
    """The largest document of a key."""
    max_state_bytes: Size = Size(1 << 30)
    """The most bytes of all its documents, as stored."""

    def __post_init__(self) -> None:
        if not self.credentials and not self.san:
            raise ValueError("an edge has credentials, or names in its certificate (san)")

    @property
    def limits(self) -> Limits:
        """The limits of its keyed state."""
        quota = Quota(self.max_keys, int(self.max_state_bytes))
        return Limits(frozenset(self.collections), int(self.max_document_bytes), quota)


class RelayInput(Input, frozen=True, kw_only=True):
    """Receives log events of other shippers, each event once, under the id that it got there; and keyed state."""

    forwards: ClassVar[bool] = True
    relays: ClassVar[bool] = True

    address: str
    """`host:port` to listen on; other than loopback only with `tls`."""
    tls: RelayTls | None = None
    """Serve HTTPS."""
    acknowledge: Literal["stored", "delivered"] = "stored"
    """When an edge may forget an event, or a version of keyed state: when it is `stored` here; or `delivered`, when all
    outputs here have given their final answers. A change applies to later events."""
    events: Literal["all", "state"] = "all"
    """What it takes: `all`, or `state`: keyed state alone, and it refuses log events, which their edges hold then. Not
    needed where another output takes the log events."""
    edges: Annotated[dict[Name, Edge], msgspec.Meta(min_length=1, max_length=MOST_EDGES)]
    """The edges that may send, by name."""
    max_part_bytes: Size = Size(16 << 20)
    """The most bytes of events in one request, as they are in memory, or a quarter of what they are written in, if that
    is more; an edge sends a larger batch in halves."""

    def __post_init__(self) -> None:
        if not is_loopback(self.endpoint.host) and self.tls is None:
            raise BadOption("an address other than loopback needs tls", "address")
        if not 1 << 16 <= self.max_part_bytes <= 1 << 30:
            raise BadOption(f"must be from 64KiB to 1GiB, not {self.max_part_bytes}", "max_part_bytes")
        self._check_edges()

    @property
    def gives_events(self) -> bool:  # type: ignore[override]
        """See `Input.gives_events`."""
        return self.events == "all"

    @property
    def gives_state(self) -> bool:
        return any(edge.collections for edge in self.edges.values())

    def _check_edges(self) -> None:
        """Raises BadOption if two edges have a credential or a name in common."""
        owners: dict[tuple[str, str], str] = {}
        for name, edge in self.edges.items():
            if edge.collections and edge.max_document_bytes > self.max_part_bytes:
                raise BadOption("a document is larger than max_part_bytes", "edges", name, "max_document_bytes")
            if edge.san and (self.tls is None or self.tls.client_ca is None):
                raise BadOption("who is known by a certificate needs tls.client_ca", "edges", name, "san")
            for option, known_by in (("credentials", edge.credentials), ("san", edge.san)):
                for number, one in enumerate(known_by):
                    if owners.setdefault((option, one.lower() if option == "san" else one), name) != name:
                        raise BadOption("another edge is known by the same", "edges", name, option, number)

    def identity(self) -> Any:
        return self.endpoint

    def has_keys(self, owner: str, collection: str) -> bool:
        """See `Input.has_keys`."""
        edge = self.edges.get(owner.partition("/")[0])
        return edge is not None and collection in edge.collections

    def awaits(self) -> bool:
        return self.acknowledge == "delivered"

    @property
    def endpoint(self) -> Endpoint:
        """Raises BadOption."""
        return Endpoint.parse(self.address, "address", schemes=_SCHEMES)

    def listens(self) -> Sequence[Endpoint]:
        return (self.endpoint,)

    def load(self) -> None:
        """See `Input.load`: aiohttp.web."""
        import shipper_plugins.relay.principal.server  # noqa: F401

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        from shipper_plugins.relay.principal.server import RelayServer

        principal = _Principal(self, context, RelayServer)
        await principal.listen(self.endpoint)
        yield principal

    def door(self, credentials: Mapping[str, Credential], tls: ssl.SSLContext | None = None) -> Door:
        """Returns the door of these settings; raises ValueError for credentials that do not fit.

        `tls` is the context of the same certificate and key, if there is one already.
        """
        keys: dict[bytes, str] = {}
        for name, edge in self.edges.items():
            for id in edge.credentials:
                if id in credentials and keys.setdefault(_fingerprint(credentials[id]), name) != name:
                    raise ValueError("two edges have the same secret")
        return Door(
            keys=keys,
            names={san.lower(): name for name, edge in self.edges.items() for san in edge.san},
            tls=None if self.tls is None else tls or self.tls.context(credentials),
            max_part_bytes=int(self.max_part_bytes),
            limits={name: edge.limits for name, edge in self.edges.items() if edge.collections},
            awaits=self.awaits(),
            takes_events=self.gives_events,
            relaying=frozenset(name for name, edge in self.edges.items() if edge.relays),
        )


def _fingerprint(credential: Credential) -> bytes:
    if not credential.fits(API_KEY, BEARER_TOKEN):
        raise ValueError("edges are known by credentials of the shapes {api_key} or {bearer_token}")
    return fingerprint(credential.authorization())


class _Principal(Source):
    """A running door."""

    def __init__(self, settings: RelayInput, context: InputContext, server: type[RelayServer]) -> None:
        self._context = context
        self._tls = settings.tls
        self._names = tuple(settings.edges)
        try:
            door = settings.door(context.credentials)
        except ValueError as error:
            raise StartFailed(str(error), code=Code.CREDENTIAL_INVALID) from None
        self._edges = Edges(context)
        self._server = server(door, self._edges, context.aio, self._tell)
        self._closed: str | None = None
        self._crowded: str | None = None

    async def listen(self, endpoint: Endpoint) -> None:
        """Raises StartFailed."""
        self._listener = await self._context.listen(endpoint)

    async def run(self) -> None:
        """See `Source.run`; when cancelled, requests under way have a second to end."""
        self._report()
        await self._edges.load()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._edges.resume)
            nursery.start_soon(self._edges.renew_adopted)
            await self._context.aio.call(self._server.serve, self._listener)

    def change(self, settings: RelayInput, credentials: Mapping[str, Credential]) -> None:
        """See `Source.change`; with a credential that does not fit, nobody may enter, and that is reported."""
        self._names = tuple(settings.edges)
        is_kept = settings.tls is not None and settings.tls.is_kept(self._tls, credentials)
        tls = self._server.door.tls if is_kept else None
        awaited = self._server.door.awaits
        try:
            self._server.door = settings.door(credentials, tls)
            self._tls, self._closed = settings.tls, None
        except ValueError as error:
            nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # without a certificate every handshake fails
            self._server.close_door(tls=tls if tls or settings.tls is None else nobody)
            self._tls, self._closed = settings.tls if tls else None, str(error)
        if settings.awaits() != awaited:
            self._edges.renew()
        self._report()

    async def changed(self) -> None:
        """See `Source.changed`: closes connections with another certificate, and those of removed credentials."""
        await self._context.aio.call(self._server.renew)

    def answered(self, keys: Sequence[str]) -> None:
        """See `InputContext.answers`."""
        self._edges.answered(keys)

    def adopted(self, owners: Iterable[str]) -> None:
        """See `Source.change`: these edges compare their keys again."""
        self._edges.adopted(owners)

    def figures(self) -> Mapping[str, int]:
        """See `Source.figures`."""
        return {"connections": self._server.connections}

    def edges(self) -> Sequence[KnownEdge]:
        """See `Source.edges`."""
        return self._edges.figures(self._names, self._server.is_connected)

    async def forget_edge(self, name: str, keys: Literal["keep", "delete"]) -> int:
        """See `Source.forget_edge`."""
        return await self._edges.forget(
            name, keys, lambda: self._server.is_connected(name), is_named=name in self._names
        )

    def _report(self) -> None:
        problem = "; ".join(filter(None, (self._closed, self._crowded)))
        self._context.report(problem or None, code=Code.CREDENTIAL_INVALID if self._closed else Code.CROWDED)

    async def _tell(self, turned_away: int, problem: str | None) -> None:
        """In the asyncio thread: counts, logs and reports connections that are turned away."""
        if problem is not None:
            _log.warning("input %s: %s", self._context.name, problem)

        async def tell() -> None:
            self._crowded = problem
            self._context.turned_away(turned_away)
            self._report()

        await self._context.aio.answer(tell)
