import orjson
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Batch, Condition
from shipper.sdk.conditions import Range
from shipper.testing import check_processor
from shipper_plugins.processors.drop import Drop


def test_the_other_lines_go_on_with_their_ids() -> None:
    batch = Batch.unpack(Batch.lines(b"a\nb\nc\n", offset=0, shared={"x": 1}).pack(), origin=b"o" * 16, seq=3)

    result = check_processor(Drop(when=Condition(equals={"message": "b"})), batch)

    assert [(event["message"], event["x"]) for event in result.whole()] == [("a", 1), ("c", 1)]
    assert list(result.items or ()) == [0, 2]


def test_what_events_share_is_seen_too() -> None:
    batch = Batch.lines(b"a\nb\n", offset=0, shared={"service": {"name": "shop"}})

    assert check_processor(Drop(when=Condition(equals={"service.name": "shop"})), batch).count == 0


def test_a_batch_of_which_nothing_is_dropped_is_untouched() -> None:
    batch = Batch.lines(b"a\nb\n", offset=0, shared={})

    assert check_processor(Drop(when=Condition(equals={"message": "c"})), batch) is batch


@given(st.lists(st.integers(0, 9)), st.integers(0, 9))
def test_exactly_the_events_that_meet_the_condition_go(numbers: list[int], limit: int) -> None:
    batch = Batch.documents([orjson.dumps({"n": n}) for n in numbers])
    result = check_processor(Drop(when=Condition(range={"n": Range(lt=limit)})), batch)

    assert [event["n"] for event in result.whole()] == [n for n in numbers if n >= limit]
