"""Odd events in a batch: what each processor makes of the ordinary ones is what it makes of each alone.

`test_conformance` takes the processors of `CASES`, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import orjson
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.pipeline.intake.chain import MOST_FAILURES, Link
from shipper.plugin import Asyncio, Batch, Condition, Fields, Meters, Part, Processor, Stage, StageContext
from shipper.sdk.conditions import Range
from shipper_plugins.processors.add_fields import AddFields
from shipper_plugins.processors.add_host_metadata import AddHostMetadata
from shipper_plugins.processors.aggregate import Aggregate
from shipper_plugins.processors.convert import Convert
from shipper_plugins.processors.copy import Copy
from shipper_plugins.processors.dedupe import Dedupe
from shipper_plugins.processors.dissect import Dissect
from shipper_plugins.processors.drop import Drop
from shipper_plugins.processors.drop_fields import DropFields
from shipper_plugins.processors.parse import Parse
from shipper_plugins.processors.redact import Redact
from shipper_plugins.processors.rename import Rename
from shipper_plugins.processors.route import Case, Route
from shipper_plugins.processors.throttle import Throttle
from shipper_plugins.processors.timestamp import Timestamp
from tests.examples import examples


class Trial(NamedTuple):
    processor: Processor
    text: str
    """What the field that it reads has in an ordinary event; `@` is the mark of the event."""


ACCESS = '10.0.0.1 - - [17/May/2026:12:34:56 +0200] "GET /@ HTTP/1.1" 200 153 "-" "curl"'
LAYOUTS = ("2006-01-02T15:04:05Z07:00", "Jan _2 15:04:05", "UNIX", "UNIX_MS")
CASES = {
    "add_fields": Trial(AddFields(fields={"a.x": 1, "tags": ["t"]}), "@"),
    "add_host_metadata": Trial(AddHostMetadata(), "@"),
    "aggregate": Trial(Aggregate(group_by=("message",), fields={"a.message": "last", "n": "sum"}), "@"),
    "convert": Trial(Convert(fields={"message": "string", "n": "integer", "at": "ip"}), "@"),
    "convert to a float": Trial(Convert(fields={"n": "float"}), "@"),
    "copy": Trial(Copy(fields={"message": "a.b.c.d"}), "@"),
    "dedupe": Trial(Dedupe(), "@"),
    "dissect": Trial(Dissect(tokenizer="%{a}-%{b|integer}"), "@-7"),
    "drop": Trial(Drop(when=Condition(equals={"message": "no"})), "@"),
    "drop_fields": Trial(DropFields(fields=("n", "message.x")), "@"),
    "parse json": Trial(Parse(format="json"), '{"mark":"@","log":{"level":"info"}}'),
    "parse json below": Trial(Parse(format="json", target="app"), '{"mark":"@"}'),
    "parse nginx": Trial(Parse(format="nginx", dashboards=True), ACCESS),
    "parse apache": Trial(Parse(format="apache"), ACCESS),
    "parse syslog": Trial(Parse(format="syslog"), "<34>May 17 12:34:56 web-1 su[23]: @"),
    "parse cri": Trial(Parse(format="cri"), "2026-05-17T12:34:56Z stdout F @"),
    "parse kv": Trial(Parse(format="kv"), "mark=@ level=info"),
    "parse csv": Trial(Parse(format="csv", columns=("mark", "b")), "@,7"),
    "parse regex": Trial(Parse(format="regex", pattern=r"(?P<mark>\S+) b"), "@ b"),
    "redact": Trial(Redact(patterns=(r"secret=\w+",)), "@ secret=x"),
    "rename": Trial(Rename(fields={"message": "a.b.c.d"}), "@"),
    "route": Trial(Route(routes=(Case(Condition(range={"n": Range(gt=3)}), ("a",)),)), "@"),
    "throttle": Trial(Throttle(rate=1e6, fields=("message", "n")), "@"),
    "timestamp": Trial(Timestamp(field="at", layouts=LAYOUTS, target_field="a.time"), "@"),
    "timestamp of the event": Trial(Timestamp(field="at", layouts=LAYOUTS), "@"),
}


def deep(levels: int) -> Any:
    return orjson.loads("[" * levels + "]" * levels)


TIMES = ("0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00", "Feb 29 00:00:00", 1e300, -1, "1e999", "NaN")
VALUES = (*TIMES, "", "\x7f", "\n", "{", '{"a":[1', "@,7", None, True, 1.5, (1 << 64) - 1, -(1 << 63), "9" * 500)
ODD: list[Any] = [*VALUES, [], {}, [{}, 1], {"x": {"y": 1}}, deep(100), deep(250), "[" * 240 + "]" * 240]
AT = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "no time", None, 5)
odd_events = st.fixed_dictionaries(
    {},
    optional={
        "message": st.sampled_from(ODD),
        "at": st.sampled_from(ODD),
        "n": st.sampled_from(ODD),
        "@timestamp": st.sampled_from(AT),
        **{name: st.sampled_from(ODD) for name in ("a", "log", "host", "tags", "error", "event", "labels", "http")},
        "a.b": st.sampled_from(ODD),
        "raw": st.binary(max_size=2),
    },
)


def ordinary(case: Trial, mark: str) -> Fields:
    text = case.text.replace("@", mark)
    return {"message": text, "at": "May 17 12:34:56", "n": int(mark[1:]), "a": {"message": mark}}


def made_of(case: Trial, batch: Batch) -> list[Fields]:
    """What goes on of a batch, with what a stage holds, by its place in the shipper's own chain."""
    stage = trio.run(_opened, case.processor) if case.processor.is_stage else None
    link = Link(case.processor, Meters(), "", stage)
    parts = [*link.on(Part(batch), iter(range(MOST_FAILURES))), *link.flush(lambda batch: batch)]
    return [{**event, "to": part.outputs} for part in parts for event in part.batch.whole()]


