"""Turns the bytes of one syslog message into the fields of an event. No I/O; any bytes give an event, in linear time.

    <34>1 2026-05-17T12:34:56Z web-1 su 23 ID47 [a@1 b="c"] text     RFC 5424
    <34>May 17 12:34:56 web-1 su[23]: text                           RFC 3164 and its variants
    <189>29: router-1: *May 17 12:34:56.789: %SYS-5-CONFIG_I: text   Cisco

A message with a version and a time of RFC 5424 is one; any other is one of RFC 3164, where every part but the priority
may be missing. There the first word after the time is the host, unless it looks like a tag (`su:`, `su[23]:`); a word
without such marks belongs to the text. The mnemonic of a network device (`%SYS-5-CONFIG_I:`) stays in the text.

A message without a priority, or with an invalid header of RFC 5424, is kept whole as `message`, with the tag
`syslog_unparsed` and the reason as `error.message`. All fields come from the message, except for `@timestamp` of a
message without a time: it is the instant of arrival.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from shipper.plugin import Fields
from shipper_plugins.syslog.time import exact, leading, written

UNPARSED = "syslog_unparsed"

FACILITIES = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"),
    *("ntp", "audit", "alert", "clock", *(f"local{number}" for number in range(8))),
)
SEVERITIES = ("Emergency", "Alert", "Critical", "Error", "Warning", "Notice", "Informational", "Debug")

LINE_ENDS = b"\r\n\0"
"""At the end of a message they are no part of it."""
_BOM = "\ufeff"
_NIL = "-"

_PRIORITY = re.compile(r"<(\d{1,3})>", re.ASCII)
_OF_5424 = re.compile(r"([1-9]\d{0,2}) (?=(?:-|\d{4}-\d\d-\d\d[Tt]\S*+) )", re.ASCII)
_HEADER = re.compile(r"(\S{1,255}) (\S{1,255}) (\S{1,255}) (\S{1,255}) (\S{1,255}) ")
_ELEMENT = re.compile(r'\[([^\s="\]]{1,255})')
_PARAM = re.compile(r' +([^\s="\]]{1,255})="((?:[^"\\]|\\.)*+)"', re.DOTALL)
_END_OF_ELEMENT = re.compile(r" *\]")
_ESCAPED = re.compile(r'\\(["\\\]])')

_SEQUENCE = re.compile(r"(\d{1,10}): *", re.ASCII)
_ORIGIN = re.compile(r"([^\s:%*]{1,255}) ?: +(?=[*.%A-Z\d])", re.ASCII)
_FORWARDED = re.compile(r"Message forwarded from ([^\s:]{1,255}): ?")
_HOST = re.compile(r"([A-Za-z0-9_.:/@%-]{1,255}(?<!:)) +(?=\S)", re.ASCII)
_NAME = r"[^\s\[\]:%{}\"'<>=,;]{1,128}"
_TAG = re.compile(rf"(?!\d+:)({_NAME})(?:\[([^\s\[\]]{{0,128}})\]:?|:)(?:\s|$)", re.ASCII)
_PID = re.compile(r"\d{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reading:
    """The settings for messages of an input."""

    encoding: str = "utf-8"
    """One that contains ASCII unchanged; invalid bytes are replaced."""
    zone: tzinfo | None = None
    """The zone of times without one; None: that of this host."""
    keeps_original: bool = False
    """Whether `event.original` is the message as received."""

    def event(self, body: bytes, now: datetime, *, is_cut: bool = False) -> Fields | None:
        """Returns the fields of a message that arrived at `now`; None if it has only line ends."""
        body = body.rstrip(LINE_ENDS)
        if not body:
            return None
        text = self.text(body, is_cut=is_cut).removeprefix(_BOM)
        fields = _parsed(text, self.zone, now)
        if "@timestamp" not in fields:
            fields["@timestamp"] = written(now)
        if self.keeps_original:
            fields.setdefault("event", {})["original"] = text
        if is_cut:
            fields.setdefault("log", {})["flags"] = ["truncated"]
        return fields

    def text(self, body: bytes, *, is_cut: bool = False) -> str:
        """Returns the text of a message, whose last character is left out if that was cut."""
        name = "utf-8" if codecs.BOM_UTF8 in body else self.encoding
        if is_cut:
            text = codecs.getincrementaldecoder(name)("replace").decode(body, False)
        else:
            text = body.decode(name, "replace")
        return text if name == "utf-8" else text.encode(errors="replace").decode()


def of_line(text: str, zone: tzinfo | None, now: datetime) -> Fields:
    """Returns the fields of a line of a file, which need not have a priority if it begins with a time.

    There is no host of the event among them. Raises ValueError, with the reason, for any other line.
    """
    if _PRIORITY.match(text):
        event = _parsed(text, zone, now)
    else:
        event = _of_3164(text, {}, zone, now)
        if "@timestamp" not in event:
            raise ValueError("the text is no line of syslog: it begins neither with a time nor with a priority")
    if UNPARSED in event.get("tags", ()):
        raise ValueError(f"the text is {event['error']['message']}")
    event.pop("host", None)
    return event


def _parsed(text: str, zone: tzinfo | None, now: datetime) -> Fields:
    found = _PRIORITY.match(text)
    if found is None or int(found[1]) >= len(FACILITIES) * len(SEVERITIES):
        return _unparsed(text, {}, "it does not begin with a priority, such as <13>")
    syslog = priority(int(found[1]))
    version = _OF_5424.match(text, found.end())
    if version is None:
        return _of_3164(text[found.end() :], syslog, zone, now)
    return _of_5424(text, version.end(), syslog | {"version": version[1]}, zone, now)


def priority(number: int) -> Fields:
    """Returns the fields of a priority: its number, its facility and its severity."""
    facility, severity = divmod(number, len(SEVERITIES))
    return {
        "priority": number,
        "facility": {"code": facility, "name": FACILITIES[facility]},
        "severity": {"code": severity, "name": SEVERITIES[severity]},
    }


def _unparsed(text: str, syslog: Fields, reason: str) -> Fields:
    log = {"log": {"syslog": syslog}} if syslog else {}
    return {"message": text, "tags": [UNPARSED], "error": {"message": f"no syslog message: {reason}"}, **log}


# -- RFC 5424 ----------------------------------------------------------------------------------------------------------


def _of_5424(text: str, at: int, syslog: Fields, zone: tzinfo | None, now: datetime) -> Fields:
    found = _HEADER.match(text, at)
    if found is None:
        return _unparsed(text, syslog, "its header has not all fields of RFC 5424")
    time, *names = found.groups()
    timestamp = None if time == _NIL else exact(time, zone, now)
    if timestamp is None and time != _NIL:
        return _unparsed(text, syslog, "its time does not have the form of RFC 5424")
    read = structured(text, found.end())
    if read is None:
        return _unparsed(text, syslog, "its structured data is not that of RFC 5424")
    data, end = read
    hostname, appname, procid, msgid = (None if name == _NIL else name for name in names)
    header = {"hostname": hostname, "appname": appname, "procid": procid, "msgid": msgid, "structured_data": data}
    return _event(syslog, header, timestamp, text[end + 1 :].removeprefix(_BOM))


def structured(text: str, at: int) -> tuple[Fields | None, int] | None:
    """Returns the structured data, and where it ends; None if it is invalid."""
    data: Fields = {}
    if text.startswith(_NIL, at):
        at += 1
    elif not text.startswith("[", at):
        return None
    while element := _ELEMENT.match(text, at):
        params = data.setdefault(element[1], {})
        at = element.end()
        while param := _PARAM.match(text, at):
            _add(params, param[1], _ESCAPED.sub(r"\1", param[2]))
            at = param.end()
        end = _END_OF_ELEMENT.match(text, at)
        if end is None:
            return None
        at = end.end()
    return (data or None, at) if text.startswith(" ", at) or at == len(text) else None


def _add(params: dict[str, Any], name: str, value: str) -> None:
    """Adds a value; several values of one name are a list."""
    if name not in params:
        params[name] = value
    elif isinstance(params[name], list):
        params[name].append(value)
    else:
        params[name] = [params[name], value]


# -- RFC 3164 ----------------------------------------------------------------------------------------------------------


def _of_3164(text: str, syslog: Fields, zone: tzinfo | None, now: datetime) -> Fields:
    """`text` is the message without its priority."""
    rest, sequence, origin, timestamp = _times(text.lstrip(" "), zone, now)
    if timestamp is None:
        hostname = None
    else:
        hostname, rest = (origin, rest) if origin else _host(rest)
    appname, procid, message = _tag(rest)
    header = {"hostname": hostname, "appname": appname, "procid": procid}
    event = _event(syslog, header, timestamp, message)
    if sequence is not None:
        event["event"] = {"sequence": sequence}
    return event


def _times(text: str, zone: tzinfo | None, now: datetime) -> tuple[str, int | None, str | None, str | None]:
    """Returns the text after the time; a device's sequence number and name, if they precede it; the time."""
    if plain := _time(text, zone, now):
        return plain[1], None, None, plain[0]
    numbered = _SEQUENCE.match(text)
    sequence = int(numbered[1]) if numbered else None
    rest = text[numbered.end() :] if numbered else text
    if found := _time(rest, zone, now):
        return found[1], sequence, None, found[0]
    named = _ORIGIN.match(rest)
    if named is not None and (found := _time(rest[named.end() :], zone, now)):
        timestamp, rest = found
        if numbered or rest.startswith("%"):
            return rest, sequence, named[1], timestamp
    return text, None, None, None


