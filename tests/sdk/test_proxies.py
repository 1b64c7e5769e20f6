"""Which proxy a host has, by a setting and by the environment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.sdk.proxies import Proxy, always, no_proxy, of_environment, status_of

PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


def test_a_proxy_is_the_url_of_a_host() -> None:
    for text, url, user, password in [
        ("http://proxy:3128", "http://proxy:3128", "", ""),
        ("http://proxy:3128/", "http://proxy:3128", "", ""),
        ("proxy", "http://proxy:80", "", ""),
        ("proxy:3128", "http://proxy:3128", "", ""),
        ("http://[::1]:3128", "http://[::1]:3128", "", ""),
        ("http://ann:p%40ss@proxy:3128", "http://proxy:3128", "ann", "p@ss"),
    ]:
        proxy = Proxy.parse(text)

        assert (proxy.url, proxy.user, proxy.password) == (url, user, password)
        assert proxy.address == url.removeprefix("http://")


def test_what_is_no_proxy_is_refused_and_not_quoted() -> None:
    for text in [
        "https://canary:canary@proxy",
        "socks5://proxy",
        "http://",
        "http://proxy/canary",
        "http://proxy:99999",
        "a b",
        "http://ann:[canary]@proxy:3128",
        "http://ann:canary\u2100@proxy:3128",
    ]:
        with pytest.raises(ValueError, match="proxy") as why:
            Proxy.parse(text)

        assert "canary" not in str(why.value)


def test_a_password_is_not_shown() -> None:
    assert "canary" not in repr(Proxy.parse("http://canary:canary@proxy"))


@given(st.text())
def test_any_text_is_a_proxy_or_refused(text: str) -> None:
    try:
        proxy = Proxy.parse(text)
    except ValueError:
        return
    assert proxy.url.startswith("http://")


def test_a_tunnel_is_asked_for_with_the_proxys_own_credential() -> None:
    lines = Proxy.parse("http://ann:p@proxy").opening("es:9200").decode().split("\r\n")

    assert lines[:2] == ["CONNECT es:9200 HTTP/1.1", "Host: es:9200"]
    assert "Proxy-Authorization: Basic YW5uOnA=" in lines
    assert lines[-2:] == ["", ""]
    assert b"Authorization" not in Proxy.parse("proxy").opening("es:9200")


def test_the_status_of_a_proxys_answer_is_read() -> None:
    for head, status in [
        (b"HTTP/1.1 200 Connection established\r\n\r\n", 200),
        (b"HTTP/1.0 200\r\nVia: x\r\n\r\n", 200),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", 407),
        (b"HTTP/2 200\r\n\r\n", None),
        (b"HTTP/1.1 20\r\n\r\n", None),
        (b"SSH-2.0-x\r\n\r\n", None),
        (b"", None),
    ]:
        assert status_of(head) == status


@given(st.binary())
def test_any_answer_of_a_proxy_is_read(head: bytes) -> None:
    assert status_of(head) in (None, *range(100, 1000))


def test_hosts_of_loopback_have_no_proxy() -> None:
    proxy = Proxy("http://proxy:80")

    assert always(proxy)("https://es:9200") == proxy
    for host in ("https://localhost:9200", "http://127.0.0.1", "https://[::1]:9200"):
        assert always(proxy)(host) is None
        assert of_environment([host], {**PROXY, "HTTP_PROXY": "p"}) == {}
    assert no_proxy("https://es:9200") is None


def test_each_scheme_has_a_variable() -> None:
    environment = {"HTTPS_PROXY": "a:1", "http_proxy": "b:2", "https_proxy": "c:3"}

    found = of_environment(["https://es:9200", "http://es:9200"], environment)

    assert {host: proxy.address for host, proxy in found.items()} == {"https://es:9200": "a:1", "http://es:9200": "b:2"}
    assert of_environment(["http://es:9200"], PROXY) == {}
    assert of_environment(["https://es:9200"], {"HTTPS_PROXY": " ", "https_proxy": "c:3"})
    assert of_environment(["https://es:9200"], {}) == {}


def test_a_wrong_variable_is_named_and_its_value_is_not_quoted() -> None:
    with pytest.raises(ValueError, match="the variable HTTPS_PROXY") as why:
        of_environment(["https://es:9200"], {"HTTPS_PROXY": "socks5://canary:canary@proxy"})

    assert "canary" not in str(why.value)


def test_hosts_of_no_proxy_are_asked_directly() -> None:
    for without, host, is_direct in [
        ("*", "https://es:9200", True),
        ("", "https://es:9200", False),
        ("es", "https://es:9200", True),
        ("ES", "https://es:9200", True),
        ("other, es", "https://es:9200", True),
        ("example.com", "https://es.example.com", True),
        ("example.com", "https://example.com", True),
        ("example.com", "https://notexample.com", False),
        (".example.com", "https://es.example.com", True),
        (".example.com", "https://example.com", False),
        ("*.example.com", "https://es.example.com", True),
        ("es:9200", "https://es:9200", True),
        ("es:9201", "https://es:9200", False),
        ("es:443", "https://es", True),
        ("10.0.0.0/8", "https://10.1.2.3:9200", True),
        ("10.0.0.0/8", "https://11.1.2.3:9200", False),
        ("10.1.2.3", "https://10.1.2.3:9200", True),
        ("10.1.2.3:9200", "https://10.1.2.3:9200", True),
        ("10.1.2.3:9201", "https://10.1.2.3:9200", False),
        ("fd00::/8", "https://[fd00::1]:9200", True),
        ("[fd00::1]:9200", "https://[fd00::1]:9200", True),
        ("10.0.0.0/8", "https://es:9200", False),
    ]:
        assert (of_environment([host], {**PROXY, "no_proxy": without}) == {}) is is_direct


@given(st.text())
def test_any_text_of_no_proxy_is_read(without: str) -> None:
    of_environment(["https://es:9200", "https://10.1.2.3"], {**PROXY, "NO_PROXY": without})
