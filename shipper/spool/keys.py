"""The keys of a spool, and the state key that wraps them.

    state key ──wraps (AES key wrap, RFC 3394)──> data keys ──seal──> rows
                                             └──> fingerprint key

Wrapped keys are kept in a file of their own, the keyring, not in the database: so the given state keys are checked
before the database is touched, a new state key replaces one small file, and a damaged page of the database costs rows,
never a key. There are two copies of the keyring. Each line is complete and has a checksum, and a key is read from
either copy; so neither a damaged block nor a crash between the copies makes a row unreadable.

    checksum {"format":1,"spool":"<hex>","kind":"data","id":"<hex>","by":"k1","wrapped":"<hex>"}

Every given state key is tried on a wrapped key (a wrong one passes with a chance of 2⁻⁶⁴); ids of state keys serve
messages only. Rotation rewraps both copies before anything is added under the new key, so after a crash at any moment
each copy opens with the old keys or with the new one. Once a sealer is made, the first state key opens everything on
disk.

Without given keys, the file `state.key` holds the state key: it protects copies of single files, not of the directory.
It is durable before it wraps the first key, and is removed once keys are given and everything is rewrapped.

An attacker who can write the directory must not be able to plant a key. So `state.key` opens nothing where a given key
opens anything, and the takeover is recorded in the keyring: a line holds the former `state.key`, wrapped by the given
one. Only an owner of the given key can write that line; it distinguishes a file that a crash left from a planted one.
If an attacker removes every line that a given key opens, the data keys are gone too. Then a takeover is refused, since
the database has rows that its keyring does not open (`opening.refuse_takeover`). A directory that was replaced as a
whole cannot be distinguished from a new one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from shipper.process.environment import REAL, Entropy
from shipper.sdk.codes import Code
from shipper.sdk.errors import StartFailed, StateLocked
from shipper.sdk.unshown import Unshown
from shipper.spool.directory import StateDirectory, starting
from shipper.spool.seal import KEY_ID_BYTES, Sealer

FORMAT = 3
"""The format of a state directory; a newer one is refused, and not touched.

