"""Processors with a condition."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.pipeline.intake.chain import Chain, Link
from shipper.pipeline.tap import Taps
from shipper.plugin import Batch, Condition, Fields, Meters, Part, Processor, Stage
from shipper.sdk.fields import look_up, merged
from shipper_plugins.processors.add_fields import AddFields
from shipper_plugins.processors.convert import Convert
from shipper_plugins.processors.drop import Drop
from shipper_plugins.processors.rename import Rename

BAD = Condition(equals={"level": "bad"})


class Halve(Processor, frozen=True):
    """Each half to one output."""

    def process(self, batch: Batch) -> Sequence[Part]:
        return [Part(batch.pick([at]), frozenset({"ab"[at % 2]})) for at in range(batch.count)]


class Anew(Processor, frozen=True):
    """Makes a batch of its own, whose events have no places."""

    def process(self, batch: Batch) -> Batch:
        return Batch.events([{**event, "new": True} for event in batch.whole()])


class Same(Stage):
    """Passes on what it gets."""

    def process(self, part: Part) -> Sequence[Part]:
        return [part]


def on(processor: Processor, batch: Batch, stage: Stage | None = None) -> list[Part]:
    return Chain(("a", "b"), [Link(processor, Meters(), "point", stage)]).on(batch, Taps())


def levels(*given: str, **shared: Fields) -> Batch:
    return Batch.events([{"n": n, "level": level} for n, level in enumerate(given)], shared=shared)


def test_only_events_that_meet_the_condition_are_processed_and_all_keep_their_places() -> None:
    batch = levels("good", "bad", "good", "bad").with_columns(timestamps=[1, 2, 3, 4], ids=["a", None, "c", None])
    (part,) = on(AddFields(fields={"marked": True}, when=BAD), batch)

    assert [(event["n"], "marked" in event) for event in part.batch.whole()] == [
        (0, False),
        (1, True),
        (2, False),
        (3, True),
    ]
    assert (part.batch.timestamps, part.batch.items) == ((1, 2, 3, 4), [0, 1, 2, 3])
    assert part.batch.ids == ("a", None, "c", None)


@pytest.mark.parametrize(("levels_", "changed"), [(("good", "good"), False), (("bad", "bad"), True)])
def test_a_batch_of_which_all_or_none_meet_it_is_not_taken_apart(levels_: tuple[str, ...], changed: bool) -> None:
    batch = levels(*levels_)
    (part,) = on(AddFields(fields={"marked": True}, when=BAD), batch)

    assert part.batch.body is batch.body
    assert bool(part.batch.shared) is changed


def test_dropped_events_leave_the_others_in_order() -> None:
    (part,) = on(Drop(when=BAD), levels("good", "bad", "good", host={"name": "web"}))

    assert [event["n"] for event in part.batch.whole()] == [0, 2]
    assert part.batch.shared == {"host": {"name": "web"}}
    assert on(Drop(when=BAD), levels("bad", "bad")) == []


def test_a_shared_field_that_some_events_lose_becomes_one_of_the_others() -> None:
    batch = levels("good", "bad", host={"name": "web"}, agent={"type": "x"})
    (part,) = on(Rename(fields={"host.name": "host.hostname"}, when=BAD), batch)

    assert [event["host"] for event in part.batch.whole()] == [{"name": "web"}, {"hostname": "web"}]
    assert part.batch.shared == {"agent": {"type": "x"}}


def test_lines_of_text_are_processed_by_condition() -> None:
    lines = Batch.lines(b"1\nx\n2\n", offset=0, shared={"log": {"file": {"path": "/a"}}})
    (part,) = on(Convert(fields={"message": "integer"}, when=Condition(regexp={"message": "^[0-9]+$"})), lines)

    assert [event["message"] for event in part.batch.whole()] == [1, "x", 2]
    assert [event["log"] for event in part.batch.whole()] == [
        {"file": {"path": "/a"}, "offset": offset} for offset in (0, 2, 4)
    ]


def test_events_beside_several_parts_are_a_part_of_their_own() -> None:
    made = on(Halve(when=BAD), levels("good", "bad", "bad"))

    assert [([event["n"] for event in part.batch.whole()], part.outputs) for part in made] == [
        ([0], None),
        ([1], frozenset({"a"})),
        ([2], frozenset({"b"})),
    ]


def test_no_event_is_lost_of_a_processor_that_makes_a_batch_of_its_own() -> None:
    made = on(Anew(when=BAD), levels("good", "bad", "bad"))

    assert [(event["n"], "new" in event) for part in made for event in part.batch.whole()] == [
        (0, False),
        (1, True),
        (2, True),
    ]


def test_a_stage_sees_only_events_that_meet_its_condition() -> None:
    made = on(AddFields(fields={"x": 1}, when=BAD), levels("good", "bad", "good"), Same())

    assert [[event["n"] for event in part.batch.whole()] for part in made] == [[0, 2], [1]]


def test_an_event_that_fails_under_a_condition_is_the_only_one_that_is_tagged() -> None:
    (part,) = on(Convert(fields={"level": "integer"}, when=BAD), levels("good", "bad"))

    assert ["tags" in event for event in part.batch.whole()] == [False, True]


def test_a_regular_expression_in_a_condition_keeps_the_chain_out_of_the_main_thread() -> None:
    fast, slow = AddFields(fields={"x": 1}, when=BAD), AddFields(fields={"x": 1}, when=Condition(regexp={"m": "a"}))

    assert [Chain((), [Link(one, Meters(), "point")]).is_slow for one in (fast, slow)] == [False, True]


small = st.one_of(st.integers(0, 2), st.text("ab", max_size=2))
fields = st.dictionaries(st.sampled_from(["level", "x", "y"]), small, max_size=3)


@given(st.lists(fields, max_size=6), st.dictionaries(st.sampled_from(["x", "z"]), small), st.booleans(), small)
def test_any_batch_is_as_if_each_event_had_been_looked_at_alone(
    own: list[Fields], shared: Fields, typed: bool, wanted: int | str
) -> None:
    make = Batch.typed if typed else Batch.events
    when, processor = Condition(equals={"x": wanted}), AddFields(fields={"y": "new", "z": 7})
    batch = make(own, shared=shared)
    parts = on(AddFields(fields=processor.fields, when=when), batch)
    expected = [
        merged(event, {"y": "new", "z": 7}) if when.test()(look_up(event, {})) else event for event in batch.whole()
    ]

    assert [event for part in parts for event in part.batch.whole()] == expected
    assert [item for part in parts for item in part.batch.items or range(part.batch.count)] == list(range(len(own)))
