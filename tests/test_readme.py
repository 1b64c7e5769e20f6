"""Every example of README.md is executed, as a reader would do it. The info string of a block says how:

sh                 run, in the order of the text, in one directory
sh background      started at a terminal, and kept running until the end
sh service         run by tests/test_service.py, as root in a root directory of its own
… file=NAME        written to that file of the directory before anything runs
text output        what the background command printed, with other times and ids
json transcript    said to a real sidecar, and compared with what it answers; `…` stands for anything
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from shipper.plugin import Credential, server_context
from shipper.sdk.aio import open_asyncio
from shipper.testing import Reply, open_destination
from tests.readme import BLOCKS, FILES, README, ROOT, Block, one
from tests.story.driver import launched

PATIENCE = 30.0
ACCESS = '203.0.113.9 - - [02/Jan/2026:13:55:36 +0000] "GET /cart HTTP/1.1" 200 512 "-" "curl/8.14.1"\n'
OLD = Credential.parse({"api_key": "key1:s3cret"})
NEW = Credential.parse({"api_key": "key2:s3cret"})
AUTHORITY = trustme.CA()
CERTIFICATE = AUTHORITY.issue_cert("127.0.0.1")
TLS = server_context(
    b"".join(part.bytes() for part in CERTIFICATE.cert_chain_pems).decode(),
    CERTIFICATE.private_key_pem.bytes().decode(),
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the files of the README, a log, and the installed program on the path."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "access.log").write_text(ACCESS * 5)
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "shipper").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shipper "$@"\n')
    (programs / "curl").write_text('#!/bin/sh\necho "$@" >> "$HOME/curl.log"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    return tmp_path


def environment(place: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "HOME": str(place), **more}


async def shell(place: Path, text: str, env: dict[str, str]) -> str:
    with trio.fail_after(PATIENCE):
        ended = await trio.run_process(["sh", "-euc", text], cwd=place, env=env, capture_stdout=True)
    return ended.stdout.decode()


# -- the text ----------------------------------------------------------------------------------------------------------


def test_no_block_is_of_a_kind_that_nothing_runs() -> None:
    known = {"", "background", "service", "output", "transcript", "fleet"}

    assert not [block for block in BLOCKS if block.file is None and block.info not in known]
    assert not [block for block in BLOCKS if block.language not in ("sh", "yaml", "text", "json", "python", "toml")]
    assert not [block for block in BLOCKS if block.info == "" and block.language != "sh"]


def test_links_lead_to_files_that_exist() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)

    assert links
    assert not [link for link in links if not (ROOT / link).exists()]


def test_modules_that_are_named_exist() -> None:
    named = set(re.findall(r"`(?:shipper/)?((?:[a-z_]+/)*[a-z_]+\.py)`", README)) - set(FILES)

    assert len(named) >= 4
    assert not [name for name in named if not (ROOT / "shipper" / name).exists()]


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


class Output:
    """A command in the background at a terminal, and what it has printed there."""

    def __init__(self, place: Path, block: Block, env: dict[str, str]) -> None:
        self._arguments = (["sh", "-euc", f"exec {block.text}"], place, env)
        self._file = place / "output"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command, place, env = self._arguments
        self._file.touch()
        primary, secondary = pty.openpty()
        self.process = subprocess.Popen(command, cwd=place, env=env | {"NO_COLOR": "1"}, stdout=secondary)
        os.close(secondary)
        threading.Thread(target=self._copy, args=(primary,), daemon=True).start()

    def _copy(self, terminal: int) -> None:
        """To the end, for which Linux says EIO."""
        with suppress(OSError), os.fdopen(terminal, "rb", buffering=0) as shown, self._file.open("ab") as file:
            while chunk := shown.read(65536):
                file.write(chunk)
                file.flush()

    @property
    def text(self) -> str:
        return self._file.read_text()


@contextmanager
def running(place: Path, block: Block, env: dict[str, str]) -> Iterator[Output]:
    output = Output(place, block, env)
    try:
        yield output
    finally:
        if output.process is not None:
            output.process.terminate()
            output.process.wait(PATIENCE)


async def until(condition: Any) -> None:
    with trio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 (a file of another process has no event)
            await trio.sleep(0.02)


def assert_in_order(said: str, shown: str) -> None:
    """Each shown line was printed, in this order, with other digits, ids and paths."""
    lines = iter([varying(line) for line in said.splitlines()])
    for line in shown.splitlines():
        assert varying(line) in lines, f"{line!r} is not what is printed: {said}"


def varying(line: str) -> str:
    line = re.sub(r"es-[0-9a-f]{12}", "ID", line)
    line = re.sub(r"\(\w+, file:[^)]*/keys/", "(NAME, PATH/", line)
    return re.sub(r"[0-9:.]+(?=  )|after \d+ ms", "#", line)


# -- when it does not work ---------------------------------------------------------------------------------------------

TABLE = README.partition("| Cause | `status` shows |")[2].splitlines()[2:]
ROWS = {row.split("|")[1].strip(): row for row in takewhile(bool, TABLE)}
CAUSES = {cause: re.findall("`([^`]+)`", row.split("|")[2]) for cause, row in ROWS.items()}


@pytest.mark.parametrize("cause", CAUSES)
async def test_of_a_cause_in_the_table_status_says_what_is_written_there(place: Path, cause: str) -> None:
    (place / "keys").mkdir()
    (place / "keys" / "es").write_text(f"{OLD.fields['api_key']}\n")
    (place / "revoke-key").chmod(0o700)
    (place / "policy.yaml").write_text(FILES["policy.yaml"].replace(*WRONG.get(cause, ("", ""))))
    keys = {NEW} if cause == "key revoked too early" else {OLD}
    async with open_asyncio() as aio, open_destination(aio, keys=keys, tls=TLS) as destination:
        destination.script = lambda request, documents: REPLIES.get(cause)
        env = environment(place, NGINX_LOG=str(place / "access.log"), ES_URL=destination.url)
        with running(place, one("sh", "background"), env) as output:
            output.start()
            with trio.fail_after(PATIENCE):
                said = ""
                while not any(text in said for text in CAUSES[cause]):
                    said = await shell(place, "shipper status --state ./state || true", env)
            if cause in WRONG:
                (place / "policy.yaml").write_text(FILES["policy.yaml"])
                with trio.fail_after(PATIENCE):
                    await destination.wait_for(5)

    assert [cause for cause, row in ROWS.items() if "meanwhile" in row] == list(WRONG)
    assert set(CAUSES) == set(WRONG) | set(REPLIES) | {"key revoked too early"}


WRONG = {
    "wrong host": ("${ES_URL:-https://localhost:9200}", "https://shop.invalid:9200"),
    "missing CA": ("tls: {ca: ca.pem}", "tls: {}"),
}
REPLIES = {
    "missing privilege": Reply(items=dict.fromkeys(range(5), (403, "security_exception"))),
    "mapping conflict": Reply(items={0: (400, "document_parsing_exception")}),
}


# -- policies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["policy.yaml", "full.yaml"])
async def test_a_policy_that_is_shown_is_valid(place: Path, name: str) -> None:
    (place / "keys").mkdir()
    (place / "keys" / "es").touch(mode=0o600)
    said = await shell(place, f"shipper validate {name}", environment(place))

    assert said == f"{name}: ok, 1 input, 1 output\n"


# -- the protocol ------------------------------------------------------------------------------------------------------


async def test_the_transcript_is_what_a_sidecar_answers(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("one\n")
    lines = one("json", "transcript").text.splitlines()
    async with open_asyncio() as aio, open_destination(aio) as destination, launched(tmp_path / "state") as sidecar:
        heard = 0
        for line in lines:
            direction, text = line[0], line[2:]
            if direction == ">":
                text = text.replace("/var/log/app.log", str(tmp_path / "app.log"))
                await sidecar.send(text.replace("http://127.0.0.1:9200", destination.url).encode())
                continue
            said = await sidecar.wait(lambda m: m["type"] != "observed", since=heard)
            heard = sidecar.said.index(said, heard) + 1

            assert fits(json.loads(text), said), f"{text}\nwas answered by\n{json.dumps(said)}"


def fits(shown: Any, said: Any) -> bool:
    """Whether they are equal, but for what `…` stands for."""
    if shown == "…":
        return True
    if isinstance(shown, dict) and isinstance(said, dict):
        return shown.keys() == said.keys() and all(fits(shown[key], said[key]) for key in shown)
    if isinstance(shown, list) and isinstance(said, list):
        return len(shown) == len(said) and all(map(fits, shown, said))
    return bool(shown == said)


# -- the plugin --------------------------------------------------------------------------------------------------------


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
