"""Who may enter the bulk server."""

import base64

from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Credential
from shipper_plugins.elasticsearch.server.door import fingerprint, recognized


def keys(*credentials):
    return [fingerprint(Credential.parse(credential).authorization()) for credential in credentials]


def header(scheme, text):
    return f"{scheme} {base64.b64encode(text.encode()).decode()}"


def test_a_door_opens_to_its_keys_only():
    both = api_key, basic = keys({"api_key": "id:secret"}, {"username": "ann", "password": "pä:ss"})

    assert recognized(header("ApiKey", "id:secret"), both) == api_key
    assert recognized(header("apikey", "id:secret").rstrip("="), both) == api_key
    assert recognized(header("Basic", "ann:pä:ss"), both) == basic
    assert not recognized(header("Basic", "id:secret"), both)
    assert not recognized(header("ApiKey", "id:other"), both)
    assert not recognized("", both)


def test_an_api_key_may_be_given_encoded():
    encoded = base64.b64encode(b"id:secret").decode()

    assert recognized(header("ApiKey", "id:secret"), keys({"api_key": encoded}))


@given(
    st.text(alphabet=st.characters(), max_size=20)
    | st.text(alphabet=st.characters(), max_size=20).map("ApiKey {}".format)
)
def test_no_other_header_opens_a_door(text):
    assert not recognized(text, keys({"api_key": "id:secret"}))
    assert not recognized(text, [])
