r"""Turns lines of nginx into fields, for `parse`.

`fields` reads any line of the access log or the error log. `at_once` reads the text lines of a batch by columns, and
only other lines one by one. An ordinary line is one of the access log that is, up to the end of its agent, printable
ASCII without an escape, with a whole request and numbers in the form of JSON: so its groups are valid in JSON without
changes. `_ORDINARY` never splits a line in another way than `_ACCESS`, since its classes exclude all ambiguity: no
space in the user, no quote and no backslash anywhere.

Speed: 2.9 µs a line of 150 bytes with different addresses, seconds and paths, 2.4 with 200 addresses; read one by one,
20 µs. One `findall` takes 0.75 µs of it (with backtracking: 1.0). Times are converted once for each minute, since no
zone has seconds. Lines of the error log, which are few, are read one by one, for 14 µs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from ipaddress import ip_address
from operator import add

import orjson

from shipper.plugin import Batch, Fields, join, merged
from shipper_plugins.processors.json_runs import with_others

# -- a line of any kind ------------------------------------------------------------------------------------------------

_ACCESS = re.compile(
    r'(\S+) \S+ (.*?) \[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "([^"\\]*(?:\\.[^"\\]*)*)" '
    r'(\d{3}) (\d+|-) "([^"\\]*(?:\\.[^"\\]*)*)" "([^"\\]*(?:\\.[^"\\]*)*)"'
)
_REQUEST = re.compile(r"([A-Za-z_-]{1,32}) (\S.*?)(?: HTTP/(\d(?:\.\d)?))?")
_ERROR = re.compile(r"(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) \[([a-z]+)\] (\d+)#(\d+): (?:\*\d+ )?(?=.)")
_CLIENT = re.compile(r', client: ([^\s,]+)(?:, server: [^,]*)?(?:, request: "([^"]*)")?')
_ESCAPED = re.compile(r"(?:\\x[0-9A-Fa-f]{2})+")
_MONTHS = {
    name: n
    for n, name in enumerate(("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1)
}


def fields(event: Fields, text: str) -> Fields:
    """Returns the event with the fields of a line; raises ValueError if it is neither of the access nor error log."""
    if access := _ACCESS.match(text):
        made = _access(*access.groups())
    elif error := _ERROR.match(text):
        made = _error(*error.groups(), text=text)
    else:
        raise ValueError("the text is no line of an nginx log")
    return merged(event, made)


def _access(
    address: str, user: str, time: str, request: str, status: str, size: str, referrer: str, agent: str
) -> Fields:
    response: Fields = {"status_code": int(status)}
    http: Fields = {"response": response}
    fields: Fields = {"@timestamp": _access_time(time), "source": _source(address), "http": http}
    if size != "-":
        response["body"] = {"bytes": _number(size)}
    if user != "-":
        fields["user"] = {"name": _decoded(user)}
    _set_request(fields, http, request)
    if referrer not in ("-", ""):
        http.setdefault("request", {})["referrer"] = _decoded(referrer)
    if agent not in ("-", ""):
        fields["user_agent"] = {"original": _decoded(agent)}
    return fields


def _error(time: str, level: str, pid: str, thread: str, *, text: str) -> Fields:
    process = {"pid": _number(pid), "thread": {"id": _number(thread)}}
    fields: Fields = {"@timestamp": _error_time(time), "log": {"level": level}, "process": process}
    if client := _CLIENT.search(text):
        http: Fields = {}
        fields["source"] = _source(client[1])
        _set_request(fields, http, client[2] or "")
        fields |= {"http": http} if http else {}
    return fields


def _number(text: str) -> int:
    number = int(text)
    if number >= 1 << 63:  # JSON's writer would refuse it, and with it the whole batch
        raise ValueError("a number of the line is too large")
    return number


def _set_request(fields: Fields, http: Fields, request: str) -> None:
    """Sets method, URL and version; an invalid request (a TLS greeting at a plain port) stays in the message only."""
    if found := _REQUEST.fullmatch(request):
        http["request"] = {"method": found[1]}
        fields["url"] = {"original": _decoded(found[2])}
        if found[3]:
            http["version"] = found[3]


@lru_cache(maxsize=4096)
def _is_address(text: str) -> bool:
    try:
        return "%" not in str(ip_address(text))
    except ValueError:
        return False


def _source(address: str) -> Fields:
    return {"address": address, "ip": address} if _is_address(address) else {"address": address}


def _decoded(text: str) -> str:
    return _ESCAPED.sub(_bytes_of, text) if "\\x" in text else text


def _bytes_of(escaped: re.Match[str]) -> str:
    return bytes.fromhex(escaped[0].replace("\\x", "")).decode(errors="replace")


def _instant(make: Callable[[], datetime]) -> str:
    try:
        return make().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, KeyError, OverflowError, OSError):
        raise ValueError("the time of the line does not exist") from None


# Lines of one second share their time: a look-up instead of a conversion (strptime takes 8 µs).
@lru_cache(maxsize=4096)
def _access_time(text: str) -> str:
    """Converts `17/May/2026:12:34:56 +0200` to UTC."""

    def make() -> datetime:
        offset = timedelta(hours=int(text[22:24]), minutes=int(text[24:26]))
        zone = timezone(-offset if text[21] == "-" else offset)
        clock = int(text[12:14]), int(text[15:17]), int(text[18:20])
        return datetime(int(text[7:11]), _MONTHS[text[3:6]], int(text[:2]), *clock, tzinfo=zone)

    return _instant(make)


@lru_cache(maxsize=4096)
def _error_time(text: str) -> str:
    """Converts `2026/05/17 12:34:56`, a local time, to UTC."""
    return _instant(lambda: datetime.fromisoformat(text.replace("/", "-")))


# -- the lines of a batch ----------------------------------------------------------------------------------------------

# Possessive, since backtracking never helps; each class has only characters that JSON needs not escape.
_ORDINARY = re.compile(
    rb"(?:([!#-\[\]-~]++) [!-~]++ ([!#-\[\]-~]++) "
    rb"\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d):([0-5]\d) ([+-]\d{4})\] "
    rb'"([A-Za-z_-]{1,32}+) ([!#-\[\]-~]++) HTTP/(\d(?:\.\d)?)" ([1-9]\d\d) (0|[1-9]\d{0,17}+) '
    rb'"([ !#-\[\]-~]*+)" "([ !#-\[\]-~]*+)")?+[^\n]*+\n'
)
_V4 = re.compile(rb"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)")
_REPLACED = ("@timestamp", "log")
"""Shared fields that every event replaces by its own."""
_MADE = frozenset(("source", "http", "url", "user", "user_agent"))


def at_once(batch: Batch, one: Callable[[Fields], Fields]) -> Batch:
    """Returns the batch with the fields of its text lines; `one` reads an event that is not ordinary.

    Raises ValueError if all must be read one by one: no line is ordinary, a time does not exist, or fields would be
    merged with shared ones.
    """
    rows = _ORDINARY.findall(batch.body)
    others = [place for place, row in enumerate(rows) if not row[0]]
    shared = {key: value for key, value in batch.shared.items() if key not in _REPLACED}
    if len(others) == len(rows) or not _MADE.isdisjoint(shared):
        raise ValueError("not at once")
    body = _body(batch, rows)
    if others:
        own = batch.own()
        body = with_others(batch, shared, body, {place: one(own[place]) for place in others})
    return batch.rewritten(body, shared)


def _body(batch: Batch, rows: list[tuple[bytes, ...]]) -> bytes:
    """Returns the documents of all lines; those of other lines, whose row is empty, are placeholders."""
    address, user, minute, second, zone, method, url, version, status, size, referrer, agent = zip(*rows, strict=True)
    return join(
        batch.count,
        *(b"{", *batch.line_columns()),
        *(b',"@timestamp":"', _each(_utc_minute, map(add, minute, zone)), b":", second, b'.000Z"'),
        *(b',"source":', _each(_source_json, address)),
        *(b',"http":{"request":{"method":"', method, b'"', _optional(b',"referrer":"%b"', referrer), b"}"),
        *(b',"version":"', version, b'","response":{"status_code":', status, b',"body":{"bytes":', size, b"}}}"),
        *(b',"url":{"original":"', url, b'"}', _optional(b',"user":{"name":"%b"}', user)),
        *(_optional(b',"user_agent":{"original":"%b"}', agent), b"}\n"),
    )


def _each(make: Callable[[bytes], bytes], column: Iterable[bytes]) -> list[bytes]:
    """Returns `make` of each cell; calls it once for equal ones."""
    column = list(column)
    made = {cell: make(cell) for cell in set(column)}
    return [made[cell] for cell in column]


def _optional(form: bytes, column: Iterable[bytes]) -> list[bytes]:
    return _each(lambda cell: b"" if cell in (b"-", b"") else form % cell, column)


def _utc_minute(text: bytes) -> bytes:
    """Converts `17/May/2026:12:34+0200` to UTC."""
    local, zone = text[:17].decode(), text[17:].decode()
    return _access_time(f"{local}:00 {zone}")[:16].encode() if text else b""


def _source_json(address: bytes) -> bytes:
    if _V4.fullmatch(address):
        return b'{"address":"%b","ip":"%b"}' % (address, address)
    return orjson.dumps(_source(address.decode()))
