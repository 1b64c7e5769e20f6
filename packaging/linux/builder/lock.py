"""`requirements.lock`: the exact releases that a package contains, with the hashes of their wheels.

pip resolves the dependencies for each Python and machine; where they differ in a release, the lock cannot be written.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path

EXTRAS = ("kafka", "otlp")
"""What a package has beyond the required: every plugin works without another installation."""
HEAD = "# Written by `python packaging/linux/builder lock`: what the packages contain.\n"

Pins = dict[tuple[str, str], set[str]]
"""By name and version, the hashes of the wheels."""


def target(python: str, machine: str) -> list[str]:
    """Returns the options by which pip chooses wheels for another interpreter: glibc 2.28 or newer."""
    platforms = [f"--platform={kind}_{machine}" for kind in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
    return ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}", *platforms]


def requirements(pyproject: Path) -> list[str]:
    """Returns the dependencies that a package has, as pyproject.toml states them."""
    project = tomllib.loads(pyproject.read_text())["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(one for extra in EXTRAS for one in optional[extra])]


def resolved(pyproject: Path, pythons: Iterable[str], machines: Iterable[str]) -> Pins:
    """Returns the newest releases that fit, for all targets; asks the package index."""
    pins: Pins = {}
    wanted = requirements(pyproject)
    for python, machine in product(pythons, machines):
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report=-"]
        ended = subprocess.run([*command, *target(python, machine), *wanted], stdout=subprocess.PIPE, check=True)
        for one in json.loads(ended.stdout)["install"]:
            pin = (one["metadata"]["name"].lower().replace("_", "-"), one["metadata"]["version"])
            pins.setdefault(pin, set()).add(one["download_info"]["archive_info"]["hashes"]["sha256"])
    return pins


def text(pins: Mapping[tuple[str, str], set[str]]) -> str:
    """Returns the file; raises ValueError if two targets need different releases."""
    names = [name for name, _ in pins]
    several = sorted({name for name in names if names.count(name) > 1})
    if several:
        raise ValueError(f"no release for every target: {', '.join(several)}")
    lines = (
        f"{name}=={version}" + "".join(f" \\\n    --hash=sha256:{one}" for one in sorted(hashes))
        for (name, version), hashes in sorted(pins.items())
    )
    return HEAD + "\n".join(lines) + "\n"
