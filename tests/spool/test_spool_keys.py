"""State keys: what opens a directory, and that rotation never locks it."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.keywrap import aes_key_wrap

from shipper.sdk.errors import StartFailed, StateLocked
from shipper.spool import keys
from shipper.spool.directory import StateDirectory, own
from shipper.spool.keys import StateKey, open_keyring
from shipper.spool.seal import Damaged

K1, K2, K3 = (StateKey(f"k{number}", secrets.token_bytes(32)) for number in (1, 2, 3))


@pytest.fixture
def directory(tmp_path: Path) -> Any:
    with own(tmp_path / "state") as directory:
        yield directory


def content(directory: StateDirectory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.path.iterdir()}


def sealed_in(directory: StateDirectory, *given: StateKey) -> bytes:
    return open_keyring(directory, given).sealer().seal("batch", 1, 0, 0, b"an event")


def opens(directory: StateDirectory, sealed: bytes, *given: StateKey) -> bool:
    return open_keyring(directory, given).sealer().open("batch", 1, 0, 0, sealed) == b"an event"


def test_a_state_key_does_not_show_its_bytes() -> None:
    assert repr(StateKey("k1", b"x" * 32)) == "StateKey(id='k1')"


def test_a_state_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        StateKey("k1", b"short")


def test_given_keys_open_what_they_sealed(directory: StateDirectory) -> None:
    assert opens(directory, sealed_in(directory, K1), K1)
    assert "state.key" not in content(directory)


def test_without_keys_the_directory_has_its_own(directory: StateDirectory) -> None:
    sealed = sealed_in(directory)

    assert opens(directory, sealed)
    assert (directory.path / "state.key").stat().st_mode & 0o777 == 0o600
    assert open_keyring(directory, None).local


def test_every_process_seals_with_a_key_of_its_own(directory: StateDirectory) -> None:
    assert len({sealed_in(directory, K1)[:8] for _ in range(5)}) == 5


def test_the_state_key_is_durable_before_anything_is_wrapped_by_it(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    write = StateDirectory.write

    def noted(self: StateDirectory, name: str, content: bytes) -> None:
        write(self, name, content)
        written.append(name)

    monkeypatch.setattr(StateDirectory, "write", noted)
    sealed_in(directory)

    assert written[0] == "state.key"


def test_another_key_is_locked_out_and_nothing_is_touched(directory: StateDirectory) -> None:
    sealed_in(directory, K1)
    before = content(directory)

    for given in ([K2], [StateKey("k1", K2.key)], None):
        with pytest.raises(StateLocked, match="'k1'"):
            open_keyring(directory, given)

    assert content(directory) == before


def test_a_key_is_known_by_its_bytes_whatever_its_id(directory: StateDirectory) -> None:
    assert opens(directory, sealed_in(directory, K1), StateKey("renamed", K1.key))


def test_after_rotation_only_the_first_key_is_needed(directory: StateDirectory) -> None:
    sealed = sealed_in(directory, K1)

    assert opens(directory, sealed, K2, K1)
    assert opens(directory, sealed, K2)
    with pytest.raises(StateLocked):
        open_keyring(directory, [K1])


def test_given_keys_take_over_from_the_directorys_own(directory: StateDirectory) -> None:
    sealed = sealed_in(directory)

    assert opens(directory, sealed, K1)
    assert "state.key" not in content(directory)
    assert opens(directory, sealed, K1)
    with pytest.raises(StateLocked):
        open_keyring(directory, None)


def test_fingerprints_survive_restarts_and_rotation(directory: StateDirectory) -> None:
    rings = [open_keyring(directory, None)]
    marks = {rings[0].sealer().fingerprint(b"secret")}
    for given in ([K1], [K2, K1], [K2]):
        rings.append(open_keyring(directory, given))
        marks.add(rings[-1].sealer().fingerprint(b"secret"))

    assert len(marks) == 1
    assert len({ring.spool_id for ring in rings}) == 1


# -- who can write the directory must not be able to bring a key -------------------------------------------------------


def line(directory: StateDirectory, key_id: bytes, wrapped: bytes) -> bytes:
    """A line of the keyring, as anybody can write it who can write the directory."""
    spool = json.loads((directory.read("keyring") or b"").split(b"\n")[0].partition(b" ")[2])["spool"]
    names = {"format": keys.FORMAT, "spool": spool, "kind": "data", "id": key_id.hex(), "by": "state.key"}
    return keys._checked({**names, "wrapped": wrapped.hex()})


def plant(directory: StateDirectory, local: bytes) -> None:
    (directory.path / "state.key").write_bytes(keys._checked({"key": local.hex()}))


def refused(directory: StateDirectory, match: str, *given: StateKey) -> None:
    """The directory is locked, and as it was."""
    before = content(directory)
    with pytest.raises(StateLocked, match=match):
        open_keyring(directory, given)
    assert content(directory) == before


@pytest.mark.parametrize("before", [(K1,), ()])
def test_a_state_key_that_was_put_beside_given_keys_is_refused(
    directory: StateDirectory, before: tuple[StateKey, ...]
) -> None:
    """Also where a `state.key` was there once, and given keys took over from it."""
    sealed = sealed_in(directory, *before)
    assert opens(directory, sealed, K1)
    plant(directory, bytes(32))

    for given in ([K1], [K2, K1]):
        refused(directory, r"state/state\.key is not trusted.* remove it", *given)
    (directory.path / "state.key").unlink()
    assert opens(directory, sealed, K2, K1)
    plant(directory, bytes(32))
    refused(directory, "is not trusted", K2)


def test_a_data_key_that_a_state_key_wraps_is_refused_where_given_keys_seal(directory: StateDirectory) -> None:
    """Nor does it help to have copied the former `state.key`."""
    sealed_in(directory)
    former = (directory.path / "state.key").read_bytes()
    sealed_in(directory, K1)
    (local,) = keys._checked_lines(former)
    planted = line(directory, b"his ours", aes_key_wrap(bytes.fromhex(local["key"]), bytes(32)))
    for name in ("keyring", "keyring.copy"):
        with (directory.path / name).open("ab") as file:
            file.write(planted)
    (directory.path / "state.key").write_bytes(former)

    refused(directory, r"wrapped by a state\.key, which is not trusted", K1)


def test_who_removes_the_memory_of_a_takeover_is_not_let_in(directory: StateDirectory) -> None:
    sealed_in(directory)
    former = (directory.path / "state.key").read_bytes()
    sealed_in(directory, K1)
    for name in ("keyring", "keyring.copy"):
        lines = (directory.read(name) or b"").splitlines(keepends=True)
        directory.write(name, b"".join(each for each in lines if b'"former"' not in each))
    (directory.path / "state.key").write_bytes(former)

    refused(directory, "is not trusted", K1)


def test_a_state_key_that_a_crash_left_beside_given_keys_is_removed(directory: StateDirectory) -> None:
    sealed = sealed_in(directory)
    former = (directory.path / "state.key").read_bytes()
    sealed_in(directory, K1)
    (directory.path / "state.key").write_bytes(former)

    assert opens(directory, sealed, K1)
    assert "state.key" not in content(directory)


class Died(Exception):
    pass


def dies_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let the process die before or after each durable change of the directory."""
    left = [step]

    def mortal(name: str) -> Any:
        original = getattr(StateDirectory, name)

        def change(self: StateDirectory, *args: Any) -> None:
            if not left[0]:
                raise Died
            left[0] -= 1
            original(self, *args)
            if not left[0]:
                raise Died
            left[0] -= 1

        return change

    for name in ("write", "remove"):
        monkeypatch.setattr(StateDirectory, name, mortal(name))


