import base64
import contextlib
import json
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.pretty import pretty_repr

from shipper.sdk.credentials import (
    API_KEY,
    AWS,
    BASIC,
    SHAPES,
    Credential,
    Shape,
    in_words,
    recognized,
)
from shipper.supervise.secrets import interpreted

EXAMPLES = [
    ({"api_key": "id:hunter2"}, "api_key"),
    ({"username": "u", "password": "hunter2"}, "basic"),
    ({"bearer_token": "hunter2"}, "bearer_token"),
    (
        {"certificate": "-----BEGIN CERTIFICATE-----\nhunter2", "key": "-----BEGIN PRIVATE KEY-----\nhunter2"},
        "certificate",
    ),
    ({"token": "hunter2"}, "token"),
    ({"password": "hunter2"}, "password"),
    ({"access_key_id": "a", "secret_access_key": "hunter2"}, "aws"),
    ({"access_key_id": "a", "secret_access_key": "hunter2", "session_token": "s"}, "aws"),
    ({"client_id": "a", "client_secret": "hunter2"}, "oauth2_client"),
    ({"jwt": "hunter2", "seed": "s"}, "nats"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["api_key", "token", "key"]), inner),
    max_leaves=8,
)


def test_each_shape_is_told_by_its_keys():
    for fields, shape in EXAMPLES:
        credential = Credential.parse(fields)

        assert (credential.shape_name, credential.fields) == (shape, fields)
        assert [one.name for one in SHAPES if credential.fits(one)] == [shape]


def test_what_a_redactor_hides_is_the_secret_and_no_name():
    for fields, _ in EXAMPLES:
        secrets = Credential.parse(fields).secrets()

        assert any("hunter2" in text for text in secrets)
        assert not {fields.get("username"), fields.get("certificate")} & set(secrets)


@pytest.mark.parametrize("given", ["id:hunter2", "aWQ6aHVudGVyMg=="])
def test_an_api_key_is_hidden_in_each_form_and_its_secret_alone_too(given):
    """A backend answers with `id`, `api_key` and `encoded`; a URL has them quoted."""
    secrets = Credential.parse({"api_key": given}).secrets()

    assert set(secrets) == {"id:hunter2", "aWQ6aHVudGVyMg==", "hunter2", "id%3Ahunter2", "aWQ6aHVudGVyMg%3D%3D"}


def test_a_password_is_hidden_in_the_form_of_its_header_and_in_that_of_a_url_too():
    secrets = Credential.parse({"username": "u", "password": "a/b c"}).secrets()

    assert {"a/b c", "a%2Fb%20c", base64.b64encode(b"u:a/b c").decode()} <= set(secrets)


def test_nothing_that_shows_a_credential_shows_its_secret():
    for fields, shape in EXAMPLES:
        credential = Credential.parse(fields)
        shown = [repr(credential), str(credential), f"{credential}", f"{[credential]!r}", pretty_repr(credential)]

        assert shown[0] == f"<Credential {shape}>"
        assert not any("hunter2" in text for text in shown)


def test_what_is_no_small_mapping_of_texts_is_refused_without_a_word_of_it():
    for value in [
        "hunter2",
        None,
        ["hunter2"],
        {},
        {"hunter 2": "hunter2"},
        {"hunter2" * 10: "hunter2"},
        {f"field{n}": "hunter2" for n in range(17)},
        {"password": "hunter2" * 150_000},
        {"api_key": ""},
        {"api_key": None},
        {"api_key": {"hunter2": "hunter2"}},
        {"username": "hunter2", "password": 5},
        {"token": "hunter2\n"},
        {"bearer_token": "hunter2\x7f"},
        {"username": "hunter2\r", "password": "hunter2"},
        {5: "hunter2"},
    ]:
        with pytest.raises(ValueError) as caught:
            Credential.parse(value)

        assert "hunter2" not in "".join(traceback.format_exception_only(caught.value))