async def _opened(processor: Processor) -> Stage:
    context = StageContext("in", cast(Asyncio, None), Meters(), lambda: 1000.0)
    async with processor.open(context) as stage:
        return stage


@settings(max_examples=examples(0.2))
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@given(mix=st.lists(st.one_of(st.none(), odd_events), min_size=2, max_size=6), with_time=st.booleans())
def test_an_ordinary_event_comes_out_of_a_mixed_batch_as_it_does_alone(
    case: Trial, mix: list[Fields | None], with_time: bool
) -> None:
    shared: Fields = {"@timestamp": "2026-06-01T00:00:00.000Z", "log": {"file": {"path": "x"}}} if with_time else {}
    events = [ordinary(case, f"m{at}000") | (odd or {}) for at, odd in enumerate(mix)]
    made = made_of(case, Batch.events(events, shared=shared))

    for at, odd in enumerate(mix):
        if odd is None:
            for event in made_of(case, Batch.events([events[at]], shared=shared)):
                assert event in made


LINES = [text for text in VALUES if isinstance(text, str) and "\n" not in text]


@settings(max_examples=examples(0.2))
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@given(mix=st.lists(st.one_of(st.none(), st.sampled_from([*LINES, "[" * 240])), min_size=2, max_size=6))
def test_an_ordinary_line_comes_out_of_a_mixed_batch_as_it_does_alone(case: Trial, mix: list[str | None]) -> None:
    texts = [case.text.replace("@", f"m{at}000") if odd is None else odd for at, odd in enumerate(mix)]
    made = made_of(case, Batch.lines("".join(f"{text}\n" for text in texts).encode(), offset=0, shared={}))

    for at, odd in enumerate(mix):
        if odd is None:
            offset = sum(len(text.encode()) + 1 for text in texts[:at])
            for event in made_of(case, Batch.lines(f"{texts[at]}\n".encode(), offset=offset, shared={})):
                assert event in made
