"""Cloud ids become URLs."""

import base64
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.elasticsearch.client.cloud_id import url_of
from shipper_plugins.elasticsearch.output import check_host


def a_cloud_id(text, name="shop:"):
    return name + base64.b64encode(text.encode()).decode()


def test_the_url_is_that_of_the_elasticsearch():
    for text, url in [
        ("eu-west-1.aws.found.io$abc$def", "https://abc.eu-west-1.aws.found.io"),
        ("eu-west-1.aws.found.io:443$abc$def", "https://abc.eu-west-1.aws.found.io"),
        ("found.io:9243$abc$", "https://abc.found.io:9243"),
        ("found.io$abc:9243$def:9244", "https://abc.found.io:9243"),
        ("found.io:9200$abc:9243", "https://abc.found.io:9243"),
    ]:
        assert url_of(a_cloud_id(text)) == url
        assert url_of(a_cloud_id(text, "a:name:with:colons:")) == url
        assert url_of(a_cloud_id(text, "").rstrip("=")) == url


def test_what_is_no_cloud_id_is_refused():
    for text in ["", "found.io", "$abc", "found.io$", "a/b$c", "found.io:0$a", "found.io$a:99999", "é$a"]:
        with pytest.raises(ValueError, match="no cloud id"):
            url_of(a_cloud_id(text))


def test_a_text_that_is_no_base64_is_refused():
    with pytest.raises(ValueError, match="no cloud id"):
        url_of("shop:found.io$abc")


@given(st.text() | st.text().map(a_cloud_id) | st.from_regex(r"[a-z.$:0-9]{1,20}\$[a-z:0-9$]{1,20}").map(a_cloud_id))
def test_any_text_is_refused_or_becomes_the_url_of_a_host(text):
    try:
        url = url_of(text)
    except ValueError:
        return
    check_host(url)
    assert urlsplit(url).scheme == "https"
