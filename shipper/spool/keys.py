"""The keys of a spool, and which state key they are wrapped by.

    state key ──wraps (AES key wrap, RFC 3394)──> data keys ──seal──> rows
                                             └──> fingerprint key

Wrapped keys stand in a file of their own, the keyring, not in the database: whether the state keys given open the
directory is known before the database is touched, a new state key is one small file replaced, and a damaged page of
the database costs rows, never a key. The keyring stands twice, each line with a checksum and all it needs, and a key is
read from either copy; so neither a damaged block nor a crash between the copies makes a row unreadable.

    checksum {"format":1,"spool":"<hex>","kind":"data","id":"<hex>","by":"k1","wrapped":"<hex>"}

A key is opened by trial with every state key given (a wrong one passes with a chance of 2⁻⁶⁴); ids of state keys serve
messages only. Rotation rewraps in both copies before anything is added under the new key, so each copy opens by the old
keys or by the new one, whatever moment a process dies in. When `open_keyring` returns, nothing on disk needs any state
key but the first.

Without given keys, the file `state.key` is the state key: it guards copies of single files, not of the directory. It
is durable before the first key is wrapped by it, and goes once keys are given and everything is rewrapped.
"""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from shipper.errors import StartFailed, StateLocked
from shipper.spool.directory import StateDirectory
from shipper.spool.seal import KEY_ID_BYTES, Sealer

FORMAT = 1
"""Of everything in a state directory; one of a newer format is refused, and not touched."""

_COPIES = ("keyring", "keyring.copy")
_LOCAL = "state.key"
_DATA, _FINGERPRINT = "data", "fingerprint"


@dataclass(frozen=True, slots=True)
class StateKey:
    """A key that wraps the keys of a state directory; 32 bytes."""

    id: str
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) != 32:
            raise ValueError(f"state key {self.id!r} is not 32 bytes long")


@dataclass(frozen=True, slots=True)
class _Key:
    kind: str
    id: bytes
    key: bytes = field(repr=False)


class Keyring:
    """The keys of one spool, unwrapped; made by `open_keyring`."""

    def __init__(self, directory: StateDirectory, wrapping: StateKey, spool_id: bytes, keys: list[_Key]) -> None:
        self._directory = directory
        self._wrapping = wrapping
        self._keys = keys
        self.spool_id = spool_id
        self.local = wrapping.id == _LOCAL
        """Whether the state key is the file `state.key`."""
        self.fresh = not keys
        """Whether there was no key: what a database in this directory holds cannot be opened by anybody."""
        if not self._of(_FINGERPRINT):
            self._make(_FINGERPRINT)

    def __len__(self) -> int:
        return len(self._keys)

    def sealer(self) -> Sealer:
        """A sealer with a data key of its own. Raises OSError."""
        (fingerprint_key,) = self._of(_FINGERPRINT).values()
        return Sealer(self.spool_id, self._of(_DATA), fingerprint_key, self._add_data_key)

    def keep(self, used: Collection[bytes]) -> None:
        """Forget the data keys whose ids are not among those `used`."""
        self._keys = [key for key in self._keys if key.kind != _DATA or key.id in used]
        self.store()

    def store(self) -> None:
        """Bring both copies up to date, wrapped by the first state key; durable when this returns."""
        content = b"".join(self._line(key) for key in self._keys)
        for name in _COPIES:
            if self._directory.read(name) != content:
                self._directory.write(name, content)

    def _of(self, kind: str) -> dict[bytes, bytes]:
        return {key.id: key.key for key in self._keys if key.kind == kind}

    def _add_data_key(self) -> tuple[bytes, bytes]:
        key = self._make(_DATA)
        self.store()
        return key.id, key.key

    def _make(self, kind: str) -> _Key:
        key = _Key(kind, secrets.token_bytes(KEY_ID_BYTES), secrets.token_bytes(32))
        self._keys.append(key)
        return key

    def _line(self, key: _Key) -> bytes:
        wrapped = aes_key_wrap(self._wrapping.key, key.key)
        names = {"format": FORMAT, "spool": self.spool_id.hex(), "kind": key.kind, "id": key.id.hex()}
        return _checked({**names, "by": self._wrapping.id, "wrapped": wrapped.hex()})


def open_keyring(directory: StateDirectory, given: Sequence[StateKey] | None) -> Keyring:
    """Open the keys of a directory by state keys (the first wraps, the others only open), or make new ones.

    Raises StateLocked if a key of the directory is not opened by any of them, and StartFailed for a newer format;
    nothing was touched then.
    """
    lines = [line for name in _COPIES for line in _checked_lines(directory.read(name) or b"")]
    _refuse_newer(lines)
    local = _read_local(directory)
    state_keys = [*(given or ()), *([local] if local else ())]
    keys = _unwrap(lines, state_keys)
    if not state_keys:
        state_keys = [_make_local(directory)]
    spool_id = bytes.fromhex(lines[0]["spool"]) if lines else secrets.token_bytes(16)
    ring = Keyring(directory, state_keys[0], spool_id, keys)
    if not lines:
        _set_unreadable_aside(directory)
    ring.store()
    if given:
        directory.remove(_LOCAL)
    return ring


def _unwrap(lines: list[dict[str, Any]], state_keys: Sequence[StateKey]) -> list[_Key]:
    keys: dict[tuple[str, str], _Key] = {}
    locked: dict[tuple[str, str], str] = {}
    for line in lines:
        name = (line["kind"], line["id"])
        if name in keys:
            continue
        key = _unwrap_one(bytes.fromhex(line["wrapped"]), state_keys)
        if key is None:
            locked[name] = line["by"]
        else:
            keys[name] = _Key(line["kind"], bytes.fromhex(line["id"]), key)
    if closed := locked.keys() - keys.keys():
        by = ", ".join(sorted({repr(locked[name]) for name in closed}))
        raise StateLocked(f"the state directory is sealed by the state key {by}, which was not given, or not as it was")
    return list(keys.values())


def _unwrap_one(wrapped: bytes, state_keys: Sequence[StateKey]) -> bytes | None:
    for state_key in state_keys:
        try:
            return aes_key_unwrap(state_key.key, wrapped)
        except InvalidUnwrap:
            continue
    return None


def _refuse_newer(lines: list[dict[str, Any]]) -> None:
    newest = max((line["format"] for line in lines), default=FORMAT)
    if newest > FORMAT:
        raise StartFailed(f"the state directory has format {newest}; this version knows formats up to {FORMAT}")


def _set_unreadable_aside(directory: StateDirectory) -> None:
    for name in _COPIES:
        if content := directory.read(name):
            directory.write(directory.new_quarantine("keyring").name, content)


# -- state.key ---------------------------------------------------------------------------------------------------------


def _read_local(directory: StateDirectory) -> StateKey | None:
    for line in _checked_lines(directory.read(_LOCAL) or b""):
        return StateKey(_LOCAL, bytes.fromhex(line["key"]))
    return None


def _make_local(directory: StateDirectory) -> StateKey:
    state_key = StateKey(_LOCAL, secrets.token_bytes(32))
    directory.write(_LOCAL, _checked({"key": state_key.key.hex()}))
    return state_key


# -- lines -------------------------------------------------------------------------------------------------------------


def _checked(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _checked_lines(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.split(b"\n"):
        checksum, _, text = line.partition(b" ")
        if text and checksum == b"%08x" % zlib.crc32(text):
            yield json.loads(text)
