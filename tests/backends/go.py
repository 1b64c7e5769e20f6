"""The Go that builds servers: whether it is new enough, how it builds, and where a newer one comes from.

Modules come from where this machine's Go is set up to fetch them (`go env GOPROXY`). Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

OLDEST = (1, 26)
NEWER = "1.26.8"
"""What `fetch` gets."""
ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOTOOLCHAIN": "local",
    "GOFLAGS": "-mod=readonly -buildvcs=false",
    "GOVCS": "*:off",
}
"""A build has the sum of each module in go.sum, and fetches none from where its code is kept."""
PROGRESS_SECONDS = 10.0


class Unavailable(Exception):
    """The server is not made, or cannot be made here; says what to do."""


def version(builds: str) -> str:
    """What `go version` says; raises Unavailable where it is too old for what it `builds`, or is not there."""
    needs = f"{builds} needs Go {'.'.join(map(str, OLDEST))} or newer to be built"
    if shutil.which("go") is None:
        raise Unavailable(f"{needs}, and there is no `go` on PATH")
    said = _said("version")
    number = re.search(r"\bgo(\d+)\.(\d+)", said)
    if number and (int(number[1]), int(number[2])) < OLDEST:
        raise Unavailable(f"{needs}; `go version` says {said}")
    return said


def is_new_enough() -> bool:
    try:
        version("a server")
    except Unavailable:
        return False
    return True


def fetch(place: Path, programs: Path) -> None:
    """Lets an older Go download a newer one, as a module, to a place; and links its program among others."""
    module = f"golang.org/toolchain@v0.0.1-go{NEWER}.{_said('env', 'GOOS')}-{_said('env', 'GOARCH')}"
    with tempfile.TemporaryDirectory() as cache:
        kept = {"GOPATH": cache, "GOMODCACHE": f"{cache}/mod", "GOCACHE": f"{cache}/build", "GOFLAGS": "-modcacherw"}
        downloaded = json.loads(_said("mod", "download", "-json", module, **kept))
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(downloaded["Dir"], place)
    for program in (*place.glob("bin/*"), *place.glob("pkg/tool/*/*")):
        program.chmod(0o755)  # a module's files are none that can be run
    linked = programs / "go"
    linked.unlink(missing_ok=True)
    linked.symlink_to(place / "bin/go")


def build(command: Sequence[str], source: Path, program: Path) -> None:
    """Builds a program by a `go build -v …` in the directory of a go.mod, and says how far it is."""
    begun = said = time.monotonic()
    packages, last = 0, deque[str](maxlen=20)
    with tempfile.TemporaryDirectory(prefix="gocache-", dir=program.parent.parent) as cache:
        go = subprocess.Popen(
            [*command[:-1], "-o", str(program), command[-1]],
            cwd=source,
            env={**os.environ, **ENVIRONMENT, "GOCACHE": cache},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert go.stderr is not None
        try:
            for line in go.stderr:  # a package that is compiled now, a module that is fetched, or an error
                packages += not line.startswith(("go: ", "#"))
                last.append(line)
                if time.monotonic() - said >= PROGRESS_SECONDS:
                    said = time.monotonic()
                    _say(f"{program.name}: {packages} packages, {said - begun:.0f} s")
            failed = go.wait()
        finally:
            with suppress(ProcessLookupError):
                go.kill()
            go.wait()
    if failed:
        raise Unavailable(f"{program.name} cannot be built: {''.join(last)[-2000:]}")
    _say(f"{program.name}: {packages} packages, {time.monotonic() - begun:.0f} s; built")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _said(*arguments: str, **more: str) -> str:
    # The directory of a go.mod may ask for another Go; the root of the file system asks for none.
    environment: Mapping[str, str] = {**os.environ, "GOTOOLCHAIN": "local", **more}
    command = ["go", *arguments]
    ran = subprocess.run(command, cwd="/", env=environment, stdout=subprocess.PIPE, text=True, timeout=900, check=False)
    return ran.stdout.strip()
