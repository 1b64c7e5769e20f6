"""Who may enter the bulk server."""

import base64

from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Credential, DataStream
from shipper_plugins.inputs.bulk_limits import Door, fingerprint


def door(*credentials):
    keys = tuple(fingerprint(Credential.parse(credential).authorization()) for credential in credentials)
    return Door(keys=keys, tls=None, stream=DataStream(), max_body_bytes=1, max_decompressed_bytes=1)


def header(scheme, text):
    return f"{scheme} {base64.b64encode(text.encode()).decode()}"


def test_a_door_opens_to_its_keys_only():
    both = door({"api_key": "id:secret"}, {"username": "ann", "password": "pä:ss"})

    assert both.opens_to(header("ApiKey", "id:secret"))
    assert both.opens_to(header("apikey", "id:secret").rstrip("="))
    assert both.opens_to(header("Basic", "ann:pä:ss"))
    assert not both.opens_to(header("Basic", "id:secret"))
    assert not both.opens_to(header("ApiKey", "id:other"))
    assert not both.opens_to("")


def test_an_api_key_may_be_given_encoded():
    assert door({"api_key": base64.b64encode(b"id:secret").decode()}).opens_to(header("ApiKey", "id:secret"))


@given(
    st.text(alphabet=st.characters(), max_size=20)
    | st.text(alphabet=st.characters(), max_size=20).map("ApiKey {}".format)
)
def test_no_other_header_opens_a_door(text):
    assert not door({"api_key": "id:secret"}).opens_to(text)
    assert not door().opens_to(text)
