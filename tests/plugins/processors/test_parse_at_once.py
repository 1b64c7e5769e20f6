"""`parse` reads text lines all at once: whatever they hold, it makes of them what it makes of each alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Batch, Fields
from shipper.sdk.editing import tagged_here
from shipper_plugins.processors.formats import json_runs
from shipper_plugins.processors.parse import Parse
from tests.plugins.processors.parsing import assert_as_alone, assert_documents_as_alone

SHARED: list[Fields] = [
    {},
    {"@timestamp": "2026-01-01T00:00:00.000Z", "log": {"file": {"path": "/a"}}, "data_stream": {"dataset": "x"}},
    {"@timestamp": "2026-01-01T00:00:00.000Z", "tags": ["a"], "host": {"name": "h"}},
    {"source": {"port": 1}, "http": {"request": {"id": "7"}}, "log": {"level": "info"}},
    {"url": "/", "app": "shop", "user": {"id": 1}},
]


# -- nginx -------------------------------------------------------------------------------------------------------------

ORDINARY = [
    *("10.1.2.3", "-", "-", "17/May/2026:12:34:56 +0200"),
    *("GET /a?b=1 HTTP/1.1", "200", "153", "-", "curl/8.5.0", ""),
]
STRANGE = [
    ["01.2.3.4", "256.1.1.1", "1.2.3", "1.2.3.4.5", "::1", "fe80::1%e", "unix:", 'a"b', "a\\b", "é", "", "a b", "\xa0"],
    ["é", "a b", "", '"'],
    ["ann", "a b", "", "é", "[x", 'a"', "\\x41", "a [17/May/2026:12:34:56 +0000] b", "- [", "\x7f"],
    [
        *("17/May/2026:12:34:59 +0200", "17/May/2026:12:34:56 -0030", "01/Jan/0001:00:00:00 +0100"),
        *("31/Feb/2026:12:34:56 +0000", "17/Foo/2026:12:34:56 +0000", "17/May/2026:24:00:00 +0000"),
        *("17/May/2026:12:34:60 +0000", "17/May/2026:12:34:56 +9900", "17/May/2026:12:34:56 +0099", "\u0661\u0667/May"),
    ],
    [
        *(
            "GET /a b HTTP/1.1",
            "GET /",
            "GET",
            "",
            "-",
            "\\x16\\x03",
            "GET /\\xE2\\x82\\xAC HTTP/2.0",
            "GET /é HTTP/1.1",
        ),
        *("CONNECT a:443 HTTP/1.1", "GET / HTTP/2", "GET / HTTP/1.12", "GET  / HTTP/1.1", "GE\tT / HTTP/1.1"),
        *(
            "GET / HTTP/1.1 HTTP/1.1",
            f"{'G' * 33} / HTTP/1.1",
            "G\u00cbT / HTTP/1.1",
            "GET \x7f HTTP/1.1",
            'GET /" HTTP/1.1',
        ),
    ],
    ["000", "099", "404", "20", "2000", "\u0662\u0660\u0660"],
    ["0", "007", "-", "", "9" * 18, "9" * 19, "9" * 25, "9" * 5000, "1.5", "\u0662"],
    ["", "https://x.org/", "é", 'a\\"b', "\\x22", "\x7f", "\t", "\x00", " ", '" "'],
    ["", "-", "é", 'a\\"b', "\\x22\\xFF", "\\", "\x7f", "\t", "\u2028", " ", '" "', "<b>&'"],
    [' "1.1.1.1"', "\r", " é\x00", '"', "x"],
]
ERRORS = [
    '2026/05/17 12:34:56 [error] 31#32: *7 open() "/x" failed, client: 10.0.0.1, server: s, request: "GET /x HTTP/1.1"',
    "2026/05/17 12:34:56 [notice] 1#1: start worker processes",
    "2026/13/17 12:34:56 [error] 1#1: x",
    "",
    "hello",
]


def access_line(parts: list[str]) -> str:
    address, ident, user, time, request, status, size, referrer, agent, rest = parts
    return f'{address} {ident} {user} [{time}] "{request}" {status} {size} "{referrer}" "{agent}"{rest}'


@st.composite
def access_lines(draw: st.DrawFn) -> str:
    parts = list(ORDINARY)
    for place in draw(st.sets(st.integers(0, len(parts) - 1), max_size=2)):
        parts[place] = draw(st.sampled_from(STRANGE[place]))
    return access_line(parts)


@st.composite
def damaged_lines(draw: st.DrawFn) -> str:
    line = access_line(ORDINARY)
    at = draw(st.integers(0, len(line)))
    return (
        line[:at]
        + draw(st.text(st.sampled_from(' "\\[]-0aé\x7f\x00\t'), max_size=2))
        + line[draw(st.integers(at, at + 2)) :]
    )


any_text = st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=20)


@given(
    st.lists(access_lines() | damaged_lines() | st.sampled_from(ERRORS) | any_text, max_size=6),
    st.sampled_from(SHARED),
)
def test_lines_of_nginx_become_what_each_alone_becomes(lines: list[str], shared: Fields) -> None:
    assert_as_alone(Parse(format="nginx"), lines, shared)


def test_one_strange_part_changes_no_other_line() -> None:
    for place in range(len(ORDINARY)):
        ordinary = access_line(ORDINARY)
        for number, strange in enumerate(STRANGE[place]):
            line = access_line([*ORDINARY[:place], strange, *ORDINARY[place + 1 :]])
            assert_as_alone(Parse(format="nginx"), [ordinary, line, ordinary], SHARED[number % len(SHARED)])


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few objects are already more than are read together."""
    monkeypatch.setattr(json_runs, "_RUN", 16)


