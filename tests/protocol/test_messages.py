"""What can be said: whatever arrives is a message or one error that quotes nothing of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.protocol import messages
from shipper.protocol.messages import CAPABILITIES, Ack, Error, Hello, Lease, Policy, Ready, Stop, parse
from shipper.values import Counts, CredentialUse, Revision, Revisions

SECRET = "sEcReT-0123456789"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.just(SECRET) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "protocol",
    "state_keys",
    "revision",
    "policy",
    "epoch",
    "credentials",
    "params",
    "within_seconds",
    "until",
    "id",
    "name",
]


def complaint(line: bytes) -> str:
    """What `parse` says against a line; nothing else is raised."""
    try:
        parse(line)
    except ValueError as error:
        return str(error)
    return ""


@given(st.binary(max_size=200))
def test_bytes_are_a_message_or_a_value_error(line: bytes) -> None:
    assert len(complaint(line)) < 300


@given(
    st.sampled_from(["hello", "policy", "credentials", "lease", "observe", "action", "stop", SECRET, 5]),
    st.dictionaries(st.sampled_from(KEYS), json_values),
)
def test_an_error_quotes_no_value(kind: object, fields: dict[str, Any]) -> None:
    line = json.dumps({"type": kind, **fields}).encode()

    assert SECRET not in complaint(line)


def test_what_does_not_fit_is_one_value_error() -> None:
    for line in [
        b"",
        b"null",
        b"[]",
        b'"hello"',
        b"{}",
        b"\xff",
        b'{"type":"\\ud800"}',
        b'{"type":"observe","unknown":"\xff"}',
        b'{"type":"observe","\xff":1}',
        b"[" * 100_000,
        b'{"type":"hello","protocol":1,"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"type":"hello","protocol":' + b"9" * 5000 + b"}",
        b'{"type":"stop","within_seconds":1e999}',
        b'{"type":"stop","within_seconds":-1}',
        b'{"type":"policy","revision":-1,"policy":""}',
        b'{"type":"policy","revision":18446744073709551616,"policy":""}',
        b'{"type":"policy","revision":1.5,"policy":""}',
        b'{"type":"policy","revision":1}',
    ]:
        with pytest.raises(ValueError):
            parse(line)


def test_unknown_keys_are_ignored() -> None:
    assert parse(b'{"type":"hello","protocol":1,"new":{"a":1}}') == Hello(protocol=1)
    assert parse(b'{"type":"stop"}') == Stop(within_seconds=20.0)


def test_an_unknown_type_is_named_only_if_it_looks_like_one() -> None:
    with pytest.raises(ValueError, match="`bye`"):
        parse(b'{"type":"bye"}')
    with pytest.raises(ValueError) as raised:
        parse(json.dumps({"type": SECRET}).encode())
    assert SECRET not in str(raised.value)


def test_no_repr_shows_a_secret() -> None:
    hello = parse(json.dumps({"type": "hello", "protocol": 1, "state_keys": [{"id": "k", "key": SECRET}]}).encode())
    given = {"type": "policy", "revision": 1, "policy": SECRET, "credentials": {"a": {"api_key": SECRET}}}

    assert SECRET not in repr(hello)
    assert SECRET not in repr(parse(json.dumps(given).encode()))
    assert SECRET not in repr(parse(json.dumps({"type": "credentials", "credentials": {"a": SECRET}}).encode()))


def test_epochs_come_first() -> None:
    assert Revision(0, 9) < Revision(1, 0)
    assert Policy(revision=3, policy="", epoch=2).at == Revision(2, 3)


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_a_revision_is_read_as_it_was_written(epoch: int, number: int) -> None:
    assert Revision.parse(str(Revision(epoch, number))) == Revision(epoch, number)


def test_an_ack_says_its_epoch_and_all_of_its_ledger_even_if_zero() -> None:
    ack = Ack(
        epoch=0,
        revision=7,
        sha256="s",
        stage="drained",
        change="live",
        credentials=CredentialUse([], []),
        ledger=Counts(),
    )
    said = json.loads(ack.line())

    assert said["type"] == "ack"
    assert said["epoch"] == 0
    assert said["ledger"] == {
        "accepted": 0,
        "delivered": 0,
        "duplicate": 0,
        "dead_letter": 0,
        "dropped": 0,
        "damaged": 0,
        "superseded": 0,
    }
    assert said["credentials"] == {"in_use": [], "released": []}


def test_an_ack_of_an_earlier_stage_has_neither_credentials_nor_ledger() -> None:
    said = json.loads(Ack(epoch=1, revision=7, sha256="s", stage="active", change="none").line())

    assert sorted(said) == ["change", "epoch", "revision", "sha256", "stage", "type"]


def test_an_ack_that_was_stored_is_said_again_identically() -> None:
    ack = Ack(epoch=0, revision=7, sha256="s", stage="drained", change="live", ledger=Counts(accepted=1, damaged=1))

    assert msgspec.json.decode(msgspec.json.encode(ack), type=Ack).line() == ack.line()


def test_revisions_are_said_as_pairs_or_null() -> None:
    assert json.loads(msgspec.json.encode(Revisions(active=Revision(0, 7)))) == {
        "received": None,
        "active": [0, 7],
        "drained": None,
    }


@given(st.text(st.characters(), max_size=20))
def test_every_message_is_one_line_of_json_whatever_text_is_in_it(text: str) -> None:
    line = Error(line_number=1, message=text + "\udcff\\udcff").line()

    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line.decode())["type"] == "error"
    assert json.loads(line)["message"].endswith("\\udcff")


def test_a_line_is_at_most_4_mib() -> None:
    assert messages.MAX_LINE_BYTES == 4 * 1024 * 1024


def test_a_lease_says_its_end_or_that_none_is_needed() -> None:
    assert parse(b'{"type":"lease","until":12.5}') == Lease(until=12.5)
    assert parse(b'{"type":"lease","until":null}') == Lease(until=None)
    for line in (b'{"type":"lease"}', b'{"type":"lease","until":true}', b'{"type":"lease","until":1e999}'):
        with pytest.raises(ValueError):
            parse(line)


def test_a_shipper_says_what_it_can_do() -> None:
    ready = Ready(
        version="1",
        pid=1,
        instance="i",
        http=None,
        revisions=Revisions(),
        credentials_in_use=(),
        credentials_wanted=(),
        capabilities=CAPABILITIES,
    )

    assert json.loads(ready.line())["capabilities"] == ["lease", "withdraw", "state", "accepted"]
