"""The service of packaging/linux, installed by the words of docs/service.md in a root directory of its own.

Everything is real but systemd itself, which does not run here: its user and its directories are made by its own
programs, and the command line of the unit runs as that user.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest
import trio
import trustme

from shipper.plugin import Credential
from shipper.sdk.aio import open_asyncio
from shipper.sdk.tls import server_context
from shipper.testing import open_destination
from tests.readme import ROOT, Page

PATIENCE = 60.0
STRANGER = 54321
MODULES = os.pathsep.join([str(ROOT), str(ROOT / "plugins"), sysconfig.get_path("purelib")])
ACCESS = '203.0.113.9 - - [02/Jan/2026:13:55:36 +0000] "GET /cart HTTP/1.1" 200 512 "-" "curl/8.14.1"\n'
OLD = Credential.parse({"api_key": "key1:s3cret-old"})
NEW = Credential.parse({"api_key": "key2:s3cret-new"})
INSTALL, ROTATE = [block.text for block in Page("docs/service.md").shell("service")]
ON_RELEASE = """
on_release:
  command: [sh, -c, 'echo $SHIPPER_CREDENTIAL_NAME >> {root}/var/lib/shipper/revoked']
"""

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("systemd-sysusers", "systemd-tmpfiles"),
]


class Host:
    """A root directory, and a working directory with what the page takes from there."""

    def __init__(self, root: Path) -> None:
        self.root, self.work = root, root / "work"
        for name in ("usr/lib/sysusers.d", "usr/lib/tmpfiles.d", "etc/systemd/system", "work/keys", "bin"):
            (root / name).mkdir(parents=True)
        for name in ("packaging", "policies"):
            (self.work / name).symlink_to(ROOT / name)
        groups = f"$(sed -n 's/^shipper:[^:]*:\\([0-9]*\\):.*/\\1/p' {root}/etc/group)"
        renamed = f'for a; do shift; [ "$a" != shipper ] || a={groups}; set -- "$@" "$a"; done\n'
        self._program("install", f'{renamed}exec {shutil.which("install")} "$@"')
        self._program("systemctl", f'echo "$@" >> {root}/systemctl.log')
        for name in ("systemd-sysusers", "systemd-tmpfiles"):
            self._program(name, f'exec {shutil.which(name)} --root={root} "$@"')

    def _program(self, name: str, script: str) -> None:
        program = self.root / "bin" / name
        program.write_text(f"#!/bin/sh -e\n{script}\n")
        program.chmod(0o755)

    def shell(self, text: str, **variables: str) -> None:
        """Run commands of a reader who is root."""
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        command = ["sh", "-euc", self.inside(text)]
        subprocess.run(
            command, cwd=self.work, env={**os.environ, "PATH": path, **variables}, check=True, timeout=PATIENCE
        )

    def inside(self, text: str) -> str:
        """The text with absolute paths of the system in the root directory."""
        return re.sub(r"(?<![\w.])/(etc|usr/lib|var/lib)/", rf"{self.root}/\1/", text)

    @property
    def user(self) -> tuple[int, int]:
        """The ids of the service's user and its group."""
        (line,) = [line for line in (self.root / "etc/passwd").read_text().splitlines() if line.startswith("shipper:")]
        uid, gid = line.split(":")[2:4]
        return int(uid), int(gid)

    def may(self, uid: int, gid: int, right: str, path: str) -> bool:
        """Whether a user has a right (`-r`, `-w`) to a file."""
        command = ["test", right, str(self.root / path)]
        ended = subprocess.run(command, user=uid, group=gid, extra_groups=[], timeout=PATIENCE, check=False)
        return ended.returncode == 0

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the unit names a file of."""
        lines = (self.root / "etc/shipper/environment").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    @contextmanager
    def service(self, output: IO[bytes], **variables: str) -> Iterator[None]:
        """The unit's command line, as its user; stopped in the end, which has to go well."""
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.read(self.root / "etc/systemd/system/shipper.service")
        _, *arguments = self.inside(unit["Service"]["ExecStart"]).split()
        uid, gid = self.user
        who: dict[str, Any] = {"user": uid, "group": gid, "extra_groups": [], "umask": 0o077, "cwd": "/"}
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": MODULES, **self.environment, **variables}
        command = [runnable(environment, who), "-m", "shipper", *arguments]
        with subprocess.Popen(command, env=environment, stdout=output, stderr=output, **who) as process:
            try:
                yield
                process.terminate()
                assert process.wait(PATIENCE) == 0
            finally:
                process.kill()


