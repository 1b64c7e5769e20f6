"""Builds kube-apiserver and etcd from Go modules of pinned versions: `python3 -m tests.backends.kubernetes_build`.

It takes some minutes of two cores and 2 GB of memory, once. The two programs are kept in the user's cache under a name
made of all that they were built from. The compiler's own cache of 2 GB is removed. Needs the standard library only:
continuous integration calls it before there is a .venv.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

SOURCE = Path(__file__).with_name("kubernetes_source")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shipper-tests"
OLDEST_GO = (1, 26)
COMMAND = "python3 -m tests.backends.kubernetes_build"
PROGRESS_SECONDS = 10.0

_VERSION = "k8s.io/component-base/version"
_STATED = f"-X {_VERSION}.gitVersion=v1.36.3 -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36"
_BUILD = ("go", "build", "-v", "-trimpath")
PROGRAMS: Mapping[str, Sequence[str]] = {
    "etcd": (*_BUILD, "-ldflags=-s -w", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": (*_BUILD, f"-ldflags=-s -w {_STATED}", "k8s.io/kubernetes/cmd/kube-apiserver"),
}
"""By program: the command that builds it, without the place."""
_ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOTOOLCHAIN": "local",
    "GOFLAGS": "-mod=readonly -buildvcs=false",
    "GOVCS": "*:off",
}


class Unavailable(Exception):
    """The programs are not built, or cannot be built here; says what to do."""


def directory() -> Path:
    """Where the programs of this source and this Go are or will be; raises Unavailable without a Go that can build."""
    version = _version_of_go()
    made_of = [(SOURCE / name).read_bytes() for name in ("go.mod", "go.sum")]
    made_of += [version.encode(), repr((sorted(PROGRAMS.items()), sorted(_ENVIRONMENT.items()))).encode()]
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in made_of)).hexdigest()
    return CACHE / f"kubernetes-{key[:16]}"


def built() -> Path:
    """The directory with `etcd` and `kube-apiserver`; builds nothing; raises Unavailable."""
    found = directory()
    if not found.is_dir():
        raise Unavailable(f"kube-apiserver and etcd are not built: run `{COMMAND}` once; it takes some minutes")
    return found


def build() -> Path:
    """As `built`, and builds what is not there. Of several builders at a time one works and the others wait for it."""
    found = directory()
    if found.is_dir():
        return found
    CACHE.mkdir(parents=True, exist_ok=True)
    with _lock():
        if not found.is_dir():
            _build_into(found)
    return found


def _version_of_go() -> str:
    if shutil.which("go") is None:
        raise Unavailable(
            f"kube-apiserver needs Go {_dotted(OLDEST_GO)} or newer to be built, and there is no `go` on PATH"
        )
    # The directory of a go.mod may ask for another Go; the root of the file system asks for none.
    said = subprocess.run(["go", "version"], cwd="/", env=_environment(), capture_output=True, text=True, timeout=60)
    version = said.stdout.strip()
    number = re.search(r"\bgo(\d+)\.(\d+)", version)
    if number and (int(number[1]), int(number[2])) < OLDEST_GO:
        raise Unavailable(
            f"kube-apiserver needs Go {_dotted(OLDEST_GO)} or newer to be built; `go version` says {version}"
        )
    return version


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _environment() -> dict[str, str]:
    """All modules come from a proxy, and go.sum has the sum of each; nothing is fetched from where the code is kept."""
    proxies = re.split(r"[,|]", os.environ.get("GOPROXY") or "https://proxy.golang.org")
    return {**os.environ, **_ENVIRONMENT, "GOPROXY": ",".join(proxy for proxy in proxies if proxy != "direct")}


@contextmanager
def _lock() -> Iterator[None]:
    with (CACHE / "kubernetes.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another builder is at work; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        for left in CACHE.glob("unfinished-*"):  # by a builder that was killed
            shutil.rmtree(left, ignore_errors=True)
        yield


def _build_into(place: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="unfinished-", dir=CACHE, ignore_cleanup_errors=True) as name:
        unfinished, cache = Path(name) / "programs", Path(name) / "gocache"
        unfinished.mkdir()
        for at, program in enumerate(PROGRAMS, 1):
            _say(f"building {program} ({at} of {len(PROGRAMS)})")
            _compile(program, unfinished / program, cache)
        unfinished.rename(place)
    _say(f"built: {place}")


def _compile(program: str, place: Path, cache: Path) -> None:
    command = [*PROGRAMS[program][:-1], "-o", str(place), PROGRAMS[program][-1]]
    begun = said = time.monotonic()
    packages, last = 0, deque[str](maxlen=20)
    environment = {**_environment(), "GOCACHE": str(cache)}
    go = subprocess.Popen(command, cwd=SOURCE, env=environment, stderr=subprocess.PIPE, text=True)
    assert go.stderr is not None
    try:
        for line in go.stderr:  # a package that is compiled now, a module that is fetched, or an error
            packages += not line.startswith(("go: ", "#"))
            last.append(line)
            if time.monotonic() - said >= PROGRESS_SECONDS:
                said = time.monotonic()
                _say(f"{program}: {packages} packages, {said - begun:.0f} s")
        failed = go.wait()
    finally:
        with suppress(ProcessLookupError):
            go.kill()
        go.wait()
    if failed:
        raise Unavailable(f"{program} cannot be built: {''.join(last)[-2000:]}")
    _say(f"{program}: {packages} packages, {time.monotonic() - begun:.0f} s; done")


def _say(text: str) -> None:
    print(f"kubernetes: {text}", file=sys.stderr, flush=True)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is unfinished is removed
    os.nice(10)
    try:
        print(build())
    except Unavailable as why:
        _say(str(why))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
