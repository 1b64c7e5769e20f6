"""A Debian as mmdebstrap makes it, with the three packages that a checkout needs; a copy of it is a machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests import needs
from tests.backends.debian import installation
from tests.backends.recipe import Unavailable

PACKAGES = ("python3-venv", "make", "git")
USER = "reader"
HOSTS = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
"""Written by the installer of Debian, as that of any container."""


class Debian:
    """A machine: it has the network of this one, and its own files, processes and users."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def home(self) -> Path:
        return self.root / "home" / USER

    def clone(self, repository: Path) -> None:
        """A clone of what is committed, as `shipper` in the user's home."""
        checkout = self.home / "shipper"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(repository), str(checkout)], check=True)
        subprocess.run(["chroot", str(self.root), "chown", "-R", f"{USER}:", f"/home/{USER}/shipper"], check=True)

    def run(self, command: str, log: Path, seconds: float) -> int:
        """Runs a command of the user in the checkout; writes what it says to a file, and returns its status."""
        nspawn = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--as-pid2", f"--directory={self.root}"]
        nspawn += ["--resolv-conf=copy-host", "--timezone=off", "--link-journal=no", f"--machine=fresh-{os.getpid()}"]
        nspawn += [f"--user={USER}", f"--chdir=/home/{USER}/shipper", "--console=pipe"]
        settings = _of_pip()
        nspawn += [f"--setenv={name}={value}" for name, value in settings.items()]
        nspawn += [f"--bind-ro={path}" for path in _paths(settings)]
        with (
            log.open("ab") as said,
            subprocess.Popen(
                [*nspawn, "sh", "-c", command], stdin=subprocess.DEVNULL, stdout=said, stderr=said
            ) as process,
        ):
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                said.write(f"\nit did not end in {seconds:g} s\n".encode())
                return 1
            finally:
                process.terminate()


@contextmanager
def fresh(suite: str) -> Iterator[Debian]:
    """A machine that nobody has used; raises Unavailable."""
    if missing := needs.absence("systemd-nspawn"):
        raise Unavailable(missing)
    base = installation("fresh", suite, PACKAGES).prepare()
    with tempfile.TemporaryDirectory(prefix=f"fresh-{suite}-", ignore_cleanup_errors=True) as scratch:
        root = Path(scratch) / "root"
        subprocess.run(["cp", "--archive", "--reflink=auto", str(base), str(root)], check=True)
        subprocess.run(["chroot", str(root), "useradd", "--create-home", USER], check=True)
        (root / "etc/hosts").write_text(HOSTS)
        yield Debian(root)


def _of_pip() -> dict[str, str]:
    """How pip and its like are set up here, as variables of an environment."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^[^.\n]*\.\.?(\S+?)='(.*)'$", listed, re.M)
    settings = {f"PIP_{name.upper().replace('-', '_')}": value.replace("\\n", " ") for name, value in found}
    proxies = {name: value for name, value in os.environ.items() if re.fullmatch("(https?|all|no)_proxy", name.lower())}
    return {**settings, **proxies}


def _paths(settings: Mapping[str, str]) -> list[str]:
    """The files and directories of this machine that settings name."""
    words = [word for value in settings.values() for word in value.split()]
    return sorted({word for word in words if word.startswith("/") and Path(word).exists()})
