"""`parse` of Apache's logs, and the fields of Kibana's dashboards for web servers.

The lines and their fields are those of the tests of Filebeat's modules, of Elasticsearch's manual, and of Apache's.
"""

import gc
import tracemalloc
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Batch, Fields
from shipper.sdk.fields import find
from shipper.testing import check_processor
from shipper_plugins.processors.parse import Parse
from tests.plugins.processors.parsing import assert_as_alone, assert_documents_as_alone

SHARED: Fields = {
    "@timestamp": "2026-01-01T00:00:00.000Z",
    "event": {"dataset": "apache.access"},
    "service": {"name": "shop"},
}


def of(text: str, format: str = "apache", **options: Any) -> Fields:
    batch = Batch.lines(f"{text}\n".encode(), offset=0, shared=SHARED)
    (event,) = check_processor(Parse(format=format, **options), batch).whole()
    return event


def local(*parts: int) -> str:
    return datetime(*parts).astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


FIREFOX = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10.12; rv:50.0) Gecko/20100101 Firefox/50.0"
COMMON = '::1 - - [26/Dec/2016:16:16:29 +0200] "GET /favicon.ico HTTP/1.1" 404 209'
COMBINED = f'192.168.33.1 - ann [26/Dec/2016:16:22:13 +0000] "GET /hello?a=1 HTTP/1.1" 200 499 "-" "{FIREFOX}"'


def test_a_line_of_apache_becomes_ecs_fields() -> None:
    for text, fields in [
        (
            COMBINED,
            {
                "@timestamp": "2016-12-26T16:22:13.000Z",
                "source": {"address": "192.168.33.1", "ip": "192.168.33.1"},
                "user": {"name": "ann"},
                "http": {
                    "request": {"method": "GET"},
                    "version": "1.1",
                    "response": {"status_code": 200, "body": {"bytes": 499}},
                },
                "url": {"original": "/hello?a=1"},
                "user_agent": {"original": FIREFOX},
            },
        ),
        (
            '::1 - - [26/Dec/2016:16:16:48 +0200] "-" 408 -',
            {
                "@timestamp": "2016-12-26T14:16:48.000Z",
                "source": {"address": "::1", "ip": "::1"},
                "http": {"response": {"status_code": 408}},
            },
        ),
        (
            r'shop.org:443 web-7 - "" [26/Dec/2016:16:16:48 +0200] "PUT /\xc3\xa4 HTTP/2.0" 304 - "a\"b\\x41" "\t"',
            {
                "@timestamp": "2016-12-26T14:16:48.000Z",
                "destination": {"domain": "shop.org", "port": 443},
                "source": {"address": "web-7"},
                "http": {
                    "request": {"method": "PUT", "referrer": 'a"b\\x41'},
                    "version": "2.0",
                    "response": {"status_code": 304},
                },
                "url": {"original": "/ä"},
                "user_agent": {"original": "\t"},
            },
        ),
        (
            "[Mon Dec 26 16:22:08 2016] [error] [client 192.168.33.1] File does not exist: /var/www/favicon.ico",
            {
                "@timestamp": local(2016, 12, 26, 16, 22, 8),
                "log": {"offset": 0, "level": "error"},
                "source": {"address": "192.168.33.1", "ip": "192.168.33.1"},
            },
        ),
        (
            "[Fri Sep 09 10:42:29.902022 2011] [core:error] [pid 35708:tid 4328636416] [client ::1:4711] AH1: x, "
            "referer: http://y/",
            {
                "@timestamp": local(2011, 9, 9, 10, 42, 29, 902000),
                "log": {"offset": 0, "level": "error"},
                "apache": {"error": {"module": "core"}},
                "process": {"pid": 35708, "thread": {"id": 4328636416}},
                "source": {"address": "::1", "ip": "::1", "port": 4711},
                "http": {"request": {"referrer": "http://y/"}},
            },
        ),
        (
            "[Mon Dec 26 16:15:55.103786 2016] [mpm_event:notice] [pid 11379] AH00094: Command line: 'httpd'",
            {
                "@timestamp": local(2016, 12, 26, 16, 15, 55, 103000),
                "log": {"offset": 0, "level": "notice"},
                "apache": {"error": {"module": "mpm_event"}},
                "process": {"pid": 11379},
            },
        ),
    ]:
        assert of(text) == {**SHARED, "log": {"offset": 0}, "message": text, **fields}


