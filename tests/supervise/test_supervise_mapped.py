"""What the lines of a secret mean: what stands in them, or nothing."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.supervise.mapped import fields_of
from shipper.supervise.secrets import interpreted

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    "text", ["12345", "0x1F", "1e3", "true", "null", "~", "no", "a b", "a#b", "2026-11-28", "12:30", "it's", 'a"b']
)
def test_a_line_is_what_stands_in_it(text: str) -> None:
    for content in (f"username: ann\npassword: {text}", f"password:   {text}  \r\nusername: ann\r\n"):
        assert interpreted(content).fields == {"username": "ann", "password": text}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "password: hunter2 #1",
            "the value of `password` has a # that may begin a comment: omit the comment, or write the secret as JSON",
        ),
        ("password: #hunter2", "the value of `password` has a # that may begin a comment"),
        ('password: "hunter2"', "the value of `password` is in quotes, which may belong to it: omit them, or write"),
        ("password: 'hunter2'", "the value of `password` is in quotes"),
        ("password: hunter2\n  more", "the value of `password` goes on in the next line"),
        (
            "password: @hunter2",
            "it looks like a mapping, and cannot be read as one from line 2 on; write the secret as JSON",
        ),
        ("password: hunter2: x", "it looks like a mapping, and cannot be read as one from line 2 on"),
        ("password:", "the value of `password` must be a text that is not empty"),
        ("password: [hunter2]", "the value of `password` must be a text"),
    ],
)
def test_a_line_that_may_be_meant_otherwise_is_refused_by_the_name_of_its_field(line: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        interpreted(f"username: ann\n{line}\n")

    assert str(caught.value).startswith(why)
    assert "hunter2" not in str(caught.value)


def test_json_a_block_and_pem_in_quotes_are_meant_as_they_are_read() -> None:
    for content, fields in [
        ('{"username": "ann", "password": "secret #1"}', {"username": "ann", "password": "secret #1"}),
        ("{username: ann, password: 'secret'}", {"username": "ann", "password": "secret"}),
        ("password: |-\n  secret #1\n", {"password": "secret #1"}),
        (f"certificate: {json.dumps(PEM)}\nkey: x", {"certificate": PEM, "key": "x"}),
    ]:
        assert fields_of(content) == fields


def test_a_number_in_json_is_refused_by_the_name_of_its_field() -> None:
    with pytest.raises(
        ValueError, match="the value of `password` must be a text that is not empty, and in JSON in quotes"
    ):
        fields_of('{"username": "ann", "password": 12345}')


@given(st.text(min_size=1))
def test_a_password_is_sent_as_it_stands_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        sent = interpreted(f"username: ann\npassword: {text}").fields["password"]
        assert sent == text.strip() or text.lstrip()[:1] in ("|", ">") or len(text.splitlines()) > 1
