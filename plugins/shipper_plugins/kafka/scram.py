"""SCRAM (RFC 5802, RFC 7677) in Kafka's variant: one conversation, step by step. No I/O.

The server decides how often the password is hashed. Few rounds would help a server that guesses it, very many would
keep a thread busy for hours: both are refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets

FEWEST_ROUNDS = 4096
MOST_ROUNDS = 200_000
"""They take about 0.2 s of CPU time. Kafka itself allows 16384."""
_NUMBER = re.compile("[0-9]{1,9}")


class Scram:
    """The client's side; `final` and `check` raise ValueError for a server that violates the protocol."""

    def __init__(self, mechanism: str, username: str, password: str, *, nonce: str | None = None) -> None:
        self._hash = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self._password = password.encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """Returns the first message."""
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """Returns the answer to the server's challenge; takes some milliseconds of CPU time."""
        attributes = _attributes(challenge)
        rounds = _rounds(attributes.get("i", "0"))
        nonce = attributes.get("r", "")
        if not nonce.startswith(self._nonce):
            raise ValueError("it does not repeat the nonce")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, _decoded(attributes.get("s", "")), rounds)
        unproved = f"c=biws,r={nonce}"
        message = b",".join([self._bare.encode(), challenge, unproved.encode()])
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{unproved},p={base64.b64encode(proof).decode()}".encode()

    def check(self, end: bytes) -> None:
        """Raises ValueError unless the server knows the password too."""
        if not hmac.compare_digest(_decoded(_attributes(end).get("v", "")), self._signature):
            raise ValueError("it does not prove that it knows the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _rounds(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError("its message is malformed")  # an error of `int` would quote it
    rounds = int(text)
    if not FEWEST_ROUNDS <= rounds <= MOST_ROUNDS:
        raise ValueError(f"it asks for {rounds} rounds of hashing")
    return rounds


def _attributes(message: bytes) -> dict[str, str]:
    try:
        pairs = [part.partition("=") for part in message.decode().split(",")]
    except UnicodeDecodeError:
        raise ValueError("its message is no text") from None
    return {name: value for name, _, value in pairs}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("its message is malformed") from None
