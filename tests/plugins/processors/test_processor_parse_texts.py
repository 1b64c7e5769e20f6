"""`parse` of key-value pairs, of separated values, and by a regular expression."""

import csv
import io
import json
import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Batch, Fields
from shipper.testing import check_processor
from shipper_plugins.processors.parse import LONGEST_SEARCHED, Parse
from tests.plugins.processors.parsing import assert_as_alone

SHARED: list[Fields] = [
    {},
    {"@timestamp": "2026-01-01T00:00:00.000Z", "log": {"file": {"path": "/a"}}, "data_stream": {"dataset": "x"}},
    {"host": {"name": "h"}, "tags": ["a"], "level": "x", "labels": {"host": "y"}},
]


def of(*texts: str, shared: Fields | None = None, **options: Any) -> list[Fields]:
    batch = Batch.lines("".join(f"{text}\n" for text in texts).encode(), offset=0, shared=shared or {})
    return check_processor(Parse(**options), batch).whole()


def made(event: Fields) -> Fields:
    return {key: value for key, value in event.items() if key not in ("message", "log")}


# -- kv ----------------------------------------------------------------------------------------------------------------


def test_pairs_become_fields_and_the_text_stays() -> None:
    text = r'level=info msg="user \"ann\" é logged in" http.status=200 ms=12'
    (event,) = of(text, format="kv")

    assert event == {
        "message": text,
        "log": {"offset": 0},
        "level": "info",
        "msg": 'user "ann" é logged in',
        "http": {"status": "200"},
        "ms": "12",
    }


def test_what_is_a_pair() -> None:
    for text, pairs in [
        ("a=1 word b=2", {"a": "1", "b": "2"}),
        ("a= b=2", {"b": "2"}),
        ('a="" b=2', {"b": "2"}),
        ("a=1 a=2 a=3", {"a": ["1", "2", "3"]}),
        ("a=1=2", {"a": "1=2"}),
        ('a="b c', {"a": '"b'}),
        ('a="b"c d=1', {"a": '"b"c', "d": "1"}),
        (r'a="\x20 \" \\"', {"a": r'\x20 " ' + "\\"}),
        ('  a="x=1 y=2"  ', {"a": "x=1 y=2"}),
        ("=1 b=2", {"b": "2"}),
    ]:
        assert made(of(text, format="kv")[0]) == pairs


def test_pairs_may_be_delimited_otherwise() -> None:
    (event,) = of("a: 1; b: x y; c", format="kv", field_split="; ", value_split=": ", target="app")

    assert event["app"] == {"a": "1", "b": "x y"}


def test_a_message_among_the_pairs_replaces_the_text() -> None:
    first, second, third = of("level=info", 'message="hello"', "level=warn", format="kv")

    assert [one["message"] for one in (first, second, third)] == ["level=info", "hello", "level=warn"]


def test_a_pair_takes_no_group_of_the_event_and_chooses_no_destination() -> None:
    (event,) = of("host=web-1 data_stream.dataset=audit a=1", format="kv", shared=SHARED[1])

    assert event["labels"] == {"host": "web-1", "data_stream_dataset": "audit"}
    assert event["data_stream"] == {"dataset": "x"}
    assert event["a"] == "1"


def test_a_line_without_pairs_is_tagged_and_leaves_the_others_alone() -> None:
    first, second, third = of("a=1", "no pair", "a=3", format="kv", shared=SHARED[1])

    assert (first["a"], third["a"]) == ("1", "3")
    assert second["message"] == "no pair"
    assert second["error"]["message"] == "parse: the text has no pair of a key and a value"


def test_a_hostile_line_is_read_in_linear_time() -> None:
    """A reading that begins anew at each character would take hours."""
    for text in ["a" * 300_000, '"' * 300_000, 'a="\\' * 100_000, 'a="b ' * 100_000, "=" * 300_000]:
        assert of(text, format="kv")[0]["message"] == text


