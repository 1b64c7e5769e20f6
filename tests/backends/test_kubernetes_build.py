"""How the API server of tests is built: what it is made of, and what a machine is told that cannot build it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends import kubernetes_build as build
from tests.backends import recipe

ROOT = Path(__file__).parents[2]


def test_the_program_says_the_version_of_its_source() -> None:
    source = (build.SOURCE / "go.mod").read_text()
    version = re.search(r"k8s\.io/kubernetes (v\S+)", source)
    assert version

    assert f"gitVersion={version[1]} " in " ".join(build.PROGRAMS["kube-apiserver"])


def _go(directory: Path, says: str) -> None:
    program = directory / "go"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)


def _run(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "tests.backends", "kubernetes"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


def test_an_old_go_is_named_with_the_one_that_is_needed(tmp_path: Path) -> None:
    _go(tmp_path, "go version go1.25.4 linux/amd64")

    ran = _run(tmp_path)

    assert ran.returncode == 1
    assert "needs Go 1.26 or newer" in ran.stderr
    assert "go1.25.4" in ran.stderr


def test_a_machine_without_go_is_told_so(tmp_path: Path) -> None:
    ran = _run(tmp_path)

    assert ran.returncode == 1
    assert "there is no `go` on PATH" in ran.stderr


def test_a_build_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    _go(tmp_path, "go version go1.26.0 linux/amd64")
    with (tmp_path / "go").open("a") as file:
        file.write('[ "$1" = version ] || { echo "no such module" >&2; exit 1; }\n')

    ran = _run(tmp_path)

    assert ran.returncode == 1
    assert "etcd cannot be built: no such module" in ran.stderr
    assert [path.name for path in (tmp_path / ".cache" / "shipper-tests").iterdir()] == ["kubernetes.lock"]


def test_programs_that_are_not_built_are_unavailable_and_nothing_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _go(tmp_path, "go version go1.26.0 linux/amd64")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(recipe, "CACHE", tmp_path / "cache")

    with pytest.raises(recipe.Unavailable, match=re.escape(recipe.COMMAND)):
        build.KUBERNETES.made()

    assert not (tmp_path / "cache").exists()


_BUILDS = """#!/bin/sh
[ "$1" = version ] && { echo go version go1.26.0 linux/amd64; exit; }
echo a build >>"$HOME/builds"
while [ "$1" != -o ]; do shift; done
: >"$2"
"""


def _started(tmp_path: Path) -> subprocess.Popen[bytes]:
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    return subprocess.Popen([sys.executable, "-m", "tests.backends", "kubernetes"], cwd=ROOT, env=environment)


def test_of_several_builders_one_builds_and_removes_what_a_killed_one_has_left(tmp_path: Path) -> None:
    (tmp_path / "go").write_text(_BUILDS)
    (tmp_path / "go").chmod(0o755)
    cache = tmp_path / ".cache" / "shipper-tests"
    (cache / "unfinished-kubernetes-1" / "gocache").mkdir(parents=True)

    builders = [_started(tmp_path) for _ in range(4)]

    assert [builder.wait(60) for builder in builders] == [0, 0, 0, 0]
    assert (tmp_path / "builds").read_text() == "a build\n" * len(build.PROGRAMS)
    [built] = [path for path in cache.iterdir() if path.is_dir()]
    assert {path.name for path in built.iterdir()} == set(build.PROGRAMS)
