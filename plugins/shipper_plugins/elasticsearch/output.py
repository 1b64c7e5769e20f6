"""The `elasticsearch` output. `encoding` and `bulk` of `client` have the format, `keyed` that of keyed state,
`shipper.sdk.http` the network, `sender` decides what is sent where; this module has the settings.

    send(batch) ── encode, in a thread ──> requests ── one after the other, each to the next host ──> answers by item

- One `Client`, and so one connection pool, for each lane: connections of two credentials never mix, and leaving `open`
ends every use of the credential.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec
import trio

from shipper.plugin import (
    API_KEY,
    BASIC,
    BEARER_TOKEN,
    CERTIFICATE,
    BadOption,
    Batch,
    ClientTls,
    Code,
    Credential,
    CredentialId,
    Duration,
    Feeding,
    Output,
    OutputContext,
    Sender,
    Settings,
    Size,
    StartFailed,
    client_context,
    takes,
)
from shipper.plugin.asking import Question, Tell, TellPrepared
from shipper.sdk.proxies import Choice, ProxyUrl, check_options, chosen
from shipper_plugins.elasticsearch.client import cloud_id, encoding, keyed
from shipper_plugins.elasticsearch.client.index_cases import Index, IndexCase, Pipeline, PipelineCase
from shipper_plugins.loopback import is_loopback
from shipper_plugins.request_headers import (
    HeaderName,
    HeaderValue,
    SecretHeader,
    check_headers,
    secret_values,
    suspicious,
)

if TYPE_CHECKING:
    from shipper_plugins.elasticsearch.client.pinned_authority import Authority

Host = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^https?://[^\s/?#@]+(/[^\s?#@]*)?(?!\n)$",
        max_length=2048,
        description="a URL that begins with http:// or https://, such as https://es-1:9200",
    ),
]
Fingerprint = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9A-Fa-f]{2}(:?[0-9A-Fa-f]{2}){31}(?!\n)$",
        description="a SHA-256 in hex, 64 digits with colons or without",
    ),
]
CloudId = Annotated[str, msgspec.Meta(max_length=4096, description="a cloud id, such as name:bG9jYWwk…")]
StateIndex = Annotated[
    str,
    msgspec.Meta(
        pattern=r'^(?![-_+.{])(?:[^A-Z\\/*?"<>| ,#:{}\x00-\x1f\x7f]|\{collection\})+(?!\n)$',
        description="the name of an index, as `index` is, in which {collection} may stand, but not at its beginning",
    ),
]


class Backoff(Settings, frozen=True, kw_only=True):
    """How long to wait before the next attempt: with full jitter, doubling."""

    first: Duration = Duration(1)
    """Longest wait before the second attempt."""
    longest: Duration = Duration(60)
    """Longest wait of all."""


class ElasticsearchOutput(Output, frozen=True, kw_only=True):
    """Writes events to Elasticsearch 8/9 or OpenSearch 2/3 by the bulk API, each under its own id."""

    live: ClassVar[frozenset[str]] = Output.live | {"compression", "bulk_max_bytes", "timeout", "backoff"}
    counts_requests: ClassVar[bool] = True

    hosts: Annotated[tuple[Host, ...], msgspec.Meta(min_length=1, max_length=64)] | None = None
    """URLs of the nodes of one cluster, such as https://es-1:9200; requests take turns. Required without `cloud_id`."""
    cloud_id: CloudId | None = None
    """The id of a deployment at Elastic Cloud, instead of `hosts`."""
    credential: Annotated[CredentialId, takes(API_KEY, BASIC, BEARER_TOKEN, CERTIFICATE)] | None = None
    """The id of the secret to authenticate with."""
    tls: ClientTls = msgspec.field(default_factory=ClientTls)
    """How to check the hosts."""
    ca_fingerprint: Fingerprint | None = None
    """The SHA-256 of the certificate of the authority to trust, in hex, instead of `tls.ca`. The certificate is taken
    from the chain of a host."""
    proxy: ProxyUrl | None = None
    """URL of the proxy for all hosts but those of loopback, such as http://proxy:3128; `none`: no proxy (default: the
    one of `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` in the environment)."""
    proxy_credential: Annotated[CredentialId, takes(BASIC)] | None = None
    """The id of the secret for `proxy`."""
    headers: dict[HeaderName, HeaderValue] = msgspec.field(default_factory=dict)
    """Headers for each request, such as X-Tenant; no secrets."""
    secret_headers: dict[HeaderName, SecretHeader] = msgspec.field(default_factory=dict)
    """Headers for each request whose values are secrets, each by the id of its secret."""
    index: Index | None = None
    """Index or data stream for all events (default: the one that the client named, else their own data stream)."""
    indices: Annotated[tuple[IndexCase, ...], msgspec.Meta(max_length=64)] = ()
    """Indices or data streams by condition; the first that an event meets goes before `index`. Not for keyed state."""
    pipeline: Pipeline | None = None
    """Ingest pipeline for the events; not for keyed state."""
    pipelines: Annotated[tuple[PipelineCase, ...], msgspec.Meta(max_length=64)] = ()
    """Ingest pipelines by condition; the first that an event meets goes before `pipeline`. Not for keyed state."""
    state_index: StateIndex = "state-{collection}"
    """Index for keyed state; not a data stream, since data streams have no versions."""
    deletions: keyed.Deletions = "mark"
    """What replaces a deleted key of keyed state: a document that says so; or nothing, but then the backend forgets the
    deletion after a minute (`index.gc_deletes`), and accepts an older version from elsewhere."""
    compression: encoding.Compression = "gzip"
    """Of requests, and wanted for answers."""
    bulk_max_bytes: Size = Size(8 << 20)
    """Largest request before compression; a larger batch takes several."""
    timeout: Duration = Duration(60)
    """How long a request may take in total."""
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    """How long to wait before the next attempt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_hosts()
        check_headers(headers=self.headers, secret_headers=self.secret_headers)
        check_options(self.proxy, self.proxy_credential)
        self._check_authority()
        if self.index is not None and len(self.index.encode()) > 255:
            raise BadOption("the name of an index has at most 255 bytes", "index")
        for number, one in enumerate(self.indices):
            if len(one.index.encode()) > 255:
                raise BadOption("the name of an index has at most 255 bytes", "indices", number, "index")
        if len(self.state_index.encode()) > 255:
            raise BadOption("the name of an index has at most 255 bytes", "state_index")
        if self.state_index in (self.index, *(one.index for one in self.indices)):
            raise BadOption(f"must be another one than index, not {self.state_index} too", "state_index")
        if not 0 < self.timeout <= 3600:
            raise BadOption(f"must be above 0 and at most 1h, not {self.timeout}", "timeout")
        if not 0 < self.backoff.first <= self.backoff.longest:
            first, longest = self.backoff.first, self.backoff.longest
            raise BadOption(f"must be above 0 and at most backoff.longest ({longest}), not {first}", "backoff", "first")
        if self.bulk_max_bytes < 1024:
            raise BadOption(f"must be at least 1KiB, not {self.bulk_max_bytes}", "bulk_max_bytes")

    def _check_hosts(self) -> None:
        if self.cloud_id is not None:
            if self.hosts is not None:
                raise BadOption("hosts and cloud_id name the same thing: leave one out", "cloud_id")
            try:
                cloud_id.url_of(self.cloud_id)
            except ValueError as error:
                raise BadOption(str(error), "cloud_id") from None
        elif self.hosts is None:
            raise ValueError("hosts is missing: the URLs of the nodes, such as [https://es-1:9200]; or a cloud_id")
        for number, host in enumerate(self.hosts or ()):
            try:
                check_host(host)
            except ValueError as error:
                raise BadOption(str(error), "hosts", number) from None
            if host in (self.hosts or ())[:number]:
                raise BadOption("a host is named twice", "hosts", number)

    def _check_authority(self) -> None:
        if self.ca_fingerprint is None:
            return
        if self.tls.ca is not None:
            raise BadOption("tls.ca and ca_fingerprint name the same thing: leave one out", "ca_fingerprint")
        if self.tls.verification == "none":
            raise BadOption("with tls.verification none, nothing is checked: leave one out", "ca_fingerprint")
        if all(host.startswith("http://") for host in self.urls):
            raise BadOption("ca_fingerprint needs hosts with https://", "ca_fingerprint")

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the hosts."""
        return (cloud_id.url_of(self.cloud_id),) if self.cloud_id is not None else self.hosts or ()

    def takes_state(self) -> bool:
        """See `Output.takes_state`."""
        return True

    def contacts(self) -> Sequence[str]:
        """See `Output.contacts`."""
        return self.urls

    def feeding(self) -> Feeding:
        """See `Output.feeding`; a request names an index in each line, so it takes any. What is known of several hosts
        outlives a failure of one."""
        backoff = self.backoff.first, self.backoff.longest
        feeding = replace(super().feeding(), backoff=backoff, grouping=("data_stream",), mixes=True)
        return replace(feeding, client="lane") if len(self.urls) > 1 else feeding

    def targets(self, batch: Batch) -> Sequence[str]:
        """See `Output.targets`: their indices and data streams."""
        if batch.versions is not None:
            return keyed.targets(batch, self.state_index)
        target = encoding.target_of(batch, self.index, [one.case for one in self.indices])
        return [target] * batch.count if isinstance(target, str) else target

    def warnings(self) -> Sequence[str]:
        shown = [
            f"headers: {name} looks like a secret; write it under secret_headers" for name in suspicious(self.headers)
        ]
        if self.credential is None and not self.secret_headers:
            return shown
        plain = [host for host in self.urls if host.startswith("http://") and not is_here(host)]
        return [*shown, *(f"the credential goes to {host} unencrypted; write https://" for host in plain)]

    def load(self) -> None:
        """See `Output.load`: aiohttp, and what a supervisor that reads the settings does not need."""
        import shipper.sdk.http  # noqa: F401
        import shipper_plugins.elasticsearch.client.sender  # noqa: F401

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        credential = None if self.credential is None else context.credentials[self.credential]
        try:
            headers = _headers(self, credential) | secret_values(self.secret_headers, context.credentials)
            tls = await trio.to_thread.run_sync(_tls, self, credential)
            of_proxy = None if self.proxy_credential is None else context.credentials[self.proxy_credential]
            proxy = chosen(self.proxy, of_proxy, self.urls, name=context.name)
        except ValueError as error:
            raise StartFailed(f"output {context.name}: {error}", code=Code.CREDENTIAL_INVALID) from None

        from shipper.sdk.http import open_client
        from shipper_plugins.elasticsearch.client.host_rotation import probing
        from shipper_plugins.elasticsearch.client.sender import BulkSender, probe

        hosts = self.urls
        async with (
            _authority(self, tls, context, proxy) as authority,
            open_client(
                context.aio,
                headers,
                tls,
                server_name=self.tls.server_name,
                connections=self.workers + 1 + (len(hosts) > 1),  # see `Feeding.in_flight`; one for probes
                seconds=self.timeout,
                begins=context.begins,
                may_begin=context.may_begin,
                requests=context.requests,
                proxy=proxy,
            ) as client,
            probing(hosts, partial(probe, client.uncounted()), context) as (rotation, probes),
        ):
            yield BulkSender(self, client, rotation, probes, authority)

    async def ask(self, context: OutputContext, question: Question, tell: Tell) -> None:
        """See `Output.ask`."""
        from shipper_plugins.elasticsearch.client import asked
        from shipper_plugins.elasticsearch.client.sender import BulkSender

        async with self.open(context) as sender:
            assert isinstance(sender, BulkSender)
            await asked.ask(self, sender.client, question, tell, sender.authority)

    async def set_up(self, context: OutputContext, question: Question, tell: TellPrepared, *, write: bool) -> None:
        """See `Output.set_up`."""
        from shipper_plugins.elasticsearch.client import set_up as elasticsearch_set_up
        from shipper_plugins.elasticsearch.client.sender import BulkSender

        async with self.open(context) as sender:
            assert isinstance(sender, BulkSender)
            await elasticsearch_set_up.set_up(self, sender.client, question, tell, sender.authority, write=write)


