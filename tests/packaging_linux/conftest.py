"""The packages, built once for all tests of this directory: the program as it is, and the same as a later version."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shipper import __version__
from tests import hangs

ROOT = Path(__file__).parents[2]
LATER = f"{__version__}.1"


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a .deb and an .rpm of both versions, for the Python of Debian 12.

    $SHIPPER_PACKAGES names one that was made before, for those who change the tests.
    """
    if made := os.environ.get("SHIPPER_PACKAGES"):
        return Path(made)
    if not shutil.which("nfpm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"):
        pytest.skip("there is no nfpm for this machine")
    into = tmp_path_factory.mktemp("packages")
    builder = [sys.executable, str(ROOT / "packaging/linux/builder"), "packages", str(into), "--python=3.11"]
    versions = [f"--version={version}" for version in (__version__, LATER)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["TMPDIR"] = "/dev/shm"  # thousands of small files, which are packed at once
    with hangs.allow(540):
        subprocess.run([*builder, *versions], env=environment, check=True, timeout=600)
    return into
