"""The plugin of docs/first-plugin.md ships, and passes its test."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.reader import ACCESS, environment, furnish, shell
from tests.readme import Page

FILES = Page("docs/first-plugin.md").files


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return furnish(tmp_path, FILES)


@pytest.fixture
def installed(place: Path) -> dict[str, str]:
    """The environment of a Python that has the plugin installed, as pip would have done it."""
    points = tomllib.loads(FILES["entry_points.toml"])["project"]["entry-points"]
    metadata = place / "shipper_command-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shipper-command\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in of.items())
            for group, of in points.items()
        )
    )
    return environment(place, PYTHONPATH=str(place))


async def test_the_plugin_ships(place: Path, installed: dict[str, str]) -> None:
    (place / "own.yaml").write_text(
        "version: 1\n"
        f"inputs: {{app: {{type: file, paths: [{place}/access.log]}}}}\n"
        f"outputs: {{main: {{type: command, command: [sh, -c, 'cat >> {place}/got']}}}}\n"
    )
    await shell(place, "shipper supervise own.yaml --state state --once", installed)
    got = [json.loads(line)["message"] for line in (place / "got").read_text().splitlines()]

    assert got == [ACCESS.rstrip()] * 5


async def test_the_test_of_the_plugin_passes(place: Path, installed: dict[str, str]) -> None:
    said = await shell(
        place,
        f"'{sys.executable}' -m pytest -q -o trio_mode=true -p no:cacheprovider test_shipper_command.py",
        installed,
    )

    assert "1 passed" in said