def runnable(environment: dict[str, str], who: dict[str, Any]) -> str:
    """A Python that another user can run: ours may lie in a home directory."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for program in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        with suppress(OSError):
            command = [program, "-c", "import orjson, shipper_plugins, shipper.commands.supervise"]
            if subprocess.run(command, env=environment, timeout=PATIENCE, check=False, **who).returncode == 0:
                return program
    pytest.skip(f"another user can run neither this Python nor a {version} of the system with these packages")


@pytest.fixture
def host() -> Iterator[Host]:
    """Outside of what pytest makes, which other users cannot enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Host(Path(name))


async def until(condition: Any) -> None:
    with trio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 (a file of another process has no event)
            await trio.sleep(0.02)


async def test_a_key_that_root_replaces_is_used_by_the_service_and_the_old_one_released(host: Host) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(host.work / "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1")
    chain = b"".join(part.bytes() for part in certificate.cert_chain_pems).decode()
    tls = server_context(chain, certificate.private_key_pem.bytes().decode())
    key, log, revoked = host.work / "keys/es", host.root / "access.log", host.root / "var/lib/shipper/revoked"
    log.write_text(ACCESS * 5)
    key.write_text(f"{OLD.fields['api_key']}\n")
    async with open_asyncio() as aio, open_destination(aio, keys={OLD, NEW}, tls=tls) as destination:
        host.shell(INSTALL, ES_URL=destination.url)
        with_state_key_and_revocation(host)
        policy = host.root / "etc/shipper/policy.d/nginx.yaml"
        policy.write_text(host.inside(policy.read_text()))
        with (host.root / "output").open("wb") as output, host.service(output, NGINX_LOG=str(log)):
            with trio.fail_after(PATIENCE):
                await destination.wait_for(5)
            key.write_text(f"{NEW.fields['api_key']}\n")
            host.shell(ROTATE)
            await until(lambda: revoked.exists() and revoked.read_text() == "key1\n")
            destination.keys = {NEW}
            with log.open("a") as file:
                file.write(ACCESS)
            with trio.fail_after(PATIENCE):
                await destination.wait_for(6)
        assert destination.refused == 0

    said = (host.root / "output").read_text()
    assert '"log.level":"warning"' not in said, said
    assert not (host.root / "var/lib/shipper/supervise.key").exists()
    assert (host.root / "systemctl.log").read_text() == "enable --now shipper\n"


def with_state_key_and_revocation(host: Host) -> None:
    """The settings with their example of a state key, made as it says, and a command that notes what is released."""
    settings = host.root / "etc/shipper/supervise.yaml"
    text = settings.read_text()
    (recipe,) = re.findall(r"^#   (head .*)$", text, re.MULTILINE)
    host.shell(recipe)
    text = text.replace("# state_key", "state_key").replace("127.0.0.1:6780", "127.0.0.1:0")
    settings.write_text(text + ON_RELEASE.format(root=host.root))


def test_the_service_reads_its_keys_and_only_root_writes_them(host: Host) -> None:
    (host.work / "keys/es").write_text("key1:s3cret-old\n")
    (host.work / "ca.pem").touch()
    host.shell(INSTALL, ES_URL="https://es-1:9200")
    uid, gid = host.user
    key, keys = "etc/shipper/keys/es", "etc/shipper/keys"

    assert [host.may(uid, gid, "-r", key), host.may(uid, gid, "-w", key)] == [True, False]
    assert [host.may(uid, gid, "-r", keys), host.may(uid, gid, "-w", keys)] == [True, False]
    assert [host.may(STRANGER, STRANGER, "-r", key), host.may(STRANGER, STRANGER, "-x", keys)] == [False, False]
    assert host.may(STRANGER, STRANGER, "-r", "etc/shipper/policy.d/nginx.yaml")
    assert host.may(uid, gid, "-w", "var/lib/shipper")
    assert not host.may(STRANGER, STRANGER, "-r", "var/lib/shipper")
