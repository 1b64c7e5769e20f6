"""Whether what is sent to a host stays on this one."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Of an address, or of the name that every system gives to one."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
