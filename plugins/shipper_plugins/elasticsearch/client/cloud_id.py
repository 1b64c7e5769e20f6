"""A cloud id of Elastic Cloud, and the URL of the Elasticsearch in it. No I/O.

    name:base64("host[:port]$elasticsearch[:port]$kibana…")    ──>    https://elasticsearch.host:port

The port is that of the part, otherwise that of the host, otherwise 443. A cloud id is no secret.
"""

from __future__ import annotations

import base64
import re

_LONGEST = 4096
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")


def url_of(cloud_id: str) -> str:
    """Returns the URL of the Elasticsearch; raises ValueError for a text that is no cloud id."""
    try:
        coded = cloud_id.rpartition(":")[2]
        parts = base64.b64decode(coded + "=" * (-len(coded) % 4), validate=True).decode("ascii").split("$")
        host, otherwise = _with_port(parts[0], "443")
        id, port = _with_port(parts[1], otherwise)
    except (ValueError, IndexError):
        raise ValueError("this is no cloud id: copy it from the deployment's page, as in name:bG9jYWwk…") from None
    return f"https://{id}.{host}" + ("" if port == "443" else f":{port}")


def _with_port(text: str, otherwise: str) -> tuple[str, str]:
    host, colon, port = text.partition(":")
    port = port if colon else otherwise
    if len(text) > _LONGEST or not _HOST.fullmatch(host) or not _PORT.fullmatch(port) or int(port) > 65535:
        raise ValueError("no host")
    return host, port
