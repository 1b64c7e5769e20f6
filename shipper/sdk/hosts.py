"""Whether a request was meant for this host: the guard of servers that anybody on this host may ask.

A web page may point its own name at 127.0.0.1 (DNS rebinding), and the browser then takes a server here for the page's
own. It still sends the page's name as `Host`. Such a name has a dot; one without is an alias that this host, or the
network it is in, gave itself.
"""

from __future__ import annotations

import ipaddress
import socket


def is_own_host(header: str, *names: str) -> bool:
    """Whether a `Host` header is an IP address, a name without a dot, this host's or one of `names`; with any port."""
    name = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
    name = name.strip("[]").lower()
    try:
        ipaddress.ip_address(name)
    except ValueError:
        alias = name != "" and "." not in name.rstrip(".")
        return alias or name in {one.lower() for one in (socket.gethostname(), *names)}
    return True
