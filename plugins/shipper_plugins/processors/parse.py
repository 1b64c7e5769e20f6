r"""`parse`: a line of text becomes fields.

    {type: parse, format: nginx}
    {type: parse, format: json, field: message, target: app}

- `json`: the fields of the object become fields of the event (or of `target`), over those of the same name, and the
  text goes, since nothing of it is lost. Two things are refused: a text is written by whoever is logged, so it never
  says to which `data_stream` it goes; and a plain value never replaces a group of fields of the event (`{"log": "…"}`,
  as container runtimes write it, would take `log.file.path` away and be refused by the destination's mapping): use
  `target` there.
- `nginx`: the combined access log and the error log become ECS fields; `message` is kept. The error log has no time
  zone: its times are taken for local ones of this host. What nginx writes as `\xHH` is decoded.

An event that does not parse goes on as it is, tagged with the error.

Speed: the lines of a batch are parsed by one `map` of the C parser (0.5 µs a line). To parse the whole body as one
array is no faster, and hostile lines (`{"a":[1`, `2]}`, `{},{}`) could move fields from one event to another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Literal

import orjson

from shipper.plugin import Batch, Fields, Processor, merged, nested, tagged


class Parse(Processor, frozen=True):
    """Makes fields of a text."""

    format: Literal["json", "nginx"]
    """How the text is written."""
    field: str = "message"
    """The (dotted) name of the field that holds the text."""
    target: str | None = None
    """With `json`: the (dotted) name of the field below which to put the fields (default: the event itself)."""

    def __post_init__(self) -> None:
        if self.target is not None and self.format != "json":
            raise ValueError("target: only format json has one")
        for name in (self.field, self.target):
            if name is not None and not all(name.split(".")):
                raise ValueError(f"{name!r} is no name of a field")

    def process(self, batch: Batch) -> Batch:
        """The batch with the fields of each event that parses."""
        if self.format == "json":
            with suppress(ValueError, TypeError):
                return self._json_at_once(batch)
        return batch.replace([self._parsed(event, batch.shared) for event in batch.own()])

    def _json_at_once(self, batch: Batch) -> Batch:
        """The common case: text lines that are all good; raises ValueError or TypeError for any other."""
        if batch.offset is None or self.field != "message":
            raise ValueError
        objects = list(map(orjson.loads, batch.body.split(b"\n")[:-1]))
        groups = _groups(batch.shared) | {"log"}
        if set(map(type, objects)) != {dict} or not all(map(groups.isdisjoint, objects)):
            raise ValueError
        offsets = [event["log"] for event in batch.own()]
        return batch.replace([{**self._placed(made), "log": log} for made, log in zip(objects, offsets, strict=True)])

    def _parsed(self, event: Fields, shared: Fields) -> Fields:
        text = _find(event, self.field)
        text = text if text is not None else _find(shared, self.field)
        if not isinstance(text, str):
            return tagged(event, f"parse: there is no text in {self.field}")
        try:
            return self._from_json(event, shared, text) if self.format == "json" else _from_nginx(event, text)
        except ValueError as error:
            return tagged(event, f"parse: {error}")

    def _from_json(self, event: Fields, shared: Fields, text: str) -> Fields:
        made = self._object(text)
        if self.target is None:
            for key in _groups(merged(shared, event)) & made.keys():
                if key == "data_stream" or not isinstance(made[key], dict):
                    raise ValueError(f"the object may not set {key} here")
        return merged(_without(event, self.field), self._placed(made))

    def _object(self, text: str) -> Fields:
        try:
            made = orjson.loads(text)
            if type(made) is dict:
                orjson.dumps(self._placed(made))  # what is nested more deeply than it writes would stop the whole batch
        except (ValueError, TypeError):
            raise ValueError("the text is not JSON") from None
        if not isinstance(made, dict):
            raise ValueError("the text is not a JSON object")
        return made

    def _placed(self, made: Fields) -> Fields:
        return made if self.target is None else nested({self.target: made})


def _groups(event: Mapping[str, Any]) -> set[str]:
    """The keys that a text may not replace by a plain value."""
    return {key for key, value in event.items() if isinstance(value, Mapping)} | {"data_stream"}


def _find(fields: Mapping[str, Any], name: str) -> Any:
    for key in name.split("."):
        if not isinstance(fields, Mapping) or key not in fields:
            return None
        fields = fields[key]
    return fields


def _without(event: Fields, name: str) -> Fields:
    head, _, rest = name.partition(".")
    if rest and isinstance(event.get(head), dict):
        return {**event, head: _without(event[head], rest)}
    return {key: value for key, value in event.items() if key != name}


# -- nginx -------------------------------------------------------------------------------------------------------------

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


def _from_nginx(event: Fields, text: str) -> Fields:
    """The event with the fields of an access log line or an error log line; raises ValueError if it is neither."""
    if access := _ACCESS.match(text):
        fields = _access(*access.groups())
    elif error := _ERROR.match(text):
        fields = _error(*error.groups(), text=text)
    else:
        raise ValueError("the text is no line of an nginx log")
    return merged(event, fields)


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
    """What is no request (a TLS greeting at a plain port) stays in the message alone."""
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
    """`17/May/2026:12:34:56 +0200` as UTC."""

    def make() -> datetime:
        offset = timedelta(hours=int(text[22:24]), minutes=int(text[24:26]))
        zone = timezone(-offset if text[21] == "-" else offset)
        clock = int(text[12:14]), int(text[15:17]), int(text[18:20])
        return datetime(int(text[7:11]), _MONTHS[text[3:6]], int(text[:2]), *clock, tzinfo=zone)

    return _instant(make)


@lru_cache(maxsize=4096)
def _error_time(text: str) -> str:
    """`2026/05/17 12:34:56`, a local time, as UTC."""
    return _instant(lambda: datetime.fromisoformat(text.replace("/", "-")))
