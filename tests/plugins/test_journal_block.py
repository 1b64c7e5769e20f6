"""Entries of the journal become together what each becomes alone."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Fields, merged
from shipper_plugins.inputs import journal_block, journal_fields
from shipper_plugins.inputs.journal_export import Entry

OTHERS = [*journal_fields._PLACES, "PRIORITY", "SYSLOG_FACILITY", "_HOSTNAME", "X", "_X", "__", "__SEQNUM"]
VALUES = (
    st.text(max_size=3) | st.sampled_from(["7", "24", "9" * 30, "x" * 3000]) | st.lists(st.text(max_size=2), min_size=2)
)
TIMES = st.sampled_from(["0", "1779019200123999", "1779019200123456", "9223372036854775", "16" + "0" * 15, "x"])
ENTRIES = st.builds(
    lambda others, some: {**others, **some},
    st.dictionaries(st.sampled_from(OTHERS), VALUES, max_size=6),
    st.fixed_dictionaries({"__REALTIME_TIMESTAMP": TIMES, "MESSAGE": st.text(max_size=5)}),
)
COMMON: Entry = {
    "__CURSOR": "s=1",
    "__REALTIME_TIMESTAMP": "1779019200123456",
    "MESSAGE": 'it "works" é\n',
    "_HOSTNAME": "web-1",
    "_PID": "7",
}
BESIDE = {"event": {"dataset": "journal"}, "ecs": {"version": "8.17.0"}}


def alone(entry: Entry) -> Fields:
    event = merged(BESIDE, journal_fields.event(entry))
    event.pop("@timestamp", None)
    return event


def together(entries: list[Entry]) -> Any:
    return journal_block.batch(entries, "journal")


@given(st.lists(ENTRIES | st.dictionaries(st.sampled_from(OTHERS), VALUES), min_size=1, max_size=4))
def test_entries_become_together_what_each_becomes_alone(entries: list[Entry]) -> None:
    batch = together(entries)

    events = batch.whole()
    times = [event.pop("@timestamp", None) for event in events]
    assert events == [alone(entry) for entry in entries]
    assert list(batch.timestamps) == [journal_fields.nanoseconds(entry) for entry in entries]
    assert all(time is not None for time in times) or not batch.complete
    assert "host" not in batch.complete or all("name" in event["host"] for event in events)


def test_what_repeats_is_made_once() -> None:
    entries = [{**COMMON, "MESSAGE": f"repeated {number}"} for number in range(100)]
    with patch.object(journal_block, "event", side_effect=journal_fields.event) as made:
        events = together(entries).whole()

    assert made.call_count == 1
    assert events[99] == {**alone(entries[99]), "@timestamp": "2026-05-17T12:00:00.123Z"}
