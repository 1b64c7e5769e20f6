from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Batch, Fields
from shipper.testing import check_processor
from shipper_plugins.processors.parse import Parse

SHARED: Fields = {
    "@timestamp": "2026-01-01T00:00:00.000Z",
    "log": {"file": {"path": "/a"}},
    "data_stream": {"dataset": "x"},
}


def lines(*texts: str) -> Batch:
    return Batch.lines("".join(f"{text}\n" for text in texts).encode(), offset=10, shared=SHARED)


def parsed(text: str, **options: Any) -> Fields:
    (event,) = check_processor(Parse(**options), lines(text)).whole()
    return event


def error_of(event: Fields) -> str:
    assert event["tags"] == ["processor_error"]
    return str(event["error"]["message"])


# -- json --------------------------------------------------------------------------------------------------------------


def test_the_fields_of_an_object_become_fields_of_the_event() -> None:
    event = parsed('{"level":"info","@timestamp":"2026-05-17T00:00:00Z","http":{"status":200}}', format="json")

    assert event == {
        "@timestamp": "2026-05-17T00:00:00Z",
        "level": "info",
        "http": {"status": 200},
        "log": {"file": {"path": "/a"}, "offset": 10},
        "data_stream": {"dataset": "x"},
    }


def test_a_target_holds_the_fields() -> None:
    event = parsed('{"log":"text","data_stream":1}', format="json", target="app.log")

    assert event["app"] == {"log": {"log": "text", "data_stream": 1}}
    assert "message" not in event
    assert event["log"] == {"file": {"path": "/a"}, "offset": 10}


def test_a_text_that_is_no_object_is_tagged_and_kept() -> None:
    for text in ["", "no", "[1]", "7", "null", '{"a":1', '{"a":1} {"b":2}', '{"a":"\\ud800"}', "[" * 5000]:
        event = parsed(text, format="json")

        assert error_of(event).startswith("parse: the text is not")
        assert event["message"] == text


def test_one_bad_line_leaves_the_others_of_its_batch_alone() -> None:
    deep = "[" * 300 + "]" * 300
    batch = lines('{"n":1}', "bad", f'{{"n":{deep}}}', '{"n":4}')
    first, second, third, fourth = check_processor(Parse(format="json"), batch).whole()

    assert (first["n"], fourth["n"]) == (1, 4)
    assert [event["log"]["offset"] for event in (first, second, third, fourth)][:2] == [10, 18]
    assert error_of(second) == error_of(third) == "parse: the text is not JSON"


def test_a_value_that_spans_two_lines_moves_nothing_to_another_event() -> None:
    first, second, third = check_processor(Parse(format="json"), lines('{"a":[1', "2]}", '{},{"b":1}')).whole()

    assert [event["message"] for event in (first, second, third)] == ['{"a":[1', "2]}", '{},{"b":1}']


def test_an_object_that_is_too_deep_below_its_target_leaves_the_others_of_its_batch_alone() -> None:
    for target in ["a", "a.b.c"]:
        for depth in range(248, 256):
            deep = '{"n":' + "[" * depth + "]" * depth + "}"
            first, second = check_processor(Parse(format="json", target=target), lines(deep, '{"n":1}')).whole()

            assert first.get("message", deep) == deep
            assert "a" in second


def test_another_field_can_hold_the_text() -> None:
    batch = Batch.documents([b'{"event":{"original":"{\\"a\\":1}","id":"7"}}', b'{"x":1}', b'{"event":{"original":5}}'])
    first, second, third = check_processor(Parse(format="json", field="event.original"), batch).whole()

    assert first == {"event": {"id": "7"}, "a": 1}
    assert second["x"] == 1
    assert error_of(second) == error_of(third) == "parse: there is no text in event.original"


@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=30), min_size=1, max_size=5))
def test_no_text_whatever_is_lost(texts: list[str]) -> None:
    for processor in (Parse(format="json"), Parse(format="nginx")):
        result = check_processor(processor, lines(*texts)).whole()

        for text, event in zip(texts, result, strict=True):
            assert event.get("message", text) == text
            assert "message" in event or isinstance(orjson.loads(text), dict)


# -- nginx -------------------------------------------------------------------------------------------------------------

ACCESS = (
    '203.0.113.7 - ann [17/May/2026:12:34:56 +0200] "GET /a?b=1 HTTP/1.1" 404 153 "https://x.org/" "Mozilla/5.0 (X11)"'
)


def test_an_access_line_becomes_ecs_fields() -> None:
    event = parsed(ACCESS, format="nginx")

    assert event == {
        "@timestamp": "2026-05-17T10:34:56.000Z",
        "message": ACCESS,
        "log": {"file": {"path": "/a"}, "offset": 10},
        "data_stream": {"dataset": "x"},
        "source": {"address": "203.0.113.7", "ip": "203.0.113.7"},
        "user": {"name": "ann"},
        "http": {
            "request": {"method": "GET", "referrer": "https://x.org/"},
            "version": "1.1",
            "response": {"status_code": 404, "body": {"bytes": 153}},
        },
        "url": {"original": "/a?b=1"},
        "user_agent": {"original": "Mozilla/5.0 (X11)"},
    }


