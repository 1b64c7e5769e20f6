from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path

import pytest

from shipper.sdk.errors import OptionError, StateBusy, StateLocked
from shipper.spool.directory import own
from shipper.spool.keys import StateKey, open_keyring
from shipper.supervise.ledger import Kept, Ledger
from shipper.supervise.vault import Vault, decoded_key, key_name
from tests.disks import fill, small_disk

LEDGER = Ledger(number=7, kept={"es-1": Kept("es-1", {"api_key": "id:hunter2"}, ["file:/es"], ["outputs.main"])})


def saved(directory: Path, keys: tuple[bytes, ...] = ()) -> None:
    with Vault(directory, keys) as vault:
        vault.load()
        vault.save(LEDGER)


def loaded(directory: Path, *keys: bytes) -> Ledger:
    with Vault(directory, keys) as vault:
        return vault.load()[0]


def test_what_was_saved_is_loaded_and_a_new_directory_is_told_apart(tmp_path: Path) -> None:
    with Vault(tmp_path) as vault:
        assert vault.load() == (Ledger(), False)
        vault.save(LEDGER)

    assert loaded(tmp_path) == LEDGER


def test_nothing_lies_in_the_clear_and_nobody_else_may_read(tmp_path: Path) -> None:
    saved(tmp_path / "new")

    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    for file in (tmp_path / "new").iterdir():
        assert b"hunter2" not in file.read_bytes()
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_second_owner_is_refused_until_the_first_has_gone(tmp_path: Path) -> None:
    with Vault(tmp_path), pytest.raises(StateBusy, match="another `shipper supervise` owns"):
        Vault(tmp_path)
    Vault(tmp_path).close()


def test_a_save_that_fails_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path)
    with Vault(tmp_path) as vault:
        vault.load()
        monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            vault.save(Ledger(number=8))
    monkeypatch.undo()

    assert loaded(tmp_path) == LEDGER


def test_keys_rotate_the_first_seals_the_others_open(tmp_path: Path) -> None:
    old, new = b"o" * 32, b"n" * 32
    saved(tmp_path, (old,))
    assert loaded(tmp_path, new, old) == LEDGER

    assert loaded(tmp_path, new) == LEDGER
    with pytest.raises(StateLocked, match="which was not given"):
        loaded(tmp_path, old)


def test_a_configured_key_takes_over_from_the_file_which_is_removed(tmp_path: Path) -> None:
    saved(tmp_path)
    assert loaded(tmp_path, b"k" * 32).kept == LEDGER.kept

    assert not (tmp_path / "supervise.key").exists()
    named = json.loads((tmp_path / "supervise.json").read_bytes())["key"]
    with pytest.raises(StateLocked, match=rf"sealed with key {named}, .* give state_key \(--config\), or bring back"):
        loaded(tmp_path)


# -- who can write the directory must not be able to bring a key -------------------------------------------------------

GIVEN = b"k" * 32


def sidecar_sealed_by(directory: Path, key: bytes | None) -> None:
    """A sidecar has run there, with a state key or without one."""
    with own(directory / "sidecar") as sidecar:
        open_keyring(sidecar, None if key is None else [StateKey(key_name(key), key)]).sealer()


def refused(directory: Path, match: str, *keys: bytes) -> None:
    """The state is locked, and as it was."""
    before = {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()}
    with pytest.raises(StateLocked, match=match):
        loaded(directory, *keys)
    assert {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()} == before


@pytest.mark.parametrize("before", [(GIVEN,), ()])
def test_a_key_that_was_put_beside_a_configured_one_is_refused(tmp_path: Path, before: tuple[bytes, ...]) -> None:
    saved(tmp_path, before)
    assert loaded(tmp_path, GIVEN).kept == LEDGER.kept
    (tmp_path / "supervise.key").write_bytes(base64.b64encode(b"h" * 32))

    refused(tmp_path, r"supervise\.key is not trusted.* remove it", GIVEN)
    (tmp_path / "supervise.key").unlink()
    assert loaded(tmp_path, GIVEN).number == LEDGER.number


