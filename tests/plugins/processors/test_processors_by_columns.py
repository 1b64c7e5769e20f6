"""What processors do by columns is what they do event by event, to the byte (see `shipper.sdk.table`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.pipeline.intake.chain import Link, chained
from shipper.pipeline.tap import Taps
from shipper.plugin import Batch, Condition, Meters, Processor
from shipper.sdk.conditions import Range
from shipper.sdk.table import Unfit
from shipper_plugins.processors.convert import Convert
from shipper_plugins.processors.copy import Copy
from shipper_plugins.processors.dissect import Dissect
from shipper_plugins.processors.drop import Drop
from shipper_plugins.processors.drop_fields import DropFields
from shipper_plugins.processors.parse import Parse
from shipper_plugins.processors.redact import Redact
from shipper_plugins.processors.rename import Rename
from shipper_plugins.processors.route import Case, Route
from shipper_plugins.processors.timestamp import Timestamp

ACCESS = '10.0.0.1 - {} [17/May/2026:12:34:56 +0200] "GET /{} HTTP/1.1" {} 153 "-" "curl"'
NAMES = ("a", "a.b", "a.b.c", "a.c", "b", "message", "log.offset", "log", "d.e", "@timestamp")
TEXTS = ("x", "7", "0x1f", "1-2", "a-é-3", "--", "secret=é", '"\\', "2026-05-17T12:34:56.25Z", "true", "10.0.0.1", "")
SCALARS: list[Any] = [None, True, 7, -1.5, *TEXTS]
values = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(("b", "c", "b.c")), inner, max_size=3),
    max_leaves=4,
)
GROUPS = st.fixed_dictionaries({"b": st.sampled_from(SCALARS)}, optional={"c": st.sampled_from(SCALARS)})
tops = st.sampled_from(("a", "a", "b", "b", "d", "message", "@timestamp", "a.b"))
documents = st.dictionaries(tops, values, max_size=4)
names = st.sampled_from(NAMES)
pairs = st.dictionaries(names, names, min_size=1, max_size=2)
conditions = st.recursive(
    st.builds(lambda name, value: Condition(equals={name: value}), names, st.sampled_from(["x", 7, True]))
    | st.builds(lambda name: Condition(contains={name: "e"}), names)
    | st.builds(lambda name: Condition(regexp={name: "[0-9]"}), names)
    | st.builds(lambda name: Condition(range={name: Range(gte=0)}), names)
    | st.builds(lambda name: Condition(has_fields=[name]), names),
    lambda inner: (
        st.builds(lambda one, two: Condition(and_=[one, two]), inner, inner)
        | st.builds(lambda one, two: Condition(or_=[one, two]), inner, inner)
        | st.builds(lambda one: Condition(not_=one), inner)
    ),
    max_leaves=3,
)
types = st.sampled_from(["integer", "float", "boolean", "string", "ip"])
TOKENIZERS = ("%{a}-%{b}", "%{d.e}-%{}-%{+d.e}", "%{b->}-%{c|integer}", "1%{?x}%{}", "%{a.b} %{c}", "%{a}", "[%{a}]")
LAYOUTS = ("2006-01-02T15:04:05Z07:00", "UNIX", "Jan _2 15:04:05")


@st.composite
def processors(draw: st.DrawFn) -> Processor:
    kind = draw(st.integers(0, 8))
    try:
        if kind == 0:
            return Rename(fields=draw(pairs))
        if kind == 1:
            return Copy(fields=draw(pairs))
        if kind == 2:
            return DropFields(fields=tuple(draw(st.lists(names, min_size=1, max_size=2))))
        if kind == 3:
            return Convert(fields=draw(st.dictionaries(names, types, min_size=1, max_size=2)))
        if kind == 4:
            pattern = draw(st.sampled_from(("secret=.", "[0-9]", "^x$")))
            return Redact(patterns=(pattern,), fields=tuple(draw(st.lists(names, min_size=1, max_size=2))))
        if kind == 5:
            tokenizer, prefix = draw(st.sampled_from(TOKENIZERS)), draw(st.sampled_from(("", "a", "z.y")))
            return Dissect(tokenizer, field=draw(names), target_prefix=prefix, overwrite_keys=draw(st.booleans()))
        if kind == 6:
            target = draw(st.sampled_from(("@timestamp", "a.b", "z")))
            return Timestamp(field=draw(names), layouts=LAYOUTS, target_field=target)
        if kind == 7:
            return Drop(when=draw(conditions))
        return Route(routes=(Case(draw(conditions), ("x",)), Case(draw(conditions), ("y",))), default=("x",))
    except ValueError:
        return Drop(when=draw(conditions))


@st.composite
def of_documents(draw: st.DrawFn) -> Batch:
    alike = draw(st.dictionaries(tops, st.sampled_from((st.sampled_from(SCALARS), GROUPS, values)), min_size=1))
    rows = [
        {name: draw(value) for name, value in alike.items() if draw(st.integers(0, 5))}
        if draw(st.integers(0, 9))
        else {}
        for _ in range(draw(st.integers(1, 7)))
    ]
    rows += draw(st.lists(documents, max_size=1))
    own = set[str]().union(*rows)
    shared = {key: value for key, value in draw(documents).items() if key not in own}
    return Batch.events(rows, shared=shared)


@st.composite
def of_lines(draw: st.DrawFn) -> Batch:
    texts = draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=7))
    log = draw(st.sampled_from([{}, {"log": {}}, {"log": {"file": {"path": "/x"}}}, {"log": {"file.path": "/x"}}]))
    shared = {key: value for key, value in draw(documents).items() if key != "message"}
    return Batch.lines("".join([f"{text}\n" for text in texts]).encode(), offset=7, shared=shared | log)


@st.composite
def of_parsed(draw: st.DrawFn) -> Batch:
    lines = [
        ACCESS.format(*[draw(st.sampled_from(some)) for some in (("-", "ann"), "abc", (200, 404))])
        if draw(st.integers(0, 4))
        else draw(st.sampled_from(TEXTS))
        for _ in range(draw(st.integers(1, 6)))
    ]
    batch = Batch.lines("".join([f"{line}\n" for line in lines]).encode(), offset=0, shared={"agent": {"name": "x"}})
    return Parse(format="nginx").process(batch)


OF_PARSED = (
    "http.response.status_code",
    "url.original",
    "source",
    "user.name",
    "http.version",
    "message",
    "agent.name",
)


@contextmanager
def event_by_event() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:

        def table(self: Batch) -> Any:
            raise Unfit

        patched.setattr(Batch, "table", table)
        yield


def through(batch: Batch, those: Sequence[Processor]) -> list[tuple[Any, ...]]:
    chain = chained(["x", "y"], those, {}, lambda output, number, one: Link(one, Meters(), "x"))
    made = []
    for part in chain.on(batch, Taps()):
        outputs = None if part.outputs is None else sorted(part.outputs)
        made.append((part.batch.json_lines(), list(part.batch.items or range(part.batch.count)), outputs))
    return made


def check(batch: Batch, those: Sequence[Processor]) -> None:
    made = through(batch, those)
    with event_by_event():
        expected = through(batch.written(), those)

    assert expected == made


@given(of_documents() | of_lines(), st.lists(processors(), min_size=1, max_size=3))
def test_a_chain_makes_the_same_of_events_by_columns(batch: Batch, those: list[Processor]) -> None:
    check(batch, those)


@given(of_parsed(), st.data())
def test_a_chain_makes_the_same_of_what_a_parser_has_found(batch: Batch, data: st.DataObject) -> None:
    field, other = data.draw(st.sampled_from(OF_PARSED)), data.draw(st.sampled_from((*OF_PARSED, "n.m")))
    ways: list[Processor] = [
        DropFields(fields=(field, other)),
        Convert(fields={field: "string", other: "integer"}),
        Drop(when=Condition(equals={field: 404})),
        Drop(when=Condition(has_fields=[field])),
        Redact(patterns=("a",), fields=(field, other)),
        Dissect(tokenizer="%{}.%{n.m}.%{p|integer}.%{}", field="source.ip", target_prefix=""),
        *([] if field == other else [Rename(fields={field: other}), Copy(fields={field: other})]),
    ]
    check(batch, data.draw(st.lists(st.sampled_from(ways), min_size=1, max_size=3)))
