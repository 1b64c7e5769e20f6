r"""Lines of container logs, for `parse` of `cri`: those of the runtimes of Kubernetes, and those of Docker.

    2026-05-17T12:34:56.789012345Z stdout F text                                      CRI: containerd, CRI-O
    {"log":"text\n","stream":"stdout","time":"2026-05-17T12:34:56.789012345Z"}        Docker's json-file

The text that the container wrote becomes `message`, its time `@timestamp`, and `stream` is `stdout` or `stderr`;
Docker's `attrs`, which are texts, become `docker.attrs`, by the rule of `json_lines`.

A runtime divides a long line: each part but the last has the tag `P`, or no line feed in Docker's text. The parts of
one stream of one file become one event, with the time and the offset of the first. They are held meanwhile, and the
position of the file does not move; after a crash they are read again. If the last part does not come within
`LONGEST_HELD` seconds, or the line gets longer than `LARGEST`, what is there becomes an event with `log.flags:
[partial]`, and so does what follows: nothing is lost.

Lines that `multiline` of the input has joined have a prefix each: their texts are one message, with the time of the
first.

A line that waits too long is let go alone, with the next lines that come, so lines of other containers stay whole. What
is flushed is let go altogether: the position moves over it. So a flush is due when all lines have waited long enough,
or when lines were held without a break for `LONGEST_UNSTORED` seconds.

`at_once` reads the text lines of a batch by columns if none is divided: 2 µs a line of 100 bytes, 3 of Docker. One by
one they take 15 µs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import orjson

from shipper.plugin import Batch, Fields, Part, Stage, StageContext, tagged
from shipper.sdk.columns import encoded
from shipper.sdk.fields import find, look_up, merged, without
from shipper.sdk.table import Cells, Group, Lines, Table
from shipper_plugins.processors.formats import json_lines
from shipper_plugins.processors.instants import are_exact, instant

LONGEST_HELD = 5.0
"""Seconds; a runtime writes the parts of a line as fast as it reads them."""
LONGEST_UNSTORED = 15.0
"""Seconds; meanwhile nothing of the input is stored."""
LARGEST = 1 << 20
"""Characters of a line."""
_MOST = 16 << 20
"""Characters that are held."""

_CRI = re.compile(r"(\S+) (stdout|stderr) ([A-Z])(?::\S*)? (.*)", re.DOTALL)
_WHOLE = re.compile(rb"(?:(\d{4}-\d\d-\d\dT[\d:.]++(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) F ([^\n]*+))?+[^\n]*+\n")
_PREFIX = r"(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)) (%s) F "
_FIRST = re.compile(_PREFIX % "stdout|stderr", re.ASCII)
_NEXT = re.compile("\n" + _PREFIX % "?:stdout|stderr", re.ASCII)
_STREAMS = ("stdout", "stderr")
_REPLACED = ("@timestamp", "log")
"""Shared fields that every event replaces by its own."""


class _Line(NamedTuple):
    """What is in a line."""

    time: str
    stream: str
    text: str
    is_whole: bool
    """Whether it is the last part of a line."""
    beside: Fields


# -- a line of any kind ------------------------------------------------------------------------------------------------


def _read(text: str) -> _Line:
    """Returns what is in a line, or in the lines that `multiline` has joined; raises ValueError if the first one is
    neither of CRI nor of Docker."""
    first, *others = text.split("\n")
    line = _read_line(first)
    texts, is_whole = [line.text], line.is_whole
    for other in others:
        text, was_whole, is_whole = other, is_whole, True
        with suppress(ValueError):  # it is another line of what the container wrote
            text, is_whole = _text_of(other)
        texts += ["\n", text] if was_whole else [text]
    return line._replace(text="".join(texts), is_whole=is_whole)


def _text_of(line: str) -> tuple[str, bool]:
    read = _read_line(line)
    return read.text, read.is_whole


def _read_line(text: str) -> _Line:
    if text.startswith("{"):
        return _of_docker(text)
    found = _CRI.fullmatch(text)
    if found is None:
        raise ValueError("the text is no line of a container's log")
    try:
        return _Line(instant(found[1]), found[2], found[4], found[3] != "P", {})
    except ValueError:
        raise ValueError("the time of the line does not exist") from None


def _of_docker(text: str) -> _Line:
    try:
        made = orjson.loads(text)
        log, stream, time = made["log"], made["stream"], instant(made["time"])
    except (ValueError, KeyError, TypeError):
        raise ValueError("the text is no line of Docker's json-file") from None
    if not isinstance(log, str) or stream not in _STREAMS:
        raise ValueError("the text is no line of Docker's json-file")
    attrs = made.get("attrs") or {}
    if type(attrs) is not dict or not all(type(value) is str for value in attrs.values()):
        raise ValueError("the text is no line of Docker's json-file")
    beside: Fields = {"docker": {"attrs": attrs}} if attrs else {}
    return _Line(time, stream, log.removesuffix("\n").removesuffix("\r"), log.endswith("\n"), beside)


def _event(own: Fields, line: _Line, text: str, shared: Fields) -> Fields:
    event = merged(own, {"@timestamp": line.time, "stream": line.stream, "message": text})
    return json_lines.placed(event, json_lines.shape(shared), line.beside, None) if line.beside else event


# -- the lines of a batch ----------------------------------------------------------------------------------------------


def _at_once(batch: Batch) -> Batch:
    """Returns the batch with the fields of its text lines, if no line is divided, and most are of the plain form.

    Raises ValueError otherwise.
    """
    rows = _docker_rows(batch.body) if batch.body.startswith(b"{") else _WHOLE.findall(batch.body)
    others = [place for place, row in enumerate(rows) if not row[0]]
    shared = {key: value for key, value in batch.shared.items() if key not in _REPLACED}
    if len(others) == len(rows) or "stream" in shared:
        raise ValueError("not at once")
    times, streams, texts = zip(*rows, strict=True)
    if not are_exact([time.decode() for time in times if time]):
        raise ValueError("a time has to be rewritten")
    log = {key: value for key, value in batch.shared.items() if key == "log"}
    fields: Group = {
        "@timestamp": Cells(b'"', times, b'"'),
        "stream": Cells(b'"', streams, b'"'),
        **batch.table().below(log).without("message").fields,
        "message": Lines(b"\n".join(texts) + b"\n"),
    }
    return batch.tabled(Table(batch.count, fields, _odd(batch, others, shared)), shared)


def _odd(batch: Batch, places: Sequence[int], shared: Fields) -> dict[int, Fields]:
    """Returns the events of lines without a plain form; `shared` are the fields that the batch will share."""
    own = batch.own() if places else []
    replaced = {key: value for key, value in batch.shared.items() if key in _REPLACED}
    odd = {place: merged(replaced, _alone(own[place], batch.shared)) for place in places}
    if not all(map(shared.keys().isdisjoint, odd.values())):
        raise ValueError("not at once")
    return odd


def _joined_at_once(batch: Batch) -> Batch:
    """Returns the batch with the fields of the `message` of its documents, lines that `multiline` has joined, if all
    of their lines are of the plain form.

    Raises ValueError otherwise.
    """
    table = batch.table()
    messages = table.cells("message")
    if messages is None or table.odd:
        raise ValueError("not at once")
    rows = list(map(_joined, messages.each(table.count, str)))
    if not are_exact([time for times, _, _ in rows for time in times]):
        raise ValueError("a time has to be rewritten")
    fields: Group = {
        **table.without("message").fields,
        "@timestamp": Cells(b'"', [times[0].encode() for times, _, _ in rows], b'"'),
        "stream": Cells(b'"', [stream.encode() for _, stream, _ in rows], b'"'),
        "message": Cells(encoded([text for _, _, text in rows])),
    }
    return batch.tabled(Table(table.count, fields), batch.shared)


def _joined(text: str) -> tuple[list[str], str, str]:
    """Returns the times, the stream and the text of joined lines; raises ValueError if one has not the plain form."""
    first = _FIRST.match(text)
    if first is None:
        raise ValueError("not at once")
    rest = text[first.end() :]
    made, count = _NEXT.subn("\n", rest)
    if count != rest.count("\n"):
        raise ValueError("not at once")
    return [first[1], *_NEXT.findall(rest)], first[2], made


def _docker_rows(body: bytes) -> list[tuple[bytes, bytes, bytes]]:
    rows = []
    for made in map(orjson.loads, body.split(b"\n")[:-1]):
        if type(made) is not dict or made.keys() != {"log", "stream", "time"}:
            raise ValueError("not at once")
        log, stream, time = made["log"], made["stream"], made["time"]
        if (
            type(log) is not str
            or not log
            or log.find("\n") != len(log) - 1
            or stream not in _STREAMS
            or type(time) is not str
        ):
            raise ValueError("not at once")
        rows.append((time.encode(), stream.encode(), log[:-1].removesuffix("\r").encode()))
    return rows


def _alone(own: Fields, shared: Fields) -> Fields:
    """Returns the event of a line without a plain form; raises ValueError for a part of a line."""
    try:
        line = _read(own["message"])
    except ValueError as error:
        return tagged(own, f"parse: {error}", shared)
    if not line.is_whole:
        raise ValueError("not at once")
    return _event(own, line, line.text, shared)


# -- divided lines -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Held:
    """The parts of a line, without the last one."""

    own: Fields
    line: _Line
    """Of the first part."""
    texts: list[str]
    length: int
    since: float
    batch: Batch
    """Of the first part, without events: it has the fields and the route that they share."""
    outputs: frozenset[str] | None

    def event(self, *last: str) -> Fields:
        return _event(self.own, self.line, "".join([*self.texts, *last]), self.batch.shared)

    def partial(self) -> Fields:
        log = look_up(self.own, self.batch.shared)("log")
        flags = log.get("flags") if isinstance(log, dict) else None
        flags = flags if isinstance(flags, list) else []
        return merged(self.event(), {"log": {"flags": [*flags, "partial"]}})

    def part(self) -> Part:
        batch = Batch.events([self.partial()], shared=self.batch.shared)
        return Part(replace(batch, route=self.batch.route), self.outputs)


class Containers(Stage):
    """Joins the parts of lines."""

    def __init__(self, field: str, context: StageContext) -> None:
        self._field, self._now = field, context.now
        self._held: dict[tuple[object, ...], _Held] = {}
        """In the order of their first parts."""
        self._length = 0
        """Characters that are held."""
        self._since = 0.0
        """When the first of the lines came since which some were always held."""

    def process(self, part: Part) -> Sequence[Part]:
        """Returns the events of whole lines, and of those that were held for too long."""
        batch = part.batch
        if self._field == "message" and not self._held:
            with suppress(ValueError):  # it has divided lines, or others than plain ones
                return [Part(_at_once(batch) if batch.is_lines else _joined_at_once(batch), part.outputs)]
        events, positions = [], []
        for position, own in enumerate(batch.own()):
            if (event := self._taken(own, part)) is not None:
                events.append(event)
                positions.append(position)
        made = [Part(batch.replace(events, positions), part.outputs)] if events else []
        return [*made, *self._let_go(part.outputs)]

    def _taken(self, own: Fields, part: Part) -> Fields | None:
        """Returns the event that a line completes; None if more is to come."""
        look = look_up(own, part.batch.shared)
        text = look(self._field)
        if not isinstance(text, str):
            return tagged(own, f"parse: there is no text in {self._field}", part.batch.shared)
        try:
            line = _read(text)
        except ValueError as error:
            return tagged(own, f"parse: {error}", part.batch.shared)
        path = look("log.file.path")
        key = (path if isinstance(path, str) else None, line.stream, part.outputs, part.batch.route)
        held = self._held.get(key)
        if line.is_whole:
            return self._released(key).event(line.text) if held else self._whole(own, line, part)
        if held is None:
            now = self._now()
            self._since = self._since if self._held else now
            empty = replace(part.batch.pick([]), ids=None)
            held = self._held[key] = _Held(self._bare(own), line, [], 0, now, empty, part.outputs)
        held.texts.append(line.text)
        held.length += len(line.text)
        self._length += len(line.text)
        return self._released(key).partial() if held.length > LARGEST else None

    def _let_go(self, outputs: frozenset[str] | None) -> list[Part]:
        """Returns the beginnings of the lines that were held for too long, and of the oldest if too much is held.

        They are those with the outputs of the part that is processed: it may stand for others with none of their own.
        """
        made = []
        now = self._now() if self._held else 0.0
        for key, held in tuple(self._held.items()):
            if held.since + LONGEST_HELD > now and self._length <= _MOST:
                break
            if held.outputs == outputs:
                made.append(self._released(key).part())
        return made

    def _released(self, key: tuple[object, ...]) -> _Held:
        held = self._held.pop(key)
        self._length -= held.length
        return held

    def _whole(self, own: Fields, line: _Line, part: Part) -> Fields:
        return _event(self._bare(own), line, line.text, part.batch.shared)

    def _bare(self, own: Fields) -> Fields:
        return own if find(own, self._field) is None else without(own, self._field)

    @property
    def due(self) -> float | None:
        """When all lines were held for too long, or nothing was stored for too long; at once if too much is held."""
        if not self._held:
            return None
        if self._length > _MOST:
            return self._now()
        youngest = next(reversed(self._held.values()))
        return min(youngest.since + LONGEST_HELD, self._since + LONGEST_UNSTORED)

    def flush(self) -> Sequence[Part]:
        """Returns the beginnings of lines."""
        parts = [held.part() for held in self._held.values()]
        self._held, self._length = {}, 0
        return parts

    def rollback(self) -> None:
        """Forgets all parts: they come again."""
        self._held, self._length = {}, 0
