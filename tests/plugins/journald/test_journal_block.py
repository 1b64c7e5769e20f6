"""Entries of the journal become together what each becomes alone."""

from __future__ import annotations

import struct
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.plugin import Fields
from shipper.sdk.fields import merged
from shipper_plugins.journald import block, fields
from shipper_plugins.journald.export import Entry, Exported

OTHERS = [
    *(*fields._PLACES, "PRIORITY", "SYSLOG_FACILITY", "_HOSTNAME", "X", "_X", "__", "__CURSOR"),
    *("SYSLOG_TIMESTAMP", "_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP", "XMESSAGE"),
]
VALUES = st.sampled_from(
    [b"", b"a", b"7", b"24", b"9" * 30, b"x" * 3000, b"a=b", b"caf\xc3\xa9", b"caf\xc3", b'"\\\x7f']
)
BINARY = st.sampled_from([b"a\nb", b"\n\n", b"\nMESSAGE=a\n", b""])
TIMES = st.sampled_from([b"0", b"1779019200123999", b"1779019200123456", b"9223372036854776", b"16" + b"0" * 15, b"x"])
NUMBERS = st.sampled_from([b"", b"__SEQNUM=7\n__SEQNUM_ID=0f\n", b"_BOOT_ID=0f\n"])
BESIDE = {"event": {"dataset": "journal"}, "ecs": {"version": "8.17.0"}}


def binary(name: str, value: bytes) -> bytes:
    return b"%b\n%b%b\n" % (name.encode(), struct.pack("<Q", len(value)), value)


NAMES = st.sampled_from(OTHERS)
FIELDS = st.builds(lambda name, value: b"%b=%b\n" % (name.encode(), value), NAMES, VALUES)
ENTRIES = st.builds(
    lambda time, numbers, before, message, behind: b"".join(
        [b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=%b\n__MONOTONIC_TIMESTAMP=1\n" % time, numbers, *before, message, *behind]
    ),
    *(TIMES, NUMBERS, some := st.lists(FIELDS | st.builds(binary, NAMES, BINARY), max_size=4)),
    VALUES.map(lambda text: b"MESSAGE=%b\n" % text) | st.just(b""),
    some,
)
COMMON = b"__CURSOR=s=%d\n__REALTIME_TIMESTAMP=1779019200123456\n__MONOTONIC_TIMESTAMP=1\n_HOSTNAME=web-1\n_PID=7\n"


def alone(entry: Entry) -> Fields:
    event = merged(BESIDE, fields.event(entry))
    event.pop("@timestamp", None)
    return event


@given(st.lists(ENTRIES | st.lists(FIELDS, min_size=1, max_size=3).map(b"".join), min_size=1, max_size=4))
@settings(deadline=None)
def test_entries_become_together_what_each_becomes_alone(texts: list[bytes]) -> None:
    exported = b"".join(text + b"\n" for text in texts)
    entries = Exported().feed(exported)
    cuts = Exported(block.cut).feed(exported)

    batch = block.batch(cuts, "journal")

    events = batch.whole()
    times = [event.pop("@timestamp", None) for event in events]
    assert events == [alone(entry) for entry in entries]
    assert list(batch.timestamps or ()) == [fields.nanoseconds(entry) for entry in entries]
    assert all(time is not None for time in times) or not batch.complete
    assert "host" not in batch.complete or all("name" in event["host"] for event in events)
    assert [block.cursor(one) for one in cuts] == [block.cursor(entry) for entry in entries]


def test_what_repeats_is_made_once() -> None:
    text = b"".join(
        COMMON % number
        + b"SYSLOG_TIMESTAMP=%d\nMESSAGE=caf\xc3\xa9 %d\n_SOURCE_REALTIME_TIMESTAMP=%d\n\n" % ((number,) * 3)
        for number in range(100)
    )
    entries = Exported(block.cut).feed(text)
    with patch.object(block, "event", side_effect=fields.event) as made:
        events = block.batch(entries, "journal").whole()

    assert made.call_count == 1
    assert events[99] == {
        **BESIDE,
        "@timestamp": "2026-05-17T12:00:00.123Z",
        "message": "café 99",
        "host": {"name": "web-1", "hostname": "web-1"},
        "process": {"pid": 7},
    }
