"""Sealed files beside the ledger: DIR/NAME.sealed, as `supervise.json` in format and cipher.

The text of a file is bound to its name, so that none of them can stand in for another one. They are opened with any key
of the vault and sealed with its newest one; `resealed` follows a change of keys before the old one is dropped.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shipper.sdk.errors import StateLocked
from shipper.supervise.durable import content, replace

SUFFIX = ".sealed"
FORMAT = 1


class Envelope(msgspec.Struct):
    """What a file holds."""

    format: int
    nonce: bytes
    sealed: bytes


def seal(path: Path, key: bytes, raw: bytes) -> bytes:
    """Returns what the file at a path is to hold for a content."""
    nonce = secrets.token_bytes(12)
    return msgspec.json.encode(Envelope(FORMAT, nonce, AESGCM(key).encrypt(nonce, raw, _bound_to(path))))


def opened(path: Path, keys: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """Returns the content of a file and the key that opens it, or None if there is no file; raises StateLocked."""
    try:
        envelope = msgspec.json.decode(content(path), type=Envelope)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise StateLocked(f"{path} is damaged; restore it, or remove it to begin anew") from None
    if envelope.format > FORMAT:
        raise StateLocked(
            f"{path} has format {envelope.format}; this version knows formats up to {FORMAT}: run the version that "
            "wrote it, or give another --state"
        )
    for key in keys:
        try:
            return AESGCM(key).decrypt(envelope.nonce, envelope.sealed, _bound_to(path)), key
        except (InvalidTag, ValueError):
            continue
    raise StateLocked(f"no key of this directory opens {path}; restore the key, or remove the file to begin anew")


def resealed(directory: Path, keys: Sequence[bytes]) -> bool:
    """Seals every file anew that the first key does not open; returns whether all are sealed by it now."""
    done = True
    for path in directory.glob(f"*{SUFFIX}"):
        try:
            found = opened(path, keys)
            if found is not None and found[1] != keys[0]:
                replace(path, seal(path, keys[0], found[0]))
        except (OSError, StateLocked):  # a full disk, or one whose reader says so
            done = False
    return done


def _bound_to(path: Path) -> bytes:
    return b"shipper supervise file 1 " + path.name.encode()
