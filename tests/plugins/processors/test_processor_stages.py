"""`throttle`, `dedupe`, `aggregate` and `route`: what passes, over any chunking, any time and any rollback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import (
    Asyncio,
    BadOption,
    Batch,
    Condition,
    Duration,
    Fields,
    Meters,
    Part,
    Processor,
    Size,
    Stage,
    StageContext,
)
from shipper.testing import check_stage
from shipper_plugins.processors.aggregate import Aggregate
from shipper_plugins.processors.dedupe import Dedupe
from shipper_plugins.processors.route import Case, Route
from shipper_plugins.processors.throttle import Throttle

LINES = Batch.lines(b"a\nb\na\n", offset=0, shared={"host": {"name": "h"}})


class Bench:
    """A stage with a clock that the test sets."""

    def __init__(self, processor: Processor) -> None:
        self.now = 0.0
        self.meters = Meters()
        context = StageContext("in", cast(Asyncio, None), self.meters, lambda: self.now)
        self.stage = trio.run(_opened, processor, context)

    def run(self, *events: Fields, outputs: frozenset[str] | None = None) -> list[Fields]:
        """What goes on of events at once."""
        parts = self.stage.process(Part(Batch.events(events), outputs))
        return [event for part in parts for event in part.batch.whole()]

    def flush(self) -> list[Fields]:
        return [event for part in self.stage.flush() for event in part.batch.whole()]


async def _opened(processor: Processor, context: StageContext) -> Stage:
    async with processor.open(context) as stage:
        return stage


def keyed(keys: Sequence[int]) -> list[Fields]:
    return [{"key": key, "n": n} for n, key in enumerate(keys)]


steps = st.lists(
    st.tuples(st.floats(0, 3), st.lists(st.integers(0, 2), max_size=12), st.booleans()), min_size=1, max_size=12
)
"""Time that passes, keys of events that come, and whether they are stored."""


# -- throttle ----------------------------------------------------------------------------------------------------------


@given(steps, st.floats(0.1, 5), st.integers(1, 5))
def test_throttle_never_passes_more_than_the_rate_and_the_burst(steps: Any, rate: float, burst: int) -> None:
    on = Bench(Throttle(rate=rate, burst=burst, fields=("key",)))
    passed: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for seconds, keys, is_stored in steps:
        on.now += seconds
        went = on.run(*keyed(keys))
        if is_stored:
            on.stage.commit()
            for event in went:
                passed[event["key"]].append(on.now)
        else:
            on.stage.rollback()
            assert on.run(*keyed(keys)) == went
            on.stage.rollback()
    for times in passed.values():
        for first in range(len(times)):
            for last in range(first, len(times)):
                assert last - first + 1 <= rate * (times[last] - times[first]) + burst + 1e-6


def test_throttle_passes_a_burst_and_then_the_rate_and_counts_what_is_over() -> None:
    on = Bench(Throttle(rate=2, burst=3))
    assert len(on.run(*keyed([0] * 10))) == 3
    on.stage.commit()
    on.now += 1
    assert len(on.run(*keyed([0] * 10))) == 2
    on.stage.rollback()

    assert on.meters.numbers() == {"events_over": 7}


def test_throttle_tags_what_is_over_if_asked() -> None:
    on = Bench(Throttle(rate=1, when_over="tag"))

    assert on.run({"tags": ["web"]}, {"tags": ["web"]}) == [{"tags": ["web"]}, {"tags": ["web", "throttled"]}]


def test_throttle_forgets_the_key_that_was_not_seen_for_longest() -> None:
    on = Bench(Throttle(rate=1e-9, burst=1, fields=("key",), max_keys=2))
    for key in (0, 1, 0, 2):
        on.run({"key": key})
        on.stage.commit()

    assert [bool(on.run({"key": key})) for key in (0, 2, 1)] == [False, False, True]


def test_throttle_wants_a_commit_when_it_has_seen_very_many_keys() -> None:
    on = Bench(Throttle(rate=1, fields=("key",), max_keys=2))
    on.run({"key": 0})
    assert on.stage.due is None
    on.run({"key": 1})
    assert on.stage.due is not None
    on.stage.commit()
    assert on.stage.due is None


# -- dedupe ------------------------------------------------------------------------------------------------------------


@given(steps)
def test_dedupe_passes_the_first_of_each_key_in_a_window(steps: Any) -> None:
    on = Bench(Dedupe(fields=("key",), window=Duration(2)))
    passed: dict[int, float] = {}
    for seconds, keys, is_stored in steps:
        on.now += seconds
        here, expected = dict(passed), []
        for n, key in enumerate(keys):
            if key not in here or on.now - here[key] >= 2:
                here[key] = on.now
                expected.append({"key": key, "n": n})
        assert on.run(*keyed(keys)) == expected
        if is_stored:
            passed = here
            on.stage.commit()
        else:
            on.stage.rollback()


def test_dedupe_takes_lines_for_equal_wherever_they_are() -> None:
    on = Bench(Dedupe())
    (part,) = on.stage.process(Part(LINES))

    assert [event["message"] for event in part.batch.whole()] == ["a", "b"]


def test_dedupe_counts_what_it_dropped_once_it_is_stored() -> None:
    on = Bench(Dedupe())
    on.run({"a": 1}, {"a": 1})
    on.stage.rollback()
    on.run({"a": 1}, {"a": 1}, {"a": 1})
    on.stage.commit()

    assert on.meters.numbers() == {"events_dropped": 2}


def test_dedupe_remembers_a_number_of_events() -> None:
    on = Bench(Dedupe(fields=("key",), max_entries=2))
    for key in (0, 1, 2):
        on.run({"key": key})
        on.stage.commit()

    assert [bool(on.run({"key": key})) for key in (2, 1, 0)] == [False, False, True]


# -- aggregate ---------------------------------------------------------------------------------------------------------

events = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from(["a", "b", None]), "bytes": st.integers(-9, 9), "other": st.integers(0, 9)}
    ),
    max_size=30,
)


@given(st.lists(st.tuples(events, st.sampled_from(["go on", "store", "take back"])), max_size=8))
def test_aggregates_add_up_to_what_came_over_any_chunking_and_any_cut(chunks: Any) -> None:
    on = Bench(Aggregate(group_by=("key",), fields={"bytes": "sum", "other": "max"}, count_field="count"))
    pending: list[Fields] = []
    counts, sums, largest = Counter[Any](), Counter[Any](), dict[Any, int]()
    made: list[Fields] = []
    for chunk, then in [*chunks, ([], "store")]:
        assert on.run(*chunk) == []
        pending += chunk
        if then == "take back":
            on.stage.rollback()
            assert on.stage.due is None
            for event in pending:
                on.run(event)
        elif then == "store":
            flushed = on.flush()
            assert len(flushed) == len({event.get("key") for event in flushed})
            made += flushed
            on.stage.commit()
            pending = []
        for event in chunk:
            counts[event["key"]] += 1
            sums[event["key"]] += event["bytes"]
            largest[event["key"]] = max(largest.get(event["key"], 0), event["other"])

    assert counts == _by_key(made, "count")
    assert {key: sums[key] for key in counts} == dict(_by_key(made, "bytes"))
    assert all(max(e["other"] for e in made if e.get("key") == key) == most for key, most in largest.items())


def _by_key(made: list[Fields], name: str) -> Counter[Any]:
    found = Counter[Any]()
    for event in made:
        found[event.get("key")] += event[name]
    return found


def test_an_aggregate_has_the_first_and_the_last_value_and_no_sum_of_texts() -> None:
    merges: dict[str, Any] = {"a": "first", "b": "last", "c": "min", "d": "sum"}
    on = Bench(Aggregate(fields=merges))
    on.run({"a": 1, "b": 1, "c": 2, "d": "text"}, {"a": 2, "b": 2, "c": True}, {"c": 1})

    assert on.flush() == [{"a": 1, "b": 2, "c": 1, "event": {"count": 3}}]


def test_a_window_begins_with_the_first_event() -> None:
    on = Bench(Aggregate(window=Duration(10)))
    assert on.stage.due is None
    on.now = 5
    on.run({"a": 1})
    on.now = 7
    on.run({"a": 1})
    assert on.stage.due == 15
    on.flush()
    assert on.stage.due is None


@pytest.mark.parametrize("bound", [{"max_groups": 3}, {"max_bytes": Size(1200)}])
def test_too_many_groups_end_a_window_early(bound: Any) -> None:
    on = Bench(Aggregate(group_by=("key",), **bound))
    for key in range(3):
        assert on.stage.due != 0.0 or key == 0
        on.now += 1
        on.run({"key": key})

    assert on.stage.due == on.now


def test_events_for_other_outputs_and_targets_are_other_groups() -> None:
    on = Bench(Aggregate())
    on.run({"a": 1}, outputs=frozenset({"x"}))
    on.run({"a": 1}, outputs=frozenset({"y"}))
    on.stage.process(Part(Batch.documents([b"{}"], route="logs-a-b")))
    parts = on.stage.flush()

    assert {(part.outputs, part.batch.route) for part in parts} == {
        (frozenset({"x"}), None),
        (frozenset({"y"}), None),
        (None, "logs-a-b"),
    }


@pytest.mark.parametrize(
    "options",
    [
        {"group_by": ("a",), "fields": {"a": "sum"}},
        {"group_by": ("a", "a.b")},
        {"window": Duration(0)},
        {"fields": {"": "sum"}},
    ],
)
def test_an_aggregate_whose_fields_have_no_place_of_their_own_is_refused(options: Any) -> None:
    with pytest.raises(BadOption):
        Aggregate(**options)


# -- route -------------------------------------------------------------------------------------------------------------


async def test_route_gives_each_event_to_the_outputs_of_the_first_condition_that_it_meets() -> None:
    route = Route(
        routes=(
            Case(when=Condition(equals={"message": "a"}), outputs=("x", "y")),
            Case(when=Condition(has_fields=["message"]), outputs=("z",)),
        )
    )
    parts = await check_stage(route, [LINES])

    assert {part.outputs: [event["message"] for event in part.batch.own()] for part in parts} == {
        frozenset({"x", "y"}): ["a", "a"],
        frozenset({"z"}): ["b"],
    }


async def test_route_leaves_a_batch_whole_that_goes_one_way() -> None:
    parts = await check_stage(Route(routes=(Case(when=Condition(has_fields=["no"]), outputs=("x",)),)), [LINES])

    assert parts == [Part(LINES, None)]


def test_route_names_its_outputs_with_their_places() -> None:
    route = Route(routes=(Case(when=Condition(has_fields=["a"]), outputs=("x", "y")),), default=("z",))

    assert [(list(path), name) for path, name in route.named_outputs()] == [
        (["routes", 0, "outputs", 0], "x"),
        (["routes", 0, "outputs", 1], "y"),
        (["default", 0], "z"),
    ]
