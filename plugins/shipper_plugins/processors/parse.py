r"""`parse`: turns a text into fields.

    {type: parse, format: nginx, dashboards: true}
    {type: parse, format: json, field: message, target: app}
    {type: parse, format: kv}
    {type: parse, format: csv, columns: [time, user.name, "", amount], separator: ";"}
    {type: parse, format: regex, pattern: '^(?P<level>[A-Z]+) \[(?P<thread>[^\]]*)\]'}

- `json`: the fields of the object become fields of the event (or of `target`) and replace those of the same name; the
  text is removed. Dotted names are nested ones. A value of the wrong shape (`{"host": "web-1"}`, where `host` is a
  group), or one that is not allowed (`data_stream`: the logged application writes the text, so it must not choose the
  destination), becomes a label: `formats.json_lines` has the rule.
- `nginx`, `apache`: the access log (combined; of Apache also common and vhost_combined) and the error log become ECS
  fields; `message` is kept. A line may begin with the virtual host, and have a list of addresses (X-Forwarded-For): the
  first that is not private is the client, as in Filebeat. The error log has no time zone: its times count as local ones
  of this host. Escapes are decoded. With `dashboards` each event has the fields of Kibana's stock dashboards too: see
  `dashboards`.
- `syslog`: a line of a syslog file, or a message as it is sent; its message replaces the text: see `formats.syslog`.
- `cri`: a line of a container's log, of CRI or of Docker; what the container wrote replaces the text, and the parts of
  a divided line become one event: see `formats.containers`.
- `kv`: pairs of keys and values (`level=info msg="it works"`): see `formats.kv`.
- `csv`: separated values (RFC 4180), with the names in `columns`: see `formats.csv`.
- `regex`: the named groups of a regular expression in the syntax of RE2, which takes linear time. It is searched for
  anywhere in the text, unless it begins with `^`. A text of more than 64 KiB is not searched.

The values of `kv`, `csv` and `regex` are texts (`convert` changes them) and get their places by the rule of `json`; the
text is kept, unless one of them is a `message`. Empty values are left out, as an index of numbers would refuse them.

An event that does not parse stays unchanged, and is tagged with the error.

Speed: text lines without misfits are converted in runs, with one call of the writer for each: 1.3 µs a line of 195
bytes and 8 fields, 2.3 with groups in it, 3.2 with the dotted names of ECS; read one by one, 20 µs. To parse a whole
body as one array is no faster, and hostile lines (`{"a":[1`, `2]}`, `{},{}`) could move fields from one event to
another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import tzinfo
from functools import lru_cache, partial
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from shipper.plugin import BadOption, Batch, Fields, Processor, Stage, StageContext, tagged
from shipper.sdk.editing import attempt
from shipper.sdk.fields import check_name, find, look_up, merged, without
from shipper.sdk.patterns import check_groups, grouper
from shipper_plugins.processors.formats import (
    access,
    apache,
    containers,
    csv,
    dashboards,
    json_lines,
    json_runs,
    kv,
    nginx,
    syslog,
)
from shipper_plugins.syslog.time import zone_of

LONGEST_SEARCHED = 64 << 10
"""Bytes of a text that `regex` searches."""

_Read = Callable[[Sequence[bytes]], Sequence[Fields | None]]


class Parse(Processor, frozen=True):
    """Turns a text into fields."""

    keeps: ClassVar[str] = (
        "with format `cri`, the parts of divided lines, about 16 MiB of them and for 5 s. At either limit what is "
        "there becomes an event with `log.flags: [partial]`. No event is lost with them, since lines are acknowledged "
        "only afterwards."
    )

    format: Literal["json", "nginx", "apache", "syslog", "cri", "kv", "csv", "regex"]
    """The format of the text."""
    field: str = "message"
    """The (dotted) name of the field that holds the text."""
    target: str | None = None
    """With `json`, `kv`, `csv` and `regex`: the (dotted) name of the field below which to put the fields (default: the
    event itself)."""
    dashboards: bool = False
    """With `nginx` and `apache`: add the fields of Kibana's stock dashboards, such as `url.path`, `user_agent.name` and
    `event.outcome`."""
    timezone: str = "local"
    """With `syslog`: the zone of times without one, such as `Europe/Berlin` or `+02:00`; `local`: this host's."""
    field_split: str = " "
    """With `kv`: what ends a pair, beside the end of a line."""
    value_split: str = "="
    """With `kv`: what is between a key and its value."""
    columns: Annotated[tuple[str, ...], msgspec.Meta(max_length=1000)] = ()
    """With `csv`: the (dotted) name of each column; the column of an empty name is skipped."""
    separator: str = ","
    """With `csv`: the character between two values."""
    pattern: str = ""
    """With `regex`: the regular expression (RE2: no look-around); each group with a name, `(?P<name>…)`, becomes a
    field."""

    def __post_init__(self) -> None:
        for option, formats in _OPTIONS.items():
            if self.format not in formats and getattr(self, option) != _DEFAULTS[option]:
                raise BadOption(f"only format {' or '.join(formats)} has a {option}", option)
        for option, name in (("field", self.field), ("target", self.target)):
            if name is not None:
                check_name(name, option)
        if check := _CHECKS.get(self.format):
            check(self)

    def process(self, batch: Batch) -> Batch:
        """Returns the batch with the fields of each event that parses."""
        if self.field == "message" and (batch.is_lines or self.format in _SERVERS):
            with suppress(ValueError, TypeError, RecursionError), attempt():
                return self._at_once(batch)
        shape = json_lines.shape(batch.shared)
        if not batch.is_lines and "." not in self.field and self.format in _OF_OBJECTS:
            with suppress(ValueError, TypeError, RecursionError), attempt():
                return json_runs.of_documents(batch, shape, self.field, self.target, self._reading(shape))
        return batch.replace([self._parsed(event, shape) for event in batch.own()])

    @property
    def is_stage(self) -> bool:
        """Whether parts of lines are held."""
        return self.format == "cri"

    @asynccontextmanager
    async def open(self, context: StageContext) -> AsyncIterator[Stage]:
        """Acquires nothing."""
        yield containers.Containers(self.field, context)

    @property
    def is_slow(self) -> bool:
        """A large expression over long lines takes seconds, in which RE2 lets other threads run; so does loading the
        patterns of agents."""
        return self.format == "regex" or self.dashboards

    def _at_once(self, batch: Batch) -> Batch:
        if server := _SERVERS.get(self.format):
            service = self.format if self.dashboards else None
            return access.at_once(batch, server.ORDINARY, lambda event: self._parsed(event, batch.shared), service)
        if self.format == "syslog":
            return syslog.at_once(batch, lambda event: self._parsed(event, batch.shared), _zone(self.timezone))
        shape = json_lines.shape(batch.shared)
        return json_runs.at_once(batch, shape, self.target, self._reading(shape))

    def _reading(self, shape: Fields) -> json_runs.Reading | None:
        if self.format == "json":
            return None
        return json_runs.Reading(self._read(), lambda event: self._parsed(event, shape))

    def _parsed(self, event: Fields, shape: Fields) -> Fields:
        text = find(event, self.field)
        text = text if text is not None else find(shape, self.field)
        if not isinstance(text, str):
            return tagged(event, f"parse: there is no text in {self.field}", shape)
        try:
            if self.format == "json":
                return json_lines.fields(without(event, self.field), shape, text, self.target)
            if server := _SERVERS.get(self.format):
                kind, made = server.read(text)
                if self.dashboards:
                    made = dashboards.added(made, kind, self.format, look_up(event, shape)("@timestamp"))
                return merged(event, made)
            if self.format == "syslog":
                before = look_up(event, shape)("@timestamp")
                return syslog.read(without(event, self.field), text, _zone(self.timezone), before)
            (made,) = self._read()([text.encode(errors="replace")])
            if made is None:
                raise ValueError(_NOTHING[self.format])
            return json_lines.placed(event, shape, made, self.target)
        except ValueError as error:
            return tagged(event, f"parse: {error}", shape)

    def _read(self) -> _Read:
        """Returns the reading of a format of texts."""
        if self.format == "kv":
            return partial(kv.read, field_split=self.field_split, value_split=self.value_split)
        if self.format == "csv":
            return partial(csv.read, columns=self.columns, separator=self.separator)
        return partial(_groups, _grouper(self.pattern))


