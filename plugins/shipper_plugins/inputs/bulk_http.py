"""One request of the bulk server in HTTP: what it asks for, its body in blocks, its answer. Nothing of connections."""

from __future__ import annotations

import asyncio
import re

import orjson
from aiohttp import web

from shipper.plugin import Size
from shipper_plugins.inputs.bulk_answer import RequestRefused, introduction

ANSWER_SECONDS = 60.0

_TYPES = frozenset(
    f"application/{prefix}{kind}" for prefix in ("", "vnd.elasticsearch+") for kind in ("json", "x-ndjson")
)
_COMPATIBLE_JSON = re.compile(r"application/vnd\.elasticsearch\+json; ?compatible-with=[0-9]{1,2}")
_HEADERS = {"X-Elastic-Product": "Elasticsearch", "Server": "shipper", "Cache-Control": "no-store"}
_CHALLENGE = 'Basic realm="shipper", charset="UTF-8", ApiKey'


def abort(connection: web.RequestHandler) -> None:
    """Close without sending the rest of an answer."""
    transport = connection.transport
    connection.force_close()
    if isinstance(transport, asyncio.Transport):
        transport.abort()


def introduce(request: web.BaseRequest) -> bytes:
    """The answer to a GET; raises RequestRefused (404)."""
    host = request.headers.get("Host", "localhost")  # else aiohttp asks the resolver
    answer = introduction(request.path, host.encode(errors="replace").decode())
    if answer is None:
        raise RequestRefused(404, "resource_not_found_exception", "no handler found for this path and method")
    return orjson.dumps(answer)


def bulk_index(request: web.BaseRequest) -> str | None:
    """The index of the URL; raises RequestRefused where the path or the method is none of `_bulk`."""
    *index, last = request.path.strip("/").split("/")
    if last != "_bulk" or len(index) > 1:
        raise RequestRefused(404, "resource_not_found_exception", "no handler found for this path and method")
    if request.method not in ("POST", "PUT"):
        raise RequestRefused(405, "method_not_allowed", "allowed: [POST, PUT]")
    if not request.path.isprintable():
        raise RequestRefused(400, "invalid_index_name_exception", "the name of the index is not valid")
    return index[0] if index else None


def encoding_of(request: web.BaseRequest) -> str | None:
    """The Content-Encoding; raises RequestRefused (406, 415) for a body that we do not read.

    Only types of JSON: a web page can send any other to loopback without asking.
    """
    if request.content_type not in _TYPES:
        raise RequestRefused(406, "media_type_header_exception", "the Content-Type is application/x-ndjson")
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "deflate"):
        raise RequestRefused(
            415, "illegal_argument_exception", "a body is compressed by gzip or deflate, or not at all"
        )
    return None if encoding == "identity" else encoding


def too_large(limit: int) -> RequestRefused:
    return RequestRefused(413, "content_too_long_exception", f"the body is larger than {Size(limit)}")


async def tell_to_continue(request: web.BaseRequest) -> None:
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


async def next_block(request: web.BaseRequest, deadline: float) -> bytes:
    """More of the body, nothing at its end; raises RequestRefused if it comes too late (408) or is broken (400)."""
    try:
        async with asyncio.timeout_at(deadline):
            return await request.content.readany()
    except TimeoutError:
        raise RequestRefused(408, "timeout_exception", "the body comes too slowly") from None
    except web.RequestPayloadError:
        raise RequestRefused(400, "illegal_argument_exception", "the body is not framed as it should be") from None


async def send(request: web.BaseRequest, response: web.Response) -> None:
    """Returns when the kernel has all of the answer; raises ConnectionResetError for a peer that does not read it."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        abort(request.protocol)
        raise ConnectionResetError("the answer was not read in time") from None


def reply(request: web.BaseRequest, status: int, body: bytes, **headers: str) -> web.Response:
    accepted = request.headers.get("Accept", "").split(",")[0].strip()
    content_type = accepted if _COMPATIBLE_JSON.fullmatch(accepted) else "application/json"
    return web.Response(status=status, body=body, headers={**_HEADERS, "Content-Type": content_type, **headers})


def refused(request: web.BaseRequest, refusal: RequestRefused) -> web.Response:
    headers = {}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = _CHALLENGE
    if refusal.status == 405:
        headers["Allow"] = "POST, PUT"
    if refusal.status == 429:
        headers["Retry-After"] = "1"
    response = reply(request, refusal.status, refusal.body(), **headers)
    if refusal.status == 408 or "Expect" in request.headers:  # whether the body still comes, nobody knows
        response.force_close()
    return response