def test_what_is_absent_from_an_access_line_is_absent_from_the_event() -> None:
    event = parsed('unix: - - [17/May/2026:12:34:56 +0000] "\\x16\\x03" 400 0 "-" "-"', format="nginx")

    assert event["source"] == {"address": "unix:"}
    assert event["http"] == {"response": {"status_code": 400, "body": {"bytes": 0}}}
    assert not event.keys() & {"user", "url", "user_agent", "error"}


def test_escaped_bytes_are_decoded() -> None:
    text = '::1 - - [17/May/2026:12:34:56 +0000] "GET /\\xE2\\x82\\xAC HTTP/2.0" 200 5 "-" "say \\x22hi\\x22 \\xFF"'
    event = parsed(text, format="nginx")

    assert event["url"]["original"] == "/€"
    assert event["user_agent"]["original"] == 'say "hi" �'
    assert event["source"]["ip"] == "::1"


def test_an_error_line_becomes_ecs_fields() -> None:
    text = (
        '2026/05/17 12:34:56 [error] 31#32: *7 open() "/x" failed (2: No such file or directory), '
        'client: 203.0.113.7, server: shop, request: "GET /x HTTP/1.1", host: "shop"'
    )
    event = parsed(text, format="nginx")

    local = datetime(2026, 5, 17, 12, 34, 56).astimezone(UTC)
    assert event["@timestamp"] == local.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert event["message"] == text
    assert event["log"] == {"file": {"path": "/a"}, "offset": 10, "level": "error"}
    assert event["process"] == {"pid": 31, "thread": {"id": 32}}
    assert event["source"] == {"address": "203.0.113.7", "ip": "203.0.113.7"}
    assert event["http"] == {"request": {"method": "GET"}, "version": "1.1"}
    assert event["url"] == {"original": "/x"}


def test_an_error_line_without_a_client_has_no_source() -> None:
    event = parsed("2026/05/17 12:34:56 [notice] 1#1: start worker processes", format="nginx")

    assert event["log"]["level"] == "notice"
    assert not event.keys() & {"source", "http", "url"}


def test_a_line_that_does_not_parse_is_tagged_and_goes_on() -> None:
    for text, message in [
        ("hello", "no line of an nginx log"),
        (ACCESS[:60], "no line of an nginx log"),
        (ACCESS.replace("17/May", "31/Feb"), "does not exist"),
        (ACCESS.replace("17/May", "17/Foo"), "does not exist"),
        (ACCESS.replace("+0200", "+9900"), "does not exist"),
        ("2026/13/17 12:34:56 [error] 1#1: x", "does not exist"),
    ]:
        event = parsed(text, format="nginx")

        assert message in error_of(event)
        assert event["message"] == text
        assert event["@timestamp"] == SHARED["@timestamp"]


def test_a_number_that_no_destination_holds_leaves_the_others_of_its_batch_alone() -> None:
    for text in [ACCESS.replace(" 153 ", " {} "), "2026/05/17 12:34:56 [error] {}#1: x"]:
        for digits in [19, 20, 25, 5000]:
            huge = text.format("9" * digits)
            first, second = check_processor(Parse(format="nginx"), lines(huge, ACCESS)).whole()

            assert first["message"] == huge
            assert error_of(first).startswith("parse: ")
            assert second["http"]["response"]["body"] == {"bytes": 153}


def written_by_nginx(text: str) -> str:
    """The default escape of a log format."""
    escaped = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02X}" for b in text.encode())
    return "".join(escaped) or "-"


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20).filter(lambda text: text != "-")


@given(
    address=st.ip_addresses(v=4),
    user=TEXTS.filter(lambda text: text.strip() == text),
    time=st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)),
    minutes=st.integers(-14 * 60, 14 * 60),
    path=st.text(st.characters(codec="utf-8", exclude_characters=" "), max_size=20),
    status=st.integers(100, 599),
    size=st.integers(0, 2**40),
    referrer=TEXTS,
    agent=TEXTS,
)
def test_every_access_line_that_nginx_writes_is_read_back(
    address: Any, user: str, time: datetime, minutes: int, path: str, status: int, size: int, referrer: str, agent: str
) -> None:
    time = time.replace(microsecond=0, tzinfo=timezone(timedelta(minutes=minutes)))
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S %z")
    head = f"{address} - {written_by_nginx(user)} [{stamp}]"
    request, rest = written_by_nginx(f"GET /{path} HTTP/1.1"), f'{status} {size} "{written_by_nginx(referrer)}"'
    event = parsed(f'{head} "{request}" {rest} "{written_by_nginx(agent)}"', format="nginx")

    assert event["source"]["ip"] == str(address)
    assert event.get("user", {}).get("name", "") == user
    assert datetime.fromisoformat(event["@timestamp"]) == time
    assert event["url"]["original"] == f"/{path}"
    assert event["http"]["response"] == {"status_code": status, "body": {"bytes": size}}
    assert event["http"]["request"].get("referrer", "") == referrer
    assert event.get("user_agent", {}).get("original", "") == agent
