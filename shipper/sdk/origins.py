"""Origins, the first part of the ids of events, and the proof of whose they are. No I/O.

    origin = the first 16 bytes of SHA-256 over a public key of Ed25519
    proof  = that public key (32 bytes) ‖ its signature over the name of an edge (64 bytes)

A process draws a key pair at its start. A shipper that relays its events shows, with the name that it has at the
receiver, a proof for their origin. The name is signed, so whoever has seen an origin and its proof can use them under
that name only, at whichever receiver. (Rejected: an origin that is a hash of a name and a nonce, since it is drawn
before any policy says a name, and one origin may need several.)
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ORIGIN_BYTES: Final = 16
SECRET_BYTES: Final = 32
PROOF_BYTES: Final = 96

_KEY_BYTES = 32
_STATEMENT = b"shipper origin 1\0"


class Origin:
    """An origin with the secret that proves whose it is."""

    __slots__ = ("_key", "_shown", "id", "secret")

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        self._shown = self._key.public_key().public_bytes_raw()
        self.id = _id_of(self._shown)

    def proof(self, name: str) -> bytes:
        """Returns the proof that its events are those of the edge `name`."""
        return self._shown + self._key.sign(_STATEMENT + name.encode())


@lru_cache(maxsize=4096)
def is_proven(origin: bytes, name: str, proof: bytes) -> bool:
    """Whether a proof shows that the events of an origin are those of the edge `name`."""
    shown, signature = proof[:_KEY_BYTES], proof[_KEY_BYTES:]
    if len(proof) != PROOF_BYTES or _id_of(shown) != origin:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(shown).verify(signature, _STATEMENT + name.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def _id_of(shown: bytes) -> bytes:
    return hashlib.sha256(shown).digest()[:ORIGIN_BYTES]
