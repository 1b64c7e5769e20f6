"""`parse` of the lines of syslog files."""

from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Batch, Fields
from shipper.testing import check_processor
from shipper_plugins.processors.parse import Parse
from shipper_plugins.syslog.message import Reading
from tests.plugins.processors.parsing import assert_as_alone, sorted_json

NOW = "2026-05-20T00:00:00.000Z"
SHARED: Fields = {"@timestamp": NOW, "host": {"name": "here"}, "log": {"file": {"path": "/var/log/syslog"}}}


def of(text: str, timezone: str = "+02:00", **options: Any) -> Fields:
    batch = Batch.lines(f"{text}\n".encode(), offset=0, shared=SHARED)
    (event,) = check_processor(Parse(format="syslog", timezone=timezone, **options), batch).whole()
    return event


def log(**syslog: Any) -> Fields:
    return {**SHARED["log"], "offset": 0, "syslog": syslog}


def test_a_line_of_a_file_has_no_priority() -> None:
    event = of('May 17 12:34:56 web-1 su[23]: it "works" é')

    assert event == {
        "@timestamp": "2026-05-17T10:34:56Z",
        "message": 'it "works" é',
        "host": {"name": "here"},
        "log": log(hostname="web-1", appname="su", procid="23"),
        "process": {"name": "su", "pid": 23},
    }


def test_the_newer_format_of_rsyslog_has_a_year_and_a_zone() -> None:
    event = of("2026-05-17T12:34:56.789012-01:00 web-1 kernel: [  1.5] up")

    assert event["@timestamp"] == "2026-05-17T13:34:56.789012Z"
    assert (event["message"], event["process"]) == ("[  1.5] up", {"name": "kernel"})


def test_a_message_of_rfc_5424_may_be_in_a_file() -> None:
    event = of('<165>1 2026-05-17T12:34:56Z web-1 app 7 ID47 [a@1 b="c"] text')

    syslog = event["log"]["syslog"]
    assert (event["message"], syslog["priority"], syslog["msgid"]) == ("text", 165, "ID47")
    assert syslog["structured_data"] == {"a@1": {"b": "c"}}


def test_a_missing_year_is_told_from_the_arrival() -> None:
    assert of("Dec 31 23:59:59 h a: x")["@timestamp"] == "2025-12-31T21:59:59Z"


def test_a_line_that_is_none_of_syslog_is_tagged_and_kept() -> None:
    for text in ["", "hello", "su[23]: x", "<999>May 17 12:34:56 h a: x", "Feb 30 12:34:56 h a: x"]:
        event = of(text)

        assert event["error"]["message"].startswith("parse: the text is no ")
        assert event["message"] == text


PIECES = [
    ["", "<34>", "<0>", "<191>", "<192>", "<034>", " ", "<34>1 "],
    [
        "May 17 12:34:56",
        "May  7 12:34:56",
        "Feb 30 00:00:00",
        "May 17 24:00:00",
        "2026-05-17T12:34:56Z",
        "",
        "*May 17 12:34:56",
    ],
    [" ", "  ", ": ", ""],
    [
        *(
            "web-1",
            "10.0.0.1",
            "2026",
            "UTC",
            "GMT",
            "Z",
            "1999",
            "é",
            "a:b",
            "Message",
            "ab%",
            "-",
            "UTCx",
            "+0100",
            "a_b",
        )
    ],
    [" ", "  ", " forwarded from ", ""],
    ["su", "a.b/c(d)", "é", "%SYS-5-X", "7", "CRON", "a=b", "x y", "12:30"],
    ["", "[23]", "[007]", "[]", "[x]", "[12345678901]"],
    [": ", ":", " ", ":  ", ":\t"],
    ["text", "", '"é\\', "\x7f", "a: b", "\r", "[1]: x"],
]
LINES = st.tuples(*map(st.sampled_from, PIECES)).map("".join)
ORDINARY = ["", "May 17 12:34:56", " ", "web-1", " ", "su", "[23]", ": ", "text"]


@st.composite
def nearly_ordinary(draw: st.DrawFn) -> str:
    parts = list(ORDINARY)
    for place in draw(st.sets(st.integers(0, len(parts) - 1), max_size=2)):
        parts[place] = draw(st.sampled_from(PIECES[place]))
    return "".join(parts)


@given(
    st.lists(nearly_ordinary() | LINES, max_size=6),
    st.sampled_from(
        [{}, SHARED, {"process": {"x": 1}, "@timestamp": NOW}, {"log": {"syslog": {"x": 1}}}, {"tags": ["x"]}]
    ),
)
def test_lines_become_what_each_alone_becomes(lines: list[str], shared: Fields) -> None:
    assert_as_alone(Parse(format="syslog", timezone="+02:00"), lines, {"@timestamp": NOW, **shared})


@given(nearly_ordinary().map(lambda text: f"<13>{text}"))
def test_a_line_with_a_priority_is_what_the_input_makes_of_a_message(text: str) -> None:
    made = Reading().event(text.encode(), datetime.fromisoformat(NOW))
    event = of(text, timezone="local")
    if made is not None and "error" not in made and "\r" not in text:
        made.pop("host", None)
        made.setdefault("@timestamp", NOW)
        expected = {"host": SHARED["host"], **made, "log": log(**made["log"]["syslog"])}

        assert sorted_json([event]) == sorted_json([expected])