@pytest.mark.parametrize(
    ("client", "address", "port"),
    [("10.0.0.1:80", "10.0.0.1", 80), ("::1:80", "::1", 80), ("fe80::1", "fe80::1", None), ("web:80", "web", 80)],
)
def test_a_client_may_have_a_port(client: str, address: str, port: int | None) -> None:
    event = of(f"[Mon Dec 26 16:22:08 2016] [ssl:warn] [pid 1] [client {client}] x")

    assert (event["source"]["address"], event["source"].get("port")) == (address, port)


def test_a_line_that_is_none_of_apache_is_tagged_and_kept() -> None:
    for text in ["", "hello", COMMON[:50], "[Mon Dec 26 16:22:08 2016] x", COMMON.replace("Dec", "Foo")]:
        event = of(text)

        assert event["error"]["message"].startswith("parse: the t")
        assert event["message"] == text


def written_by_apache(text: str) -> str:
    """What `ap_escape_logitem` makes of a text."""
    names = {0x08: "b", 0x0A: "n", 0x0D: "r", 0x09: "t", 0x0B: "v", 0x22: '"', 0x5C: "\\"}
    return "".join(f"\\{names[b]}" if b in names else chr(b) if 32 <= b < 127 else f"\\x{b:02x}" for b in text.encode())


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(lambda text: text != "-")


@given(
    time=st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)),
    minutes=st.integers(-14 * 60, 14 * 60),
    path=st.text(st.characters(codec="utf-8", exclude_characters=" "), max_size=20),
    status=st.integers(100, 599),
    size=st.integers(0, 2**40),
    client=st.none() | st.tuples(TEXTS, TEXTS),
)
def test_every_access_line_that_apache_writes_is_read_back(
    time: datetime, minutes: int, path: str, status: int, size: int, client: tuple[str, str] | None
) -> None:
    time = time.replace(microsecond=0, tzinfo=timezone(timedelta(minutes=minutes)))
    line = f'10.0.0.1 - - [{time.strftime("%d/%b/%Y:%H:%M:%S %z")}] "{written_by_apache(f"GET /{path} HTTP/1.1")}"'
    line += f" {status} {size or '-'}"
    if client is not None:
        line += f' "{written_by_apache(client[0])}" "{written_by_apache(client[1])}"'
    event = of(line)

    assert datetime.fromisoformat(event["@timestamp"]) == time
    assert event["url"]["original"] == f"/{path}"
    assert event["http"]["response"] == {"status_code": status} | ({"body": {"bytes": size}} if size else {})
    assert event["http"]["request"].get("referrer") == (client and client[0])
    assert event.get("user_agent", {}).get("original") == (client and client[1])


PARTS = st.sampled_from(
    [
        *(
            "10.0.0.1 - - ",
            ":: - ann ",
            "a:80 10.0.0.1 - - ",
            "[17/May/2026:12:34:56 +0200] ",
            "[31/Feb/2026:12:34:56 +0200] ",
        ),
        *('"GET /a HTTP/1.1"', '"GET /a"', '"-"', " 200 ", " 404 ", "12", "-", ' "-" "-"', ' "r" "curl/8.5.0"'),
        *(
            r' "\"" "\\x"',
            ' "é" "a"',
            "x",
            " ",
            "[Mon Dec 26 16:22:08 2016] [core:warn] [pid 1] ",
            "[client ::1:5] ",
            '"',
        ),
        *('10.0.0.1 - - [17/May/2026:12:34:56 +0200] "GET /a?x=-#f HTTP/1.1" 200 12', ' "-" "curl/8.5.0"'),
    ]
)
ORDINARY = [
    f'10.0.0.1 - - [17/May/2026:12:34:5{n} +0200] "GET {url} HTTP/1.1" {status} {size}{client}'
    for n, (url, status, size) in enumerate(
        [
            ("/a?b=1", 200, 1),
            ("http://h:80/p?q#f", 404, "-"),
            ("*", 302, 0),
            ("/?", 500, 7),
            ("?x", 399, 1),
            ("/a#b?c", 400, 1),
        ]
    )
    for client in ("", ' "-" "-"', f' "http://x/" "{FIREFOX}"')
]
LINES = st.lists(st.sampled_from(ORDINARY) | st.lists(PARTS, max_size=6).map("".join), max_size=6)