@pytest.mark.parametrize(("old", "new"), [([K1], [K2, K1]), ([], [K1]), ([K1], [K1]), ([K1, K3], [K2, K3, K1])])
def test_a_rotation_that_dies_anywhere_leaves_a_directory_that_opens(
    tmp_path: Path, old: list[StateKey], new: list[StateKey]
) -> None:
    for step in range(100):
        with own(tmp_path / str(step)) as directory, pytest.MonkeyPatch.context() as monkeypatch:
            sealed = sealed_in(directory, *old)
            dies_at(monkeypatch, step)
            try:
                open_keyring(directory, new).sealer()
            except Died:
                finished = False
            else:
                finished = True
            monkeypatch.undo()

            assert opens_with_either(directory, sealed, old, new[:1])
            assert opens(directory, sealed, *new)
            assert opens(directory, sealed, new[0])
        if finished:
            assert step > 4
            return
    raise AssertionError("never finished")


def opens_with_either(directory: StateDirectory, sealed: bytes, *choices: list[StateKey]) -> bool:
    """Whether one of several sets of keys would open it; looks at it without changing it."""
    for given in choices:
        with pytest.MonkeyPatch.context() as monkeypatch:
            for name in ("write", "remove"):
                monkeypatch.setattr(StateDirectory, name, lambda *args: None)
            try:
                return opens(directory, sealed, *given)
            except StateLocked:
                continue
    return False


@pytest.mark.parametrize("name", ["keyring", "keyring.copy"])
@pytest.mark.parametrize("damage", [b"", b"\xff" * 4096, None])
def test_one_damaged_copy_of_the_keyring_is_healed_by_the_other(
    directory: StateDirectory, name: str, damage: bytes | None
) -> None:
    sealed = sealed_in(directory, K1)
    damaged = directory.path / name
    damaged.unlink() if damage is None else damaged.write_bytes(damage)

    assert opens(directory, sealed, K1)
    assert directory.read("keyring") == directory.read("keyring.copy")


def test_every_flipped_byte_in_a_keyring_is_healed(directory: StateDirectory) -> None:
    sealed = sealed_in(directory, K1)
    path = directory.path / "keyring"
    good = path.read_bytes()

    for at in range(0, len(good), 7):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert opens_with_either(directory, sealed, [K1])


def test_a_lost_keyring_is_put_aside_and_a_new_one_made(directory: StateDirectory) -> None:
    sealed_in(directory, K1)
    for name in ("keyring", "keyring.copy"):
        (directory.path / name).write_bytes(b"rubbish")

    assert open_keyring(directory, [K1]).fresh
    assert [path.read_bytes() for path in directory.path.glob("quarantine-*")] == [b"rubbish"] * 2


def test_a_newer_format_is_refused_and_not_touched(directory: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "FORMAT", keys.FORMAT + 1)
    sealed_in(directory, K1)
    monkeypatch.undo()
    before = content(directory)

    with pytest.raises(StartFailed, match=r"has format 4; this version knows formats up to 3") as refused:
        open_keyring(directory, [K1])
    assert refused.value.code == "state_newer"

    assert content(directory) == before


def test_data_keys_that_nothing_needs_can_be_forgotten(directory: StateDirectory) -> None:
    sealed = [sealed_in(directory, K1) for _ in range(5)]
    ring = open_keyring(directory, [K1])

    ring.keep({sealed[2][:8]})

    assert len(ring) == 2
    assert opens(directory, sealed[2], K1)
    with pytest.raises(Damaged):
        opens(directory, sealed[1], K1)
