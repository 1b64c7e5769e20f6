"""One connection to a broker. Its coroutines run in the asyncio thread.

*Closing is aborting* (`shipper.sdk.connection`): a connection ends without another byte. `may_begin` is checked before
each request is written, including those of the login.

A request without an answer may have been carried out: then, and only then, `Lost` is raised.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakSet

from aiokafka.protocol.admin import (
    ApiVersionRequest_v0,
    SaslAuthenticateRequest_v1,
    SaslHandShakeRequest_v1,
)
from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.produce import ProduceRequest_v8
from aiokafka.protocol.transaction import InitProducerIdRequest_v0

from shipper.plugin import Asyncio, Code, Credential, Endpoint, Held, Later, NotBegun, forget_frames
from shipper.sdk.connection import CONNECT_SECONDS, cause_of, connected_socket, unreachable
from shipper_plugins.kafka import answers as codes
from shipper_plugins.kafka.scram import Scram
from shipper_plugins.loopback import is_loopback

LARGEST_ANSWER = 16 << 20
_CLOSE = 5.0
_LONGEST_THROTTLE = 3600.0
_SIZE = struct.Struct(">i")
_NEEDED = (ProduceRequest_v8, MetadataRequest_v5, InitProducerIdRequest_v0)
_SASL_NEEDED = (SaslHandShakeRequest_v1, SaslAuthenticateRequest_v1)
_LOGIN_LIFE = 0.8
"""The share of a login's lifetime after which a new connection replaces the old one."""

Address = tuple[str, int]


class Lost(Later):
    """A request was written but has no answer: it may have been carried out."""


@dataclass(frozen=True, slots=True)
class Access:
    """The settings and the credential of connections to brokers."""

    aio: Asyncio
    tls: ssl.SSLContext | None
    server_name: str | None
    mechanism: str | None
    credential: Credential | None
    seconds: float
    begins: Callable[[], Awaitable[None]]
    may_begin: Callable[[], bool]
    sockets: WeakSet[socket.socket] = field(default_factory=WeakSet)
    """All opened sockets."""

    def admits(self, address: Address) -> bool:
        """Returns whether the credential may go to this address: PLAIN without TLS only to one of this host.

        It holds for `hosts`, and for each broker that they name.
        """
        return self.mechanism != "PLAIN" or self.tls is not None or is_loopback(address[0])

    async def closed(self) -> None:
        """Waits until all sockets are closed, after all connections were aborted."""
        async with asyncio.timeout(_CLOSE):  # aborted transports close their sockets in the next steps
            while any(made.fileno() >= 0 for made in self.sockets):  # noqa: ASYNC110 - no event exists
                await asyncio.sleep(0)


def where(address: Address) -> str:
    """Returns an address as text."""
    return Endpoint("tcp", *address).address


