"""Recognizes addresses of this host."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Returns whether an address is of loopback, or a name is `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
