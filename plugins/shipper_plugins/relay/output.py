"""The `relay` output: relays log events to the door of a principal, each batch with the identity that it has here; and
keyed state.

    outputs:
      principal:
        type: relay
        name: berlin
        hosts: ["https://principal-1:6789", "https://principal-2:6789"]
        credential: k1

This module has the settings. `edge.sender` sends log events, `edge.awaited` asks for answers that come later,
`edge.state` sends and compares keyed state, all within the sessions of `edge.sessions`.

The format is in `shipper_plugins.relay.frames`, the other side in `shipper_plugins.relay.input`.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

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
    StartFailed,
    client_context,
    takes,
)
from shipper.plugin.asking import Question, Tell
from shipper.sdk.proxies import ProxyUrl, check_options, chosen
from shipper_plugins.elasticsearch.output import Backoff, Host, check_host, is_here
from shipper_plugins.relay import state
from shipper_plugins.relay.edge import asked
from shipper_plugins.relay.edge.sender import Relay
from shipper_plugins.relay.edge.sessions import IDLE_SECONDS

if TYPE_CHECKING:
    from shipper.sdk.http import Client

MOST_SENT = 32
"""Batches that are on their way at once."""
_BESIDE = 2
"""Connections for other requests: one for those that wait for answers, perhaps for long, and one for all others."""


class RelayOutput(Output, frozen=True, kw_only=True):
    """Relays log events to another shipper, each of them once, and the last word of keyed state."""

    live: ClassVar[frozenset[str]] = frozenset({"flush", "timeout", "backoff"})
    relays: ClassVar[bool] = True
    counts_requests: ClassVar[bool] = True

    workers: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    """Requests for log events under way at once: one, of many batches. A session has at most three connections."""
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    """The name of this shipper there: that of its edge in the policy of the principal."""
    hosts: Annotated[tuple[Host, ...], msgspec.Meta(min_length=1, max_length=64)]
    """URLs of principals, such as https://principal-1:6789; one is used at a time, the next one when it is gone."""
    credential: Annotated[CredentialId, takes(API_KEY, BEARER_TOKEN, CERTIFICATE)]
    """The id of the secret to authenticate with."""
    tls: ClientTls = msgspec.field(default_factory=ClientTls)
    """How to check the hosts."""
    proxy: ProxyUrl | None = None
    """URL of the proxy for all hosts but those of loopback, such as http://proxy:3128; `none`: no proxy (default: for
    hosts with https://, the one of `HTTPS_PROXY` and `NO_PROXY` in the environment)."""
    proxy_credential: Annotated[CredentialId, takes(BASIC)] | None = None
    """The id of the secret for `proxy`."""
    timeout: Duration = Duration(60)
    """How long a request may take in total."""
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    """How long to wait before the next attempt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for number, host in enumerate(self.hosts):
            try:
                check_host(host)
            except ValueError as error:
                raise BadOption(str(error), "hosts", number) from None
            if host in self.hosts[:number]:
                raise BadOption("a host is named twice", "hosts", number)
        check_options(self.proxy, self.proxy_credential)
        if self.proxy not in (None, "none") and self._plain():
            raise BadOption("a relay goes through a proxy in a tunnel only: write hosts with https://", "proxy")
        if not 0 < self.timeout <= 3600:
            raise BadOption(f"must be above 0 and at most 1h, not {self.timeout}", "timeout")
        if not 0 < self.backoff.first <= self.backoff.longest:
            first, longest = self.backoff.first, self.backoff.longest
            raise BadOption(f"must be above 0 and at most backoff.longest ({longest}), not {first}", "backoff", "first")

    def contacts(self) -> Sequence[str]:
        """See `Output.contacts`."""
        return self.hosts

    def feeding(self) -> Feeding:
        """See `Output.feeding`."""
        backoff = self.backoff.first, self.backoff.longest
        fed = replace(super().feeding(), apart=True, answers_later=True, in_flight=MOST_SENT)
        fed = replace(fed, backoff=backoff, client="lane")
        return replace(fed, events=state.MOST_VERSIONS, is_open_idle=True)

    def takes_state(self) -> bool:
        """See `Output.takes_state`."""
        return True

    def targets(self, batch: Batch) -> Sequence[str]:
        """See `Output.targets`: where log events have no room, keyed state goes on, and the other way round."""
        return ["events" if batch.versions is None else "state"] * batch.count

    def warnings(self) -> Sequence[str]:
        return [f"the credential goes to {host} unencrypted; write https://" for host in self._plain()]

    def _plain(self) -> list[str]:
        return [host for host in self.hosts if host.startswith("http://") and not is_here(host)]

    def load(self) -> None:
        """See `Output.load`: aiohttp."""
        import shipper.sdk.http  # noqa: F401

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        async with self._connected(context) as client:
            sender = Relay(self, client, context)
            async with trio.open_nursery() as nursery:
                for _ in range(self.workers):
                    nursery.start_soon(sender.deliver)
                nursery.start_soon(sender.attend)
                nursery.start_soon(sender.listen)
                yield sender
                nursery.cancel_scope.cancel()

    async def ask(self, context: OutputContext, question: Question, tell: Tell) -> None:
        """See `Output.ask`."""
        async with self._connected(context) as client:
            await asked.ask(self.hosts, client, tell)

    @asynccontextmanager
    async def _connected(self, context: OutputContext) -> AsyncIterator[Client]:
        credential = context.credentials[self.credential]
        try:
            headers = _headers(self, credential)
            tls = await trio.to_thread.run_sync(_tls, self, credential)
            of_proxy = None if self.proxy_credential is None else context.credentials[self.proxy_credential]
            secured = [host for host in self.hosts if host.startswith("https://")]
            proxy = chosen(self.proxy, of_proxy, secured, name=context.name)
        except ValueError as error:
            raise StartFailed(f"output {context.name}: {error}", code=Code.CREDENTIAL_INVALID) from None

        from shipper.sdk.http import open_client

        async with open_client(
            context.aio,
            headers,
            tls,
            server_name=self.tls.server_name,
            connections=self.workers + _BESIDE,
            seconds=self.timeout,
            idle=IDLE_SECONDS,
            begins=context.begins,
            may_begin=context.may_begin,
            requests=context.requests,
            proxy=proxy,
        ) as client:
            yield client


def _headers(output: RelayOutput, credential: Credential) -> dict[str, str]:
    """Raises ValueError for a credential that cannot be used here; the message does not quote it."""
    headers = {"Accept": "application/json"}
    if not credential.fits(CERTIFICATE):
        headers["Authorization"] = credential.authorization()
    elif any(host.startswith("http://") for host in output.hosts):
        raise ValueError("a certificate needs hosts with https://")
    return headers


def _tls(output: RelayOutput, credential: Credential) -> ssl.SSLContext | Literal[False]:
    if all(host.startswith("http://") for host in output.hosts):
        return False
    return client_context(output.tls, credential)