def test_a_key_that_a_crash_left_beside_a_configured_one_is_removed(tmp_path: Path) -> None:
    saved(tmp_path)
    former = (tmp_path / "supervise.key").read_bytes()
    loaded(tmp_path, GIVEN)
    (tmp_path / "supervise.key").write_bytes(former)

    assert loaded(tmp_path, GIVEN).number == LEDGER.number
    assert not (tmp_path / "supervise.key").exists()


@pytest.mark.parametrize("removed", [(), ("keyring", "keyring.copy")])
def test_a_ledger_that_was_put_there_with_its_key_is_refused_once_keys_were_configured(
    tmp_path: Path, removed: tuple[str, ...]
) -> None:
    """Else it names what is revoked. What the sidecar sealed is the proof, and who removes its keys leaves the rows."""
    saved(tmp_path / "his")
    saved(tmp_path / "state", (GIVEN,))
    sidecar_sealed_by(tmp_path / "state", GIVEN)
    (tmp_path / "state" / "sidecar" / "spool-1.db").touch()
    for name in removed:
        (tmp_path / "state" / "sidecar" / name).unlink()
    for name in ("supervise.key", "supervise.json"):
        (tmp_path / "his" / name).replace(tmp_path / "state" / name)

    refused(tmp_path / "state", r"supervise\.json is sealed by .*supervise\.key, which is not trusted", GIVEN)
    refused(tmp_path / "state", "is not trusted", b"n" * 32, GIVEN)


def test_a_configured_key_takes_over_from_the_file_where_the_sidecar_has_its_own_too(tmp_path: Path) -> None:
    saved(tmp_path)
    sidecar_sealed_by(tmp_path, None)

    assert loaded(tmp_path, GIVEN).number == LEDGER.number
    sidecar_sealed_by(tmp_path, GIVEN)
    assert loaded(tmp_path, GIVEN).number == LEDGER.number


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff", b'{"format":1,"key":"\xff"}', b'{"a":' + b"[" * 5000])
def test_a_damaged_state_is_refused_and_left_alone(tmp_path: Path, damage: bytes) -> None:
    saved(tmp_path)
    (tmp_path / "supervise.json").write_bytes(damage)

    with pytest.raises(StateLocked, match="is damaged"):
        loaded(tmp_path)
    assert (tmp_path / "supervise.json").read_bytes() == damage


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    saved(tmp_path)
    file = tmp_path / "supervise.json"
    raw = file.read_bytes()
    file.write_bytes(raw.replace(b'"sealed":"', b'"sealed":"AAAA', 1))

    with pytest.raises(StateLocked):
        loaded(tmp_path)


def test_a_key_that_is_not_32_bytes_is_refused_with_its_place() -> None:
    with pytest.raises(OptionError, match="systemd:state is not 32 bytes"):
        decoded_key(b"short", "systemd:state")


@pytest.mark.root
def test_on_a_full_disk_there_is_room_for_one_more_save(tmp_path: Path) -> None:
    """Else a sidecar that restarts there would get no credentials, deliver nothing, and free no room."""
    with small_disk(tmp_path, "1m") as disk, Vault(disk / "state") as vault:
        ledger, _ = vault.load()
        vault.save(ledger)
        fill(disk / "filler")
        vault.save(ledger)
        (disk / "filler").unlink()
        vault.save(ledger)

        assert (disk / "state" / "supervise.reserve").exists()


@pytest.mark.root
def test_on_a_full_disk_the_room_that_the_reserve_left_serves_more_than_one_save(tmp_path: Path) -> None:
    """It is given up once, and nothing may eat it but the state."""
    with small_disk(tmp_path, "1m") as disk, Vault(disk / "state") as vault:
        ledger, _ = vault.load()
        vault.save(ledger)
        fill(disk / "filler")
        for number in range(1, 5):
            vault.save(Ledger(number=number, policy=1000 * "long "))
        files = {file.name for file in (disk / "state").iterdir()}

    assert files == {"supervise.json", "supervise.key", "supervise.lock"}


@pytest.mark.root
def test_on_a_full_disk_the_state_is_loaded_as_often_as_one_starts(tmp_path: Path) -> None:
    """Else the second start there is the last one, and a queue that could drain stands still."""
    with small_disk(tmp_path, "1m") as disk:
        saved(disk / "state")
        (disk / "state" / "supervise.reserve").unlink()
        fill(disk / "filler")

        assert [loaded(disk / "state") for _ in range(3)] == [LEDGER] * 3


@pytest.mark.root
def test_on_a_full_disk_a_new_key_seals_with_the_first_save_that_can_be_done(tmp_path: Path) -> None:
    with small_disk(tmp_path, "1m") as disk:
        saved(disk / "state")
        (disk / "state" / "supervise.reserve").unlink()
        fill(disk / "filler")
        for _ in range(2):
            with Vault(disk / "state", [b"k" * 32]) as vault:
                assert vault.load()[0].kept == LEDGER.kept
                assert not vault.is_taken_over
        (disk / "filler").unlink()

        assert loaded(disk / "state", b"k" * 32).kept == LEDGER.kept
        assert not (disk / "state" / "supervise.key").exists()


@pytest.mark.root
def test_a_disk_that_is_full_at_the_first_start_is_named_by_the_file(tmp_path: Path) -> None:
    with small_disk(tmp_path, "64k") as disk, Vault(disk) as vault:
        fill(disk / "filler")

        with pytest.raises(OSError, match=r"No space left on device: '.*supervise\.key'"):
            vault.load()


@pytest.mark.root
def test_a_directory_on_a_read_only_disk_is_refused_by_its_name(tmp_path: Path) -> None:
    with small_disk(tmp_path, "1m") as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)

        with pytest.raises(OptionError, match=f"--state {disk}/state: cannot be used: Read-only file system"):
            Vault(disk / "state")