def check_host(host: str) -> None:
    url = urlsplit(host)
    try:
        is_port = url.port != 0
    except ValueError:
        is_port = False
    if not is_port:
        raise ValueError("a host's port is a number from 1 to 65535, as in https://es-1:9200")
    if not url.hostname:
        raise ValueError("a host is a URL such as https://es-1:9200")
    if url.username is not None:
        raise ValueError("a host's URL holds no credentials; name one by `credential`")


def is_here(host: str) -> bool:
    """Whether a URL is of this host."""
    return is_loopback(urlsplit(host).hostname or "")


def _headers(output: ElasticsearchOutput, credential: Credential | None) -> dict[str, str]:
    """Raises ValueError for a credential that cannot be used here; the message does not quote it."""
    headers = {
        **output.headers,
        "Accept": "application/json",
        "Accept-Encoding": "gzip" if output.compression == "gzip" else "identity",
        "Content-Type": "application/x-ndjson",
    }
    if output.compression == "gzip":
        headers["Content-Encoding"] = "gzip"
    if credential is not None and credential.fits(CERTIFICATE):
        if any(host.startswith("http://") for host in output.urls):
            raise ValueError("a certificate needs hosts with https://")
    elif credential is not None:
        headers["Authorization"] = credential.authorization()
    return headers


def _tls(output: ElasticsearchOutput, credential: Credential | None) -> ssl.SSLContext | Literal[False]:
    """Returns the context of TLS; False where none is needed: reading the system's takes 20 ms a session."""
    if all(host.startswith("http://") for host in output.urls):
        return False
    return client_context(output.tls, credential, trusts_nobody=output.ca_fingerprint is not None)


@asynccontextmanager
async def _authority(
    output: ElasticsearchOutput, tls: ssl.SSLContext | Literal[False], context: OutputContext, proxy: Choice
) -> AsyncIterator[Authority | None]:
    if output.ca_fingerprint is None or tls is False:
        yield None
        return
    from shipper_plugins.elasticsearch.client.pinned_authority import open_authority

    async with open_authority(output.ca_fingerprint, tls, context, proxy, output.tls.server_name) as authority:
        yield authority
