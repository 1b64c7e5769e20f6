"""Builds the packages of the service: `python packaging/linux/builder --format deb --format rpm dist`.

It runs with the Python of the development environment (`make .venv/tested`). It asks the package index for the wheels
that `requirements.lock` names, by hash; the installation of a package asks nobody.
"""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path

import click
import lock
import nfpm
import stage

from shipper import __version__

HERE = Path(__file__).parents[1]
ROOT = HERE.parents[1]
LOCK = HERE / "requirements.lock"


@click.group()
def build() -> None:
    """Packages for Linux."""


@build.command("packages")
@click.argument("into", type=click.Path(path_type=Path))
@click.option("--format", "formats", multiple=True, type=click.Choice(nfpm.FORMATS), default=nfpm.FORMATS)
@click.option("--python", "pythons", multiple=True, type=click.Choice(stage.PYTHONS), default=stage.PYTHONS)
@click.option("--machine", type=click.Choice([*nfpm.ARCHITECTURES]), default=platform.machine())
@click.option("--version", "versions", multiple=True, default=[__version__], help="Of the program, and its package.")
def packages(
    into: Path, formats: tuple[str, ...], pythons: tuple[str, ...], machine: str, versions: tuple[str, ...]
) -> None:
    """Build a package of each format into a directory, and print their paths."""
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        wheels = stage.download(LOCK, Path(name) / "wheels", pythons, machine)
        for version in versions:
            root = Path(name) / version
            stage.stage(root, ROOT, wheels, machine, version)
            for format in formats:
                click.echo(nfpm.package(root, HERE, into, format, machine, version))


@build.command("lock")
def lock_() -> None:
    """Write requirements.lock anew, with the newest releases that pyproject.toml allows."""
    LOCK.write_text(lock.text(lock.resolved(ROOT / "pyproject.toml", stage.PYTHONS, [*nfpm.ARCHITECTURES])))


if __name__ == "__main__":
    build()
