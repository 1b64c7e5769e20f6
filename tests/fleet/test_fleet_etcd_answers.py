"""What etcd's errors mean; any bytes may be one, and none of them gets into a text."""

from __future__ import annotations

import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from shipper.fleet.etcd.answers import (
    AuthenticationOff,
    LeaseEnded,
    Line,
    NotDone,
    Range,
    TokenRefused,
    Txn,
    canceled,
    decoded,
    failed,
)
from shipper.fleet.store import Compacted, StoreRefused, StoreUnreachable


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def error(message: str, code: int) -> bytes:
    return json.dumps({"error": message, "code": code, "message": message}).encode()


def test_each_error_of_etcd_has_its_kind_and_its_text():
    for message, code, kind in [
        ("etcdserver: invalid auth token", 16, TokenRefused),
        ("etcdserver: user name is empty", 3, TokenRefused),
        ("etcdserver: revision of auth store is old", 3, TokenRefused),
        ("etcdserver: no leader", 14, NotDone),
        ("etcdserver: too many requests", 8, NotDone),
        ("etcdserver: request timed out", 14, StoreUnreachable),
        ("etcdserver: permission denied", 7, StoreRefused),
        ("etcdserver: requested lease not found", 5, LeaseEnded),
        ("etcdserver: mvcc: database space exceeded", 8, StoreRefused),
        ("etcdserver: mvcc: required revision has been compacted", 11, Compacted),
        ("etcdserver: authentication is not enabled", 9, AuthenticationOff),
        ("etcdserver: request is too large", 3, StoreRefused),
    ]:
        found = failed(error(message, code), "etcd-1:2379", 400, "read /shipper/prod/head")

        assert type(found) is kind
        assert message.removeprefix("etcdserver: ") in str(found)
        assert str(found).startswith("etcd-1:2379: read /shipper/prod/head: ")


def test_an_error_of_a_stream_is_read_too():
    raw = b'{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}'

    assert type(failed(raw, "host", 503, "watch")) is NotDone


def test_an_unknown_outcome_is_no_refusal():
    for code in (1, 2, 4, 10, 13, 14):
        assert type(failed(error("context canceled", code), "host", 500, "write head")) is StoreUnreachable


def test_a_page_of_a_proxy_is_said_to_be_none_of_etcd():
    found = failed(b"<html>502 Bad Gateway</html>", "host", 502, "write head")

    assert type(found) is StoreUnreachable
    assert str(found) == "host: an answer that is not etcd's (HTTP 502) to: write head"


def test_a_canceled_watch_names_the_missing_right():
    found = canceled("rpc error: code = PermissionDenied desc = etcdserver: permission denied", "host", "watch head")

    assert type(found) is StoreRefused
    assert "readwrite" in str(found)


@given(st.binary() | st.builds(lambda text: error(f"{text} CANARY", 3), st.text()))
def test_nothing_that_a_stranger_answers_is_quoted(raw: bytes):
    assert "CANARY" not in str(failed(raw, "host", 500, "read head"))


@given(st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(encoded))
def test_any_bytes_are_an_answer_or_one_error(raw: bytes):
    for kind in (Range, Txn, Line):
        with suppress(StoreUnreachable):
            assert isinstance(decoded(raw, kind, "host"), kind)


def test_numbers_are_strings_and_what_is_zero_is_absent():
    found = decoded(b'{"header":{"revision":"9223372036854775807"},"kvs":[{"key":"L2E="}]}', Range, "host")

    assert found.header.revision == 2**63 - 1
    assert (found.kvs[0].key, found.kvs[0].value, found.kvs[0].mod_revision) == (b"/a", b"", 0)
