from typing import Any

import pytest

from shipper.plugin import Batch, Fields, edited, tagged
from shipper.sdk.fields import put

LINES = Batch.lines(b"one\ntwo\n", offset=0, shared={"host": {"name": "web"}, "log": {"file": {"path": "/a"}}})


def test_shared_fields_of_lines_are_edited_once_for_all() -> None:
    calls: list[Fields] = []

    def edit(fields: Fields) -> Fields:
        calls.append(fields)
        return put(fields, "host.name", "x")

    changed = edited(LINES, ["host.name"], edit)

    assert len(calls) == 1
    assert changed.body is LINES.body
    assert [event["host"]["name"] for event in changed.whole()] == ["x", "x"]


def test_a_shared_field_that_differs_from_then_on_becomes_one_of_each_event() -> None:
    changed = edited(LINES, ["host.name", "message"], lambda event: put(event, "host.name", event["message"]))

    assert [event["host"]["name"] for event in changed.whole()] == ["one", "two"]
    assert [event["log"]["offset"] for event in changed.whole()] == [0, 4]


def test_an_event_that_cannot_be_edited_stays_and_is_tagged() -> None:
    def edit(event: Fields) -> Fields:
        if event["message"] == "one":
            raise ValueError("no")
        return put(event, "done", True)

    first, second = edited(LINES, ["message", "done"], edit).whole()

    assert (first["message"], first["error"], first["tags"]) == ("one", {"message": "no"}, ["processor_error"])
    assert second["done"] is True


def test_shared_fields_that_cannot_be_edited_leave_each_event_tagged() -> None:
    def refuse(event: Fields) -> Fields:
        raise ValueError("no")

    assert [event["tags"] for event in edited(LINES, ["host"], refuse).whole()] == [["processor_error"]] * 2


@pytest.mark.parametrize(("tags", "expected"), [(None, []), ("x", ["x"]), (["x", "y"], ["x", "y"])])
def test_a_tagged_event_keeps_its_tags_and_says_what_happened(tags: Any, expected: list[str]) -> None:
    event = {"message": "m", "error": {"code": 7}} | ({"tags": tags} if tags is not None else {})

    assert tagged(event, "no JSON") == {
        "message": "m",
        "tags": [*expected, "processor_error"],
        "error": {"code": 7, "message": "no JSON"},
    }
