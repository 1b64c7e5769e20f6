"""The `syslog` input: RFC 5424 and RFC 3164 over UDP, TCP, TLS and sockets in the file system.

    inputs:
      devices:
        type: syslog
        addresses: ["udp://:514", "tcp://:514"]
        allow_from: ["10.0.0.0/8"]
        timezone: Europe/Berlin
      servers:
        type: syslog
        addresses: ["tls://:6514"]
        tls: {certificate: /etc/shipper/tls.crt, key: /etc/shipper/tls.key, client_ca: /etc/shipper/clients.pem}
      programs:
        type: syslog
        addresses: ["unixgram:/run/shipper/log"]

*Senders.* Syslog has no passwords. On loopback every process of this host may send, to a socket in the file system
every user that its `mode` allows: by default that of this process. Another address is refused unless the policy limits
its senders: by `allow_from`, or, for `tls://`, by `client_ca`, the authority of the senders' certificates. The source
of a datagram can be forged by anybody on its way, so for UDP `allow_from` is a filter, not an authentication.

*Losses.* A message is safe when it is durable in the queue. While the queue is full, nothing is read: connections
stall, datagrams fill the buffer of their socket and are dropped by the kernel, which is counted and reported. Syslog
has no acknowledgement: for a sender, a message has arrived when its own kernel has sent it. So messages in the kernels'
buffers are lost if this process or its host is killed, and so are the events of the last milliseconds, which are
gathered to be stored together. When the process ends in order, connections leave (`syslog.streams`), and their messages
are stored; unread datagrams are lost. Before a revision that removes the input, or changes its addresses, it stops
reading and stores all messages that it has read; those that cannot be stored within some seconds, as while the queue is
full, are lost, and the log has their number.

*Changes.* Its identity is the set of addresses. Other settings change while it runs: sockets and connections stay, and
the next message is read with the new settings. Connections with another certificate or key leave first, and those of
senders that are not among `allow_from` any more.

This module has the settings of a policy, `syslog.source` runs them. Without I/O are `syslog.frames` (splits the bytes
of a connection into messages), `syslog.block` (turns many messages into documents), `syslog.message` with `syslog.time`
(turns one into fields) and `syslog.door` (admits senders); `syslog.streams` and `syslog.datagrams` read,
`syslog.gathering` stores.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec

from shipper.plugin import (
    BadOption,
    Credential,
    Duration,
    Endpoint,
    Input,
    InputContext,
    Material,
    Size,
    Source,
)
from shipper_plugins.elasticsearch.input import ServerTls
from shipper_plugins.loopback import is_loopback
from shipper_plugins.syslog.door import Door, Network
from shipper_plugins.syslog.message import Reading
from shipper_plugins.syslog.time import zone_of
from shipper_plugins.tail.lines import Charset

_MOST_BYTES = 1 << 20
_Address = Annotated[str, msgspec.Meta(min_length=1)]
_Mode = Annotated[str, msgspec.Meta(pattern=r"^0?[0-7]{3}(?!\n)$", description="three digits of octal, such as 0660")]


class SyslogTls(ServerTls, frozen=True, kw_only=True):
    """The certificate that the input shows, two files or a credential, and the authorities of senders' certificates."""

    client_ca: Material | None = None
    """PEM file of the authorities of senders' certificates (default: senders need none)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.client_ca is not None:
            _trust(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.client_ca)

    def context(self, credentials: Mapping[str, Credential]) -> ssl.SSLContext:
        """See `ServerTls.context`."""
        context = super().context(credentials)
        context.num_tickets = 0  # an unread ticket would hide the end of the connection from its sender
        if self.client_ca is not None:
            _trust(context, self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class SyslogInput(Input, frozen=True, kw_only=True):
    """Receives syslog messages (RFC 5424, RFC 3164) over UDP, TCP, TLS and sockets in the file system."""

    addresses: Annotated[tuple[_Address, ...], msgspec.Meta(min_length=1, max_length=16)]
    """Addresses to listen on: `udp://host:port`, `tcp://host:port`, `tls://host:port`, `unixgram:/path`, `unix:/path`.
    Other than loopback only with `allow_from`, or `tls.client_ca`."""
    allow_from: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    """Networks such as `10.0.0.0/8`, and addresses, of permitted senders; others are counted and ignored."""
    tls: SyslogTls | None = None
    """The certificate for `tls://`."""
    timezone: str = "local"
    """The zone of times without one: `local` (of this host), `Europe/Berlin`, `+02:00`."""
    encoding: str = "utf-8"
    """The encoding of messages without a byte order mark (`latin-1`); bytes that are invalid in it are replaced."""
    max_message_bytes: Size = Size(64 << 10)
    """A longer message is cut, and marked by `log.flags: [truncated]`."""
    max_connections: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 256
    """The number of connections; one more replaces one that never sent a message, or is quiet and of the address with
    the most, or is closed."""
    idle_timeout: Duration = Duration(3600)
    """How long a connection may be silent."""
    receive_buffer: Size = Size(4 << 20)
    """The buffer of unread datagrams; without CAP_NET_ADMIN, the kernel grants net.core.rmem_max at most."""
    mode: _Mode = "0600"
    """The permissions of a socket in the file system."""
    keep_original: bool = False
    """Whether `event.original` is the whole message as received."""

    def __post_init__(self) -> None:
        self._check_addresses()
        for option, least, most in (("max_message_bytes", 480, _MOST_BYTES), ("receive_buffer", 4096, 1 << 30)):
            if not least <= getattr(self, option) <= most:
                raise BadOption(f"must be from {Size(least)} to {Size(most)}, not {getattr(self, option)}", option)
        if not 1 <= self.idle_timeout <= 7 * 86400:
            raise BadOption(f"must be from 1s to 7d, not {self.idle_timeout}", "idle_timeout")
        try:
            zone_of(self.timezone)
        except ValueError as error:
            raise BadOption(str(error), "timezone") from None
        _check_encoding(self.encoding)

    def _check_addresses(self) -> None:
        places = []
        networks = self.networks
        for number, endpoint in enumerate(self.endpoints):
            if (endpoint.place or endpoint) in places:
                raise BadOption("this address is named twice", "addresses", number)
            places.append(endpoint.place or endpoint)
            if endpoint.scheme == "tls" and self.tls is None:
                raise BadOption("an address of tls needs the certificate, as tls", "addresses", number)
            knows_senders = endpoint.scheme == "tls" and self.tls is not None and self.tls.client_ca is not None
            if not (endpoint.path or is_loopback(endpoint.host) or knows_senders or networks is not None):
                text = "an address other than loopback needs allow_from, the networks of senders"
                raise BadOption(f"{text}, or tls with client_ca", "addresses", number)
        if self.tls is not None and all(endpoint.scheme != "tls" for endpoint in self.endpoints):
            raise BadOption("tls needs an address such as tls://127.0.0.1:6514", "tls")

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses; raises BadOption."""
        return tuple(_endpoint(text, number) for number, text in enumerate(self.addresses))

    @property
    def networks(self) -> tuple[Network, ...] | None:
        """The networks of `allow_from`; raises BadOption."""
        if self.allow_from is None:
            return None
        return tuple(_network(text, number) for number, text in enumerate(self.allow_from))

    @property
    def file_mode(self) -> int:
        """The mode of a socket in the file system."""
        return int(self.mode, 8)

    def identity(self) -> Any:
        """The addresses, in any order."""
        return sorted(map(str, self.endpoints))

    def listens(self) -> Sequence[Endpoint]:
        return self.endpoints

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        from shipper_plugins.syslog.source import SyslogSource

        source = SyslogSource(self, context)
        await source.listen()
        yield source

    def door(self, credentials: Mapping[str, Credential], tls: ssl.SSLContext | None = None) -> Door:
        """Returns the door of these settings; raises ValueError for a credential of the wrong shape.

        `tls` is an existing context of the same certificate and key, to be reused.
        """
        return Door(
            reading=Reading(self.encoding, zone_of(self.timezone), self.keep_original),
            max_bytes=self.max_message_bytes,
            max_connections=self.max_connections,
            idle_seconds=self.idle_timeout,
            allow_from=self.networks,
            tls=None if self.tls is None else tls or self.tls.context(credentials),
        )


def _endpoint(text: str, number: int) -> Endpoint:
    if not text.startswith(("unix:", "unixgram:")) and "://" not in text:
        raise BadOption("an address needs a transport, such as udp://127.0.0.1:514", "addresses", number)
    return Endpoint.parse(text, "addresses", number)


def _network(text: str, number: int) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise BadOption("not a network or an address, such as 10.0.0.0/8", "allow_from", number) from None


def _check_encoding(encoding: str) -> None:
    """Raises BadOption unless it is a charset that contains ASCII unchanged, since ASCII separates messages."""
    ascii_text = "".join(map(chr, range(128)))
    try:
        if Charset.of(encoding).width == 1 and ascii_text.encode(encoding) == ascii_text.encode():
            return
    except ValueError:
        pass
    raise BadOption("not an encoding that contains ASCII unchanged, such as utf-8, latin-1 or cp1252", "encoding")


def _trust(context: ssl.SSLContext, authorities: Material) -> None:
    try:
        context.load_verify_locations(cadata=authorities.pem)
    except ssl.SSLError as error:
        raise ValueError(f"client_ca: bad TLS material: {error.reason or 'not a certificate'}") from None
