"""Debian packages unpacked into the cache: nothing is installed, no root is needed, and packages that exclude each
other (rsyslog and syslog-ng do) stand side by side. apt checks what it fetches against the signed index.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.job import CACHE
from tests.benchmarks.peers.peer import Unavailable


def unpack(packages: Sequence[str], name: str) -> None:
    """Unpack packages, and what they need and this machine lacks, into `CACHE/name`; raises `Unavailable`."""
    CACHE.mkdir(parents=True, exist_ok=True)
    needed = re.findall(r"^Inst (\S+)", _run("apt-get", "install", "-s", "--no-install-recommends", *packages), re.M)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=CACHE) as part:
        _run("apt-get", "download", *dict.fromkeys([*packages, *needed]), directory=part)
        for package in sorted(Path(part).glob("*.deb")):
            _run("dpkg", "-x", str(package), f"{part}/tree")
        shutil.rmtree(CACHE / name, ignore_errors=True)
        Path(part, "tree").rename(CACHE / name)


def tree_of(program: Path) -> Path:
    """The root of the tree in which the package of a `usr/sbin/program` was unpacked; `/` for an installed one."""
    return program.parents[2]


def library_path(program: Path) -> dict[str, str]:
    """The environment in which an unpacked program finds the libraries that were unpacked with it."""
    if not program.is_relative_to(CACHE):
        return {}
    libraries = tree_of(program).glob("**/lib*.so.*")
    return {"LD_LIBRARY_PATH": ":".join(sorted({str(library.parent) for library in libraries}))}


def _run(*command: str, directory: str | None = None) -> str:
    try:
        run = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True, timeout=600)
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not here: packages are fetched on Debian and its kin only") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().rpartition("\n")[2]
        raise Unavailable(f"{' '.join(command[:2])}: {said} (a first `apt-get update` may help)") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(command[:2])} took more than ten minutes") from None
    return run.stdout
