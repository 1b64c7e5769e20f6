"""The `otlp` output: sends events as logs of OpenTelemetry, over gRPC or HTTP.

    outputs:
      main:
        type: otlp
        endpoint: https://collector-1:4317
        credential: collector-2

    send(batch) ── encode, in a thread ──> a request ──> client.channel (gRPC) or shipper.sdk.http ──> client.answers

`shipper_plugins.otlp.events` converts events to log records, `client.answers` interprets answers. OTLP has no ids of
records: an event that is sent again after a lost answer is delivered twice.
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec
import trio
from isal import isal_zlib

from shipper.plugin import (
    API_KEY,
    BASIC,
    BEARER_TOKEN,
    CERTIFICATE,
    TOKEN,
    Answer,
    Answers,
    BadOption,
    Batch,
    ClientTls,
    Code,
    Credential,
    CredentialId,
    Duration,
    Feeding,
    Held,
    Later,
    NotBegun,
    Outcome,
    Output,
    OutputContext,
    Sender,
    Size,
    StartFailed,
    TooLarge,
    client_context,
    takes,
)
from shipper.plugin.asking import Question, Tell
from shipper.sdk.http_answer import USER_AGENT, NoAnswer, address
from shipper.sdk.proxies import Choice, ProxyUrl, check_options, chosen
from shipper.sdk.tallies import Requests
from shipper_plugins.bad_answers import reading
from shipper_plugins.elasticsearch.output import Backoff, Host, check_host
from shipper_plugins.encoders import encoded
from shipper_plugins.loopback import is_loopback
from shipper_plugins.otlp import events, grpc, lines
from shipper_plugins.otlp.client import answers
from shipper_plugins.otlp.client import asked as otlp_asked
from shipper_plugins.otlp.client.answers import BadData
from shipper_plugins.otlp.libraries import check
from shipper_plugins.otlp.model import Unfit
from shipper_plugins.otlp.status import HTTP_OF, Grpc
from shipper_plugins.request_headers import HeaderValue, plain

if TYPE_CHECKING:
    from shipper.sdk.http import Client
    from shipper_plugins.otlp.client.channel import Channel

MOST_REQUESTS = 64
"""Requests for one batch while invalid events are searched for; after that, all events of a refused request are
rejected."""
_GZIP = 31
_LEVEL = 1
_OURS = frozenset({"authorization", "host", "te", "connection", "user-agent"})
_OUR_PREFIXES = ("content-", "grpc-", "transfer-", "accept")

HeaderName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[a-z0-9][a-z0-9_.-]*(?!\n)$",
        max_length=128,
        description="the name of a header, in small letters, such as x-scope-orgid",
    ),
]


class OtlpOutput(Output, frozen=True, kw_only=True):
    """Sends events as logs of OpenTelemetry (OTLP), over gRPC or HTTP."""

    live: ClassVar[frozenset[str]] = Output.live | {
        "compression",
        "encoding",
        "request_max_bytes",
        "timeout",
        "backoff",
    }
    counts_requests: ClassVar[bool] = True

    endpoint: Host
    """URL of the receiver, such as https://collector:4317. For `http`, `/v1/logs` is appended to its path."""
    protocol: Literal["grpc", "http"] = "grpc"
    """The protocol of requests."""
    encoding: Literal["protobuf", "json"] = "protobuf"
    """The encoding of requests over `http`; over `grpc` it is protobuf."""
    headers: dict[HeaderName, HeaderValue] = msgspec.field(default_factory=dict)
    """Headers for each request, such as x-scope-orgid; no secrets."""
    credential: Annotated[CredentialId, takes(BEARER_TOKEN, BASIC, API_KEY, TOKEN, CERTIFICATE)] | None = None
    """The id of the secret to authenticate with."""
    credential_header: HeaderName | None = None
    """The header for the plain secret, such as api-key (default: `authorization`, in the form of its shape)."""
    tls: ClientTls = msgspec.field(default_factory=ClientTls)
    """How to check the receiver."""
    proxy: ProxyUrl | None = None
    """URL of the proxy for an endpoint that is not on loopback, such as http://proxy:3128; `none`: no proxy (default:
    the one of `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` in the environment)."""
    proxy_credential: Annotated[CredentialId, takes(BASIC)] | None = None
    """The id of the secret for `proxy`."""
    compression: Literal["gzip", "none"] = "gzip"
    """The compression of requests."""
    request_max_bytes: Size = Size(4 << 20)
    """Largest request before compression; a larger batch takes several. Receivers of gRPC usually accept 4MiB."""
    timeout: Duration = Duration(30)
    """How long a request may take in total."""
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    """How long to wait before the next attempt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check()
        try:
            check_host(self.endpoint)
        except ValueError as error:
            raise BadOption(str(error).replace("a host", "an endpoint", 1), "endpoint") from None
        if self.protocol == "grpc" and urlsplit(self.endpoint).path.strip("/"):
            raise BadOption("an endpoint of grpc has no path", "endpoint")
        if self.protocol == "grpc" and self.encoding != "protobuf":
            raise BadOption(f"must be protobuf over grpc, not {self.encoding}", "encoding")
        for name in self.headers:
            if name in _OURS or name.startswith(_OUR_PREFIXES) or name.endswith("-bin"):
                raise BadOption("the output sets this header itself: leave it out", "headers", name)
        check_options(self.proxy, self.proxy_credential)
        if self.credential_header is not None and self.credential is None:
            raise BadOption("credential_header needs a credential", "credential_header")
        if not 0 < self.timeout <= 3600:
            raise BadOption(f"must be above 0 and at most 1h, not {self.timeout}", "timeout")
        if not 0 < self.backoff.first <= self.backoff.longest:
            first, longest = self.backoff.first, self.backoff.longest
            raise BadOption(f"must be above 0 and at most backoff.longest ({longest}), not {first}", "backoff", "first")
        if self.request_max_bytes < 1024:
            raise BadOption(f"must be at least 1KiB, not {self.request_max_bytes}", "request_max_bytes")

    def contacts(self) -> Sequence[str]:
        """See `Output.contacts`."""
        return [self.endpoint]

    def feeding(self) -> Feeding:
        """See `Output.feeding`: an event takes about twice its text, and a request has any resources."""
        return replace(
            super().feeding(),
            bytes=1 << 20,
            backoff=(self.backoff.first, self.backoff.longest),
            grouping=("resource", "scope"),
            mixes=True,
            client="lane",
        )

    def warnings(self) -> list[str]:
        url = urlsplit(self.endpoint)
        if self.credential is None or url.scheme == "https" or is_loopback(url.hostname or ""):
            return []
        return [f"the credential goes to {self.endpoint} unencrypted; write https://"]

    def load(self) -> None:
        """See `Output.load`: the libraries of the extra `otlp`, and aiohttp for `http`."""

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        credential = None if self.credential is None else context.credentials[self.credential]
        try:
            headers = _headers(self, credential)
            tls = await trio.to_thread.run_sync(_tls, self, credential)
            of_proxy = None if self.proxy_credential is None else context.credentials[self.proxy_credential]
            proxy = chosen(self.proxy, of_proxy, [self.endpoint], name=context.name)
        except ValueError as error:
            raise StartFailed(f"output {context.name}: {error}", code=Code.CREDENTIAL_INVALID) from None
        transport = _over_grpc if self.protocol == "grpc" else _over_http
        async with transport(self, context, headers, tls, proxy) as post:
            yield _Logs(self, post)

    async def ask(self, context: OutputContext, question: Question, tell: Tell) -> None:
        """See `Output.ask`."""
        async with self.open(context) as sender:
            assert isinstance(sender, _Logs)
            await otlp_asked.ask(self.endpoint, sender.export_nothing, tell)


def _headers(output: OtlpOutput, credential: Credential | None) -> dict[str, str]:
    """Returns the headers of all requests; raises ValueError for an unusable credential, without quoting it."""
    headers = {"user-agent": USER_AGENT, **output.headers}
    if output.protocol == "grpc":
        headers |= {"content-type": grpc.CONTENT_TYPE, "te": "trailers", "grpc-accept-encoding": "identity,gzip"}
        headers |= {"grpc-encoding": "gzip"} if output.compression == "gzip" else {}
    else:
        kind = "application/json" if output.encoding == "json" else "application/x-protobuf"
        headers |= {"content-type": kind, "accept-encoding": "identity"}
        headers |= {"content-encoding": "gzip"} if output.compression == "gzip" else {}
    if credential is None:
        return headers
    if credential.fits(CERTIFICATE):
        if not output.endpoint.startswith("https://"):
            raise ValueError("a certificate needs an endpoint with https://")
    elif output.credential_header is not None:
        headers[output.credential_header] = plain(credential, output.credential_header)
    else:
        headers["authorization"] = credential.authorization()
    return headers


def _tls(output: OtlpOutput, credential: Credential | None) -> ssl.SSLContext | None:
    if output.endpoint.startswith("http://"):
        return None
    context = client_context(output.tls, credential)
    if output.protocol == "grpc":
        context.set_alpn_protocols(["h2"])
    return context


# -- transports --------------------------------------------------------------------------------------------------------

Post = Callable[[bytes], Awaitable[int]]
"""Sends the body of a request and returns the number of rejected records; raises Later, Held, TooLarge, BadData."""


@asynccontextmanager
async def _over_grpc(
    output: OtlpOutput, context: OutputContext, headers: dict[str, str], tls: ssl.SSLContext | None, proxy: Choice
) -> AsyncIterator[Post]:
    from shipper_plugins.otlp.client.channel import open_channel

    url = urlsplit(output.endpoint)
    async with open_channel(
        url.hostname or "",
        url.port or (80 if tls is None else 443),
        tls,
        headers,
        server_name=output.tls.server_name,
        seconds=output.timeout,
        begins=context.begins,
        may_begin=context.may_begin,
        proxy=proxy(output.endpoint),
    ) as channel:
        yield partial(_call, channel, context.requests)


async def _call(channel: Channel, requests: Requests, body: bytes) -> int:
    from shipper_plugins.otlp import protobuf

    began = trio.current_time()
    try:
        reply = await channel.call(body)
    except NoAnswer as error:
        requests.failed(trio.current_time() - began, error.failure)
        raise
    known = reply.code in Grpc._value2member_map_
    requests.answered(trio.current_time() - began, HTTP_OF[Grpc(reply.code)] if known else None)
    with reading(channel.address, BadData):
        answers.check_grpc(reply, channel.address)
        return _rejected(channel.address, lambda: protobuf.rejected(reply.body))


@asynccontextmanager
async def _over_http(
    output: OtlpOutput, context: OutputContext, headers: dict[str, str], tls: ssl.SSLContext | None, proxy: Choice
) -> AsyncIterator[Post]:
    from shipper.sdk.http import open_client

    async with open_client(
        context.aio,
        headers,
        tls if tls is not None else False,
        server_name=output.tls.server_name,
        connections=output.workers,
        seconds=output.timeout,
        begins=context.begins,
        may_begin=context.may_begin,
        requests=context.requests,
        proxy=proxy,
    ) as client:
        yield partial(_post, client, output)


async def _post(client: Client, output: OtlpOutput, body: bytes) -> int:
    response = await client.post(output.endpoint, "/v1/logs", [body])
    host = address(output.endpoint)
    with reading(host, BadData):
        answers.check_http(response, host)
        return _rejected(host, lambda: answers.rejected_over_http(response))


def _rejected(host: str, read: Callable[[], int]) -> int:
    try:
        return read()
    except Unfit as why:
        raise Later(f"{host}: {why}", code=Code.BAD_ANSWER) from None


def _codec(output: OtlpOutput) -> Any:
    from shipper_plugins.otlp import jsons, protobuf

    return jsons if output.encoding == "json" else protobuf


# -- sending -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """Events of a batch, and their places in it."""

    places: Sequence[int]
    batch: Batch

    def divided(self) -> list[_Part]:
        """Returns the events by what they shared before they were joined, else two halves: the cause of a refusal is
        often a resource."""
        middle = self.batch.count // 2
        parts: Collection[Sequence[int]] = (range(middle), range(middle, self.batch.count))
        if self.batch.ways is not None:
            by_way = dict[int, list[int]]()
            for at, way in enumerate(self.batch.ways):
                by_way.setdefault(id(way), []).append(at)
            parts = by_way.values()
        return [_Part([self.places[at] for at in part], self.batch.pick(part)) for part in parts]


class _Logs(Sender):
    """The Sender of an open `otlp` output."""

    def __init__(self, output: OtlpOutput, post: Post) -> None:
        self._output, self._post = output, post

    async def send(self, batch: Batch) -> Answers:
        """Delivers a batch by as many requests as necessary.

        If the first one gets no answer for its events, raises that error. If a later one does, its events and those
        that were not sent yet are later or held, since the answers to the first ones count.
        """
        others: dict[int, Answer] = {}
        parts = deque([_Part(range(batch.count), batch)] if batch.count else [])
        asked, left = 0, batch.count
        while parts:
            part = parts.popleft()
            try:
                body = await self._encoded(part)
                asked += 1
                if rejected := await self._post(body):
                    answer = answers.partial(rejected, part.batch.count, address(self._output.endpoint))
                    others |= dict.fromkeys(part.places, answer)
            except (BadData, TooLarge) as error:
                if part.batch.count > 1 and _is_divisible(part.batch, error, asked):
                    parts.extendleft(reversed(part.divided()))
                    continue
                if isinstance(error, TooLarge) and batch.count == 1:
                    raise
                others |= dict.fromkeys(part.places, _refused(error))
            except (Later, Held, NotBegun) as error:
                if left == batch.count:
                    raise
                unsent = [at for one in (part, *parts) for at in one.places]
                retry_after = error.retry_after if isinstance(error, Later) else None
                return Answers(batch.count, others | dict.fromkeys(unsent, Answer.of(error)), retry_after)
            left -= part.batch.count
        return Answers(batch.count, others)

    async def export_nothing(self) -> int:
        """Sends an export without logs. Raises what `send` raises, and BadData."""
        return await self._post(_request(self._output, _codec(self._output).encoded([])))

    async def _encoded(self, part: _Part) -> bytes:
        """Returns the body of a request; raises TooLarge for several events above the limit."""
        return await encoded(part.batch, _encode, self._output, part.batch)


def _is_divisible(batch: Batch, error: BadData | TooLarge, asked: int) -> bool:
    """Whether its events are sent again in parts; in any case those of several resources are, since one of them may be
    the cause."""
    if isinstance(error, TooLarge):
        return True
    return asked < MOST_REQUESTS and (not error.is_whole or batch.ways is not None)


def _refused(error: BadData | TooLarge) -> Answer:
    return Answer(Outcome.REJECTED, str(error), code=error.code if isinstance(error, TooLarge) else "")


def _encode(output: OtlpOutput, batch: Batch) -> bytes:
    message = _export(_codec(output), batch)
    if len(message) > output.request_max_bytes and batch.count > 1:
        raise TooLarge("larger than request_max_bytes")
    return _request(output, message)


def _export(codec: Any, batch: Batch) -> bytes:
    """Returns an encoded export: of records as they came, or of lines by columns, where that is possible."""
    from shipper_plugins.otlp import protobuf, records

    message: bytes | None = records.encoded(batch) if codec is protobuf else None
    if message is None and (found := lines.lines(batch)) is not None:
        message = codec.encoded_lines(found)
    return codec.encoded(events.groups(batch)) if message is None else message


def _request(output: OtlpOutput, message: bytes) -> bytes:
    """Returns the body of a request with an encoded export."""
    is_packed = output.compression == "gzip"
    if is_packed:
        stream = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP)
        message = stream.compress(message) + stream.flush()
    return grpc.framed(message, compressed=is_packed) if output.protocol == "grpc" else message
