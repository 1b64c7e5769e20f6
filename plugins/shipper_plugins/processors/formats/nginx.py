r"""Lines of nginx, for `parse`: its combined access log (see `access`) and its error log.

nginx writes a byte that is not printable, a quote or a backslash as `\xHH`; it is decoded. Lines of the error log,
which are few, are read one by one, for 14 µs.

A log may begin with `$http_x_forwarded_for`, a list of addresses, and with the virtual host (`$host:$server_port`).
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache

from shipper.plugin import Fields
from shipper_plugins.processors.formats import access

_ACCESS = access.lines(rf"{access.QUOTED} (\d{{3}}) (\d+|-) {access.QUOTED} {access.QUOTED}")
_ERROR = re.compile(r"(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) \[([a-z]+)\] (\d+)#(\d+): (?:\*\d+ )?(?=.)")
_CLIENT = re.compile(r', client: ([^\s,]+)(?:, server: [^,]*)?(?:, request: "([^"]*)")?')
_ESCAPED = re.compile(r"(?:\\x[0-9A-Fa-f]{2})+")

_LINE = (access.ORDINARY_HEAD, access.ORDINARY_REQUEST, rb"(0|[1-9]\d{0,17}+)", access.ORDINARY_CLIENT)
ORDINARY = re.compile(rb"(?:%b%b%b%b)?+[^\n]*+\n" % _LINE)
"""See `access.at_once`."""


def read(text: str) -> tuple[str, Fields]:
    """Returns the log (`access` or `error`) and the fields of a line; raises ValueError if it is of neither."""
    if made := access.read(_ACCESS, text, _decoded, "nginx", "access", "remote_ip_list"):
        return "access", made
    if error := _ERROR.match(text):
        return "error", _error(*error.groups(), text=text)
    raise ValueError("the text is no line of an nginx log")


def _error(time: str, level: str, pid: str, thread: str, *, text: str) -> Fields:
    process = {"pid": access.number(pid), "thread": {"id": access.number(thread)}}
    fields: Fields = {"@timestamp": _error_time(time), "log": {"level": level}, "process": process}
    if client := _CLIENT.search(text):
        http: Fields = {}
        fields["source"] = access.source(client[1])
        access.set_request(fields, http, client[2] or "", _decoded)
        fields |= {"http": http} if http else {}
    return fields


def _decoded(text: str) -> str:
    return _ESCAPED.sub(_bytes_of, text) if "\\x" in text else text


def _bytes_of(escaped: re.Match[str]) -> str:
    return bytes.fromhex(escaped[0].replace("\\x", "")).decode(errors="replace")


@lru_cache(maxsize=4096)
def _error_time(text: str) -> str:
    """Converts `2026/05/17 12:34:56`, a local time, to UTC."""
    return access.instant(lambda: datetime.fromisoformat(text.replace("/", "-")))
