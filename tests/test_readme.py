"""Every example of README.md is executed, as a reader would do it. The info string of a block says how:

sh                 run, in the order of the text, in one directory
sh background      started at a terminal, and kept running until the end
… file=NAME        written to that file of the directory before anything runs
text output        what the background command printed, with other times and ids
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import trio

from shipper.sdk.aio import open_asyncio
from shipper.testing import open_destination
from tests.docs.reader import (
    ACCESS,
    NEW,
    OLD,
    PATIENCE,
    TLS,
    assert_in_order,
    environment,
    furnish,
    running,
    shell,
    until,
)
from tests.readme import BLOCKS, FILES, README, ROOT, one


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the files of the README, a log, and the installed program on the path."""
    return furnish(tmp_path, FILES)


# -- the text ----------------------------------------------------------------------------------------------------------


def test_no_block_is_of_a_kind_that_nothing_runs() -> None:
    known = {"", "background", "output"}

    assert not [block for block in BLOCKS if block.file is None and block.info not in known]
    assert not [block for block in BLOCKS if block.language not in ("sh", "yaml", "text", "json", "python", "toml")]
    assert not [block for block in BLOCKS if block.info == "" and block.language != "sh"]


def test_links_lead_to_files_that_exist() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)

    assert links
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^make (\w+)", README, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()

    assert targets == ["run", "test"]
    assert all(f"\n{target}:" in makefile for target in targets)


def test_every_installed_plugin_is_in_the_table() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    for kind in ("inputs", "processors", "outputs"):
        (row,) = re.findall(rf"^\| {kind} \|(.*)\|$", README, re.MULTILINE)

        assert set(re.findall(r"`(\w+)`", row)) - {"multiline"} == set(points[f"shipper.{kind}"])


# -- the first use, and rotating ---------------------------------------------------------------------------------------


async def test_a_first_use_and_a_rotation_go_as_they_are_told(place: Path) -> None:
    """All `sh` blocks but `make`, in their order; the old key is revoked by the README's own script."""
    commands = [block for block in BLOCKS if block.language == "sh" and block.info in ("", "background")]
    commands = [block for block in commands if not block.text.startswith("make ")]
    asked = place / "curl.log"
    async with open_asyncio() as aio, open_destination(aio, keys={OLD, NEW}, tls=TLS) as destination:
        env = environment(
            place,
            NGINX_LOG=str(place / "access.log"),
            ES_URL=destination.url,
            API_KEY=OLD.fields["api_key"],
            NEW_API_KEY=NEW.fields["api_key"],
        )
        with running(place, one("sh", "background"), env) as output:
            for block in commands:
                if block.info == "background":
                    output.start()
                    with trio.fail_after(PATIENCE):
                        await destination.wait_for(5)
                    continue
                said = await shell(place, block.text, env)
                if "NEW_API_KEY" in block.text:
                    await until(lambda: "on_release done" in output.text)
            destination.keys = {NEW}
            with (place / "access.log").open("a") as log:
                log.write(ACCESS)
            with trio.fail_after(PATIENCE):
                await destination.wait_for(6)

    making, revoking = asked.read_text().splitlines()
    assert f"{destination.url}/_security/api_key" in making
    assert making.endswith("--data @api-key.json")
    assert revoking.endswith('{"ids": ["key1"]}')
    assert json.loads((place / "shipper.schema.json").read_text())["$defs"]
    assert [path.name for path in (place / "keys").iterdir()] == ["es"]
    assert "HEALTHY" in said
    assert "dead letters: none" in said
    assert destination.refused == 0
    assert_in_order(output.text, one("text", "output").text)


def test_the_key_may_do_no_more_than_the_output_needs() -> None:
    (role,) = json.loads(FILES["api-key.json"])["role_descriptors"].values()

    assert role == {"indices": [{"names": ["logs-nginx.access-*"], "privileges": ["create_doc", "auto_configure"]}]}


# -- policies ----------------------------------------------------------------------------------------------------------


async def test_the_policy_is_valid(place: Path) -> None:
    (place / "keys").mkdir()
    (place / "keys" / "es").touch(mode=0o600)
    said = await shell(place, "shipper validate policy.yaml", environment(place))

    assert said == "policy.yaml: ok, 1 input, 1 output\n"
