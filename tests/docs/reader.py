"""A reader of the documents: a directory with the files of a page, and a shell that runs its commands there."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import trio
import trustme

from shipper.plugin import Credential
from shipper.sdk.tls import server_context
from tests import certificates
from tests.readme import Block

PATIENCE = 60.0
ACCESS = '203.0.113.9 - - [02/Jan/2026:13:55:36 +0000] "GET /cart HTTP/1.1" 200 512 "-" "curl/8.14.1"\n'
OLD = Credential.parse({"api_key": "key1:s3cret"})
NEW = Credential.parse({"api_key": "key2:s3cret"})
AUTHORITY = trustme.CA()
TLS = server_context(*certificates.identity(AUTHORITY, "127.0.0.1"))


def furnish(place: Path, files: Mapping[str, str]) -> Path:
    """Put the files of a page, a log, and the installed program on the path into a directory, and return it."""
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    (place / "access.log").write_text(ACCESS * 5)
    AUTHORITY.cert_pem.write_to_path(str(place / "ca.pem"))
    programs = place / "bin"
    programs.mkdir()
    (programs / "shipper").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shipper "$@"\n')
    (programs / "curl").write_text('#!/bin/sh\necho "$@" >> "$HOME/curl.log"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    return place


def environment(place: Path, **more: str) -> dict[str, str]:
    path = f"{place / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(place), "PWD": str(place), **more}


async def shell(place: Path, text: str, env: dict[str, str], *, check: bool = True) -> str:
    with trio.fail_after(PATIENCE):
        ended = await trio.run_process(_command(text), cwd=place, env=env, capture_stdout=True, check=check)
    return ended.stdout.decode()


def _command(text: str) -> list[str]:
    """By a shell, but for the program alone with plain words, which is forked then (tests/forks.py)."""
    if re.fullmatch(r"shipper [\w ./=-]+\n?", text):
        return [sys.executable, "-m", *text.split()]
    return ["sh", "-euc", text]


class Output:
    """A command in the background at a terminal, and what it has printed there."""

    def __init__(self, place: Path, block: Block, env: dict[str, str]) -> None:
        plain = _command(block.text)
        self._arguments = (plain if plain[0] != "sh" else ["sh", "-euc", f"exec {block.text}"], place, env)
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
            _stop(output.process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """In order; at once, by a second signal, where it would go on trying to deliver."""
    process.terminate()
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait(PATIENCE)


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