def simply_read(text: str) -> Fields:
    """The pairs of a text, read character by character."""
    found: dict[str, list[str]] = {}
    at = 0
    while at < len(text):
        end = min([text.find(c, at) for c in " \n" if c in text[at:]], default=len(text))
        key, split, value = text[at:end].partition("=")
        if split and key and value.startswith('"'):
            start = at + len(key) + 2
            close = start
            while close < len(text) and text[close] != '"':
                close += 2 if text[close] == "\\" else 1
            if close < len(text) and text[close + 1 : close + 2] in ("", " ", "\n"):
                inner, end = text[start:close], close + 1
                try:
                    value = json.loads(f'"{inner}"')
                    value.encode()
                except ValueError:
                    value = re.sub(r'\\(["\\])', r"\1", inner)
        if split and key and value:
            found.setdefault(key, []).append(value)
        at = end + 1
    return {key: values if len(values) > 1 else values[0] for key, values in found.items()}


PIECES = st.sampled_from(["a", "b", "é", "=", " ", '"', "\\", "n", '="', '" ', "\x7f", "a=1", 'b="x y"', "\\u00e9"])


@given(st.lists(PIECES, max_size=14).map("".join))
def test_pairs_are_what_a_simple_reading_finds(text: str) -> None:
    (event,) = of(text, format="kv", target="t")

    assert event.get("t", {}) == simply_read(text)
    assert event["message"] == text


KEYS = st.text(st.sampled_from("abcé_-"), min_size=1, max_size=5)


@given(st.dictionaries(KEYS, st.text(st.characters(codec="utf-8"), min_size=1, max_size=10), min_size=1, max_size=6))
def test_pairs_that_a_logger_writes_are_read_back(pairs: dict[str, str]) -> None:
    text = " ".join(f"{key}={orjson.dumps(value).decode()}" for key, value in pairs.items())

    assert of(text, format="kv", target="t")[0]["t"] == pairs


ANY = st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=12)
KV_LINES = st.lists(
    st.lists(PIECES | st.sampled_from(["host=1 ", "message=m ", "log=1 ", "tags=t ", "level=2 ", "a.b=1 "]), max_size=6)
    .map("".join)
    .filter(lambda text: "\n" not in text)
    | ANY,
    max_size=6,
)
TARGETS = st.sampled_from([None, None, "app", "log", "a.b", "message", "labels.x"])


@given(KV_LINES, st.sampled_from(SHARED), TARGETS)
def test_pairs_of_many_lines_are_those_of_each_alone(lines: list[str], shared: Fields, target: str | None) -> None:
    assert_as_alone(Parse(format="kv", target=target), lines, shared)


# -- csv ---------------------------------------------------------------------------------------------------------------


def test_values_get_the_names_of_their_columns() -> None:
    columns = ("time", "user.name", "", "amount")
    first, second = of('17:00,ann,x,"1,5"', "18:00,,y,7", format="csv", columns=columns)

    assert made(first) == {"time": "17:00", "user": {"name": "ann"}, "amount": "1,5"}
    assert made(second) == {"time": "18:00", "amount": "7"}
    assert first["message"] == '17:00,ann,x,"1,5"'


def test_a_line_that_does_not_fit_its_columns_is_tagged() -> None:
    for text in ["", "a", "a,b,c", 'a,"b', 'a,"b"c', ",", "a\rb,c"]:
        first, second, third = of("1,2", text, '3,"4"', format="csv", columns=("x", "y"))

        assert (made(first), made(third)) == ({"x": "1", "y": "2"}, {"x": "3", "y": "4"})
        assert second["error"]["message"] == "parse: the text has not one value for each column"
        assert second["message"] == text


def test_a_quote_that_another_line_closes_moves_nothing_to_another_event() -> None:
    events = of('1,"2', '3",4', "5,6", format="csv", columns=("x", "y"))

    assert [event.get("x") for event in events] == [None, '3"', "5"]


VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=6) | st.sampled_from(['"', ";", ""])


@given(st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=1, max_size=5))
def test_rows_that_pythons_csv_writes_are_read_back(rows: list[list[str]]) -> None:
    stream = io.StringIO()
    csv.writer(stream, delimiter=";", lineterminator="\n").writerows(rows)
    lines = stream.getvalue().split("\n")[:-1]
    events = of(*lines, format="csv", columns=("a", "b", "c"), separator=";", target="t")

    for event, row in zip(events, rows, strict=True):
        assert event.get("t", {}) == {name: value for name, value in zip("abc", row, strict=True) if value}


