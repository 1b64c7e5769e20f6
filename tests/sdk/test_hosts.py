"""Which `Host` a server that anybody may ask answers to."""

from __future__ import annotations

import socket

import pytest

from shipper.sdk.hosts import is_own_host


@pytest.mark.parametrize(
    "header", ["127.0.0.1", "127.0.0.1:9200", "[::1]:9200", "[::1]", "localhost", "shipper:80", "10.1.2.3:9200", "me.x"]
)
def test_addresses_localhost_and_given_names_are_ours(header: str) -> None:
    assert is_own_host(header, "Me.x")


def test_the_name_of_this_host_is_ours() -> None:
    assert is_own_host(f"{socket.gethostname()}:9200")


@pytest.mark.parametrize("header", ["", ":80", "page.example", "page.example:9200", "page.example.", "127.0.0.1.io"])
def test_any_other_name_is_not(header: str) -> None:
    assert not is_own_host(header)
