"""Notifications for systemd (sd_notify): READY=1, RELOADING=1, STOPPING=1, STATUS=…, the watchdog's WATCHDOG=1, and
EXTEND_TIMEOUT_USEC=… while a start or a stop takes its time.

A datagram to the socket that $NOTIFY_SOCKET names; without that variable nothing happens.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping

import trio

EXTENSION_SECONDS = 15.0
_LONGER = f"EXTEND_TIMEOUT_USEC={EXTENSION_SECONDS * 1e6:.0f}"


async def _well(seconds: float) -> bool:
    return True


class Notify:
    """Notifies the service manager, if there is one; ignores failures."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environment.get("WATCHDOG_USEC", "") if mine else ""
        self.watchdog_seconds = int(microseconds) / 1e6 if microseconds.isdecimal() and int(microseconds) else None

    def send(self, *lines: str) -> None:
        if self._address[:1] not in ("/", "\0"):
            return
        kind = socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0) | getattr(socket, "SOCK_NONBLOCK", 0)
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as channel:
            channel.connect(self._address)
            channel.send("\n".join(lines).encode())

    def reloading(self) -> None:
        """Announces a reload, for Type=notify-reload; READY=1 ends it."""
        self.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    async def keep_alive(self, check: Callable[[float], Awaitable[bool]] = _well) -> None:
        """Notifies the watchdog four times in its interval if `check(seconds)`, which may take a quarter of it, says
        that all is well; returns at once if there is no watchdog."""
        while self.watchdog_seconds:
            pause = self.watchdog_seconds / 4
            if await check(pause):
                self.send("WATCHDOG=1")
            await trio.sleep(pause)

    async def extend(self, wanted: Callable[[], bool]) -> None:
        """Asks for more time to start or to stop, while it is `wanted`; returns at once without a service manager."""
        while self._address:
            if wanted():
                self.send(_LONGER)
            await trio.sleep(EXTENSION_SECONDS / 3)

    def stopping(self) -> None:
        """Announces a stop, and asks for time for it."""
        self.send("STOPPING=1")
        self.send(_LONGER)
