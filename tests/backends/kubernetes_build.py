"""kube-apiserver and etcd, built from Go modules of pinned versions.

It takes some minutes of two cores and 2 GB of memory, once. The compiler's own cache of 2 GB is removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.backends import go
from tests.backends.recipe import Recipe

SOURCE = Path(__file__).with_name("kubernetes_source")

_VERSION = "k8s.io/component-base/version"
_STATED = f"-X {_VERSION}.gitVersion=v1.36.3 -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36"
_BUILD = ("go", "build", "-v", "-trimpath")
PROGRAMS: Mapping[str, Sequence[str]] = {
    "etcd": (*_BUILD, "-ldflags=-s -w", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": (*_BUILD, f"-ldflags=-s -w {_STATED}", "k8s.io/kubernetes/cmd/kube-apiserver"),
}
"""By program: the command that builds it, without the place."""


def _parts() -> list[bytes]:
    made_of = [(SOURCE / name).read_bytes() for name in ("go.mod", "go.sum")]
    settings = repr((sorted(PROGRAMS.items()), sorted(go.ENVIRONMENT.items())))
    return [*made_of, go.version("kube-apiserver").encode(), settings.encode()]


def _make(place: Path) -> None:
    place.mkdir()
    for program, command in PROGRAMS.items():
        go.build(command, SOURCE, place / program)


KUBERNETES = Recipe("kubernetes", (), _parts, _make)
"""A directory with `etcd` and `kube-apiserver`."""