def _groups(group: Callable[[bytes], dict[str, bytes] | None], lines: Sequence[bytes]) -> list[Fields | None]:
    found = [group(line) if len(line) <= LONGEST_SEARCHED else None for line in lines]
    return [{name: held.decode() for name, held in one.items()} if one else None for one in found]


@lru_cache(maxsize=64)
def _grouper(pattern: str) -> Callable[[bytes], dict[str, bytes] | None]:
    return grouper(pattern)


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo | None:
    return zone_of(name)


# -- options -----------------------------------------------------------------------------------------------------------

_SERVERS: Mapping[str, Any] = {"nginx": nginx, "apache": apache}
_OF_TEXTS = ("kv", "csv", "regex")
_OF_OBJECTS = ("json", *_OF_TEXTS)
_OPTIONS: Mapping[str, Sequence[str]] = {
    "target": _OF_OBJECTS,
    "dashboards": ("nginx", "apache"),
    "timezone": ("syslog",),
    "field_split": ("kv",),
    "value_split": ("kv",),
    "columns": ("csv",),
    "separator": ("csv",),
    "pattern": ("regex",),
}
"""The formats that have an option; all others have it not."""
_DEFAULTS: Mapping[str, Any] = {
    "target": None,
    "dashboards": False,
    "timezone": "local",
    "field_split": " ",
    "value_split": "=",
    "columns": (),
    "separator": ",",
    "pattern": "",
}
_NOTHING = {
    "kv": "the text has no pair of a key and a value",
    "csv": "the text has not one value for each column",
    "regex": "the pattern is not in the text, or its groups are empty",
}


def _check_kv(settings: Parse) -> None:
    for option, text in (("field_split", settings.field_split), ("value_split", settings.value_split)):
        try:
            kv.check_split(text)
        except ValueError as error:
            raise BadOption(str(error), option) from None
    if settings.field_split in settings.value_split or settings.value_split in settings.field_split:
        raise BadOption("it is in field_split, or the other way round: a pair needs two different ones", "value_split")


def _check_csv(settings: Parse) -> None:
    try:
        csv.check_separator(settings.separator)
    except ValueError as error:
        raise BadOption(str(error), "separator") from None
    if not any(settings.columns):
        raise BadOption("name at least one column", "columns")
    for number, name in enumerate(settings.columns):
        if name:
            check_name(name, "columns", number)
        if name and name in settings.columns[:number]:
            raise BadOption("an earlier column has this name", "columns", number)


def _check_regex(settings: Parse) -> None:
    if not settings.pattern:
        raise BadOption("format regex needs a pattern", "pattern")
    check_groups(settings.pattern, "pattern")


def _check_syslog(settings: Parse) -> None:
    try:
        _zone(settings.timezone)
    except ValueError as error:
        raise BadOption(str(error), "timezone") from None


_CHECKS: Mapping[str, Callable[[Parse], None]] = {
    "syslog": _check_syslog,
    "kv": _check_kv,
    "csv": _check_csv,
    "regex": _check_regex,
}
