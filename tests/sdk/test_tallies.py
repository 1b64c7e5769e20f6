"""What is counted for metrics: labels that nobody outside can multiply, and buckets that hold every request."""

from __future__ import annotations

from shipper.sdk.tallies import BOUNDS, Requests


def test_a_status_that_is_no_code_of_three_digits_is_counted_as_other() -> None:
    requests = Requests()
    for code in (200, 401, 401, 99, 1000, -200):
        requests.answered(0.1, code)

    assert requests.responses == {"200": 1, "401": 2, "other": 3}


def test_every_request_is_in_one_bucket_however_long_it_took() -> None:
    requests = Requests()
    for seconds in (0.0, *BOUNDS, 61.0, 1e9):
        requests.answered(seconds)
    requests.failed(0.03, "timeout")

    assert requests.view()["buckets"] == [2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]
    assert requests.view()["requests"] == len(BOUNDS) + 4
    assert requests.view()["failures"] == {"timeout": 1}
