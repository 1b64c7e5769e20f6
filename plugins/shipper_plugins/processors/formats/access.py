r"""Lines of access logs, as nginx and Apache write them, for `parse`.

`fields` makes the fields of one line out of the parts that a pattern found. `at_once` reads the text lines of a batch
by columns, and only other lines one by one: those that the `ordinary` pattern of a server matches are valid in JSON
without changes, since it is, up to the end of the agent, printable ASCII without an escape, with a whole request and
numbers in the form of JSON. It never splits a line in another way than the pattern of any line, since its classes
exclude all ambiguity: no space in the user, no comma in the address, no quote and no backslash anywhere.

Speed: 3 µs a line of 150 bytes with different addresses, seconds and paths, of which `findall` takes 0.7; read one by
one, 20 µs. Lines become columns of a table, which is written when all processors are through. Times are converted once
for each minute, since no zone has seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from ipaddress import ip_address
from operator import add

import orjson

from shipper.plugin import Batch, Fields
from shipper.sdk.fields import merged, nested
from shipper.sdk.table import Cells, Group, Lines, Node, Table
from shipper_plugins.processors.formats import dashboards

MONTHS = {
    name: n
    for n, name in enumerate(("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1)
}
QUOTED = r'"([^"\\]*(?:\\.[^"\\]*)*)"'
"""A text in quotes, with escapes."""
TIME = r"\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\]"
_LONGEST_ADDRESS = 64
"""Characters; one of IPv6 has 45 at most, and a longer text is not kept to be known again."""
_REQUEST = re.compile(r"([A-Za-z_-]{1,32}) (\S.*?)(?: HTTP/(\d(?:\.\d)?))?")

# -- a line of any kind ------------------------------------------------------------------------------------------------

_ADDRESS = r'[^\s,"]++'
_ADDRESSES = rf'"?(?P<addresses>{_ADDRESS}(?:, *{_ADDRESS})*+)"?'
_HOST = r"(?P<host>\[[0-9A-Fa-f:.]++\]|[^\s:,\"\[]++)"
_PORT = r":(?P<port>\d++)"
_HEADS = (
    rf"{_ADDRESSES} - (?P<user>(?!- [^\[]).*?)",
    rf"{_HOST}(?:{_PORT})? {_ADDRESSES} - (?P<user>.*?)",
    rf"(?:{_HOST}{_PORT} )?(?P<addresses>{_ADDRESS}) \S+ (?P<user>\S+)",
)
"""What may be before the time: one address or a list of them, behind the virtual host or not. The name that identd
tells is mostly `-`; with another one, a user with a space in it cannot be told from a host, and is none."""
_MOST_ADDRESSES = 100
_PRIVATE = re.compile(r"(?:10|127|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.")
_HIGHEST_PORT = 65535


def lines(rest: str) -> tuple[re.Pattern[str], ...]:
    """Returns the patterns of a line, to be tried in their order, for `read`; `rest` has five groups, from the request
    to the agent."""
    return tuple(re.compile(f"{head} {TIME} {rest}") for head in _HEADS)


def read(patterns: Sequence[re.Pattern[str]], text: str, decoded: Callable[[str], str], *place: str) -> Fields | None:
    """Returns the fields of a line; None if none of the `patterns` matches. Raises ValueError as `fields` does.

    Of a list of addresses (X-Forwarded-For), the client is the first that is not private, as in Filebeat; the list is
    at `place`.
    """
    found = next((found for pattern in patterns if (found := pattern.match(text))), None)
    if found is None:
        return None
    addresses = re.split(", *", found["addresses"])
    if len(addresses) > _MOST_ADDRESSES:
        raise ValueError("the line has too many addresses")
    client = next((one for one in addresses if not _PRIVATE.match(one)), addresses[0])
    made = fields(decoded, client, found["user"], *found.groups()[-6:])
    host = found.groupdict().get("host")
    if host is not None:
        made["destination"] = {"domain": host, **port(found["port"] or "")}
    return made if len(addresses) == 1 else merged(made, nested({".".join(place): addresses}))


def port(text: str) -> Fields:
    """Returns the field of a port, if it is one."""
    return {"port": int(text)} if 0 < len(text) <= 5 and int(text) <= _HIGHEST_PORT else {}


def fields(
    decoded: Callable[[str], str],
    address: str,
    user: str,
    time: str,
    request: str,
    status: str,
    size: str,
    referrer: str | None,
    agent: str | None,
) -> Fields:
    """Returns the fields of a line; raises ValueError if its time does not exist, or a number is too large.

    `decoded` undoes the escapes of the server.
    """
    http: Fields = {"response": {"status_code": int(status)}} if status != "-" else {}
    fields: Fields = {"@timestamp": access_time(time), "source": source(address), "http": http}
    if size != "-":
        http.setdefault("response", {})["body"] = {"bytes": number(size)}
    if user not in ("-", "", '""'):
        fields["user"] = {"name": decoded(user)}
    set_request(fields, http, request, decoded)
    if referrer not in ("-", "", None):
        http.setdefault("request", {})["referrer"] = decoded(referrer)
    if agent not in ("-", "", None):
        fields["user_agent"] = {"original": decoded(agent)}
    return fields


def number(text: str) -> int:
    """Returns the number; raises ValueError if JSON's writer would refuse it, and with it the whole batch."""
    number = int(text)
    if number >= 1 << 63:
        raise ValueError("a number of the line is too large")
    return number


