"""OTLP over HTTP/1.1: one connection of the input `otlp`."""

from __future__ import annotations

import logging
from types import ModuleType

from shipper.plugin import raised_at
from shipper.sdk.bodies import ENCODINGS, BodyRefused
from shipper.sdk.hosts import is_own_host
from shipper.sdk.server import Peer
from shipper_plugins.http.connection import Connection, Malformed
from shipper_plugins.http.request import Request
from shipper_plugins.otlp import jsons, protobuf, status
from shipper_plugins.otlp.server.intake import Intake, Refused, of_body
from shipper_plugins.otlp.status import Grpc

PATH = "/v1/logs"
_OTHER_SIGNALS = ("/v1/traces", "/v1/metrics", "/v1development/profiles")
_CODECS: dict[str, ModuleType] = {
    "application/x-protobuf": protobuf,
    "application/protobuf": protobuf,
    "application/json": jsons,
}

_log = logging.getLogger(__name__)


async def talk(intake: Intake, peer: Peer) -> None:
    """Answers the requests of a connection, until it ends."""
    connection = Connection(peer)
    try:
        while (request := await connection.begin()) is not None:
            await _Exchange(intake, peer, connection).answer(request)
            if not await connection.end():
                return
    except Malformed as why:
        refusal = Refused(Grpc.INVALID_ARGUMENT, str(why))
        await connection.reply(refusal.status, {"Content-Type": jsons.CONTENT_TYPE}, _body(refusal, jsons))
        await connection.end()


class _Exchange:
    def __init__(self, intake: Intake, peer: Peer, connection: Connection) -> None:
        self._intake, self._peer, self._connection = intake, peer, connection

    async def answer(self, request: Request) -> None:
        """Stores what the request has, and answers it."""
        codec = _CODECS.get(request.kind, jsons)
        with self._peer.busy():
            code, body, extra = await self._judged(request, codec)
            await self._connection.reply(code, {"Content-Type": codec.CONTENT_TYPE, **extra}, body)

    async def _judged(self, request: Request, codec: ModuleType) -> tuple[int, bytes, dict[str, str]]:
        """Returns status, body and additional headers of the answer."""
        try:
            count, reason = await self._take(request)
            return 200, codec.answer(count, reason), {}
        except Refused as refusal:
            return _refused(refusal, codec)
        except BodyRefused as why:
            return _refused(of_body(why), codec)
        except Exception as error:
            _log.error("a request could not be answered: %s", raised_at(error))
            return _refused(Refused(Grpc.INTERNAL, "internal error"), codec)

    async def _take(self, request: Request) -> tuple[int, str]:
        if self._intake.door.keys is None and not is_own_host(request.headers.get("host", "localhost")):
            raise Refused(Grpc.PERMISSION_DENIED, "without credentials, Host is this host or an address", status=421)
        door, owner = self._intake.admit(request.headers.get("authorization", ""), self._peer)
        _check_target(request)
        codec = _CODECS.get(request.kind)
        if codec is None:
            raise Refused(
                Grpc.INVALID_ARGUMENT, "the Content-Type is application/x-protobuf or application/json", status=415
            )
        if request.encoding not in ENCODINGS:
            text = "a body is compressed by gzip or deflate, or not at all"
            raise Refused(Grpc.INVALID_ARGUMENT, text, status=415)
        with self._intake.memory.share(owner) as share:
            body = await self._connection.body(request, door.max_body_bytes, share)
            return await self._intake.take(door, body, request.encoding, codec, share)


def _check_target(request: Request) -> None:
    if request.path in _OTHER_SIGNALS:
        raise Refused(Grpc.UNIMPLEMENTED, f"only logs are supported, at {PATH}", status=404)
    if request.path != PATH:
        raise Refused(Grpc.NOT_FOUND, f"unknown path: logs are posted to {PATH}")
    if request.method != "POST":
        raise Refused(Grpc.UNIMPLEMENTED, "the method is POST", status=405)


def _refused(refusal: Refused, codec: ModuleType) -> tuple[int, bytes, dict[str, str]]:
    return refusal.status, _body(refusal, codec), _headers(refusal)


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
