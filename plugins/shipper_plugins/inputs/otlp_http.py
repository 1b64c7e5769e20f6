"""OTLP over HTTP/1.1: one connection of the input `otlp`. Imports h11."""

from __future__ import annotations

import logging
from types import ModuleType

import h11
import trio

from shipper.plugin import is_own_host
from shipper.sdk.server import Peer
from shipper_plugins.inputs.bulk_limits import Share
from shipper_plugins.inputs.otlp_intake import COMPRESSIONS, Door, Intake, Refused, hold, latest, too_large, too_slow
from shipper_plugins.otlp import jsons, protobuf, status
from shipper_plugins.otlp.status import Grpc

PATH = "/v1/logs"
_OTHER_SIGNALS = ("/v1/traces", "/v1/metrics", "/v1development/profiles")
_LARGEST_HEADER = 32 << 10
_LINGER_BYTES, _LINGER_SECONDS = 1 << 20, 2.0
"""The rest of a refused body that is still read, so that the close of the connection does not discard the answer."""
_CODECS: dict[str, ModuleType] = {
    "application/x-protobuf": protobuf,
    "application/protobuf": protobuf,
    "application/json": jsons,
}

_log = logging.getLogger(__name__)


async def talk(intake: Intake, peer: Peer) -> None:
    """Answers the requests of a connection, until it ends."""
    connection = _Connection(intake, peer)
    while (request := await connection.begin()) is not None:
        if not await connection.answer(request):
            return


class _Connection:
    def __init__(self, intake: Intake, peer: Peer) -> None:
        self._intake, self._peer = intake, peer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGEST_HEADER)

    async def begin(self) -> h11.Request | None:
        """Returns the head of the next request; None at the end of the connection, and after invalid HTTP."""
        try:
            event = await self._next()
        except h11.RemoteProtocolError:
            refusal = Refused(Grpc.INVALID_ARGUMENT, "the request is not valid HTTP")
            await self._send(refusal.status, jsons, _body(refusal, jsons), {"Connection": "close"})
            return None
        return event if isinstance(event, h11.Request) else None

    async def answer(self, request: h11.Request) -> bool:
        """Answers a request; returns whether the connection can be used again."""
        headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
        codec = _CODECS.get(_kind(headers), jsons)
        with self._peer.busy(), self._intake.memory.share() as share:
            code, body, extra = await self._judged(request, headers, codec, share)
            is_read = self._http.their_state is h11.DONE
            await self._send(code, codec, body, extra if is_read else {**extra, "Connection": "close"})
        if not is_read:
            await self._linger()
            return False
        if self._http.our_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _judged(
        self, request: h11.Request, headers: dict[str, str], codec: ModuleType, share: Share
    ) -> tuple[int, bytes, dict[str, str]]:
        """Returns status, body and additional headers of the answer."""
        try:
            count, reason = await self._take(request, headers, self._intake.door, share)
            return 200, codec.answer(count, reason), {}
        except Refused as found:
            refusal = found
        except h11.RemoteProtocolError:
            refusal = Refused(Grpc.INVALID_ARGUMENT, "the framing of the body is not valid HTTP")
        except Exception as error:
            _log.error("a request could not be answered", exc_info=error)
            refusal = Refused(Grpc.INTERNAL, "internal error")
        return refusal.status, _body(refusal, codec), _headers(refusal)

    async def _take(self, request: h11.Request, headers: dict[str, str], door: Door, share: Share) -> tuple[int, str]:
        if door.keys is None and not is_own_host(headers.get("host", "localhost")):
            raise Refused(Grpc.PERMISSION_DENIED, "without credentials, Host is this host or an address", status=421)
        door.admit(headers.get("authorization", ""), is_tls=self._peer.tls is not None)
        self._intake.let_in(self._peer)
        _check_target(request)
        codec = _CODECS.get(_kind(headers))
        if codec is None:
            raise Refused(
                Grpc.INVALID_ARGUMENT, "the Content-Type is application/x-protobuf or application/json", status=415
            )
        compression = headers.get("content-encoding", "identity").strip().lower()
        if compression not in COMPRESSIONS:
            raise Refused(Grpc.INVALID_ARGUMENT, "a body is compressed by gzip, or not at all", status=415)
        body = await self._read(door.max_body_bytes, int(headers.get("content-length", "0")), share)
        return await self._intake.take(door, body, compression, codec, share)

    async def _read(self, limit: int, declared: int, share: Share) -> bytes:
        if declared > limit:
            raise too_large(limit)
        hold(share, declared)
        begun, received = trio.current_time(), 0
        pieces: list[bytes] = []
        while True:
            with trio.move_on_at(latest(begun, received)) as late:
                event = await self._next()
            if late.cancelled_caught:
                raise too_slow()
            if not isinstance(event, h11.Data):
                return b"".join(pieces)
            pieces.append(bytes(event.data))
            received += len(event.data)
            if received > limit:
                raise too_large(limit)
            hold(share, max(received, declared))

    async def _next(self) -> object:
        """Returns the next event of h11; raises RemoteProtocolError."""
        while True:
            event = self._http.next_event()
            if event is h11.PAUSED:
                return h11.ConnectionClosed()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._put(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._peer.receive())

    async def _send(self, code: int, codec: ModuleType, body: bytes, headers: dict[str, str]) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        headers = {"Content-Type": codec.CONTENT_TYPE, "Content-Length": str(len(body)), **headers}
        await self._put(
            h11.Response(status_code=code, headers=list(headers.items())), h11.Data(data=body), h11.EndOfMessage()
        )

    async def _put(self, *events: h11.Event) -> None:
        await self._peer.send(b"".join([self._http.send(event) or b"" for event in events]))

    async def _linger(self) -> None:
        left = _LINGER_BYTES
        with trio.move_on_after(_LINGER_SECONDS):
            while left > 0 and (block := await self._peer.receive()):
                left -= len(block)


def _kind(headers: dict[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _check_target(request: h11.Request) -> None:
    path = request.target.decode("latin-1").partition("?")[0]
    if path in _OTHER_SIGNALS:
        raise Refused(Grpc.UNIMPLEMENTED, f"only logs are supported, at {PATH}", status=404)
    if path != PATH:
        raise Refused(Grpc.NOT_FOUND, f"unknown path: logs are posted to {PATH}")
    if request.method != b"POST":
        raise Refused(Grpc.UNIMPLEMENTED, "the method is POST", status=405)


def _body(refusal: Refused, codec: ModuleType) -> bytes:
    if codec is jsons:
        return status.written_as_json(refusal.code, refusal.message)
    return status.written(refusal.code, refusal.message, refusal.retry_after)


def _headers(refusal: Refused) -> dict[str, str]:
    headers = {}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = 'Bearer, Basic realm="shipper", ApiKey'
    if refusal.status == 405:
        headers["Allow"] = "POST"
    if refusal.retry_after is not None:
        headers["Retry-After"] = f"{refusal.retry_after:.0f}"
    return headers
