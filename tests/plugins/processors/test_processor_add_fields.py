import orjson
import pytest

from shipper.plugin import BadOption, Batch
from shipper.testing import check_processor
from shipper_plugins.processors.add_fields import AddFields

LINES = Batch.lines(b"one\ntwo\n", offset=0, shared={"log": {"file": {"path": "/a"}}, "service": {"id": "7"}})
DOCUMENTS = Batch.documents([orjson.dumps({"service": {"name": "old", "port": n}}) for n in range(2)])


def test_fields_are_set_in_every_line() -> None:
    result = check_processor(AddFields(fields={"service.name": "shop", "labels": {"team.lead": "x"}}), LINES)

    for event in result.whole():
        assert event["service"] == {"id": "7", "name": "shop"}
        assert event["labels"] == {"team": {"lead": "x"}}


def test_lines_of_text_are_not_looked_at() -> None:
    result = check_processor(AddFields(fields={"service.name": "shop"}), LINES)

    assert result.body is LINES.body


def test_fields_win_over_those_of_a_document() -> None:
    result = check_processor(AddFields(fields={"service.name": "shop"}), DOCUMENTS)

    assert [event["service"] for event in result.whole()] == [{"name": "shop", "port": 0}, {"name": "shop", "port": 1}]


def test_fields_that_make_no_sense_are_refused() -> None:
    for fields in [{}, {"": 1}, {"a..b": 1}, {"a": {"b.": 1}}, {"a": 1, "a.b": 2}, {"a": object()}, {"a": {3: 4}}]:
        with pytest.raises(BadOption) as caught:
            AddFields(fields=fields)

        assert caught.value.at[0] == "fields"
