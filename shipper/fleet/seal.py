"""Seals records: nobody without a key of the fleet reads one, changes one, or puts one into another place.

    format (1 byte) | name of the key (8) | nonce (12) | AES-256-GCM of the record in MessagePack

Each place (`head`, `members/web-1`) of each fleet has its own key, which HKDF derives from the fleet's; fleet and place
are authenticated too. So a record that is copied into another place or another fleet does not open. The nonce is
random; at one write a second, 2³² writes of one place take 136 years.

An old record in its own place opens: the revisions of the store, the epoch and the numbers in the records tell its age.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shipper.fleet.records import FORMAT, Text
from shipper.sdk.errors import ShipperError

KEY_BYTES = 32
ENVELOPE = 1
"""The format of what is around a record."""
_NAME_BYTES, _NONCE_BYTES = 8, 12
_BEFORE = 1 + _NAME_BYTES + _NONCE_BYTES
_PURPOSE = b"shipper fleet record 1"
_FINGERPRINT = b"shipper fleet fingerprint 1"

T = TypeVar("T", bound=msgspec.Struct)

_encoder = msgspec.msgpack.Encoder(order="deterministic")


class Unauthentic(ShipperError):
    """A record that is not sealed by the fleet for its place; it must not be acted on. The text has the place only."""


class Newer(Unauthentic):
    """A record in a format of a newer version, which this one cannot judge; it must not be acted on either."""


class _Format(msgspec.Struct):
    format: int = FORMAT


class Seals:
    """Seals and opens the records of one fleet."""

    def __init__(self, fleet: str, keys: Sequence[bytes]) -> None:
        """The first of `keys` seals, all open; each has 32 bytes. Raises ValueError for others, or for none."""
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(f"a fleet has one key of {KEY_BYTES} bytes, or several")
        self.fleet = fleet
        self._keys = {key_name(key): key for key in keys}
        self._first = key_name(keys[0])

    def __repr__(self) -> str:
        return f"<Seals of {self.fleet}>"

    def seal(self, place: str, record: msgspec.Struct) -> bytes:
        """Returns the record, sealed for this place by the first key."""
        bound = self._bound(place)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = _cipher(self._keys[self._first], bound).encrypt(nonce, _encoder.encode(record), bound)
        return bytes([ENVELOPE]) + self._first + nonce + sealed

    def open(self, place: str, raw: bytes, type: type[T]) -> T:
        """Returns the record that was sealed for this place; raises Unauthentic, or Newer, for any other bytes."""
        text = self._opened(place, raw)
        try:
            _refuse_newer(place, msgspec.msgpack.decode(text, type=_Format).format, FORMAT)
            return msgspec.msgpack.decode(text, type=type)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise Unauthentic(f"the record {place} is sealed by the fleet, but is no {type.__name__}") from None

    def _opened(self, place: str, raw: bytes) -> bytes:
        """Returns what is sealed in `raw`."""
        if not raw or raw[0] < ENVELOPE:
            raise Unauthentic(f"the record {place} is not sealed: it is damaged, or somebody else wrote it")
        _refuse_newer(place, raw[0], ENVELOPE)
        key = self._keys.get(raw[1 : 1 + _NAME_BYTES])
        if key is None:
            names = " and ".join(name.hex() for name in self._keys)
            raise Unauthentic(
                f"the record {place} is sealed with another key than {names}; if it is one of the fleet's, add it to "
                "`keys`"
            )
        nonce, sealed = raw[1 + _NAME_BYTES : _BEFORE], raw[_BEFORE:]
        bound = self._bound(place)
        try:
            return _cipher(key, bound).decrypt(nonce, sealed, bound)
        except (InvalidTag, ValueError):
            raise Unauthentic(
                f"the record {place} is not sealed for this place of the fleet {self.fleet}: it is damaged, or "
                "somebody else wrote it"
            ) from None

    def is_first(self, raw: bytes) -> bool:
        """Whether a record that opens is sealed by the first key."""
        return raw[1 : 1 + _NAME_BYTES] == self._first

    def fingerprints(self, content: bytes) -> tuple[str, ...]:
        """Returns a digest of a content under each key, the first one's first; without a key they tell nothing."""
        return tuple(_fingerprint(key, content) for key in self._keys.values())

    def _bound(self, place: str) -> bytes:
        """Returns what derives the key of a place and is authenticated with a record; no two places have the same."""
        return _PURPOSE + msgspec.json.encode([self.fleet, place])


def digest(text: Text) -> str:
    """Returns the digest of a version's text with its pins and its nonce: `Version.sha256`."""
    return hashlib.sha256(_encoder.encode(text)).hexdigest()


def key_name(key: bytes) -> bytes:
    """Returns a name for a fleet's key that does not reveal it."""
    return hashlib.sha256(b"shipper fleet key name" + key).digest()[:_NAME_BYTES]


def _cipher(key: bytes, bound: bytes) -> AESGCM:
    return AESGCM(HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=bound).derive(key))


def _fingerprint(key: bytes, content: bytes) -> str:
    own = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=_FINGERPRINT).derive(key)
    return hmac.new(own, content, hashlib.sha256).hexdigest()


def _refuse_newer(place: str, format: int, known: int) -> None:
    if format > known:
        raise Newer(
            f"the record {place} has format {format}; this version knows formats up to {known}: run a newer shipper"
        )
