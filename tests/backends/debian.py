"""Installations of Debian, from the mirrors that this machine's apt is set up with. Nothing runs in them: copies do."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.backends.recipe import Recipe, Unavailable


def installation(name: str, suite: str, packages: Sequence[str]) -> Recipe:
    """The smallest installation of a suite, such as `bookworm`, with more packages."""

    def make(place: Path) -> None:
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages)}", *_settings()]
        made = subprocess.run([*command, suite, place, *_sources(suite)], capture_output=True, text=True, check=False)
        if made.returncode:
            raise Unavailable(f"mmdebstrap failed: {made.stderr[-2000:]}")
        place.chmod(0o755)

    def parts() -> list[bytes]:
        return [repr((packages, _sources(suite))).encode()]

    return Recipe(f"{name}-{suite}", ("mmdebstrap",), parts, make)


def _sources(suite: str) -> list[str]:
    """This machine's sources of Debian, with the name of another suite."""
    asked = "$(ORIGIN) deb $(REPO_URI) $(CODENAME) $(COMPONENT)"
    command = ["apt-get", "indextargets", "--format", asked, "Created-By: Packages"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    ours = platform.freedesktop_os_release()["VERSION_CODENAME"]
    found = {line.removeprefix("Debian ").replace(ours, suite) for line in lines if line.startswith("Debian deb ")}
    return sorted(found)


def _settings() -> list[str]:
    """What this machine's apt is told of proxies and certificates."""
    lines = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [f"--aptopt={line}" for line in lines if re.match(r"Acquire::https?::(\S*::)?(Proxy|CaInfo)\b", line)]


BOOTED = installation("debian", "bookworm", ("systemd", "systemd-sysv", "dbus", "python3"))
"""What tests boot (tests/packaging_linux/machine.py)."""