def test_a_strange_line_among_many_changes_no_other() -> None:
    for strange in ["", "hello", ERRORS[0]]:
        for addresses in [["10.1.2.3"], ["10.1.2.3", "::1"], ["10.1.2.3", "web-1"]]:
            lines = [access_line([addresses[n % len(addresses)], *ORDINARY[1:8], f"a{n}", ""]) for n in range(100)]
            for place in (0, 50, 99):
                lines[place] = strange

            assert_as_alone(Parse(format="nginx"), lines, SHARED[1])


def test_lines_of_which_none_is_ordinary_become_what_each_alone_becomes() -> None:
    assert_as_alone(Parse(format="nginx"), ERRORS * 40, SHARED[1])


def test_an_event_is_counted_as_tagged_once_however_often_it_was_read() -> None:
    ordinary, no_time = access_line(ORDINARY), access_line([*ORDINARY[:3], "31/Feb/2026:12:34:56 +0000", *ORDINARY[4:]])
    lines = ["hello", *[ordinary] * 100, no_time]
    before = tagged_here()

    made = Parse(format="nginx").process(Batch.lines("\n".join([*lines, ""]).encode(), offset=0, shared=SHARED[1]))

    assert tagged_here() - before == sum("tags" in event for event in made.own()) == 2


# -- json --------------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "@timestamp", "tags", "host", "url", "message", "app", "é", 'q"', "a/b", "", "\x7f"])
GROUPS = st.sampled_from(["log", "data_stream", "source"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\x7f"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | GROUPS, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4) | st.dictionaries(KEYS | GROUPS, VALUES, max_size=4)
TEXTS = st.sampled_from(
    [
        "",
        "{}",
        " { } ",
        "[]",
        "1",
        "null",
        '{"a":1,"a":2}',
        '{"a":[1',
        "2]}",
        '{},{"b":1}',
        '{"a":1.50}',
        '{"\\u006cog":1}',
        '{"a":["","\x7f",""]}',
        '{"n":' + "[" * 252 + "]" * 252 + "}",
        '{"n":' + "[" * 253 + "]" * 253 + "}",
        '{"a":1}\r',
    ]
)
SPACED = OBJECTS.map(json.dumps)
PLAIN = OBJECTS.map(lambda made: json.dumps(made, ensure_ascii=False, separators=(",", ":")))


@given(
    st.lists(SPACED | PLAIN, max_size=5) | st.lists(SPACED | PLAIN | TEXTS, max_size=5),
    st.sampled_from(SHARED),
    st.sampled_from([None, None, "app", "app.x", "log", "log.x", "@timestamp", "tags", "data_stream", "a.b.c"]),
)
def test_objects_become_what_each_alone_becomes(lines: list[str], shared: Fields, target: str | None) -> None:
    assert_as_alone(Parse(format="json", target=target), lines, shared)


@pytest.mark.usefixtures("short_runs")
def test_one_object_of_many_may_have_a_shared_field() -> None:
    for text in ['{"@timestamp":"own"}', '{"tags":1,"@timestamp":2}', '{"host":{"ip":1}}', "bad", "{}"]:
        for place in [0, 15, 32, 49]:
            lines = [f'{{"n":{number}}}' for number in range(50)]
            lines[place] = text

            assert_as_alone(Parse(format="json"), lines, SHARED[2])


@pytest.mark.usefixtures("short_runs")
def test_one_object_of_many_may_have_other_groups() -> None:
    for text in [
        *('{"a":{"b":{"c.d":1,"c":2}},"l":[{"x":1}]}', '{"a":{"b":{"":1}},"l":[{"x":1}]}', '{"n":{"c.d":1,"c":2}}'),
        *(
            '{"a":{"b":{"c":1}},"l":[{"x":1},{"x":{"y":1}}]}',
            '{"a":{"b":{"c":1}},"l":[{"x.y":1},1]}',
            '{"a":"{","l":1}',
        ),
        *(
            '{"a":{"b":"{{{"},"l":[]}',
            '{"a":[{"b.c":1,"b":1}]}',
            '{"l":[[{"x":1},{"x":{"":1}}]]}',
            '{"a":{},"l":{"":1}}',
        ),
    ]:
        for place in [0, 19]:
            lines = ['{"a":{"b":{"c":1}},"l":[{"x":1},{"x":2}]}'] * 20
            lines[place] = text

            assert_as_alone(Parse(format="json"), lines, SHARED[2])


# -- documents ---------------------------------------------------------------------------------------------------------

OWN = st.dictionaries(
    st.sampled_from(["stream", "@timestamp", "log", "a", "tags", "app", "x.y", "message"]),
    st.sampled_from(["stdout", 1, {"offset": 7}, {"flags": ["x"], "level": "y"}, ["t"]]),
    max_size=3,
)
NARROW = st.fixed_dictionaries(
    {"stream": st.just("stdout")}, optional={"log": st.sampled_from([{"offset": 7}, {"flags": ["x"]}])}
)
LEVELS = st.fixed_dictionaries({"a": st.integers()}, optional={"log": st.sampled_from([{"level": "i"}, {"offset": 1}])})
KV = st.lists(st.sampled_from(["a=1", 'b="x y"', "message=m", "log=1", "c.d=2", "x", "stream=s"]), max_size=4)


@given(
    st.lists(OWN, min_size=4, max_size=4) | st.lists(NARROW, min_size=4, max_size=4),
    st.lists(SPACED | LEVELS.map(json.dumps) | TEXTS | st.none(), max_size=4)
    | st.lists(LEVELS.map(json.dumps), max_size=4),
    st.sampled_from(SHARED),
    st.sampled_from([None, None, "app", "app.x", "log", "message"]),
)
def test_objects_in_documents_become_what_each_alone_becomes(
    owns: list[Fields], texts: list[object], shared: Fields, target: str | None
) -> None:
    events = [{**own, "message": text} if text is not None else own for own, text in zip(owns, texts, strict=False)]
    assert_documents_as_alone(Parse(format="json", target=target), events, shared)


@given(
    st.lists(OWN, min_size=4, max_size=4) | st.lists(NARROW, min_size=4, max_size=4),
    st.lists(KV.map(" ".join), max_size=4),
    st.sampled_from(SHARED),
)
def test_pairs_in_documents_become_what_each_alone_becomes(
    owns: list[Fields], texts: list[str], shared: Fields
) -> None:
    events = [{**own, "message": text} for own, text in zip(owns, texts, strict=False)]
    assert_documents_as_alone(Parse(format="kv"), events, shared)
