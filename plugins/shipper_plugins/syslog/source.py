"""A running `syslog` input: its sockets, connections and datagrams, and its reports."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from shipper.plugin import Code, Credential, Endpoint, InputContext, Source, StartFailed
from shipper.sdk.sockets import receive_buffer
from shipper_plugins.syslog.datagrams import Datagrams
from shipper_plugins.syslog.gathering import Gathering
from shipper_plugins.syslog.streams import Streams

if TYPE_CHECKING:
    from shipper_plugins.syslog.input import SyslogInput

END_SECONDS = 1.0
"""The time for peers to end their connections when the input ends, and then for storing the last events."""
LOOK_SECONDS = 1.0
CROWDED_SECONDS = 10.0
LOST_SECONDS = 60.0
"""How long a loss of datagrams is reported after the last one."""

_log = logging.getLogger(__name__)


class SyslogSource(Source):
    """See `Source`."""

    def __init__(self, settings: SyslogInput, context: InputContext) -> None:
        """Raises StartFailed for a credential of the wrong shape."""
        self._settings, self._context = settings, context
        try:
            self._door = settings.door(context.credentials)
        except ValueError as error:
            raise StartFailed(str(error), code=Code.CREDENTIAL_INVALID) from None
        self._gathering = Gathering(context)
        self._streams = Streams(lambda: self._door, self._gathering, self._note_crowd)
        self._datagrams: list[Datagrams] = []
        self._listeners: list[tuple[Endpoint, socket.socket]] = []
        self._granted = dict[Endpoint, int]()
        """The sizes of receive buffers."""
        self._closed: str | None = None
        self._crowded, self._crowded_until = "", 0.0
        self._newly_lost, self._lost_until = 0, 0.0
        self._reading = trio.CancelScope()
        self._ended = trio.Event()

    async def listen(self) -> None:
        """Opens all sockets; raises StartFailed."""
        for endpoint in self._settings.endpoints:
            listener = await self._listener(endpoint)
            if endpoint.is_of_datagrams:
                self._datagrams.append(Datagrams(endpoint, listener, lambda: self._door, self._gathering))
            else:
                self._listeners.append((endpoint, listener))

    async def _listener(self, endpoint: Endpoint) -> socket.socket:
        """Opens a socket, or applies changed settings to the open one; raises StartFailed."""
        size = self._settings.receive_buffer if endpoint.is_of_datagrams else None
        mode = self._settings.file_mode if endpoint.path else None
        listener = await self._context.listen(endpoint, mode=mode, receive_buffer=size)
        if size is not None:
            self._granted[endpoint] = granted = receive_buffer(listener)
            if granted < size:
                text = "input %s: the receive buffer of %s has %d bytes, not %d: raise net.core.rmem_max"
                _log.warning(text, self._context.name, endpoint, granted, size)
        return listener

    async def run(self) -> None:
        """See `Source.run`; after a cancel, it reads and stores the last messages within `END_SECONDS` each."""
        self._report()
        try:
            async with trio.open_nursery() as lasting:
                lasting.start_soon(self._gathering.store)
                await self._read(lasting)
        finally:
            self._ended.set()

    async def _read(self, lasting: trio.Nursery) -> None:
        """Reads until cancelled or quiesced; then ends connections and the gathering."""
        try:
            with self._reading:
                async with trio.open_nursery() as reading:
                    for endpoint, listener in self._listeners:
                        reading.start_soon(self._streams.accept, endpoint, listener, lasting)
                    for datagrams in self._datagrams:
                        reading.start_soon(datagrams.read)
                    reading.start_soon(self._look)
        finally:
            with trio.CancelScope(shield=True):
                await self._end()

    async def quiesce(self) -> None:
        """See `Source.quiesce`: closes connections; unread datagrams are left to the next input."""
        self._reading.cancel("the input ends")
        await self._ended.wait()

    async def _end(self) -> None:
        """Ends connections and the gathering; unread datagrams are left to the next input of the socket."""
        await self._streams.leave_all(END_SECONDS)
        self._gathering.close(END_SECONDS)

    def change(self, settings: SyslogInput, credentials: Mapping[str, Credential]) -> None:
        """See `Source.change`; with a credential of the wrong shape, TLS handshakes fail, and that is reported."""
        before, self._settings = self._settings, settings
        is_kept = settings.tls is not None and self._closed is None and settings.tls.is_kept(before.tls, credentials)
        try:
            self._door = settings.door(credentials, self._door.tls if is_kept else None)
            self._closed = None
        except ValueError as error:
            self._door = settings.door(credentials, _nobody())
            self._closed = str(error)
        self._report()

    async def changed(self) -> None:
        """See `Source.changed`: closes connections with another certificate or key, or of other senders."""
        for endpoint in self._settings.endpoints:
            await self._listener(endpoint)
        await self._streams.renew()

    def figures(self) -> dict[str, int]:
        """See `Source.figures`."""
        figures = {"refused_peers": self._streams.refused + sum(one.refused for one in self._datagrams)}
        if self._listeners:
            figures["connections"] = len(self._streams)
        if self._datagrams:
            figures["lost_datagrams"] = sum(one.lost for one in self._datagrams)
        return figures

    # -- problems ------------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Looks for lost datagrams, and for problems that are over."""
        while True:
            now = trio.current_time()
            lost = sum(one.count_lost() for one in self._datagrams)
            if now >= self._lost_until:
                self._newly_lost = 0
            if lost:
                self._newly_lost += lost
                self._lost_until = now + LOST_SECONDS
            if now >= self._crowded_until:
                self._crowded = ""
            self._report()
            await trio.sleep(LOOK_SECONDS)

    def _note_crowd(self, why: str, connections: int) -> None:
        if not self._crowded:
            _log.warning("input %s: %s", self._context.name, why)
        self._crowded, self._crowded_until = why, trio.current_time() + CROWDED_SECONDS
        if connections:
            self._context.turned_away(connections)
        self._report()

    def _report(self) -> None:
        problems = [
            (Code.CREDENTIAL_INVALID, self._closed),
            (Code.CROWDED, self._crowded),
            (Code.DATA_LOST, self._loss()),
        ]
        present = [(code, text) for code, text in problems if text]
        self._context.report("; ".join(text for _, text in present) or None, code=present[0][0] if present else Code.OK)

    def _loss(self) -> str:
        """Returns what was lost before it was read, and what to do; empty without a loss."""
        if not self._newly_lost:
            return ""
        granted, wanted = min(self._granted.values()), self._settings.receive_buffer
        remedy = "raise receive_buffer"
        if granted < wanted:
            remedy = f"the kernel granted {granted} bytes, not {wanted}: raise net.core.rmem_max"
        lost = f"datagrams lost before they were read, since the sockets' buffers were full: {self._newly_lost}"
        return f"{lost}; {remedy}, or see why the queue is slow"


def _nobody() -> ssl.SSLContext:
    """Returns a context without a certificate, so that every handshake fails."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
