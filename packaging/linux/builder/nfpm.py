"""Makes a package of a directory with nfpm, which the test group of pyproject.toml installs from the package index."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

FORMATS = ("deb", "rpm")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
SCRIPTS = ("preinstall", "postinstall", "preremove", "postremove")
DEPENDENCIES = {
    "deb": [
        "python3 (>= 3.11)",
        "systemd | systemd-standalone-sysusers",
        "systemd | systemd-standalone-tmpfiles",
    ],
    "rpm": [
        "(python3.14 or python3.13 or python3.12 or python3.11)",
        "(systemd or systemd-standalone-sysusers)",
        "(systemd or systemd-standalone-tmpfiles)",
    ],
}
"""A container image has no systemd; the two small programs make the user and the directories there."""


def package(root: Path, linux: Path, into: Path, format: str, machine: str, version: str) -> Path:
    """Makes one package; returns its path. `linux` has the scripts."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(_config(root, linux, format, machine, version), file)
        file.flush()
        program = shutil.which("nfpm", path=str(Path(sys.executable).parent)) or "nfpm"
        command = [program, "package", f"--config={file.name}", f"--packager={format}", f"--target={into}"]
        subprocess.run(command, stdout=sys.stderr, check=True)
    (made,) = into.glob(f"shipper[_-]{version}*.{format}")
    return made


def _config(root: Path, linux: Path, format: str, machine: str, version: str) -> dict[str, Any]:
    return {
        "name": "shipper",
        "arch": ARCHITECTURES[machine],
        "version": version,
        "section": "admin",
        "priority": "optional",
        "maintainer": "The shipper project <shipper@localhost>",
        "license": "Apache-2.0",
        "description": "A log shipper whose credentials can be rotated without losing an event.\n"
        "It says when an old credential can be revoked, and keeps events in a durable, sealed queue until then.",
        "depends": DEPENDENCIES[format],
        "contents": [*_contents(root)],
        "scripts": {name: str(linux / "scripts" / name) for name in SCRIPTS},
        "deb": {"compression": "zstd"},
        "rpm": {"compression": "zstd"},
    }


def _contents(root: Path) -> list[dict[str, Any]]:
    settings = "etc/shipper/supervise.yaml"
    trees = [{"src": str(root / "usr"), "dst": "/usr", "type": "tree"}]
    return [*trees, {"src": str(root / settings), "dst": f"/{settings}", "type": "config|noreplace"}]
