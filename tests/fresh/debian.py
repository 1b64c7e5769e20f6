"""A Debian as mmdebstrap makes it, with the three packages that a checkout needs; a copy of it is a machine."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.backends.recipe import Recipe, Unavailable

PACKAGES = ("python3-venv", "make", "git")
USER = "reader"
HOSTS = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
"""Written by the installer of Debian, as that of any container."""


def installation(suite: str) -> Recipe:
    """Of a suite, such as `bookworm`. It is made once, and nothing runs in it."""

    def make(place: Path) -> None:
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}", *_proxies()]
        command += [suite, str(place), *_sources(suite)]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise Unavailable(f"mmdebstrap failed: {made.stderr[-2000:]}")
        place.chmod(0o755)
        (place / "etc/hosts").write_text(HOSTS)
        subprocess.run(["chroot", str(place), "useradd", "--create-home", USER], check=True)

    parts = [repr((PACKAGES, USER, HOSTS, sorted(_sources(suite)))).encode()]
    return Recipe(f"fresh-{suite}", ("mmdebstrap", "systemd-nspawn"), lambda: parts, make)


def _sources(suite: str) -> list[str]:
    """This machine's sources of Debian, with the name of another suite."""
    asked = "deb $(REPO_URI) $(CODENAME) $(COMPONENT)"
    command = ["apt-get", "indextargets", "--format", f"$(ORIGIN) {asked}", "Created-By: Packages"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    ours = platform.freedesktop_os_release()["VERSION_CODENAME"]
    return [line.removeprefix("Debian ").replace(ours, suite) for line in lines if line.startswith("Debian deb ")]


def _proxies() -> list[str]:
    """What apt is told of proxies and certificates here."""
    lines = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [f"--aptopt={line}" for line in lines if re.match(r"Acquire::https?::(\S*::)?(Proxy|CaInfo)\b", line)]


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
def debian(suite: str) -> Iterator[Debian]:
    """A machine that nobody has used; raises Unavailable."""
    base = installation(suite).prepare()
    with tempfile.TemporaryDirectory(prefix=f"fresh-{suite}-", ignore_cleanup_errors=True) as scratch:
        root = Path(scratch) / "root"
        subprocess.run(["cp", "--archive", "--reflink=auto", str(base), str(root)], check=True)
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