@given(JSON)
def test_any_json_is_a_credential_or_a_value_error(value):
    with contextlib.suppress(ValueError):
        assert Credential.parse(value).canonical()


def test_two_credentials_are_the_same_secret_whatever_the_order_of_their_fields():
    one = Credential.parse({"username": "u", "password": "p"})
    other = Credential.parse({"password": "p", "username": "u"})

    assert (one, hash(one), one.canonical()) == (other, hash(other), other.canonical())
    assert one.canonical() != Credential.parse({"username": "p", "password": "u"}).canonical()


def test_two_credentials_are_the_same_secret_however_it_is_written():
    pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
    spaced = "-----BEGIN CERTIFICATE-----\r\nMIIB \r\n\r\n-----END CERTIFICATE-----\n"
    for one, other in [
        ({"api_key": "k1:hunter2"}, {"api_key": "azE6aHVudGVyMg=="}),
        ({"certificate": pem, "key": pem}, {"certificate": spaced, "key": spaced}),
    ]:
        assert Credential.parse(one).canonical() == Credential.parse(other).canonical()


@given(
    id=st.text("abcXYZ019_-", min_size=1, max_size=12),
    secret=st.text("abcXYZ019_-", min_size=1, max_size=12),
    end=st.sampled_from(["", "\n", "\r\n"]),
    spelling=st.sampled_from(["plain", "base64", "mapping", "json", "mapping of base64"]),
)
def test_a_key_is_the_same_secret_in_each_spelling_of_its_file(id, secret, end, spelling):
    encoded = base64.b64encode(f"{id}:{secret}".encode()).decode()
    text = {
        "plain": f"{id}:{secret}",
        "base64": encoded,
        "mapping": f"api_key: {id}:{secret}",
        "json": json.dumps({"api_key": f"{id}:{secret}"}),
        "mapping of base64": f"api_key: {encoded}",
    }[spelling]
    plain = Credential.parse({"api_key": f"{id}:{secret}"})
    read = interpreted(text + end)

    assert (read.canonical(), read.known_as(), read.name()) == (plain.canonical(), plain.known_as(), id)


@given(
    lines=st.lists(st.text("MIIBabc+/=", min_size=1, max_size=8), min_size=1, max_size=4),
    space=st.lists(st.sampled_from(["\n", "\r\n", " \n", "\n\n", "\n \t\n"]), min_size=6, max_size=6),
)
def test_white_space_between_the_lines_of_pem_makes_no_other_secret(lines, space):
    pem = ["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----"]
    plain, spaced = "\n".join(pem), "".join(line + end for line, end in zip(pem, space, strict=False))

    one, other = (Credential.parse({"certificate": text, "key": text}) for text in (plain, spaced))
    assert (one.canonical(), one.known_as()) == (other.canonical(), other.known_as())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"username": "ann", "password": "old"}, {"username": "ann", "password": "new"}, True),
        ({"api_key": "k1:old"}, {"api_key": base64.b64encode(b"k1:new").decode()}, True),
        ({"token": "hunter2"}, {"bearer_token": "hunter2"}, True),
        (
            {"access_key_id": "AKIA", "secret_access_key": "a"},
            {"access_key_id": "AKIA", "secret_access_key": "b", "session_token": "s"},
            True,
        ),
        ({"certificate": "c", "key": "a"}, {"certificate": "c", "key": "b"}, True),
        ({"username": "ann", "password": "p"}, {"username": "bob", "password": "p"}, False),
        ({"username": "k1", "password": "p"}, {"api_key": "k1:p"}, False),
        ({"token": "hunter2"}, {"token": "hunter3"}, False),
    ],
)
def test_secrets_that_a_backend_ends_together_are_known_as_the_same(one, other, same):
    assert (Credential.parse(one).known_as() == Credential.parse(other).known_as()) is same


