"""What a policy says of where to listen."""

import ipaddress
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shipper.sdk.endpoints import LONGEST_PATH, SCHEMES, Endpoint
from shipper.sdk.errors import BadOption

PORTS = st.integers(0, 65535)
NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
HOSTS = NAMES | st.ip_addresses().map(str) | st.just("")
SEGMENTS = st.text(string.ascii_letters + string.digits + "._-é", min_size=1, max_size=8).filter(
    lambda part: part not in (".", "..")
)
PATHS = st.lists(SEGMENTS, min_size=1, max_size=5).map(lambda parts: "/" + "/".join(parts))
ENDPOINTS = st.builds(Endpoint, st.sampled_from(["tcp", "tls", "udp"]), HOSTS, PORTS) | st.builds(
    Endpoint, st.sampled_from(["unix", "unixgram"]), path=PATHS
)


@given(ENDPOINTS)
def test_what_is_written_is_read_again(endpoint):
    assert Endpoint.parse(str(endpoint)) == endpoint


@given(st.text(max_size=40) | st.text("[]:/.0123456789abtcpudunixgram", max_size=30))
@example("unix:/a\0b")
@example("tcp://[fe80::1%eth0]:1")
def test_any_text_is_an_endpoint_or_a_bad_option(text):
    try:
        endpoint = Endpoint.parse(text, "address")
    except BadOption:
        return
    assert Endpoint.parse(str(endpoint)) == endpoint


def test_a_bad_option_has_the_place_that_was_given():
    with pytest.raises(BadOption) as refused:
        Endpoint.parse("", "listen", 0)
    assert refused.value.at == ("listen", 0)


@given(st.ip_addresses(v=6), PORTS)
def test_an_address_is_the_same_however_it_is_written(address, port):
    assert Endpoint.parse(f"[{address.exploded}]:{port}") == Endpoint("tcp", str(ipaddress.ip_address(address)), port)


def test_every_form_is_read():
    for text, expected in [
        ("127.0.0.1:514", Endpoint("tcp", "127.0.0.1", 514)),
        (":514", Endpoint("tcp", "", 514)),
        ("udp://:514", Endpoint("udp", "", 514)),
        ("tls://Logs.Example:6514", Endpoint("tls", "logs.example", 6514)),
        ("unix:/run/app.sock", Endpoint("unix", path="/run/app.sock")),
        ("unixgram:/dev/log", Endpoint("unixgram", path="/dev/log")),
    ]:
        assert Endpoint.parse(text) == expected


def test_the_usual_scheme_is_that_of_a_text_without_one():
    assert Endpoint.parse(":514", usual="udp") == Endpoint("udp", "", 514)


def test_what_is_none_is_refused_with_the_reason():
    for text, message in [
        ("::1:514", "brackets"),
        ("[::x]:514", "not an IPv6 address"),
        ("[::1]", "address is"),
        ("[::1]:70000", "address is"),
        ("127.0.0.1", "host:port"),
        ("127.0.0.1:65536", "host:port"),
        ("127.0.0.1:٣", "host:port"),
        ("a b:1", "host:port"),
        ("http://x:1", "scheme"),
        ("unix:run/app.sock", "host:port"),
        ("unix:/run/", "names a file"),
        ("unix:/run/../x", "names a file"),
        ("unix:/" + "x" * LONGEST_PATH, "at most"),
        ("", "host:port"),
    ]:
        with pytest.raises(BadOption, match=message):
            Endpoint.parse(text)


@pytest.mark.parametrize("scheme", sorted(SCHEMES - {"tcp"}))
def test_a_scheme_that_is_not_taken_is_refused_with_those_that_are(scheme):
    text = f"{scheme}:/x" if scheme.startswith("unix") else f"{scheme}://:1"
    with pytest.raises(BadOption, match="tcp://host:port"):
        Endpoint.parse(text, schemes=("tcp",))


def test_places_differ_by_what_the_kernel_keeps_apart():
    place = {text: Endpoint.parse(text).place for text in ("tcp://h:1", "tls://h:1", "udp://h:1", "unix:/a", ":0")}

    assert place["tcp://h:1"] == place["tls://h:1"] != place["udp://h:1"]
    assert place["unix:/a"] == Endpoint.parse("unixgram:/a").place
    assert place[":0"] is None
