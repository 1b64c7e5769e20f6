"""Indices and pipelines of events by condition, and the requests that name them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Batch, Condition
from shipper_plugins.elasticsearch.client import encoding
from shipper_plugins.elasticsearch.client.index_cases import Case, IndexCase
from shipper_plugins.elasticsearch.output import ElasticsearchOutput

AUDIT = Condition(equals={"kind": "audit"})
ERRORS = Condition(has_fields=["error"])
STREAM = {"type": "logs", "dataset": "app", "namespace": "prod"}


def a_batch(*events: Any, shared: Any = None) -> Batch:
    documents = [one if isinstance(one, bytes) else json.dumps(one, separators=(",", ":")).encode() for one in events]
    return replace(Batch.documents(documents, shared=shared), origin=b"0123456789abcdef", seq=1)


def actions(
    batch: Batch, index: str | None = None, limit: int = 1 << 20, **cases: list[Case]
) -> list[tuple[str | None, Any]]:
    """The index of the request and the action of each event."""
    found = []
    for request in encoding.encode(batch, index=index, limit=limit, compression="none", **cases):
        lines = b"".join(request.body).split(b"\n")[:-1]
        assert len(lines) == 2 * request.count
        found += [(request.index, json.loads(line)["create"]) for line in lines[::2]]
    assert [action["_id"] for _, action in found] == batch.id_texts()
    return found


def destinations(batch: Batch, **options: Any) -> list[tuple[str, str | None]]:
    """The index and the pipeline of each event."""
    return [(action.get("_index", index), action.get("pipeline")) for index, action in actions(batch, **options)]


def test_the_first_condition_that_an_event_meets_names_its_index() -> None:
    batch = a_batch({"kind": "audit", "error": 1}, {"error": 1}, {"n": 1}, shared={"data_stream": STREAM})
    indices = [(AUDIT, "audit"), (ERRORS, "errors")]

    assert destinations(batch, indices=indices) == [("audit", None), ("errors", None), ("logs-app-prod", None)]
    assert destinations(batch, index="all", indices=indices) == [("audit", None), ("errors", None), ("all", None)]


def test_events_that_all_meet_one_condition_go_to_its_url() -> None:
    batch = a_batch({"n": 1}, {"n": 2}, shared={"kind": "audit", "data_stream": STREAM})

    assert [(index, action.keys()) for index, action in actions(batch, indices=[(AUDIT, "audit")])] == [
        ("audit", {"_id"}),
        ("audit", {"_id"}),
    ]


def test_an_event_names_a_pipeline_only_if_it_meets_a_condition() -> None:
    batch = a_batch({"kind": "audit"}, {"n": 1}, {"error": {}})
    pipelines = [(AUDIT, 'a"b'), (ERRORS, "errors")]

    assert [name for _, name in destinations(batch, pipelines=pipelines)] == ['a"b', None, "errors"]
    assert all("pipeline" not in action for _, action in actions(a_batch({"n": 1}), pipelines=pipelines))


def test_lines_are_asked_like_documents() -> None:
    batch = replace(Batch.lines(b"one\ntwo\n", offset=0, shared={"data_stream": STREAM}), origin=b"0" * 16)
    two = Condition(contains={"message": "two"})

    assert destinations(batch, indices=[(two, "second")], pipelines=[(two, "p")]) == [
        ("logs-app-prod", None),
        ("second", "p"),
    ]


@given(st.lists(st.sampled_from(["audit", "error", "other"]), max_size=30), st.sampled_from([100, 300, 1 << 20]))
def test_each_event_gets_its_own_however_they_are_mixed_and_split(kinds: list[str], limit: int) -> None:
    batch = a_batch(*({"kind": kind} | ({"error": 1} if kind == "error" else {}) for kind in kinds))
    cases: dict[str, Any] = {"indices": [(AUDIT, "audit")], "pipelines": [(ERRORS, "errors"), (AUDIT, "audits")]}
    expected = {"audit": ("audit", "audits"), "error": ("all", "errors"), "other": ("all", None)}

    assert destinations(batch, index="all", limit=limit, **cases) == [expected[kind] for kind in kinds]


def test_one_document_that_is_no_json_costs_a_few_readings_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    readings, own = [], Batch.own

    def counted(batch: Batch) -> Any:
        readings.append(batch.count)
        return own(batch)

    batch = a_batch(*[{"kind": "audit"}] * 500, b'{"kind":', *[{"kind": "audit"}] * 500)
    monkeypatch.setattr(Batch, "own", counted)

    expected = [("audit", None)] * 500 + [("all", None)] + [("audit", None)] * 500
    assert destinations(batch, index="all", indices=[(AUDIT, "audit")]) == expected
    assert len(readings) < 50


def test_the_places_of_events_are_those_of_the_conditions() -> None:
    """Their indices may be missing or closed each for itself."""
    output = ElasticsearchOutput(hosts=("http://es",), indices=(IndexCase(index="audit", when=AUDIT),))

    assert output.targets(a_batch({"kind": "audit"}, {"n": 1})) == ["audit", "logs-generic-default"]
    assert list(output.targets(a_batch({"n": 1}, {"n": 1}))) == ["logs-generic-default"] * 2
    assert list(output.targets(a_batch())) == []


@pytest.mark.parametrize(
    "options",
    [
        {"indices": (IndexCase(index="é" * 128, when=AUDIT),)},
        {"indices": (IndexCase(index="states", when=AUDIT),), "state_index": "states"},
    ],
)
def test_names_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="index"):
        ElasticsearchOutput(hosts=("http://es",), **options)