def test_the_shape_decides_which_fields_are_the_name():
    tenant = Shape("tenant", ("tenant", "user", "secret"), public=("tenant", "user"))
    for fields, name in [
        ({"access_key_id": "AKIA", "secret_access_key": "hunter2"}, "AKIA"),
        ({"client_id": "web", "client_secret": "hunter2"}, "web"),
        ({"tenant": "acme", "user": "ann", "secret": "hunter2"}, "acme:ann"),
        ({"jwt": "j", "seed": "hunter2"}, ""),
        ({"certificate": "c", "key": "hunter2"}, ""),
    ]:
        assert Credential.parse(fields).name([tenant]) == name


def test_secrets_of_other_shapes_or_other_texts_are_others():
    texts = [{"api_key": "k1:hunter2"}, {"api_key": "k1:hunter3"}, {"bearer_token": "azE6aHVudGVyMg=="}]
    texts += [{"token": "azE6aHVudGVyMg=="}, {"api_key": "noPair"}, {"username": "k1", "password": "hunter2"}]

    assert len({Credential.parse(text).canonical() for text in texts}) == len(texts)


@pytest.mark.parametrize(
    ("fields", "header"),
    [
        ({"api_key": "id:secret"}, "ApiKey " + base64.b64encode(b"id:secret").decode()),
        ({"api_key": base64.b64encode(b"id:secret").decode()}, "ApiKey " + base64.b64encode(b"id:secret").decode()),
        ({"username": "ü", "password": "p:q"}, "Basic " + base64.b64encode("ü:p:q".encode()).decode()),
        ({"bearer_token": "t"}, "Bearer t"),
    ],
)
def test_the_authorization_header_of_each_shape_that_has_one(fields, header):
    assert Credential.parse(fields).authorization() == header


@pytest.mark.parametrize(
    "fields", [{"api_key": "hunter2!"}, {"token": "hunter2"}, {"certificate": "hunter2", "key": "hunter2"}]
)
def test_a_header_that_cannot_be_made_is_refused_without_the_secret(fields):
    with pytest.raises(ValueError) as caught:
        Credential.parse(fields).authorization()

    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("key", ["id:hunter2", "aWQ6aHVudGVyMg=="])
def test_an_api_key_is_recognized_by_its_form_and_named_by_its_public_part(key):
    credential = recognized(key)

    assert (credential.fields, credential.name()) == ({"api_key": key}, "id")


def test_another_text_is_not_recognized():
    for text in ["", "hunter2.x", "a: b", "{hunter2", "id:hunter 2", "h\xfcnter"]:
        assert recognized(text) is None


def test_a_shape_has_optional_fields_and_no_others():
    assert not Credential.parse({"access_key_id": "a"}).fits(AWS)
    assert not Credential.parse({"access_key_id": "a", "secret_access_key": "b", "region": "c"}).fits(AWS)
    assert not Credential.parse({"username": "u", "password": "p"}).fits(API_KEY)
    assert Credential.parse({"username": "u", "password": "p"}).fits(API_KEY, BASIC)


def test_a_public_field_of_a_declared_shape_is_not_hidden():
    own = Shape("own", ("pin",), ("user",), public=("user",))
    credential = Credential.parse({"pin": "hunter2", "user": "me"})

    assert credential.secrets([own]) == ["hunter2"]
    assert "me" in credential.secrets()
    assert repr(credential) == "<Credential of another shape>"


@pytest.mark.parametrize("fields", [(), ("a b",), tuple(f"field{n}" for n in range(17))])
def test_a_shape_that_no_credential_can_have_cannot_be_declared(fields):
    with pytest.raises(ValueError, match="the shape own has"):
        Shape("own", fields)


def test_a_public_field_is_one_of_the_fields():
    with pytest.raises(ValueError, match="a public field"):
        Shape("own", ("pin",), public=("user",))


def test_shapes_are_shown_as_they_are_written():
    assert in_words([API_KEY, BASIC, AWS]) == (
        "{api_key} or {username, password} or {access_key_id, secret_access_key, session_token?}"
    )
