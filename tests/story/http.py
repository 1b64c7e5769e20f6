"""A bulk client for the tests, without a library between the test and the wire."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import trio


async def post_bulk(url: str, events: list[dict[str, Any]], authorization: str | None = None) -> list[int]:
    """Creates events over a new connection; returns the statuses of the items, or that of the request for each."""
    lines = "".join('{"create":{}}\n' + json.dumps(event) + "\n" for event in events).encode()
    place = urlsplit(url)
    header = f"Authorization: {authorization}\r\n" if authorization else ""
    head = (
        f"POST /_bulk HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/x-ndjson\r\n{header}"
        f"Content-Length: {len(lines)}\r\nConnection: close\r\n\r\n"
    )
    async with await trio.open_tcp_stream(place.hostname or "", place.port or 0) as stream:
        await stream.send_all(head.encode() + lines)
        answer = b"".join([part async for part in stream])
    status = int(answer.split(b" ", 2)[1])
    if status != 200:
        return [status] * len(events)
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    return [item["create"]["status"] for item in body["items"]]