class Connection(asyncio.Protocol):
    """A connection with a login; made by `connect`."""

    def __init__(self, address: Address, access: Access) -> None:
        self.where = where(address)
        self.is_closed = False
        self.free_at = 0.0
        """When a throttling broker takes the next request, on the clock of `time.monotonic`."""
        self.expires_at = float("inf")
        """When the login has to be renewed, on the same clock."""
        self._access = access
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: deque[tuple[int, RequestStruct, asyncio.Future[Any]]] = deque()
        self._number = 0
        self._is_retired = False

    # -- requests ------------------------------------------------------------------------------------------------------

    async def request(self, request: RequestStruct) -> Any:
        """Sends a request and returns its answer; raises NotBegun or Later if it was not written, otherwise Lost."""
        if self.is_closed or self._transport is None:
            raise Later(f"{self.where}: the connection was closed", code=Code.UNREACHABLE)
        if not self._access.may_begin():
            raise NotBegun("nothing may be sent now")
        try:
            async with asyncio.timeout(self._access.seconds):
                return await self._written(request, self._transport)
        except TimeoutError as error:
            forget_frames(error)
            self.abort()
            raise Lost(f"{self.where}: timed out after {self._access.seconds:g}s", code=Code.TIMED_OUT) from None
        except asyncio.CancelledError:
            self.abort()
            raise

    def _written(self, request: RequestStruct, transport: asyncio.Transport) -> asyncio.Future[Any]:
        """Writes a request, and returns what will be its answer. A frame that holds that must not raise its error."""
        self._number = (self._number + 1) & 0x7FFFFFFF
        text = request.build_request_header(self._number, "shipper").encode() + request.encode()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._number, request, answer))
        transport.write(_SIZE.pack(len(text)) + text)
        return answer

    def abort(self) -> None:
        """Closes the connection, without another byte."""
        self._end(f"{self.where}: the connection was closed", Code.NO_ANSWER)

    def retire(self) -> None:
        """Closes the connection after the last expected answer."""
        self._is_retired = True
        if not self._waiting:
            self.abort()

    def _end(self, reason: str, code: str) -> None:
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            _, _, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(Lost(reason, code=code))

    # -- called by asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"{self.where}: {cause_of(exc)}", Code.NO_ANSWER)

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            while (frame := self._frame()) is not None:
                self._answered(frame)
        except Exception:  # the library may raise any error for invalid bytes
            self._end(f"{self.where}: the answer is not Kafka's", Code.BAD_ANSWER)
        if self._is_retired and not self._waiting:
            self.abort()

    def _frame(self) -> bytes | None:
        if len(self._received) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._received)
        if not 0 <= size <= LARGEST_ANSWER:
            raise ValueError("the answer is too large")
        end = _SIZE.size + size
        if len(self._received) < end:
            return None
        frame = bytes(self._received[_SIZE.size : end])
        del self._received[:end]
        return frame

    def _answered(self, frame: bytes) -> None:
        number, request, answer = self._waiting.popleft()
        (answered,) = _SIZE.unpack_from(frame)
        try:
            if answered != number:
                raise ValueError("an answer to another request")
            response = request.RESPONSE_TYPE.decode(frame[_SIZE.size :])
        except Exception:
            self._waiting.appendleft((number, request, answer))
            raise
        throttled = getattr(response, "throttle_time_ms", 0)
        if throttled > 0:
            self.free_at = time.monotonic() + min(throttled / 1000, _LONGEST_THROTTLE)
        if not answer.done():
            answer.set_result(response)

    # -- logging in ----------------------------------------------------------------------------------------------------

    async def log_in(self) -> None:
        """Checks the broker's version and logs in; raises Later, Held or NotBegun."""
        versions = await self.request(ApiVersionRequest_v0())
        if versions.error_code not in (codes.NONE, codes.UNSUPPORTED_VERSION):
            raise codes.refusal(versions.error_code, self.where)
        offered = {key: (least, most) for key, least, most in versions.api_versions or ()}
        mechanism = self._access.mechanism
        for needed in (*_NEEDED, *(_SASL_NEEDED if mechanism else ())):
            least, most = offered.get(needed.API_KEY, (0, -1))
            if not least <= needed.API_VERSION <= most:
                raise Held(f"{self.where}: the broker is not Kafka 2.4 or newer")
        if mechanism is not None:
            await self._authenticate(mechanism)

    async def _authenticate(self, mechanism: str) -> None:
        credential = self._access.credential
        assert credential is not None
        username, password = credential.fields["username"], credential.fields["password"]
        hello = await self.request(SaslHandShakeRequest_v1(mechanism))
        if hello.error_code in codes.NOT_THIS_LOGIN:
            offers = ", ".join(sorted(_MECHANISMS.intersection(hello.enabled_mechanisms or ()))) or "none of ours"
            raise Held(f"{self.where}: the broker does not take {mechanism}; it takes {offers}", code=Code.REFUSED)
        if hello.error_code != codes.NONE:
            raise codes.refusal(hello.error_code, self.where)
        if mechanism == "PLAIN":
            last = await self._token(b"\0".join([b"", username.encode(), password.encode()]))
        else:
            last = await self._scram(Scram(mechanism, username, password))
        if last.session_lifetime_ms > 0:
            self.expires_at = time.monotonic() + last.session_lifetime_ms / 1000 * _LOGIN_LIFE

    async def _scram(self, scram: Scram) -> Any:
        challenge = await self._token(scram.first())
        try:
            proof = await asyncio.to_thread(scram.final, challenge.sasl_auth_bytes or b"")
            end = await self._token(proof)
            scram.check(end.sasl_auth_bytes or b"")
        except ValueError as error:
            raise Held(f"{self.where}: SCRAM: the broker is not trustworthy: {error}", code=Code.REFUSED) from None
        return end

    async def _token(self, token: bytes) -> Any:
        answer = await self.request(SaslAuthenticateRequest_v1(token))
        if answer.error_code != codes.NONE:
            raise codes.refusal(answer.error_code, self.where)
        return answer


_MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})


async def connect(address: Address, access: Access) -> Connection:
    """Returns a new connection with a login; raises Later, Held or NotBegun, and no request of the caller was
    written."""
    if not access.may_begin():
        raise NotBegun("nothing may be sent now")
    if not access.admits(address):
        why = "the cluster names it, and PLAIN would send it the password in clear text: write tls, or use SCRAM"
        raise Held(f"{where(address)}: {why}", code=Code.REFUSED)
    made = Connection(address, access)
    try:
        async with asyncio.timeout(min(CONNECT_SECONDS, access.seconds)):
            await _join(made, address, access)
            await made.log_in()
    except Lost as error:  # only a request of the login
        made.abort()
        raise Later(str(error), code=error.code) from None
    except TimeoutError as error:
        forget_frames(error)
        made.abort()
        raise Later(f"{made.where}: no connection in time", code=Code.TIMED_OUT) from None
    except OSError as error:
        made.abort()
        raise unreachable(made.where, error) from None
    except BaseException:
        made.abort()
        raise
    return made


async def _join(made: Connection, address: Address, access: Access) -> None:
    one = await access.aio.answer(partial(connected_socket, Endpoint("tcp", *address), seconds=access.seconds))
    access.sockets.add(one)
    name = (access.server_name or address[0]) if access.tls is not None else None
    try:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: made, sock=one, ssl=access.tls, server_hostname=name)
    except BaseException:
        if made._transport is None:  # otherwise the transport closes it
            one.close()
        raise