CSV_LINES = st.lists(
    st.lists(st.sampled_from(["a", ",", '"', "é", "\r", " ", "b,c"]), max_size=5).map("".join), max_size=6
)
NAMES = st.lists(
    st.sampled_from(["a", "b.c", "", "host", "message", "log.level", "tags", "x", "data_stream.type"]),
    min_size=1,
    max_size=3,
    unique=True,
).filter(any)


@given(CSV_LINES, NAMES, st.sampled_from(SHARED), TARGETS)
def test_values_of_many_lines_are_those_of_each_alone(
    lines: list[str], columns: list[str], shared: Fields, target: str | None
) -> None:
    assert_as_alone(Parse(format="csv", columns=tuple(columns), target=target), lines, shared)


# -- regex -------------------------------------------------------------------------------------------------------------

PATTERN = r"^(?P<level>[A-Z]+) \[(?P<thread>[^\]]*)\](?: (?P<id>\d+))? (.*)$"


def test_named_groups_become_fields() -> None:
    first, second = of("WARN [main] 7 hé", "INFO [] x", format="regex", pattern=PATTERN)

    assert made(first) == {"level": "WARN", "thread": "main", "id": "7"}
    assert made(second) == {"level": "INFO"}
    assert first["message"] == "WARN [main] 7 hé"


def test_a_text_without_the_pattern_is_tagged() -> None:
    first, second, third = of("A [b] c", "x", "A [b] c", format="regex", pattern=PATTERN)

    assert made(first) == made(third) == {"level": "A", "thread": "b"}
    assert second["error"]["message"].startswith("parse: the pattern is not in the text")


def test_a_text_is_searched_up_to_a_length() -> None:
    first, second = of("x" * LONGEST_SEARCHED, "x" * (LONGEST_SEARCHED + 1), format="regex", pattern="(?P<a>x)")

    assert first["a"] == "x"
    assert "error" in second


@given(st.lists(st.text(st.sampled_from("AB [é]0 "), max_size=12), min_size=1, max_size=5))
def test_groups_are_those_of_pythons_re(lines: list[str]) -> None:
    for event, line in zip(of(*lines, format="regex", pattern=PATTERN, target="t"), lines, strict=True):
        found = re.search(PATTERN, line, re.ASCII)
        groups = {name: held for name, held in found.groupdict().items() if held} if found else {}

        assert event.get("t", {}) == groups


@given(
    st.lists(st.lists(st.sampled_from(["h", "m", "é", "1", " ", "\x7f"]), max_size=4).map("".join), max_size=6),
    st.sampled_from([r"(?P<host>h)?(?P<message>m)?(?P<n>\d)?", r"(?P<a>é)", r"(?P<log>h) |(?P<tags>m)"]),
    st.sampled_from(SHARED),
    TARGETS,
)
def test_groups_of_many_lines_are_those_of_each_alone(
    lines: list[str], pattern: str, shared: Fields, target: str | None
) -> None:
    assert_as_alone(Parse(format="regex", pattern=pattern, target=target), lines, shared)


# -- options -----------------------------------------------------------------------------------------------------------


def test_options_that_do_not_fit_are_refused() -> None:
    for options, complaint in [
        ({"format": "kv", "columns": ("a",)}, "only format csv has a columns"),
        ({"format": "json", "pattern": "x"}, "only format regex has a pattern"),
        ({"format": "kv", "field_split": ""}, "1 to 16 characters"),
        ({"format": "kv", "value_split": '"'}, "no quote"),
        ({"format": "kv", "value_split": " "}, "two different"),
        ({"format": "csv"}, "at least one column"),
        ({"format": "csv", "columns": ("", "")}, "at least one column"),
        ({"format": "csv", "columns": ("a", "a")}, "an earlier column"),
        ({"format": "csv", "columns": ("a..b",)}, "no name"),
        ({"format": "csv", "columns": ("a",), "separator": ", "}, "one ASCII character"),
        ({"format": "csv", "columns": ("a",), "separator": '"'}, "one ASCII character"),
        ({"format": "regex"}, "needs a pattern"),
        ({"format": "regex", "pattern": "(a)"}, "no group of it has a name"),
        ({"format": "regex", "pattern": "(?P<a>"}, "a group is not closed"),
    ]:
        with pytest.raises(ValueError, match=re.escape(complaint)):
            Parse(**options)
