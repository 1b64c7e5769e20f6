"""Stores the ledger: one sealed file in a locked directory, replaced as a whole.

    DIR/supervise.lock   held (flock) while a supervisor runs
    DIR/supervise.key    32 random bytes in base64, mode 0600; absent where the configuration names a key
    DIR/supervise.reserve  room for one more save, given up when the disk is full
    DIR/supervise.json   {"format": 1, "key": id of the key, "nonce": …, "sealed": …}, AES-256-GCM, all in base64
    DIR/NAME.sealed      what else has to be kept as the ledger is; see `sealed`

A save writes a new file, fsyncs it, renames it, and fsyncs the directory, so that a crash leaves the old or the new
content. The nonce is random: some thousands of saves are far below the 2³² that a key allows. A configured key is not
used directly, since the sidecar may get the same one: HKDF derives another from it.

Configured keys take over from `supervise.key` once. The ledger records its name, to distinguish a file that a crash
left from one that an attacker has planted, which is refused. So is a ledger that a planted file opens, once DIR/sidecar
shows that there were configured keys before; an attacker who removes that too removes the whole state.
"""

from __future__ import annotations

import base64
import binascii
import errno
import fcntl
import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shipper.sdk.errors import OptionError, StateBusy, StateLocked
from shipper.spool.keys import StateKey, may_be_taken_over
from shipper.supervise import sealed
from shipper.supervise.durable import STRICT, Reserve, content, refuse_foreign, replace, sync_directory
from shipper.supervise.ledger import Ledger

