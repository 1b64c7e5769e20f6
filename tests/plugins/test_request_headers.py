"""Additional headers of requests, and their secret values."""

import pytest

from shipper.plugin import BadOption, Credential
from shipper_plugins.request_headers import check_headers, plain, secret_values, suspicious


def test_the_value_is_the_secret_itself():
    credentials = {"a": Credential.parse({"token": "t"}), "b": Credential.parse({"api_key": "id:secret"})}

    assert secret_values({"X-A": "a", "X-B": "b"}, credentials) == {"X-A": "t", "X-B": "id:secret"}


@pytest.mark.parametrize(
    "fields",
    [{"token": "canary\nx"}, {"token": "canary-é"}, {"token": " canary"}, {"username": "canary", "password": "x"}],
)
def test_a_secret_that_is_no_value_of_a_header_is_not_quoted(fields):
    with pytest.raises(ValueError, match="the header X-A") as why:
        plain(Credential(fields), "X-A")

    assert "canary" not in str(why.value)


def test_a_header_of_the_output_or_of_another_option_is_refused_at_its_place():
    for name, reason in [
        ("Authorization", "name it by `credential`"),
        ("proxy-authorization", "name it by `credential`"),
        ("HOST", "leave it out"),
        ("Content-Type", "leave it out"),
        ("Transfer-Encoding", "leave it out"),
        ("Accept", "leave it out"),
        ("X-A", "twice"),
    ]:
        with pytest.raises(BadOption, match=reason) as why:
            check_headers(headers={"x-a": "1"}, secret_headers=[name])

        assert why.value.at == ("secret_headers", name)


def test_a_name_of_a_secret_is_recognized():
    for name, is_so in [
        ("X-Api-Key", True),
        ("x-auth-token", True),
        ("Cookie", True),
        ("X_SECRET", True),
        ("X-Tenant", False),
        ("X-Keyboard", False),
        ("X-Author", False),
    ]:
        assert suspicious([name]) == [name] * is_so
