"""What tests call that is not Python's: whether this machine has it, and the Debian package that does.

    @pytest.mark.needs("rpm", "promtool")     # skips the test where one is absent, and says what to install
    needs.require("strace")                   # the same in a fixture, or in what it calls
    if absent := needs.absence("mvn"):        # says so to whoever is no test

`python3 -m tests.needs` installs all of it, as root on Debian. It uses the standard library only, for it runs before
there is a .venv.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.backends import go

_PROGRAMS = {
    "cc": "gcc",
    "chromium": "chromium",
    "curl": "curl",
    "git": "git",
    "go": "golang-go",
    "ip": "iproute2",
    "java": "default-jre-headless",
    "javac": "default-jdk-headless",
    "journalctl": "systemd",
    "jq": "jq",
    "logger": "bsdutils",
    "make": "make",
    "man": "man-db",
    "mkfs.ext4": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "mvn": "maven",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "pgrep": "procps",
    "podman": "podman",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "rpm": "rpm",
    "rsyslogd": "rsyslog",
    "runc": "runc",
    "strace": "strace",
    "syslog-ng": "syslog-ng-core",
    "systemd-analyze": "systemd",
    "systemd-nspawn": "systemd-container",
    "systemd-sysusers": "systemd",
    "systemd-tmpfiles": "systemd",
    "unshare": "util-linux",
}
"""By program: its package."""
_FILES = {
    "ca-certificates": "etc/ssl/certs/ca-certificates.crt",
    "fonts-dejavu-core": "usr/share/fonts/truetype/dejavu/*.ttf",
    "libc6-dev": "usr/include/stdio.h",
    "rsyslog-openssl": "usr/lib/*/rsyslog/lmnsd_ossl.so",
    "systemd": "lib/systemd/systemd-journald",
    "zlib1g-dev": "usr/include/zlib.h",
}
"""What is no program, by its package: the pattern of a path below /."""
_OURS = {"go", "syslog-ng"}
"""Those of which apt's package alone does not do: Debian's Go is old, and syslog-ng excludes rsyslog."""
_SYSTEM = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where programs are that the PATH of an ordinary user may leave out."""
ALL = (*_PROGRAMS, *_FILES)
COMMAND = "python3 -m tests.needs"


def path(name: str) -> str | None:
    """Where a program is, if it is."""
    return shutil.which(name) or shutil.which(name, path=_SYSTEM)


def absent(*names: str) -> list[str]:
    """Those of these that are not there. A name that no table has is a KeyError."""
    return [name for name in names if not _is_there(name)]


def absence(*names: str) -> str:
    """Says which of these are not there, and how to get them; empty if all are."""
    missing = absent(*names)
    if not missing:
        return ""
    how = COMMAND if _OURS & {*missing} else f"apt install {' '.join(_packages(missing))}"
    return f"needs {', '.join(missing)} (Debian: {how})"


def require(*names: str) -> None:
    """Skips the test where one of these is absent."""
    import pytest

    if missing := absence(*names):
        pytest.skip(missing)


def program(name: str) -> str:
    """The path of a program; skips the test without it."""
    require(name)
    return path(name) or name


def _is_there(name: str) -> bool:
    if name in _FILES:
        return any(Path("/").glob(_FILES[name]))
    _PROGRAMS[name]
    return go.is_new_enough() if name == "go" else path(name) is not None


def _packages(names: list[str]) -> list[str]:
    return sorted({_PROGRAMS.get(name, name) for name in names})


# -- installing --------------------------------------------------------------------------------------------------------


def main() -> int:
    missing = absent(*ALL)
    if missing and (os.geteuid() != 0 or path("apt-get") is None):
        print(f"{absence(*missing)}; only root of a Debian can install that", file=sys.stderr)
        return 1
    if missing:
        _run("apt-get", "update", "-q")
        _apt(*_packages([name for name in missing if name not in _OURS]))
    if "syslog-ng" in missing:
        _unpack_syslog_ng(Path("/opt/syslog-ng"))
    if "go" in missing:
        _apt(*[_PROGRAMS["go"]] if path("go") is None else [])
        go.fetch(Path("/usr/local/lib/go"), Path("/usr/local/bin"))
    if missing := absent(*ALL):
        print(f"{', '.join(missing)}: installed, and not there", file=sys.stderr)
    return 1 if missing else 0


def _apt(*packages: str) -> None:
    if packages:
        _run("apt-get", "install", "-q", "-y", "--no-install-recommends", *packages)


def _run(*command: str, place: str | None = None) -> None:
    subprocess.run(command, cwd=place, check=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def _unpack_syslog_ng(place: Path) -> None:
    """Its package and that of rsyslog exclude each other, so it is unpacked, and what it depends on is installed."""
    with tempfile.TemporaryDirectory() as scratch:
        _run("apt-get", "download", "-q", _PROGRAMS["syslog-ng"], place=scratch)
        (package,) = map(str, Path(scratch).iterdir())
        command = ["dpkg-deb", "--field", package, "Depends"]
        depends = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        _apt(*re.findall(r"(?:^|, )([^\s,:(]+)", depends))
        _run("dpkg-deb", "--extract", package, str(place))
    libraries = place / "usr/lib/syslog-ng"
    (modules,) = libraries.glob("[0-9]*")
    starter = Path("/usr/local/sbin/syslog-ng")
    command_line = f'{place}/usr/sbin/syslog-ng --module-path={modules} "$@"'
    starter.write_text(f"#!/bin/sh\nexport LD_LIBRARY_PATH={libraries}\nexec {command_line}\n")
    starter.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main())
