"""A request of the input `otlp`, over either transport: admission, limits, storing.

| what | bound |
|---|---|
| bodies of all requests | 64 MiB, of one key (or address) half of what others leave; then 429 |
| body, received and decompressed | the policy's limits, then 413 |
| records of a request, and its groups | 100,000, then 400 |
| resources and scopes of a request, once for each record | 64 MiB, then 413 |
| objects of a decoded body | of one request at a time, in a thread if it is not small; at worst 50 times its bytes |
| values of a body in JSON | 2 million, or one for each four bytes, then 413 |
| time | a body arrives at 1 KiB/s after 30 s |
| connections | those of `shipper.sdk.server` |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import trio

from shipper.plugin import Backpressure, Batch, in_thread
from shipper.sdk.bodies import BodyRefused, Memory, Share, decompressed, small
from shipper.sdk.server import Peer
from shipper_plugins.elasticsearch.server.door import recognized
from shipper_plugins.otlp import events, protobuf, records
from shipper_plugins.otlp.model import Decoded, TooHeavy, Unfit
from shipper_plugins.otlp.status import HTTP_OF, Grpc

COME_AGAIN = 1.0
"""Seconds until a client without room may retry."""
_CODES = {400: Grpc.INVALID_ARGUMENT, 408: Grpc.DEADLINE_EXCEEDED, 413: Grpc.RESOURCE_EXHAUSTED}


class Refused(Exception):
    """The request is refused, and nothing of it is stored; `status` is that of HTTP."""

    def __init__(
        self, code: Grpc, message: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message = code, message
        self.status = HTTP_OF[code] if status is None else status
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Door:
    """The settings of one revision for requests."""

    keys: tuple[bytes, ...] | None
    """`fingerprint` of each permitted Authorization header; None: no header is needed."""
    is_tls: bool
    max_body_bytes: int
    max_decompressed_bytes: int

    def admit(self, authorization: str, *, is_tls: bool) -> bytes | None:
        """Returns the key of a header, None where none is needed; raises Refused (UNAUTHENTICATED) for another one."""
        if self.is_tls and not is_tls:
            raise Refused(Grpc.UNAUTHENTICATED, "this connection was opened before TLS was required")
        if self.keys is None:
            return None
        key = recognized(authorization, self.keys)
        if key is None:
            raise Refused(Grpc.UNAUTHENTICATED, "unable to authenticate with the provided credentials")
        return key


class Codec(Protocol):
    """`otlp.protobuf` or `otlp.jsons`."""

    def decoded(self, body: bytes) -> Decoded: ...


class Intake:
    """Takes requests; `door` may be replaced at any time."""

    def __init__(self, door: Door, emit: Callable[..., Awaitable[None]]) -> None:
        self.door = door
        self.memory = Memory()
        self._emit = emit
        self._one = trio.CapacityLimiter(1)

    def handler(self, talk: Callable[[Intake, Peer], Awaitable[None]]) -> Callable[[Peer], Awaitable[None]]:
        """Returns a handler for `Server` that runs `talk`."""
        return partial(talk, self)

    def admit(self, authorization: str, peer: Peer) -> tuple[Door, Hashable]:
        """Makes the peer of a permitted request a client; returns its door, and the owner of its memory. Raises Refused
        for one that is not permitted, or without room."""
        door = self.door
        if (key := door.admit(authorization, is_tls=peer.tls is not None)) is not None:
            peer.shown.add(key)
        if not peer.let_in():
            raise no_room("too many clients are served now")
        return door, key or peer.address

    async def take(self, door: Door, body: bytes, encoding: str, codec: Codec, share: Share) -> tuple[int, str]:
        """Stores the records; returns the number of rejected ones, and the reason of the first.

        Raises Refused and BodyRefused.
        """
        limit, expected = door.max_decompressed_bytes, (Refused, BodyRefused)
        if (plain := small(body, encoding, limit)) is not None:
            found, batches = _read(plain, "identity", codec, limit)
        else:
            found, batches = await in_thread(_read, body, encoding, codec, limit, expected=expected, limiter=self._one)
        share.resize(len(body) + sum(batch.size for batch in batches))
        if batches:
            try:
                await self._emit(*batches, wait=False)
            except Backpressure:
                raise no_room("there is no room for more events now") from None
        return found


def _read(body: bytes, encoding: str, codec: Codec, limit: int) -> tuple[tuple[int, str], list[Batch]]:
    """Decodes a body; raises Refused and BodyRefused. Any thread."""
    try:
        plain = decompressed(body, encoding, limit)
        if codec is protobuf and (found := records.batches(plain)) is not None:
            return (0, ""), found
        decoded = codec.decoded(plain)
        groups, rejected, reason = events.taken(decoded.groups)
        batches = events.batches(groups)
    except TooHeavy as why:
        raise Refused(Grpc.RESOURCE_EXHAUSTED, str(why), status=413) from None
    except Unfit as why:
        raise Refused(Grpc.INVALID_ARGUMENT, str(why)) from None
    return (decoded.rejected + rejected, decoded.reason or reason), batches


def of_body(why: BodyRefused) -> Refused:
    """Returns the refusal of a body as one of OTLP."""
    if why.status == 429:
        return no_room(why.reason)
    return Refused(_CODES[why.status], why.reason, status=why.status)


def no_room(message: str) -> Refused:
    return Refused(Grpc.RESOURCE_EXHAUSTED, message, retry_after=COME_AGAIN)
