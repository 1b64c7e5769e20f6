"""Files beside the ledger are as safe as it is, and follow its keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from shipper.sdk.errors import StateLocked
from shipper.supervise.ledger import Ledger
from shipper.supervise.vault import Vault

TEXT = b"canary-of-a-secret"
A, B = b"a" * 32, b"b" * 32


def written(directory: Path, *keys: bytes) -> None:
    with Vault(directory, keys) as vault:
        vault.load()
        vault.save(Ledger(number=1))
        vault.write("notes", TEXT)


def read(directory: Path, *keys: bytes, name: str = "notes") -> bytes | None:
    with Vault(directory, keys) as vault:
        vault.load()
        return vault.read(name)


def test_what_was_written_is_read_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    written(tmp_path)

    assert read(tmp_path) == TEXT
    assert TEXT not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert (tmp_path / "notes.sealed").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("before", "after"), [((), (A,)), ((A,), (B, A))])
def test_a_new_key_takes_over_before_the_old_one_is_gone(
    tmp_path: Path, before: tuple[bytes, ...], after: tuple[bytes, ...]
) -> None:
    written(tmp_path, *before)

    assert read(tmp_path, *after) == TEXT
    assert read(tmp_path, after[0]) == TEXT
    assert not (tmp_path / "supervise.key").exists()


def test_the_old_key_stays_as_long_as_a_file_cannot_be_sealed_by_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path)
    with monkeypatch.context() as full:
        full.setattr("shipper.supervise.sealed.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "no space")))

        assert read(tmp_path, A) == TEXT

    assert (tmp_path / "supervise.key").exists()
    assert read(tmp_path, A) == TEXT
    assert not (tmp_path / "supervise.key").exists()


def test_no_file_can_stand_in_for_another_one(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "notes.sealed").rename(tmp_path / "other.sealed")

    with pytest.raises(StateLocked, match=r"no key of this directory opens .*other.sealed"):
        read(tmp_path, name="other")


@pytest.mark.parametrize("raw", [b"", b"{}", b"\xff", b'{"format": 1, "nonce": "", "sealed": ""}'])
def test_a_damaged_file_is_refused(tmp_path: Path, raw: bytes) -> None:
    written(tmp_path)
    (tmp_path / "notes.sealed").write_bytes(raw)

    with pytest.raises(StateLocked):
        read(tmp_path)


def test_a_newer_format_is_not_changed(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "notes.sealed").write_text('{"format": 2, "nonce": "", "sealed": ""}')

    with pytest.raises(StateLocked, match="has format 2"):
        read(tmp_path)
