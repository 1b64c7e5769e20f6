"""What a test needs and a machine lacks is said by name, with what installs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

ROOT = Path(__file__).parents[1]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only directory with programs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(needs, "_SYSTEM", "")
    return tmp_path


def test_what_is_absent_is_named_with_its_packages(bare: Path) -> None:
    assert needs.absence("rpm", "promtool") == "needs rpm, promtool (Debian: apt install prometheus rpm)"
    assert needs.absence("rpm", "go") == f"needs rpm, go (Debian: {needs.COMMAND})"

    (bare / "rpm").touch(0o755)

    assert needs.absence("rpm") == ""
    with pytest.raises(pytest.skip.Exception, match="needs promtool"):
        needs.require("rpm", "promtool")


def test_a_program_of_the_system_is_found_though_the_path_leaves_it_out(
    monkeypatch: pytest.MonkeyPatch, bare: Path
) -> None:
    (bare / "mkfs.ext4").touch(0o755)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(needs, "_SYSTEM", str(bare))

    assert needs.program("mkfs.ext4") == str(bare / "mkfs.ext4")


def test_a_machine_without_apt_is_told_what_it_lacks(bare: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "from tests import needs; needs._SYSTEM = ''; raise SystemExit(needs.main())"],
        cwd=ROOT,
        env={"PATH": str(bare)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ran.returncode == 1
    assert "promtool" in ran.stderr
    assert "only root of a Debian can install that" in ran.stderr


def test_all_that_tests_ask_for_is_in_the_table() -> None:
    asked = re.compile(r"needs(?:\.require|\.program|\.path|\.absence|)\(((?:\"[^\"]+\"(?:, )?)+)\)")
    texts = [path.read_text() for path in (ROOT / "tests").rglob("*.py") if path.name != "needs.py"]
    names = {name for text in texts for found in asked.findall(text) for name in re.findall(r'"([^"]+)"', found)}

    assert "rpm" in names
    needs.absent(*names)  # raises KeyError