def _time(text: str, zone: tzinfo | None, now: datetime) -> tuple[str, str] | None:
    """Returns the time at the start of a device's text, and the rest; `*` and `.` mark a clock that is not set."""
    start = text[1:] if text.startswith(("*", ".")) else text
    found = leading(start, zone, now)
    return None if found is None else (found[0], start[found[1] :].lstrip(" "))


def _host(text: str) -> tuple[str | None, str]:
    if forwarded := _FORWARDED.match(text):
        return forwarded[1], text[forwarded.end() :]
    if (device := _ORIGIN.match(text)) and text.startswith("%", device.end()):
        return device[1], text[device.end() :]
    if _TAG.match(text) or not (host := _HOST.match(text)) or text.startswith("%"):
        return None, text
    return host[1], text[host.end() :].removeprefix(": ")


def _tag(text: str) -> tuple[str | None, str | None, str]:
    found = _TAG.match(text)
    return (found[1], found[2] or None, text[found.end() :]) if found else (None, None, text)


# -- both --------------------------------------------------------------------------------------------------------------


def _event(syslog: Fields, header: Fields, timestamp: str | None, message: str) -> Fields:
    event: Fields = {"message": message, "log": {"syslog": syslog | {k: v for k, v in header.items() if v is not None}}}
    if timestamp is not None:
        event["@timestamp"] = timestamp
    if header["hostname"] is not None:
        event["host"] = {"name": header["hostname"]}
    process: Fields = {} if header["appname"] is None else {"name": header["appname"]}
    if header["procid"] is not None and _PID.fullmatch(header["procid"]):
        process["pid"] = int(header["procid"])
    if process:
        event["process"] = process
    return event
