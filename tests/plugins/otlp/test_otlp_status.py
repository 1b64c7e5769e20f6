import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.otlp import status
from shipper_plugins.otlp.status import Grpc


@given(st.integers(0, 16), st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 3_600_000))
def test_a_status_is_read_as_it_was_written(code, message, milliseconds):
    body = status.written(code, message, milliseconds / 1000)

    assert status.retry_delay(body) == pytest.approx(milliseconds / 1000)
    assert status.message_of(body, "application/x-protobuf") == message


@given(st.binary())
def test_any_bytes_are_a_status_or_none(body):
    status.retry_delay(body)
    status.message_of(body, "application/x-protobuf")
    for kind in ("application/json", "application/x-protobuf", "text/html"):
        status.is_status(body, kind)


def test_a_status_without_a_delay_has_none():
    assert status.retry_delay(status.written(Grpc.UNAVAILABLE, "later")) is None


def test_a_page_of_a_proxy_is_no_status():
    assert not status.is_status(b"<html>", "text/html")
    assert status.is_status(status.written(3, "bad"), "application/x-protobuf")
    assert status.is_status(status.written_as_json(3, "bad"), "application/json; charset=utf-8")


def test_a_long_delay_is_cut_to_an_hour():
    assert status.retry_delay(status.written(14, "", 1e6)) == status.LONGEST_WAIT


def test_every_code_has_a_status_of_http():
    assert set(status.HTTP_OF) == set(Grpc)
