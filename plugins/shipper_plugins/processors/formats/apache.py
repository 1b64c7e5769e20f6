r"""Lines of Apache httpd, for `parse`: its access log and its error log.

    10.0.0.1 - ann [17/May/2026:12:34:56 +0200] "GET / HTTP/1.1" 200 153                        common
    10.0.0.1 - ann [17/May/2026:12:34:56 +0200] "GET / HTTP/1.1" 200 153 "-" "curl/8.5.0"       combined
    shop.org:443 10.0.0.1 - ann [17/May/2026:12:34:56 +0200] "GET / HTTP/1.1" 200 153 …         vhost_combined
    [Sun May 17 12:34:56.789012 2026] [core:error] [pid 31:tid 32] [client 10.0.0.1:4711] AH00126: …

The address may be a list of them (`%{X-Forwarded-For}i`), and the virtual host without a port. Lines of the access log
without these are read by columns (see `access`). Apache escapes a text as C does (`\"`, `\t`, `\xHH`); it is decoded.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from ipaddress import ip_address

from shipper.plugin import Fields
from shipper_plugins.processors.formats import access

_ACCESS = access.lines(rf"{access.QUOTED} (\d{{3}}|-) (\d+|-)(?: {access.QUOTED} {access.QUOTED})?")
_ERROR = re.compile(
    r"\[[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))? (\d{4})\] "
    r"\[(?:([\w-]*):)?([a-z]+\d?)\] (?:\[pid (\d+)(?::tid (\d+))?\] )?"
)
_CLIENT = re.compile(r"\[client ([^\]\s]{1,255})\] ")
_REFERRER = re.compile(r", referer: (\S+)\Z")
_ESCAPED = re.compile(r"((?:\\x[0-9A-Fa-f]{2})+)|\\(.)", re.DOTALL)
_ESCAPES = {"b": "\b", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "f": "\f", '"': '"', "\\": "\\"}

_LINE = (access.ORDINARY_HEAD, access.ORDINARY_REQUEST, rb"(0|[1-9]\d{0,17}+|-)", access.ORDINARY_CLIENT)
ORDINARY = re.compile(rb"(?:%b%b%b(?:%b|(?=\n)))?+[^\n]*+\n" % _LINE)
"""See `access.at_once`."""


def read(text: str) -> tuple[str, Fields]:
    """Returns the log (`access` or `error`) and the fields of a line; raises ValueError if it is of neither."""
    if made := access.read(_ACCESS, text, _decoded, "apache", "access", "remote_addresses"):
        return "access", made
    if error := _ERROR.match(text):
        return "error", _error(*error.groups(), text=text[error.end() :])
    raise ValueError("the text is no line of an Apache log")


def _error(
    month: str,
    day: str,
    clock: str,
    fraction: str | None,
    year: str,
    module: str | None,
    level: str,
    pid: str | None,
    thread: str | None,
    *,
    text: str,
) -> Fields:
    fields: Fields = {"@timestamp": _error_time(month, day, clock, fraction or "0", year), "log": {"level": level}}
    if module:
        fields["apache"] = {"error": {"module": module}}
    if pid:
        fields["process"] = {"pid": access.number(pid)} | ({"thread": {"id": access.number(thread)}} if thread else {})
    if client := _CLIENT.search(text):
        fields["source"] = _source(client[1])
    if referrer := _REFERRER.search(text):
        fields["http"] = {"request": {"referrer": _decoded(referrer[1])}}
    return fields


def _source(client: str) -> Fields:
    """Returns the fields of `address:port`; Apache 2.2 wrote no port, and no brackets are around IPv6."""
    address, colon, port = client.rpartition(":")
    if not colon or not port.isdecimal() or not port.isascii() or (_is_address(client) and not _is_address(address)):
        return access.source(client)
    return access.source(address) | access.port(port)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _decoded(text: str) -> str:
    return _ESCAPED.sub(_character, text) if "\\" in text else text


def _character(escaped: re.Match[str]) -> str:
    if escaped[1]:
        return bytes.fromhex(escaped[1].replace("\\x", "")).decode(errors="replace")
    return _ESCAPES.get(escaped[2], escaped[0])


@lru_cache(maxsize=4096)
def _error_time(month: str, day: str, clock: str, fraction: str, year: str) -> str:
    """Converts a local time to UTC."""

    def make() -> datetime:
        hour, minute, second = map(int, clock.split(":"))
        microsecond = int(fraction.ljust(6, "0"))
        return datetime(int(year), access.MONTHS[month], int(day), hour, minute, second, microsecond)

    return access.instant(make)
