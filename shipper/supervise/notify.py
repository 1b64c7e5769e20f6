"""Notifications for systemd (sd_notify): READY=1, RELOADING=1, STOPPING=1, STATUS=…, and the watchdog's WATCHDOG=1.

A datagram to the socket that $NOTIFY_SOCKET names; without that variable nothing happens.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping

import trio


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

    async def keep_alive(self) -> None:
        """Notifies the watchdog twice in its interval; returns at once if there is none."""
        while self.watchdog_seconds:
            self.send("WATCHDOG=1")
            await trio.sleep(self.watchdog_seconds / 2)