2: a lane has several credentials.
3: a lane has versions of keyed state to do.
"""

_COPIES = ("keyring", "keyring.copy")
_LOCAL = "state.key"
_DATA, _FINGERPRINT, _FORMER = "data", "fingerprint", "former"


class StateKey(Unshown, frozen=True):
    """A key that wraps the keys of a state directory; 32 bytes."""

    id: str
    key: bytes

    def __post_init__(self) -> None:
        if len(self.key) != 32:
            raise ValueError(f"state key {self.id!r} is not 32 bytes long")

    def __repr__(self) -> str:
        return f"StateKey(id={self.id!r})"


class _Key(Unshown, frozen=True):
    kind: str
    id: bytes
    key: bytes


class Keyring:
    """The unwrapped keys of one spool; made by `open_keyring`."""

    def __init__(
        self,
        directory: StateDirectory,
        wrapping: StateKey,
        spool_id: bytes,
        keys: list[_Key],
        entropy: Entropy,
        *,
        local: bool,
    ) -> None:
        self._directory = directory
        self._wrapping = wrapping
        self._keys = keys
        self._entropy = entropy
        self.spool_id = spool_id
        self.local = local
        """Whether the state key is in the file `state.key`."""
        self.fresh = not keys
        """Whether no key was found: then nothing sealed in this directory can be opened."""
        self.takes_over = False
        """Whether given keys take over from `state.key`; nothing is written before a sealer is made."""
        if not self._of(_FINGERPRINT):
            self._make(_FINGERPRINT)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def data_keys(self) -> Collection[bytes]:
        """Returns the ids of the data keys."""
        return self._of(_DATA).keys()

    def take_over(self, former: StateKey) -> None:
        """Records, wrapped by the first given key, that `state.key` does not open this directory any more."""
        self.takes_over = True
        self._keys.append(_Key(_FORMER, self._entropy(KEY_ID_BYTES), former.key))

    def sealer(self) -> Sealer:
        """Returns a sealer with a new data key, and removes `state.key` if keys were given. Raises OSError."""
        self.store()
        (fingerprint_key,) = self._of(_FINGERPRINT).values()
        sealer = Sealer(self.spool_id, self._of(_DATA), fingerprint_key, self._add_data_key)
        if not self.local:
            self._directory.remove(_LOCAL)
        return sealer

    def keep(self, used: Collection[bytes]) -> None:
        """Removes the data keys whose ids are not among those `used`."""
        self._keys = [key for key in self._keys if key.kind != _DATA or key.id in used]
        self.store()

    def store(self) -> None:
        """Writes both copies, wrapped by the first state key; durable when this returns."""
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
        key = _Key(kind, self._entropy(KEY_ID_BYTES), self._entropy(32))
        self._keys.append(key)
        return key

    def _line(self, key: _Key) -> bytes:
        wrapped = aes_key_wrap(self._wrapping.key, key.key)
        names = {"format": FORMAT, "spool": self.spool_id.hex(), "kind": key.kind, "id": key.id.hex()}
        return _checked({**names, "by": self._wrapping.id, "wrapped": wrapped.hex()})


def open_keyring(
    directory: StateDirectory, given: Sequence[StateKey] | None, entropy: Entropy = REAL.entropy
) -> Keyring:
    """Opens the keys of a directory with state keys (the first wraps, the others only open), or makes new ones.

    `state.key` is used where no given key ever opened anything. Raises StateLocked if a key of the directory cannot be
    opened, or for a planted `state.key`, and StartFailed for a newer format; nothing was changed then.
    """
    lines = _lines(directory)
    _refuse_newer(lines)
    local = _read_local(directory)
    own = [local] if local else []
    opened = _unwrap(lines, given or own)
    takes_over = bool(given and own and lines and not opened.keys)
    if takes_over:
        opened = _unwrap(lines, own)
    elif given and opened.keys:
        _refuse_planted(directory, opened, local)
    _refuse_closed(opened)
    wrapping = given[0] if given else local or _make_local(directory, entropy)
    spool_id = bytes.fromhex(lines[0]["spool"]) if lines else entropy(16)
    ring = Keyring(directory, wrapping, spool_id, opened.keys, entropy, local=not given)
    if not lines:
        _set_unreadable_aside(directory)
    if takes_over and local:
        ring.take_over(local)
    else:
        ring.store()
    return ring


def may_be_taken_over(path: Path, given: Sequence[StateKey]) -> bool:
    """Whether a state directory never had given keys: it is absent, empty, or opened by its `state.key`.

    Changes nothing. Raises StartFailed.
    """
    directory = StateDirectory(path)
    if not path.exists():
        return True
    with starting(path):
        lines, local = _lines(directory), _read_local(directory)
        if not lines:
            return not directory.generations()
    return not _unwrap(lines, given).keys and not _unwrap(lines, [local] if local else []).closed_by


class _Opened(msgspec.Struct, frozen=True):
    """The opened keys, and the ids of the state keys that wrap the others."""

    keys: list[_Key]
    closed_by: set[str]


def _unwrap(lines: list[dict[str, Any]], state_keys: Sequence[StateKey]) -> _Opened:
    keys: dict[tuple[str, str], _Key] = {}
    closed: dict[tuple[str, str], str] = {}
    for line in lines:
        name = (line["kind"], line["id"])
        if name in keys:
            continue
        key = _unwrap_one(bytes.fromhex(line["wrapped"]), state_keys)
        if key is None:
            closed[name] = line["by"]
        else:
            keys[name] = _Key(line["kind"], bytes.fromhex(line["id"]), key)
    return _Opened(list(keys.values()), {closed[name] for name in closed.keys() - keys.keys()})


def _refuse_planted(directory: StateDirectory, opened: _Opened, local: StateKey | None) -> None:
    """Raises StateLocked for a `state.key` that is not the leftover of a takeover, where a given key opens anything."""
    if local and all(key.key != local.key for key in opened.keys if key.kind == _FORMER):
        raise StateLocked(
            f"{directory.path / _LOCAL} is not trusted, since given state keys seal this directory: find out who put "
            "it there, and remove it"
        )
    if _LOCAL in opened.closed_by:
        raise StateLocked(
            f"a data key in {directory.path / _COPIES[0]} is wrapped by a {_LOCAL}, which is not trusted, since given "
            "state keys seal this directory: restore it, or use another directory"
        )


def _refuse_closed(opened: _Opened) -> None:
    if opened.closed_by:
        by = ", ".join(sorted(map(repr, opened.closed_by)))
        raise StateLocked(f"the state directory is sealed by the state key {by}, which was not given, or not as it was")


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
        text = f"the state directory has format {newest}; this version knows formats up to {FORMAT}"
        raise StartFailed(text, code=Code.STATE_NEWER)


def _set_unreadable_aside(directory: StateDirectory) -> None:
    for name in _COPIES:
        if content := directory.read(name):
            directory.write(directory.new_quarantine("keyring").name, content)


# -- state.key ---------------------------------------------------------------------------------------------------------


def _read_local(directory: StateDirectory) -> StateKey | None:
    for line in _checked_lines(directory.read(_LOCAL) or b""):
        return StateKey(_LOCAL, bytes.fromhex(line["key"]))
    return None


def _make_local(directory: StateDirectory, entropy: Entropy) -> StateKey:
    state_key = StateKey(_LOCAL, entropy(32))
    directory.write(_LOCAL, _checked({"key": state_key.key.hex()}))
    return state_key


# -- lines -------------------------------------------------------------------------------------------------------------


def _lines(directory: StateDirectory) -> list[dict[str, Any]]:
    """Returns the lines of both copies of the keyring."""
    return [line for name in _COPIES for line in _checked_lines(directory.read(name) or b"")]


def _checked(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _checked_lines(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.split(b"\n"):
        checksum, _, text = line.partition(b" ")
        if text and checksum == b"%08x" % zlib.crc32(text):
            yield json.loads(text)
