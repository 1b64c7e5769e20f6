"""Ports of loopback for processes that begin to listen later."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from itertools import cycle

_PORTS = range(15_000, 32_000)
"""Below those that the system gives to outgoing connections and to listeners of port 0: nobody takes one meanwhile."""
_ports = cycle(random.SystemRandom().sample(_PORTS, len(_PORTS)))


def free_port() -> int:
    """Returns a port of loopback without a listener, another one with each call."""
    for port in _ports:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            break
    return port
