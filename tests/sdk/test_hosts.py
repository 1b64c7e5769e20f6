"""Which `Host` a server that anybody may ask answers to."""

from __future__ import annotations

import socket

from shipper.sdk.hosts import is_own_host


def test_addresses_localhost_and_given_names_are_ours() -> None:
    for header in [
        "127.0.0.1",
        "127.0.0.1:9200",
        "[::1]:9200",
        "[::1]",
        "localhost",
        "shipper:80",
        "10.1.2.3:9200",
        "me.x",
    ]:
        assert is_own_host(header, "Me.x")


def test_the_name_of_this_host_is_ours() -> None:
    assert is_own_host(f"{socket.gethostname()}:9200")


def test_any_other_name_is_not() -> None:
    for header in ["", ":80", "page.example", "page.example:9200", "page.example.", "127.0.0.1.io"]:
        assert not is_own_host(header)