def set_request(fields: Fields, http: Fields, request: str, decoded: Callable[[str], str]) -> None:
    """Sets method, URL and version; an invalid request (a TLS greeting at a plain port) stays in the message only."""
    if found := _REQUEST.fullmatch(request):
        http["request"] = {"method": found[1]}
        fields["url"] = {"original": decoded(found[2])}
        if found[3]:
            http["version"] = found[3]


def _is_address(text: str) -> bool:
    return len(text) <= _LONGEST_ADDRESS and _is_short_address(text)


@lru_cache(maxsize=4096)
def _is_short_address(text: str) -> bool:
    try:
        return "%" not in str(ip_address(text))
    except ValueError:
        return False


def source(address: str) -> Fields:
    """Returns the fields of a client, which may be a name."""
    return {"address": address, "ip": address} if _is_address(address) else {"address": address}


def instant(make: Callable[[], datetime]) -> str:
    """Returns a time in UTC; raises ValueError if it does not exist."""
    try:
        return make().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, KeyError, OverflowError, OSError):
        raise ValueError("the time of the line does not exist") from None


# Lines of one second share their time: a look-up instead of a conversion (strptime takes 8 µs).
@lru_cache(maxsize=4096)
def access_time(text: str) -> str:
    """Converts `17/May/2026:12:34:56 +0200` to UTC."""

    def make() -> datetime:
        offset = timedelta(hours=int(text[22:24]), minutes=int(text[24:26]))
        zone = timezone(-offset if text[21] == "-" else offset)
        clock = int(text[12:14]), int(text[15:17]), int(text[18:20])
        return datetime(int(text[7:11]), MONTHS[text[3:6]], int(text[:2]), *clock, tzinfo=zone)

    return instant(make)


# -- the lines of a batch ----------------------------------------------------------------------------------------------

ORDINARY_TIME = rb"\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d):([0-5]\d) ([+-]\d{4})\]"
# Possessive, since backtracking never helps; each class has only characters that JSON needs not escape.
ORDINARY_HEAD = rb"([!#-+\--\[\]-~]++) [!-~]++ ([!#-\[\]-~]++) " + ORDINARY_TIME
ORDINARY_REQUEST = rb' "([A-Za-z_-]{1,32}+) ([!#-\[\]-~]++) HTTP/(\d(?:\.\d)?)" ([1-9]\d\d) '
ORDINARY_CLIENT = rb' "([ !#-\[\]-~]*+)" "([ !#-\[\]-~]*+)"'
_V4 = re.compile(rb"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)")
_ALL_V4 = re.compile(rb"(?:(?:%b)?+\n)*+" % _V4.pattern)
_MADE = frozenset(("source", "http", "url", "user", "user_agent"))


