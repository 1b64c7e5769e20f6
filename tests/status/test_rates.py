"""Rates of counters, from documents that are made at any times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shipper.status.rates import NO_RATES, Rates, Samples, sample
from tests.status.documents import SERVED, asked, later


def taken(events: int) -> dict[str, object]:
    return {"state": "HEALTHY", "inputs": {"logs": {"events": events}}}


def test_one_document_gives_no_rate():
    assert NO_RATES.of("inputs", "logs", "events") is None
    assert Samples().rates(taken(5), 0.0).of("inputs", "logs", "events") is None


def test_a_counter_that_fell_gives_no_rate_since_the_process_is_another_one():
    rates = Rates(sample(taken(3), 10.0), sample(taken(900), 0.0))

    assert rates.of("inputs", "logs", "events") is None


def test_what_was_never_counted_before_rises_from_zero():
    """A new input, or the first answer of a kind."""
    rates = Rates(sample(later(), 5.0), sample({"state": "STARTING", "inputs": {}, "outputs": {}, "counters": {}}, 0.0))

    assert rates.of("inputs", "access", "events") == 4300.0
    assert rates.of("responses", "main", "503") == 1.0


def test_a_document_without_counters_gives_no_rate_to_the_next_one_with_them():
    rates = Rates(sample(later(), 5.0), sample(asked(), 0.0))

    assert rates.of("inputs", "access", "events") is None
    assert rates.of("responses", "main", "503") is None
    assert rates.change("queue", "", "events") == 0.0


def test_both_documents_have_the_same_drains_and_queue():
    assert sample(asked(), 0.0).counters.items() <= sample(SERVED, 0.0).counters.items()


@given(st.lists(st.floats(0, 30), min_size=1, max_size=60))
def test_the_rate_of_a_steady_counter_is_steady_whoever_looks_and_when(waits):
    """Several pages, each at its own pace, look at the same shipper."""
    samples, at = Samples(), 0.0
    for wait in waits:
        at += wait
        rate = samples.rates({"state": "HEALTHY", "inputs": {"logs": {"events": 7 * at}}}, at)
        found = rate.of("inputs", "logs", "events")
        assert found is None or abs(found - 7.0) < 1e-6


def test_a_rate_is_over_the_last_seconds():
    samples = Samples()
    for at in range(100):
        rates = samples.rates(taken(0 if at < 50 else (at - 50) * 10), float(at))

    assert rates.of("inputs", "logs", "events") == 10.0


def test_after_a_pause_the_rate_starts_anew():
    samples = Samples()
    samples.rates(taken(0), 0.0)
    after = samples.rates(taken(10), 3600.0)
    soon = samples.rates(taken(20), 3602.0)

    assert after.of("inputs", "logs", "events") is None
    assert soon.of("inputs", "logs", "events") == 5.0
