"""PUBLIC: recognizes this host: by its addresses, and by its names in requests to servers without authentication.

A web page may point its own name at 127.0.0.1 (DNS rebinding), and the browser then treats a server here as the page's
own. It still sends the page's name as `Host`. Such a name has a dot; one without is an alias of this host, or of its
network.
"""

from __future__ import annotations

import ipaddress
import socket
from functools import lru_cache


def is_own_host(header: str, *names: str) -> bool:
    """Whether a `Host` header is an IP address, a name without a dot, this host's name or one of `names`; with any
    port."""
    name = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
    name = name.strip("[]").lower()
    if _is_address(name):
        return True
    alias = name != "" and "." not in name.rstrip(".")
    return alias or name in {one.lower() for one in (socket.gethostname(), *names)}


@lru_cache(64)  # a client says the same in each of its requests
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Returns whether an address is of loopback, or a name is `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
