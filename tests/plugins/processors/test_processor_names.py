"""`rename`, `copy` and `drop_fields`."""

from typing import Any

import pytest

from shipper.plugin import BadOption, Batch, Fields
from shipper.testing import check_processor
from shipper_plugins.processors.copy import Copy
from shipper_plugins.processors.drop_fields import DropFields
from shipper_plugins.processors.rename import Rename

SHARED: Fields = {"@timestamp": "2026-01-01T00:00:00.000Z", "host": {"name": "web-1"}, "log": {"file": {"path": "/a"}}}
EVENT: Fields = {"msg": "hello", "user": {"id": 7}, "http.method": "GET"}


def once(processor: Any, event: Fields = EVENT, shared: Fields = SHARED) -> Fields:
    (made,) = check_processor(processor, Batch.events([event], shared=shared)).whole()
    return made


def test_a_field_gets_another_name() -> None:
    made = once(Rename(fields={"msg": "message", "user.id": "client.user.id", "http.method": "http.request.method"}))

    assert made == SHARED | {
        "message": "hello",
        "client": {"user": {"id": 7}},
        "http": {"request": {"method": "GET"}},
    }


def test_a_shared_field_gets_another_name_in_all_events() -> None:
    made = check_processor(
        Rename(fields={"host.name": "host.hostname"}), Batch.lines(b"a\nb\n", offset=0, shared=SHARED)
    )

    assert [event["host"] for event in made.whole()] == [{"hostname": "web-1"}] * 2


def test_a_field_that_is_absent_is_passed_over() -> None:
    assert once(Rename(fields={"absent": "other", "msg": "message"}))["message"] == "hello"


def test_a_name_that_is_taken_leaves_the_event_as_it_is() -> None:
    made = once(Rename(fields={"msg": "text", "user.id": "host.name"}))

    assert made["error"] == {"message": "rename: the event has host.name already"}
    assert made["msg"] == "hello"
    assert made["user"] == {"id": 7}


def test_a_copy_leaves_the_field() -> None:
    made = once(Copy(fields={"msg": "event.original", "host.name": "host.hostname"}))

    assert (made["msg"], made["event"]) == ("hello", {"original": "hello"})
    assert made["host"] == {"name": "web-1", "hostname": "web-1"}


def test_a_copy_onto_a_field_leaves_the_event_as_it_is() -> None:
    assert once(Copy(fields={"msg": "user.id"}))["user"] == {"id": 7}


def test_fields_and_groups_are_removed() -> None:
    made = once(DropFields(fields=("user", "http.method", "host.name", "absent.field")))

    assert made == {"@timestamp": SHARED["@timestamp"], "log": SHARED["log"], "msg": "hello"}


def test_what_each_line_has_of_its_own_is_removed() -> None:
    made = check_processor(DropFields(fields=("log.offset",)), Batch.lines(b"a\nb\n", offset=0, shared=SHARED))

    assert [event["log"] for event in made.whole()] == [{"file": {"path": "/a"}}] * 2


@pytest.mark.parametrize("name", ["@timestamp", "data_stream", "data_stream.type"])
def test_what_every_event_must_have_stays(name: str) -> None:
    with pytest.raises(BadOption, match="cannot be removed"):
        DropFields(fields=(name,))
    with pytest.raises(BadOption, match="cannot be removed"):
        Rename(fields={name: "other"})


@pytest.mark.parametrize(
    ("event", "left"),
    [
        ({"url.query": 1, "url": {"query": 2}}, {}),
        ({"url": {"query": 1, "path": 2}, "url.query": 3}, {"url": {"path": 2}}),
        ({"url": {"query.a": 1, "query": {"b": 2}}, "url.query.c": 3}, {}),
        ({"url": [{"query": 1, "path": 2}, {"query": 3}]}, {"url": [{"path": 2}, {}]}),
    ],
)
@pytest.mark.parametrize("is_shared", [False, True])
def test_a_field_is_dropped_in_each_of_its_spellings(event: Fields, left: Fields, is_shared: bool) -> None:
    batch = Batch.events([{"n": 1}], shared=event) if is_shared else Batch.events([{"n": 1, **event}])

    assert check_processor(DropFields(fields=("url.query",)), batch).whole() == [{"n": 1, **left}]
