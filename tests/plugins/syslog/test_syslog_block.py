"""Many messages together become what each alone becomes."""

from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from shipper.plugin import Fields
from shipper.sdk.fields import merged
from shipper_plugins.syslog.block import block
from shipper_plugins.syslog.frames import Cut
from shipper_plugins.syslog.message import Reading
from shipper_plugins.syslog.time import zone_of
from tests.benchmarks.syslogs import messages

NOW = datetime(2026, 5, 17, 12, 0, tzinfo=UTC)
BERLIN = zone_of("Europe/Berlin")
TEXTS = ["text", "", '"é\\', "\x7f", "\x00a", "\r", "a\nb", "\ufefftext", "\x1b[1m", " [a] "]

OF_5424 = [
    ["<34>", "<191>", "<0>", "<192>", "<034>", "", "\ufeff<34>"],
    ["1 ", "2 ", "1  ", ""],
    [
        *("2026-05-17T12:34:56Z", "2026-05-17T12:34:56.789012+02:00", "2026-02-30T12:34:56Z", "-"),
        *("2026-05-17t12:34:56z", "2026-05-17T12:34:60Z", "2026-05-17T12:34:56", "2026-05-17T12:34:56.1234567890Z"),
        *("0001-01-01T00:00:00+10:00", "2026-05-17T12:34:56+02:70", "2026-05-17T12:34:56,5-0530"),
    ],
    [" ", "  "],
    ["web-1", "-", "é", 'a"b', "a\\b", "x" * 255, "x" * 256],
    [" "],
    ["su", "-", "a/b"],
    [" "],
    ["23", "-", "007", "x", "12345678901"],
    [" "],
    ["ID47", "-"],
    [" "],
    [
        *("-", '[a@1 b="c"]', '[a@1 b="c" b="d"][e]', r'[a b="\" \\ \] \n ]" ]', '[a b="é"]', "[é]", "[a", "[]"),
        *('[a  b="1"  ]', '[a b="c"][a b="d"]', '[a b="x\ny"]', "[a\\b]"),
    ],
    [" ", "", "  ", "\t", " \ufeff"],
    TEXTS,
]
OF_3164 = [
    ["<34>", "<0>", "<192>", "<034>", ""],
    [
        *("May 17 12:34:56", "May  7 12:34:56", "Feb 30 00:00:00", "May 17 24:00:00", "*May 17 12:34:56", ""),
        *("2026-05-17T12:34:56.789+02:00", "2026-05-17T12:34:56Z:", "2026-05-17 12:34:56Z", "Oct 25 02:30:00"),
        *("May 17 12:34:56 2024", "May 17 12:34:56.789", "29: May 17 12:34:56"),
    ],
    [" ", "  ", ": ", ""],
    [*("web-1", "10.0.0.1", "2026", "UTC", "Z", "é", "a:b", "Message", "ab%", "-", "UTCx", "+0100", "a_b", "x" * 256)],
    [" ", "  ", " forwarded from ", ""],
    ["su", "a.b/c(d)", "é", "%SYS-5-X", "7", "CRON", "a=b", "x y", "12:30", "x" * 129],
    ["", "[23]", "[007]", "[]", "[x]", "[12345678901]"],
    [": ", ":", " ", ":  ", ":\t"],
    TEXTS,
]


@st.composite
def nearly(draw: st.DrawFn, pieces: list[list[str]]) -> bytes:
    """A message of a form, with some parts that may be others."""
    parts = [choices[0] for choices in pieces]
    for place in draw(st.sets(st.integers(0, len(parts) - 1), max_size=3)):
        parts[place] = draw(st.sampled_from(pieces[place]))
    return "".join(parts).encode()


MESSAGES = (
    nearly(OF_5424)
    | nearly(OF_3164)
    | st.binary(max_size=60)
    | st.text('<>1[]"\\= -:TZMay 0234:%*.abc\ufeff', max_size=60).map(lambda text: b"<13>" + text.encode())
    | st.sampled_from([b"\n", b"", b"<34>May 17 12:34:56 web-1 su: caf\xe9", b"<34>May 17 12:34:56 web-1 su: caf\xc3"])
)
ENDS = st.sampled_from([b"", b"\n", b"\r\n\0"])
KINDS = st.sampled_from([bytes, bytes, Cut])
FRAMES = st.builds(lambda kind, body, end: kind(body + end), KINDS, MESSAGES, ENDS)
READINGS = st.builds(
    Reading,
    encoding=st.sampled_from(["utf-8", "utf-8", "latin-1", "shift_jis", "gb18030"]),
    zone=st.sampled_from([UTC, BERLIN]),
    keeps_original=st.booleans(),
)


def alone(reading: Reading, frames: list[bytes], sources: list[str]) -> list[Fields]:
    made = [reading.event(frame, NOW, is_cut=isinstance(frame, Cut)) for frame in frames]
    pairs = zip(made, sources, strict=True)
    return [merged(event, {"log": {"source": {"address": source}}}) for event, source in pairs if event is not None]


def together(reading: Reading, frames: list[bytes], sources: Any) -> list[Fields]:
    return list(map(orjson.loads, block(reading, frames, sources, NOW).documents.split(b"\n")[:-1]))


@given(READINGS, st.lists(FRAMES, max_size=8))
@example(Reading(zone=BERLIN), [b"<34>Oct 25 02:30:00 web-1 su: a", b"<34>Mar 29 02:30:00 web-1 su: a"])
def test_messages_become_together_what_each_alone_becomes(reading: Reading, frames: list[bytes]) -> None:
    sources = [f"10.0.0.{place}:514" for place in range(len(frames))]

    assert together(reading, frames, [one.encode() for one in sources]) == alone(reading, frames, sources)
    assert together(reading, frames, b"/run/log") == alone(reading, frames, ["/run/log"] * len(frames))


@given(READINGS, st.lists(FRAMES, max_size=8))
def test_it_is_known_whether_each_event_has_a_host(reading: Reading, frames: list[bytes]) -> None:
    events = together(reading, frames, b"x")

    assert block(reading, frames, b"x", NOW).have_hosts == all("host" in event for event in events)


def test_ordinary_messages_are_not_read_alone() -> None:
    of_bsd = b"<34>May 17 12:34:56 web-1 su[23]: text"
    with_data = b'<34>1 2026-05-17T12:34:56.789012+02:00 web-1 su 23 ID47 [a@1 b="c \\" d"] \xef\xbb\xbfcaf\xc3\xa9'
    frames = [*messages(100), *messages(100, "3164"), of_bsd, with_data]
    with patch.object(Reading, "event", side_effect=AssertionError):
        assert len(together(Reading(), frames, b"x")) == 202