@given(
    LINES,
    st.sampled_from(["apache", "nginx"]),
    st.booleans(),
    st.sampled_from([{}, SHARED, {"event": {"outcome": "x"}}, {"service": "s", "event": 1}, {"url": {"domain": "x"}}]),
)
def test_lines_of_a_server_become_what_each_alone_becomes(
    lines: list[str], format: Any, dashboards: bool, shared: Fields
) -> None:
    assert_as_alone(Parse(format=format, dashboards=dashboards), lines, shared)


OWN = st.fixed_dictionaries(
    {"log": st.just({"offset": 3})},
    optional={
        "@timestamp": st.just("2026-02-02T00:00:00Z"),
        "stream": st.sampled_from(["stdout", 'q"\\', "\x7f"]),
        "url": st.just("/"),
        "event": st.just({"outcome": "y"}),
        "a.b": st.just(1),
        "message": st.just(7),
    },
)
PLAIN = st.fixed_dictionaries({"log": st.sampled_from([{"offset": 3}, {"offset": 4, "flags": ["x"]}])})


@given(
    LINES,
    st.lists(PLAIN, min_size=6, max_size=6) | st.lists(OWN, min_size=6, max_size=6),
    st.sampled_from(["apache", "nginx"]),
    st.booleans(),
    st.sampled_from([{}, SHARED, {"log": {"file": {"path": "/a"}}}]),
)
def test_lines_in_documents_become_what_each_alone_becomes(
    lines: list[str], owns: list[Fields], format: Any, dashboards: bool, shared: Fields
) -> None:
    events = [{"message": line, **own} for line, own in zip(lines, owns, strict=False)]
    assert_documents_as_alone(Parse(format=format, dashboards=dashboards), events, shared)


# -- dashboards --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["apache", "nginx"])
def test_an_access_line_has_the_fields_of_the_dashboards(format: str) -> None:
    event = of(COMBINED, format, dashboards=True)

    assert event["event"] == {
        "dataset": "apache.access",
        "kind": "event",
        "category": ["web"],
        "type": ["access"],
        "outcome": "success",
        "module": format,
        "created": "2026-01-01T00:00:00.000Z",
    }
    assert event["service"] == {"name": "shop", "type": format}
    assert event["url"] == {"original": "/hello?a=1", "path": "/hello", "query": "a=1"}
    assert event["user_agent"] == {
        "original": FIREFOX,
        "name": "Firefox",
        "version": "50.0",
        "os": {"name": "Mac OS X", "version": "10.12", "full": "Mac OS X 10.12"},
        "device": {"name": "Mac"},
    }


def test_without_the_option_there_are_none_of_them() -> None:
    event = of(COMBINED, "nginx")

    assert event["event"] == SHARED["event"]
    assert event["service"] == SHARED["service"]
    assert event["url"] == {"original": "/hello?a=1"}
    assert event["user_agent"] == {"original": FIREFOX}


@pytest.mark.parametrize(
    ("status", "outcome"), [(200, "success"), (399, "success"), (400, "failure"), (503, "failure")]
)
def test_the_outcome_is_told_by_the_status(status: int, outcome: str) -> None:
    event = of(COMBINED.replace(" 200 ", f" {status} "), "nginx", dashboards=True)

    assert event["event"]["outcome"] == outcome


def test_a_line_of_the_error_log_has_a_type_by_its_level() -> None:
    for level, type in [
        ("error", "error"),
        ("warn", "error"),
        ("crit", "error"),
        ("notice", "info"),
        ("trace8", "info"),
    ]:
        event = of(f"[Mon Dec 26 16:22:08 2016] [core:{level}] [pid 1] x", dashboards=True)

        assert event["event"]["type"] == [type]
        assert "outcome" not in event["event"]
        assert event["service"]["type"] == "apache"


