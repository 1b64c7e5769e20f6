"""Seals stored values: AES-256-GCM over every body and text, bound to its row.

    sealed = key id (8) ‖ nonce (12) ‖ ciphertext and tag

The associated data are the format, the spool, the data key, the kind of row, the row, epoch and revision. So a value
that was changed, truncated, swapped or copied from another spool does not open. A sealed value is always stored as a
whole column value.

A nonce is the next number of a counter in memory, one for all kinds and threads of a data key. It is taken before
anything can fail and never reused, and every process makes a new data key: so no crash, no rollback and no directory
restored from a backup can use a pair of key and nonce twice. (Rejected: nonces derived from row numbers, which a
rollback gives again; random nonces, which allow at most 2³² seals with a key.)
"""

from __future__ import annotations

import hmac
import struct
import threading
from collections.abc import Callable, Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shipper.sdk.codes import Code
from shipper.sdk.errors import ShipperError

KEY_ID_BYTES = 8
OVERHEAD_BYTES = KEY_ID_BYTES + 12 + 16
"""By how many bytes a sealed value is longer than the plain one."""

_FORMAT = b"shipper seal 1\0"
_ROLL_AT = 2**30
_NEVER_BEYOND = 2**32


class Damaged(ShipperError):
    """Stored bytes were changed: the row is lost, its neighbours are not."""

    code = Code.DAMAGED


class Sealer:
    """Seals and opens the values of one spool, in any thread.

    `keys` are the data keys of stored rows; `new_key` returns a new, durable one.
    """

    def __init__(
        self,
        spool_id: bytes,
        keys: Mapping[bytes, bytes],
        fingerprint_key: bytes,
        new_key: Callable[[], tuple[bytes, bytes]],
    ) -> None:
        self._spool_id = spool_id
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}
        self._fingerprint_key = fingerprint_key
        self._new_key = new_key
        self._lock = threading.Lock()
        self._key_id = b""
        self._count = 0
        self._roll_at = 0
        self._roll()

    def seal(self, kind: str, row: int | str, epoch: int, revision: int, plain: bytes) -> bytes:
        """Returns `plain` sealed; it opens only with the same kind, row, epoch and revision.

        Once in 2³⁰ calls a new data key is written; raises OSError if that fails for very long.
        """
        key_id, nonce = self._next_nonce()
        associated = self._associated_data(key_id, kind, row, epoch, revision)
        return key_id + nonce + self._ciphers[key_id].encrypt(nonce, plain, associated)

    def open(self, kind: str, row: int | str, epoch: int, revision: int, sealed: bytes) -> bytes:
        """Returns the plain value; raises Damaged if `sealed` was not sealed for this place."""
        key_id, nonce = sealed[:KEY_ID_BYTES], sealed[KEY_ID_BYTES : KEY_ID_BYTES + 12]
        cipher = self._ciphers.get(key_id)
        if cipher is None or len(sealed) < OVERHEAD_BYTES:
            raise Damaged(f"{kind} {row} is not sealed by a key of this spool")
        try:
            associated = self._associated_data(key_id, kind, row, epoch, revision)
            return cipher.decrypt(nonce, memoryview(sealed)[KEY_ID_BYTES + 12 :], associated)
        except (InvalidTag, struct.error):  # damaged numbers may be out of range
            raise Damaged(f"{kind} {row} does not open: its bytes were changed or belong elsewhere") from None

    def fingerprint(self, text: bytes) -> bytes:
        """Returns the HMAC-SHA256 of a secret, under a key of this spool that survives restarts and new state keys."""
        return hmac.digest(self._fingerprint_key, text, "sha256")

    def _next_nonce(self) -> tuple[bytes, bytes]:
        with self._lock:
            if self._count >= self._roll_at:
                self._roll_or_go_on()
            self._count += 1
            return self._key_id, self._count.to_bytes(12, "big")

    def _roll_or_go_on(self) -> None:
        try:
            self._roll()
        except OSError:
            if self._count >= _NEVER_BEYOND:
                raise
            self._roll_at = min(self._roll_at + 2**20, _NEVER_BEYOND)

    def _roll(self) -> None:
        key_id, key = self._new_key()
        self._ciphers[key_id] = AESGCM(key)
        self._key_id, self._count, self._roll_at = key_id, 0, _ROLL_AT

    def _associated_data(self, key_id: bytes, kind: str, row: int | str, epoch: int, revision: int) -> bytes:
        name = kind.encode()
        if isinstance(row, int):
            at = struct.pack(">cq", b"i", row)
        else:
            text = row.encode()
            at = struct.pack(">cI", b"s", len(text)) + text
        numbers = struct.pack(">QQ", epoch, revision)
        return b"".join((_FORMAT, self._spool_id, key_id, struct.pack(">H", len(name)), name, at, numbers))
