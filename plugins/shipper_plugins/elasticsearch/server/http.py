"""One request of the bulk server in HTTP: its path and headers, its body in blocks, its answer; not its connection."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

import orjson
from aiohttp import web

from shipper.sdk.bodies import ENCODINGS, BodyRefused, too_slow
from shipper_plugins.elasticsearch.server.answer import RequestRefused, introduction

ANSWER_SECONDS = 60.0
COME_AGAIN = {"Retry-After": "1"}

_TYPES = frozenset(
    f"application/{prefix}{kind}" for prefix in ("", "vnd.elasticsearch+") for kind in ("json", "x-ndjson")
)
_COMPATIBLE_JSON = re.compile(r"application/vnd\.elasticsearch\+json; ?compatible-with=[0-9]{1,2}")
_HEADERS = {"X-Elastic-Product": "Elasticsearch", "Server": "shipper", "Cache-Control": "no-store"}
_CHALLENGE = 'Basic realm="shipper", charset="UTF-8", ApiKey'


def abort(connection: web.RequestHandler) -> None:
    """Closes the connection without sending the rest of an answer."""
    transport = connection.transport
    connection.force_close()
    if isinstance(transport, asyncio.Transport):
        transport.abort()


def introduce(request: web.BaseRequest) -> bytes:
    """Returns the answer to a GET; raises RequestRefused (404)."""
    host = request.headers.get("Host", "localhost")  # without it aiohttp would ask the resolver
    answer = introduction(request.path, host.encode(errors="replace").decode())
    if answer is None:
        raise RequestRefused(404, "resource_not_found_exception", "no handler found for this path and method")
    return orjson.dumps(answer)


def bulk_index(request: web.BaseRequest) -> str | None:
    """Returns the index of the URL, or None; raises RequestRefused if path or method are not those of `_bulk`."""
    *index, last = request.path.strip("/").split("/")
    if last != "_bulk" or len(index) > 1:
        raise RequestRefused(404, "resource_not_found_exception", "no handler found for this path and method")
    if request.method not in ("POST", "PUT"):
        raise RequestRefused(405, "method_not_allowed", "allowed: [POST, PUT]")
    if not request.path.isprintable():
        raise RequestRefused(400, "invalid_index_name_exception", "the name of the index is not valid")
    return index[0] if index else None


def encoding_of(request: web.BaseRequest) -> str:
    """Returns the Content-Encoding; raises RequestRefused (406, 415) for an unsupported body.

    Only types of JSON are supported: a web page can send any other to loopback without a preflight.
    """
    if request.content_type not in _TYPES:
        raise RequestRefused(406, "media_type_header_exception", "the Content-Type is application/x-ndjson")
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ENCODINGS:
        raise RequestRefused(
            415, "illegal_argument_exception", "a body is compressed by gzip or deflate, or not at all"
        )
    return encoding


async def tell_to_continue(request: web.BaseRequest) -> None:
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


async def next_block(request: web.BaseRequest, deadline: float) -> bytes:
    """Returns the next bytes of the body, none at its end; raises BodyRefused if late (408) or invalid (400)."""
    try:
        if (block := request.content.read_nowait()) or request.content.at_eof():
            return block
        async with asyncio.timeout_at(deadline):
            return await request.content.readany()
    except TimeoutError:
        raise too_slow() from None
    except web.RequestPayloadError:
        raise BodyRefused(400, "the framing of the body is not valid HTTP") from None


async def send(request: web.BaseRequest, response: web.Response) -> None:
    """Returns when the kernel has all of the answer; raises ConnectionResetError if the peer does not read it.

    Other connections have their turn first: from Python 3.12 on, aiohttp begins each request on the spot, and so would
    answer all that one connection has sent.
    """
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        abort(request.protocol)
        raise ConnectionResetError("the answer was not read in time") from None


def headers_for(request: web.BaseRequest) -> dict[str, str]:
    """Returns the headers that each answer to such a request has."""
    accepted = request.headers.get("Accept", "").split(",")[0].strip()
    return {**_HEADERS, "Content-Type": accepted if _COMPATIBLE_JSON.fullmatch(accepted) else "application/json"}


def reply(request: web.BaseRequest, status: int, body: bytes, **headers: str) -> web.Response:
    return web.Response(status=status, body=body, headers={**headers_for(request), **headers})


def written(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    """Returns an answer in the form in which it is sent."""
    fields = {**headers, "Content-Length": str(len(body)), "Date": _date(int(time.time()))}
    head = "".join([f"{name}: {value}\r\n" for name, value in fields.items()])
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{head}\r\n".encode() + body


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


def refused(request: web.BaseRequest, refusal: RequestRefused) -> web.Response:
    headers = {}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = _CHALLENGE
    if refusal.status == 405:
        headers["Allow"] = "POST, PUT"
    if refusal.status == 429:
        headers |= COME_AGAIN
    response = reply(request, refusal.status, refusal.body(), **headers)
    if refusal.status == 408 or "Expect" in request.headers:  # the rest of the body may follow, or not
        response.force_close()
    return response
