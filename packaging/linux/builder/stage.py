"""Lays out the files of a package in a directory.

    /usr/bin/shipper                          chooses the interpreter
    /usr/lib/shipper/common                   what every Python reads: this program, wheels without or with stable ABI
    /usr/lib/shipper/python3.12               a virtual environment with the wheels that were compiled for one Python
    /usr/lib/systemd/system, sysusers.d, tmpfiles.d, /etc/shipper/supervise.yaml
    /usr/share/man, bash-completion, zsh, fish, doc

A virtual environment of one Python alone would be broken by the upgrade of a distribution, which replaces the
interpreter; and an interpreter of our own would need its security updates from us.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import generated
from lock import target

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
HOME = "usr/lib/shipper"
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "tests")


Wheels = Mapping[str, Mapping[str, Path]]
"""By Python and file name."""


def download(lock: Path, into: Path, pythons: Iterable[str], machine: str) -> Wheels:
    """Returns the wheels that the lock names, from the package index."""
    return {python: _download(lock, into / python, python, machine) for python in pythons}


def stage(root: Path, source: Path, wheels: Wheels, machine: str, version: str) -> None:
    """Writes all files below `root`; `source` is the checkout."""
    with tempfile.TemporaryDirectory() as name:
        _install(root / HOME, _wheel(source, Path(name), version), wheels, machine)
    generated.write(root)
    _copy_files(root, source)


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments], stdout=sys.stderr, check=True)


def _wheel(source: Path, work: Path, version: str) -> Path:
    """Returns a wheel of this program, which says that it has the version."""
    copy = work / "source"
    shutil.copytree(source, copy, ignore=LEFT_OUT)
    module = copy / "shipper" / "__init__.py"
    module.write_text(re.sub(r'^__version__ = ".*"$', f'__version__ = "{version}"', module.read_text(), flags=re.M))
    _pip("wheel", "--quiet", "--no-deps", f"--wheel-dir={work}", str(copy))
    (wheel,) = work.glob("shipper-*.whl")
    return wheel


def _download(lock: Path, into: Path, python: str, machine: str) -> Mapping[str, Path]:
    options = ["--quiet", "--no-deps", "--require-hashes", f"--requirement={lock}", f"--dest={into}"]
    _pip("download", *options, *target(python, machine))
    return {wheel.name: wheel for wheel in into.glob("*.whl")}


def _install(home: Path, own: Path, chosen: Wheels, machine: str) -> None:
    first = next(iter(chosen))
    common = set.intersection(*({name for name in wheels if _is_common(name)} for wheels in chosen.values()))
    _unpack([own, *(chosen[first][name] for name in sorted(common))], home / "common", first, machine)
    for python, wheels in chosen.items():
        site = home / f"python{python}" / "lib" / f"python{python}" / "site-packages"
        _unpack([wheel for name, wheel in sorted(wheels.items()) if name not in common], site, python, machine)
        _make_environment(home / f"python{python}", site, python)


def _is_common(wheel: str) -> bool:
    """Whether a wheel works with every Python."""
    return "-abi3-" in wheel or "-none-" in wheel


def _unpack(wheels: Iterable[Path], into: Path, python: str, machine: str) -> None:
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile", f"--target={into}"]
    _pip("install", *options, *target(python, machine), *map(str, wheels))
    shutil.rmtree(into / "bin", ignore_errors=True)


def _make_environment(place: Path, site: Path, python: str) -> None:
    (place / "bin").mkdir()
    (place / "bin" / "python").symlink_to(f"/usr/bin/python{python}")
    (place / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n")
    (site / "common.pth").write_text(f"/{HOME}/common\n")


def _copy_files(root: Path, source: Path) -> None:
    linux = source / "packaging" / "linux"
    for name, there in {
        "launcher": "usr/bin/shipper",
        "shipper.service": "usr/lib/systemd/system/shipper.service",
        "shipper.sysusers": "usr/lib/sysusers.d/shipper.conf",
        "shipper.tmpfiles": "usr/lib/tmpfiles.d/shipper.conf",
        "supervise.yaml": "etc/shipper/supervise.yaml",
        "../../LICENSE": "usr/share/doc/shipper/copyright",
        "../../README.md": "usr/share/doc/shipper/README.md",
        "../../docs/troubles.md": "usr/share/doc/shipper/troubles.md",
        "../monitoring/rules.yaml": "usr/share/doc/shipper/monitoring/rules.yaml",
        "../monitoring/dashboard.json": "usr/share/doc/shipper/monitoring/dashboard.json",
    }.items():
        _put(linux / name, root / there)
    for policy in sorted((source / "policies").iterdir()):
        _put(policy, root / "usr/share/doc/shipper/policies" / policy.name)
    (root / "usr/bin/shipper").chmod(0o755)


def _put(file: Path, there: Path) -> None:
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_bytes(file.read_bytes())
    there.chmod(0o644)