def at_once(
    batch: Batch, ordinary: re.Pattern[bytes], one: Callable[[Fields], Fields], service: str | None = None
) -> Batch:
    """Returns the batch with the fields of its text lines, or of the `message` of its documents; `one` reads an event
    that is not ordinary.

    `ordinary` has the groups of the four patterns above, and matches every line; the groups are empty for another one.
    With a `service`, each event has the fields of its dashboards too. Raises ValueError if all must be read one by one:
    a time does not exist, or fields would be merged with present ones.
    """
    made = _MADE if service is None else _MADE | {"event", "service", "@timestamp"}
    replaced = ("@timestamp", *(("log",) if batch.is_lines else ()), *(() if service is None else ("event", "service")))
    shared = {key: value for key, value in batch.shared.items() if key not in replaced}
    if not _MADE.isdisjoint(shared):
        raise ValueError("not at once")
    lines, heads = _of_lines(batch) if batch.is_lines else _of_documents(batch, made)
    rows = ordinary.findall(lines)
    ordinary_row = next((row for row in rows if row[0]), None)
    if ordinary_row is None:
        raise ValueError("not at once")
    others = [place for place, row in enumerate(rows) if not row[0]]
    own = batch.own() if others else []
    odd = {place: merged(_replaced(batch.shared, shared), one(own[place])) for place in others}
    if not all(map(shared.keys().isdisjoint, odd.values())):
        raise ValueError("not at once")
    if others:
        rows = [row if row[0] else ordinary_row for row in rows]
    fields = _columns(batch, lines, heads, rows, service)
    return batch.tabled(Table(batch.count, fields, odd), shared)


def _replaced(before: Fields, shared: Fields) -> Fields:
    return {key: value for key, value in before.items() if key not in shared}


def _of_lines(batch: Batch) -> tuple[bytes, Group]:
    """Returns text lines, and their other fields."""
    return batch.body, batch.table().below({"log": batch.shared.get("log", {})}).without("message").fields


def _of_documents(batch: Batch, made: AbstractSet[str]) -> tuple[bytes, Group]:
    """Returns the texts of documents as lines, and their other fields."""
    table = batch.table()
    if table.odd or not made.isdisjoint(table.fields):
        raise ValueError("not at once")
    texts = table.cells("message")
    if texts is None:
        raise ValueError("not at once")
    heads = table.without("message").without("@timestamp").fields
    return texts.lines(table.count), heads


def _columns(batch: Batch, lines: bytes, heads: Group, rows: Sequence[tuple[bytes, ...]], service: str | None) -> Group:
    """Returns the fields of all lines."""
    address, user, minute, second, zone, method, url, version, status, size, referrer, agent = zip(*rows, strict=True)
    return {
        **heads,
        "message": Lines(lines),
        "@timestamp": Cells(b'"', _each(_utc_minute, map(add, minute, zone)), b":", second, b'.000Z"'),
        "source": _sources(address),
        "http": {
            "request": {"method": _text(method), "referrer": _optional(b'"%b"', referrer)},
            "version": _text(version),
            "response": {
                "status_code": Cells(status),
                "body": {"bytes": _optional(b"%b", size) if b"-" in size else Cells(size)},
            },
        },
        "url": {"original": _text(url), **(dashboards.url_columns(url) if service else {})},
        "user": {"name": _optional(b'"%b"', user)},
        "user_agent": {"original": _optional(b'"%b"', agent)}
        if service is None
        else Cells(_each(_agent_json, agent), sparse=True),
        **(dashboards.event_columns(batch.shared, service, status) if service else {}),
    }


def _text(column: Sequence[bytes]) -> Cells:
    return Cells(b'"', column, b'"')


def _each(make: Callable[[bytes], bytes], column: Iterable[bytes]) -> list[bytes]:
    """Returns `make` of each cell; calls it once for equal ones."""
    column = list(column)
    made = {cell: make(cell) for cell in set(column)}
    return list(map(made.__getitem__, column))


def _optional(form: bytes, column: Iterable[bytes]) -> Cells:
    return Cells(_each(lambda cell: b"" if cell in (b"-", b"") else form % cell, column), sparse=True)


def _agent_json(agent: bytes) -> bytes:
    if agent in (b"-", b""):
        return b""
    return orjson.dumps(dashboards.user_agent(agent.decode()))


def _utc_minute(text: bytes) -> bytes:
    """Converts `17/May/2026:12:34+0200` to UTC."""
    local, zone = text[:17].decode(), text[17:].decode()
    return access_time(f"{local}:00 {zone}")[:16].encode() if text else b""


def _sources(column: Sequence[bytes]) -> Node:
    if _ALL_V4.fullmatch(b"%b\n" % b"\n".join(column)):
        return {"address": _text(column), "ip": _text(column)}
    return Cells(_each(_source_json, column))


def _source_json(address: bytes) -> bytes:
    if _V4.fullmatch(address):
        return b'{"address":"%b","ip":"%b"}' % (address, address)
    return orjson.dumps(source(address.decode()))