FORMAT = 1
"""The format of the envelope and of the ledger in it; a newer one is refused and not changed."""
KEY_BYTES = 32
_AAD = b"shipper supervise ledger 1"
_LASTING = (
    *(errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENOENT, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
)
"""Errors of the file system that stay until a person repairs the directory, or names another."""


class _Versioned(msgspec.Struct):
    format: int


class _Sealed(_Versioned):
    key: str
    nonce: bytes
    sealed: bytes


class Vault:
    """Owns a state directory; a context manager that releases it."""

    def __init__(self, directory: Path, keys: Sequence[bytes] = ()) -> None:
        """`keys` are the configured ones: the first seals, the others only open. Raises StateBusy and OptionError."""
        self._lock = _owned(directory)
        self._directory = directory
        self._file = directory / "supervise.json"
        self._reserve = Reserve(directory / "supervise.reserve")  # a sidecar needs its credentials to free a full disk
        self._key_file = directory / "supervise.key"
        self._configured = [_derived(key) for key in keys]
        self._of_sidecar = [StateKey(key_name(key), key) for key in keys]
        self.is_taken_over = True
        """Whether configured keys seal the state. If not, for lack of room, the sidecar does not get them either: its
        state would claim that they did."""

    def load(self) -> tuple[Ledger, bool]:
        """Returns the ledger, and whether there was one; it may be called again.

        Raises StateLocked if no key opens it, if it is damaged, or if a `supervise.key` was planted beside configured
        keys.
        """
        own = [_read_key(self._key_file)] if self._key_file.exists() else []
        keys = [*self._configured, *own]
        try:
            raw = content(self._file)
        except FileNotFoundError:
            self._seals = keys[0] if keys else self._new_key()
            self._keys = keys or [self._seals]
            self._drop_unused_key(keys)
            return Ledger(), False
        ledger, key = self._opened(raw, keys)
        if self._configured:
            self._refuse_planted(ledger, key, own)
        self._seals, self._keys = keys[0], keys
        if key == self._seals or self._resealed(ledger):
            self._drop_unused_key(keys)
        else:
            self.is_taken_over = key in self._configured
        self._reserve.keep()
        return ledger, True

    def _refuse_planted(self, ledger: Ledger, key: bytes, own: Sequence[bytes]) -> None:
        """Raises StateLocked for a planted key. `key` has opened the ledger; `own` holds the key of `supervise.key`, if
        any."""
        if key in self._configured:
            if own and key_name(own[0]) != ledger.former:
                raise StateLocked(
                    f"{self._key_file} is not trusted, since state_key (--config) seals this directory: find out who "
                    "put it there, and remove it"
                )
        elif may_be_taken_over(self._directory / "sidecar", self._of_sidecar):
            ledger.former = key_name(key)
        else:
            raise StateLocked(
                f"{self._file} is sealed by {self._key_file}, which is not trusted, since state_key (--config) has "
                "sealed this directory before: find out who put them there, and restore them, or give another --state"
            )

    def _resealed(self, ledger: Ledger) -> bool:
        """Returns whether the newest key seals it now; on a full disk the next save retries, and the old key stays."""
        try:
            self.save(ledger)
        except OSError:
            return False
        return True

    def save(self, ledger: Ledger) -> None:
        """Returns when the ledger is durable; raises OSError, and keeps the old one then."""
        nonce = secrets.token_bytes(12)
        sealed = AESGCM(self._seals).encrypt(nonce, msgspec.json.encode(ledger), _AAD)
        raw = msgspec.json.encode(_Sealed(FORMAT, key_name(self._seals), nonce, sealed))
        self._reserve.replace(self._file, raw)

    def _new_key(self) -> bytes:
        key = secrets.token_bytes(KEY_BYTES)
        replace(self._key_file, base64.b64encode(key) + b"\n")
        return key

    def _opened(self, raw: bytes, keys: Sequence[bytes]) -> tuple[Ledger, bytes]:
        """Returns the ledger, and the key that opens it."""
        try:
            self._refuse_newer(msgspec.json.decode(raw, type=_Versioned))
            envelope = msgspec.json.decode(raw, type=_Sealed)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise StateLocked(f"{self._file} is damaged; restore it, or remove it to begin anew") from None
        for key in keys:
            try:
                text = AESGCM(key).decrypt(envelope.nonce, envelope.sealed, _AAD)
                self._refuse_newer(msgspec.json.decode(text, type=_Versioned))
                return msgspec.json.decode(text, type=Ledger), key
            except (InvalidTag, ValueError):
                continue
        raise StateLocked(f"{self._file} is sealed with key {envelope.key}, {self._remedy(keys)}")

    def _remedy(self, keys: Sequence[bytes]) -> str:
        if self._configured:
            return "which was not given"
        other = "" if keys else f", or bring back {self._key_file}, which is missing"
        return f"which was not given: give state_key (--config){other}"

    def _refuse_newer(self, written: _Versioned) -> None:
        if written.format > FORMAT:
            raise StateLocked(
                f"{self._file} has format {written.format}; this version knows formats up to {FORMAT}: "
                "run the version that wrote it, or give another --state"
            )

    def read(self, name: str) -> bytes | None:
        """Returns the content of the sealed file of this name, None if there is none; after `load`. Raises
        StateLocked."""
        path = self._directory / f"{name}{sealed.SUFFIX}"
        found = sealed.opened(path, self._keys)
        return None if found is None else found[0]

    def write(self, name: str, raw: bytes) -> None:
        """Returns when the sealed file of this name is durable; after `load`. Raises OSError, and keeps the old one
        then."""
        path = self._directory / f"{name}{sealed.SUFFIX}"
        self._reserve.replace(path, sealed.seal(path, self._seals, raw))

    def _drop_unused_key(self, keys: Sequence[bytes]) -> None:
        """Removes `supervise.key` once a configured key seals the state."""
        if keys and not sealed.resealed(self._directory, keys):
            return
        if self._configured and self._key_file.exists():
            self._key_file.unlink()
            sync_directory(self._directory)

    def touch(self) -> None:
        """Makes a change durable that means nothing; returns when the disk has answered. Raises OSError."""
        os.utime(self._lock)
        os.fsync(self._lock)

    def close(self) -> None:
        """Releases the directory."""
        os.close(self._lock)

    def __enter__(self) -> Vault:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def decoded_key(raw: bytes, name: str) -> bytes:
    """Returns a key of 32 bytes, raw or in base64; raises OptionError with the key's place."""
    if len(raw) == KEY_BYTES:
        return raw
    try:
        key = base64.b64decode(raw.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise OptionError(f"the key in {name} is not 32 bytes in base64; make one with: openssl rand -base64 32")
    return key


def key_name(key: bytes) -> str:
    """Returns a name for a state key that does not reveal it, for `hello.state_keys`."""
    return hashlib.sha256(b"shipper state key name" + key).hexdigest()[:16]


def _derived(key: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=_AAD).derive(key)


def _read_key(path: Path) -> bytes:
    return decoded_key(content(path), str(path))


def _owned(directory: Path) -> int:
    """Makes the directory if it is absent; returns the descriptor of its lock."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_foreign(directory, directory.stat())
        return _locked(directory / "supervise.lock")
    except (FileExistsError, NotADirectoryError):
        raise OptionError(f"--state {directory}: not a directory") from None
    except OSError as error:
        if error.errno not in _LASTING:
            raise
        raise OptionError(f"--state {directory}: cannot be used: {error.strerror}") from None


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | STRICT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StateBusy(f"another `shipper supervise` owns {path.parent}; stop it, or give another --state") from None
    return descriptor
