"""Certificates of an authority that a test makes, in the forms in which the program and OpenSSL take them."""

from __future__ import annotations

import ssl
from typing import Any

import trustme

from shipper.plugin import ClientTls, Credential, Material


def pem(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


def identity(authority: trustme.CA, *names: str, common_name: str | None = None) -> tuple[str, str]:
    """A certificate with its chain, and the key."""
    made = authority.issue_cert(*names, common_name=common_name)
    return b"".join(blob.bytes() for blob in made.cert_chain_pems).decode(), made.private_key_pem.bytes().decode()


def credential(authority: trustme.CA, name: str) -> Credential:
    """The certificate of a client, which has this name twice."""
    certificate, key = identity(authority, f"{name}.test", common_name=name)
    return Credential.parse({"certificate": certificate, "key": key})


def trust(authority: trustme.CA, **settings: Any) -> ClientTls:
    return ClientTls(ca=Material("ca.pem", pem(authority)), **settings)


def server(authority: trustme.CA, *names: str, ask: bool = False) -> ssl.SSLContext:
    """A server of these names, which may want to see a certificate of the same authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names).configure_cert(context)
    if ask:
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
    return context
