"""Batches of every kind, drawn, and views of them that can be compared."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import orjson
from hypothesis import strategies as st

from shipper.sdk.event import Batch

ORIGIN = bytes(range(16))

# The sentinel, line ends that are none of ours, quotes, control characters, and what is wider than a byte.
TEXTS = st.text(st.sampled_from('ab"\\\r\t\x00\x1f\x7f\u0085\u2028\ue000é漢🎉'), max_size=12) | st.text(
    st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=20
)
KEYS = st.sampled_from(["a", "b", "c", "log", "host", "tags", "é"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.dictionaries(KEYS, VALUES, max_size=4)
SHARED_OF_LINES = st.fixed_dictionaries(
    {},
    optional={
        "host": VALUES,
        "a": VALUES,
        "log": st.fixed_dictionaries({}, optional={"file": st.fixed_dictionaries({"path": TEXTS}), "é": VALUES}),
    },
)


@st.composite
def line_batches(draw: st.DrawFn) -> Batch:
    lines = draw(st.lists(TEXTS, min_size=1, max_size=8))
    text = "".join(line + "\n" for line in lines).encode()
    offset, gap = draw(st.integers(0, 2**60)), draw(st.sampled_from([1, 2]))
    return stored(Batch.lines(text, offset=offset, gap=gap, shared=draw(SHARED_OF_LINES)))


@st.composite
def document_batches(draw: st.DrawFn) -> Batch:
    events = draw(st.lists(FIELDS, max_size=8))
    ids = draw(st.none() | st.lists(st.none() | TEXTS, min_size=len(events), max_size=len(events)))
    used = {key for event in events for key in event}
    shared = {key: value for key, value in draw(FIELDS).items() if key not in used}
    documents = [orjson.dumps(event) for event in events]
    return stored(Batch.documents(documents, shared=shared, ids=ids, route=draw(st.none() | st.just("client"))))


TYPED_VALUES = st.recursive(
    VALUES | st.binary(max_size=6) | st.integers(-(2**63), 2**64 - 1) | st.floats(width=64),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def typed_batches(draw: st.DrawFn) -> Batch:
    events = draw(st.lists(st.dictionaries(KEYS, TYPED_VALUES, max_size=4), max_size=8))
    used = {key for event in events for key in event}
    shared = {key: value for key, value in draw(FIELDS).items() if key not in used}
    return stored(Batch.typed(events, shared=shared))


@st.composite
def with_columns(draw: st.DrawFn, batches: st.SearchStrategy[Batch]) -> Batch:
    """Batches that may have columns beside their bodies."""
    batch = draw(batches)

    def column(values: st.SearchStrategy[Any]) -> list[Any] | None:
        size = batch.count
        return draw(st.none() | st.lists(st.none() | values, min_size=size, max_size=size))

    return batch.with_columns(
        timestamps=column(st.integers(-(2**63), 2**63 - 1)),
        keys=column(st.binary(max_size=4)),
        severities=column(st.integers(0, 24)),
    )


def stored(batch: Batch) -> Batch:
    return replace(batch, origin=ORIGIN, seq=77)


BATCHES = with_columns(line_batches() | document_batches())
ANY_BATCHES = BATCHES | with_columns(typed_batches())


def rows(batch: Batch) -> list[Any]:
    return [json.loads(row) for row in batch.json_lines().split(b"\n")[:-1]]


def ids(batch: Batch) -> list[str]:
    return batch.id_texts()


def exact(value: Any) -> str:
    """Equal for values of the same types, whatever the order of their keys; NaN is itself."""
    if isinstance(value, dict):
        return repr({key: exact(value[key]) for key in sorted(value)})
    return repr([exact(item) for item in value]) if isinstance(value, list) else repr(value)


def columns(batch: Batch) -> list[tuple[Any, ...]]:
    """What each event has beside its fields."""
    beside = (batch.timestamps, batch.keys, batch.severities)
    return list(zip(batch.id_texts(), *(column or [None] * batch.count for column in beside), strict=True))


def some(batch: Batch, data: st.DataObject) -> list[int]:
    return [i for i in range(batch.count) if data.draw(st.booleans())]
