"""A host for the policies that documents show: paths are in a directory of the test, ports are free ones."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import trio
import trustme

from shipper.commands.validate import references
from shipper.pipeline import plan
from shipper.policy import document
from shipper.policy.registry import Registry
from shipper.sdk.errors import PolicyError
from shipper.supervise.sources import read_tree
from shipper.values import Revision
from shipper_demo.ports import free_port

PATIENCE = 60.0
AUTHORITY = trustme.CA()
CERTIFICATE = AUTHORITY.issue_cert("127.0.0.1")
USERS = ("kafka", "opensearch", "user")
"""Keys that are a user name and a password; the others are API keys or tokens."""


class Host:
    """The directories of a policy below `root`, with keys, certificates and free ports."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("etc/shipper/keys", "var/log", "var/lib"):
            (root / name).mkdir(parents=True)
        AUTHORITY.cert_pem.write_to_path(str(root / "etc/shipper/ca.pem"))
        CERTIFICATE.private_key_pem.write_to_path(str(root / "etc/shipper/tls.key"))
        for certificate in CERTIFICATE.cert_chain_pems:
            certificate.write_to_path(str(root / "etc/shipper/tls.crt"), append=True)

    def inside(self, text: str) -> str:
        """Returns a policy whose paths lie in the directory, and whose ports are free; makes the keys that it names."""
        for name in re.findall(r"/etc/shipper/keys/([\w.-]+)", text):
            key = self.root / "etc/shipper/keys" / name
            key.write_text("username: ada\npassword: lovelace\n" if name in USERS else f"{name}:s3cret\n")
            key.chmod(0o600)
        text = text.replace("{ca: ca.pem}", "{ca: /etc/shipper/ca.pem}")
        text = re.sub(r"(?<![\w.])/(etc/shipper|var/log|var/lib|run)/", rf"{self.root}/\1/", text)
        return re.sub(r"(?:0\.0\.0\.0|127\.0\.0\.1|(?<=//)):\d+\b", lambda _: f"127.0.0.1:{free_port()}", text)

    def write(self, text: str, name: str = "policy.yaml") -> Path:
        """Writes a policy as it is `inside`."""
        path = self.root / name
        path.write_text(self.inside(text))
        return path

    def events(self, path: str) -> bytes:
        """Returns a file that a policy names, empty if there is none."""
        with suppress(FileNotFoundError):
            return (self.root / path.lstrip("/")).read_bytes()
        return b""


async def shipped(policy: Path) -> None:
    """Ship what is there, to the end."""
    with trio.fail_after(PATIENCE):
        ended = await trio.run_process([*command(policy), "--once"], capture_stdout=True, stderr=-2, check=False)
    assert ended.returncode == 0, ended.stdout.decode()


async def becomes_active(policy: Path) -> str:
    """Run a policy until it is active, and stop; return what was said until then."""
    process = await trio.lowlevel.open_process([*command(policy), "--json"], stdout=subprocess.PIPE, stderr=-2)
    said = b""
    assert process.stdout is not None
    try:
        with trio.fail_after(PATIENCE):
            while b'"shipper.stage":"active"' not in said:
                chunk = await process.stdout.receive_some(65536)
                assert chunk, said.decode()
                said += bytes(chunk)
    finally:
        process.terminate()
        with trio.move_on_after(PATIENCE, shield=True):
            await process.wait()
        await process.stdout.aclose()
    return said.decode()


def command(policy: Path) -> list[str]:
    """The supervisor of a policy, with a state directory beside it."""
    state = policy.with_suffix(".state")
    return [sys.executable, "-m", "shipper", "supervise", str(policy), "--state", str(state), "--grace", "0s"]


def problems(policy: Path, host: Host) -> list[str]:
    """What is wrong with a policy; nothing if it can be planned."""
    try:
        variables = {"PWD": str(host.root), "NAME": "web-1"}
        tree = references(read_tree([policy], variables), Registry.installed(), [])
        plan.make(Revision(0, 1), document.write(tree), Registry.installed())
    except PolicyError as error:
        return str(error).splitlines()
    return []