@pytest.mark.parametrize(
    ("agent", "fields"),
    [
        (  # the example of Elasticsearch's manual
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_2) AppleWebKit/537.36 (KHTML, like Gecko) "
            "Chrome/51.0.2704.103 Safari/537.36",
            {
                "name": "Chrome",
                "version": "51.0.2704.103",
                "os": {"name": "Mac OS X", "version": "10.9.2", "full": "Mac OS X 10.9.2"},
                "device": {"name": "Mac"},
            },
        ),
        (
            "Mozilla/5.0 (Windows NT 6.1; rv:15.0) Gecko/20120716 Firefox/15.0a2",
            {
                "name": "Firefox Alpha",
                "version": "15.0.a2",
                "os": {"name": "Windows", "version": "7", "full": "Windows 7"},
                "device": {"name": "Other"},
            },
        ),
        ("curl/8.5.0", {"name": "curl", "version": "8.5.0", "device": {"name": "Other"}}),
        ("no such agent", {"name": "Other", "device": {"name": "Other"}}),
    ],
)
def test_an_agent_is_known_by_the_patterns_of_elasticsearch(agent: str, fields: Fields) -> None:
    event = of(COMBINED.replace(FIREFOX, agent), "nginx", dashboards=True)

    assert event["user_agent"] == {"original": agent, **fields}


def test_an_url_in_absolute_form_has_a_path() -> None:
    event = of(COMBINED.replace("/hello?a=1", "http://shop:80/x/y?-"), dashboards=True)

    assert (find(event, "url.path"), find(event, "url.query")) == ("/x/y", "-")


def test_what_clients_write_at_length_is_not_kept() -> None:
    long = 1 << 18
    tracemalloc.start()
    try:
        for number in range(24):
            agent, address = f"a{number}".ljust(long, "x"), f"h{number}".ljust(long, "x")
            line = f'{address} - - [26/Dec/2016:16:22:13 +0000] "GET / HTTP/1.1" 200 499 "-" "{agent}"'
            event = of(line, dashboards=True)
            assert (event["user_agent"]["original"], event["source"]) == (agent, {"address": address})
        del agent, address, line, event
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 16 * long
    finally:
        tracemalloc.stop()


REST = '[17/May/2026:12:34:56 +0200] "GET / HTTP/1.1" 200 153 "-" "curl"'


@pytest.mark.parametrize(("format", "place"), [("nginx", "remote_ip_list"), ("apache", "remote_addresses")])
@pytest.mark.parametrize(
    ("head", "client", "addresses", "user", "destination"),
    [
        ("203.0.113.7, 10.0.0.1 - -", "203.0.113.7", ["203.0.113.7", "10.0.0.1"], None, None),
        (
            "10.1.2.3,172.16.0.1, 203.0.113.7 - a b",
            "203.0.113.7",
            ["10.1.2.3", "172.16.0.1", "203.0.113.7"],
            "a b",
            None,
        ),
        ("10.0.0.1, 192.168.1.1 - ann", "10.0.0.1", ["10.0.0.1", "192.168.1.1"], "ann", None),
        ('"unknown, 2001:db8::1" - -', "unknown", ["unknown", "2001:db8::1"], None, None),
        ("www.example.com:443 203.0.113.7 - -", "203.0.113.7", None, None, {"domain": "www.example.com", "port": 443}),
        ("www.example.com 203.0.113.7 - -", "203.0.113.7", None, None, {"domain": "www.example.com"}),
        (
            "[::1]:80 10.0.0.1, 192.0.2.1 - ann",
            "192.0.2.1",
            ["10.0.0.1", "192.0.2.1"],
            "ann",
            {"domain": "[::1]", "port": 80},
        ),
        ("www.example.com - - -", "-", None, None, {"domain": "www.example.com"}),
        ("10.0.0.1 identd ann", "10.0.0.1", None, "ann", None),
        ("10.0.0.1 - a b", "10.0.0.1", None, "a b", None),
    ],
)
def test_a_list_of_addresses_and_the_virtual_host_are_read_as_by_filebeat(
    format: str, place: str, head: str, client: str, addresses: Any, user: Any, destination: Any
) -> None:
    event = of(f"{head} {REST}", format)

    assert "tags" not in event
    assert event["source"]["address"] == client
    assert find(event, f"{format}.access.{place}") == addresses
    assert (find(event, "user.name"), event.get("destination")) == (user, destination)
    assert find(event, "http.response.body.bytes") == 153


@pytest.mark.parametrize("format", ["nginx", "apache"])
@pytest.mark.parametrize("head", ["10.0.0.1 identd a b", "a b c - d", "10.0.0.1, - -", "1," * 200 + "1 - -"])
def test_what_cannot_be_told_before_the_time_is_tagged(format: str, head: str) -> None:
    event = of(f"{head} {REST}", format)

    assert (event["tags"], event.get("source")) == (["processor_error"], None)
