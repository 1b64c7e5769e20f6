"""`http_json`: posts events as NDJSON to a URL, each with its id."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.parse import urlsplit

import msgspec

from shipper.plugin import (
    BASIC,
    BEARER_TOKEN,
    Answers,
    BadOption,
    Batch,
    ClientTls,
    CredentialId,
    Duration,
    Held,
    Later,
    Output,
    OutputContext,
    Sender,
    TooLarge,
    client_context,
    join,
    takes,
)

if TYPE_CHECKING:
    from shipper.sdk.http import Client


class HttpJson(Output, frozen=True, kw_only=True):
    """Posts batches; a status of 200 means that the server has all events of the batch."""

    live: ClassVar[frozenset[str]] = Output.live | {"timeout"}

    url: Annotated[str, msgspec.Meta(pattern=r"^https?://[^/?#\s]+(/\S*)?(?!\n)$")]
    """URL to post to, such as `https://logs.example/events`."""
    credential: Annotated[CredentialId, takes(BEARER_TOKEN, BASIC)] | None = None
    """The id of the secret."""
    tls: ClientTls = msgspec.field(default_factory=ClientTls)
    """How to check the server."""
    timeout: Duration = Duration(30)
    """How long a request may take."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.timeout <= 3600:
            raise BadOption("timeout is above 0 and at most 1h", "timeout")

    def contacts(self) -> Sequence[str]:
        return [self.url]

    def load(self) -> None:
        from shipper.sdk import http  # noqa: F401

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        from shipper.sdk.http import open_client

        headers = {"Content-Type": "application/x-ndjson"}
        if self.credential is not None:
            headers["Authorization"] = context.credentials[self.credential].authorization()
        async with open_client(
            context.aio,
            headers,
            client_context(self.tls) if self.url.startswith("https:") else False,
            server_name=self.tls.server_name,
            connections=self.workers,
            seconds=self.timeout,
            begins=context.begins,
            may_begin=context.may_begin,
        ) as client:
            yield Poster(client, self.url)


class Poster(Sender):
    """See `Sender`."""

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        parts = urlsplit(url)
        self._host = f"{parts.scheme}://{parts.netloc}"
        self._path = f"{parts.path}?{parts.query}" if parts.query else parts.path

    async def send(self, batch: Batch) -> Answers:
        events = batch.json_lines().split(b"\n")[:-1]
        body = join(batch.count, b'{"id":"', *batch.id_columns(), b'","event":', events, b"}\n")
        response = await self._client.post(self._host, self._path, [body])
        if response.status == 200:
            return Answers(batch.count)
        if response.status in (401, 403):
            raise Held(f"status {response.status}")
        if response.status == 413:
            raise TooLarge("status 413")
        raise Later(f"status {response.status}")