def test_a_directory_that_is_closed_is_refused_by_its_name(closed: Path) -> None:
    for path in (closed, closed / "state"):
        with pytest.raises(OptionError, match=f"--state {path}: "):
            Vault(path)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no proc")
def test_a_directory_that_cannot_be_made_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "held" / "supervise.lock").mkdir(parents=True)
    places = [Path("/proc/x"), tmp_path / ("n" * 300), tmp_path / "loop" / "state", tmp_path / "held"]
    for path in places:
        with pytest.raises(OptionError, match=f"--state {path}: "):
            Vault(path)


def test_a_newer_format_is_refused_and_not_touched(tmp_path: Path) -> None:
    saved(tmp_path)
    file = tmp_path / "supervise.json"
    newer = b'{"format":9,"anything":"else"}'
    sealed = file.read_bytes()
    for raw in (newer, sealed.replace(b'"format":1', b'"format":9', 1)):
        file.write_bytes(raw)
        with pytest.raises(StateLocked, match=r"has format 9; this version knows formats up to 1"):
            loaded(tmp_path)
        assert file.read_bytes() == raw


def test_a_ledger_of_a_newer_format_is_refused_though_its_envelope_is_known(tmp_path: Path) -> None:
    with Vault(tmp_path) as owner:
        owner.load()
        owner.save(Ledger(format=2, number=7))

    with pytest.raises(StateLocked, match="has format 2"):
        loaded(tmp_path)


@pytest.mark.parametrize("name", ["supervise.json", "supervise.key", "supervise.lock", "supervise.json.new"])
def test_no_link_is_followed(tmp_path: Path, name: str) -> None:
    saved(tmp_path / "state")
    victim = tmp_path / "victim"
    victim.write_bytes(b"content")
    (tmp_path / "state" / name).unlink(missing_ok=True)
    (tmp_path / "state" / name).symlink_to(victim)

    with pytest.raises((OSError, OptionError), match="symbolic link"):
        saved(tmp_path / "state")
    assert victim.read_bytes() == b"content"


@pytest.mark.parametrize("name", ["supervise.json", "supervise.key"])
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    saved(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)

    with pytest.raises(OptionError, match="not a regular file"):
        loaded(tmp_path)


@pytest.mark.root
@pytest.mark.parametrize("name", ["", "supervise.json", "supervise.key"])
def test_what_belongs_to_another_user_is_refused(tmp_path: Path, name: str) -> None:
    saved(tmp_path / "state")
    os.chown(tmp_path / "state" / name, 65534, 65534)

    with pytest.raises(OptionError, match="belongs to another user"):
        loaded(tmp_path / "state")
