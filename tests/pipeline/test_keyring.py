"""Secrets by id: an id names one for ever, and nothing quotes them."""

from __future__ import annotations

import errno
import hashlib
import os
from typing import Annotated

import pytest
import trustme

from shipper.pipeline.keyring import Keyring
from shipper.plugin import CredentialId, Output, Shape, takes
from shipper.policy.registry import Registry
from shipper.sdk.credentials import Credential
from shipper.sdk.errors import CredentialError


def digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def key(text: str) -> dict[str, Credential]:
    return {"k1": Credential.parse({"api_key": text})}


def test_an_id_with_another_content_is_a_conflict() -> None:
    ring = Keyring(digest, {})
    ring.keep(key("a:secret-1"))
    ring.check(key("a:secret-1"))

    with pytest.raises(CredentialError) as raised:
        ring.check(key("a:secret-2"))
    assert raised.value.reason == "credential_conflict"
    assert "secret" not in str(raised.value)


def test_another_spelling_of_a_secret_is_no_conflict() -> None:
    ring = Keyring(digest, Keyring(digest, {}).fingerprints(key("a:secret-1")))
    ring.keep(key("a:secret-1"))

    ring.check(key("YTpzZWNyZXQtMQ=="))


def test_a_fingerprint_of_an_earlier_version_is_of_what_was_written() -> None:
    base64 = key("YTpzZWNyZXQtMQ==")

    Keyring(digest, {"k1": digest(base64["k1"].written())}).check(base64)


def test_a_stored_fingerprint_is_enough_for_a_conflict() -> None:
    ring = Keyring(digest, Keyring(digest, {}).fingerprints(key("a:secret-1")))
    ring.check(key("a:secret-1"))

    with pytest.raises(CredentialError):
        ring.check(key("a:secret-2"))


def test_a_forgotten_secret_is_not_held_but_its_id_is_still_known() -> None:
    ring = Keyring(digest, {})
    ring.keep(key("a:secret-1"))
    ring.forget(["k1"])

    assert "k1" not in ring
    assert ring.get("k1") is None
    with pytest.raises(CredentialError):
        ring.check(key("a:secret-2"))


def test_an_id_that_was_never_used_is_free_again() -> None:
    ring = Keyring(digest, {})
    ring.keep(key("a:secret-1"))
    ring.forget(["k1"], entirely=True)

    ring.check(key("a:secret-2"))


def identity(authority: trustme.CA) -> dict[str, str]:
    made = authority.issue_cert("shipper.test")
    chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
    return {"certificate": chain.decode(), "key": made.private_key_pem.bytes().decode()}


def test_a_bad_shape_is_invalid_and_not_quoted() -> None:
    for values in [None, 5, ["top-secret"], "top-secret", {"k1": "top-secret"}, {"k1": {"x y": "top-secret"}}]:
        with pytest.raises(CredentialError) as raised:
            Keyring(digest, {}).parse(values)

        assert raised.value.reason == "invalid"
        assert "top-secret" not in str(raised.value)


async def test_a_shape_of_no_installed_plugin_is_invalid_and_not_quoted() -> None:
    with pytest.raises(CredentialError) as raised:
        await Keyring(digest, {}).take({"k1": {"secretly": "top-secret"}})

    assert raised.value.reason == "invalid"
    assert not {"top-secret", "secretly"} & set(str(raised.value).split())


async def test_a_shape_that_a_plugin_declares_is_taken() -> None:
    class Own(Output, frozen=True):
        pin: Annotated[CredentialId, takes(Shape("own", ("pin",), ("user",), public=("user",)))] | None = None

    secret = {"pin": "1234-5678", "user": "top-user"}
    ring = Keyring(digest, {}, Registry({"outputs": {"own": Own}}))

    assert await ring.take({"k1": secret}) == {"k1": Credential.parse(secret)}


def test_a_secret_that_came_is_hidden_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden: list[str] = []
    monkeypatch.setattr("shipper.process.log.hide", hidden.append)

    Keyring(digest, {}).parse({"k1": {"username": "writer", "password": "pass-word"}, "k2": {"api_key": "a:secret"}})

    assert {"pass-word", "a:secret"} <= set(hidden)


@pytest.mark.parametrize(
    "secret",
    [
        {"api_key": "id:secret"},
        {"api_key": "aWQ6c2VjcmV0"},
        {"username": "ü", "password": "pässword"},
        {"bearer_token": "a.b-c"},
        {"token": "töken"},
        identity(trustme.CA()),
    ],
)
async def test_what_can_be_used_is_taken(secret: dict[str, str]) -> None:
    assert await Keyring(digest, {}).take({"k1": secret}) == {"k1": Credential.parse(secret)}


async def test_a_certificate_with_the_key_of_another_is_invalid() -> None:
    one, other = identity(trustme.CA()), identity(trustme.CA())

    with pytest.raises(CredentialError, match="credential `k1`: bad TLS material") as raised:
        await Keyring(digest, {}).take({"k1": one | {"key": other["key"]}})
    assert (raised.value.reason, raised.value.path) == ("invalid", "credentials.k1")


async def test_a_certificate_that_cannot_be_looked_at_now_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane will tell, once it opens its connections."""
    made = identity(trustme.CA())

    def without_descriptors(*arguments: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "memfd_create", without_descriptors)

    assert await Keyring(digest, {}).take({"k1": made}) == {"k1": Credential.parse(made)}


# -- withdrawn ---------------------------------------------------------------------------------------------------------


def test_what_is_withdrawn_is_not_held_and_its_id_still_names_the_same_secret() -> None:
    ring = Keyring(digest, {})
    ring.keep(key("a:secret-1"))
    ring.withdraw(["k1"])

    assert ("k1" in ring, ring.withdrawn) == (False, {"k1"})
    with pytest.raises(CredentialError):
        ring.check(key("a:secret-2"))


def test_what_is_supplied_again_was_missing_and_is_withdrawn_no_longer() -> None:
    ring = Keyring(digest, {})
    ring.keep(key("a:secret-1"))
    ring.withdraw(["k1"])

    assert ring.keep(key("a:secret-1")) == {"k1"}
    assert ("k1" in ring, ring.withdrawn) == (True, set())


def test_what_was_withdrawn_on_its_way_is_known_and_not_held() -> None:
    ring = Keyring(digest, {})
    ring.withdraw(["k1"])

    assert ring.keep(key("a:secret-1"), withdrawn={"k1"}) == set()
    assert ("k1" in ring, ring.withdrawn) == (False, {"k1"})
    with pytest.raises(CredentialError):
        ring.check(key("a:secret-2"))


def test_what_is_forgotten_was_never_withdrawn() -> None:
    ring = Keyring(digest, {})
    ring.keep(key("a:secret-1"))
    ring.withdraw(["k1"])
    ring.forget(["k1"])

    assert ring.withdrawn == set()
