"""`wait-released`: what a rotation waits for before it revokes the old content."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.backends import kubernetes_roles as roles
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import Object, path, until

PROGRAM = roles.PACKAGING / "wait-released"
PATIENCE = 60


class Site:
    def __init__(self, kubernetes: Kubernetes, place: Path) -> None:
        roles.install(kubernetes)
        self.kubernetes, self.namespace, self.place = kubernetes, kubernetes.namespace(), place
        roles.bind(kubernetes, self.namespace, "user-9", roles.ROTATION)
        self.config = kubernetes.kubeconfig(place / "kubeconfig", kubernetes.user_token(9), namespace=self.namespace)

    def release(self, *credentials: Object, **status: Any) -> None:
        """Writes what the leader writes."""
        admin, where = self.kubernetes.admin, path("shippersecrets", self.namespace, api=roles.SHIPPER)
        made = {"apiVersion": roles.SHIPPER, "kind": "ShipperSecret", "metadata": {"name": "es"}}
        admin.call("POST", where, made)
        admin.patch(f"{where}/es/status", {"status": {"credentials": list(credentials), **status}})

    @contextmanager
    def waiting(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        search = f"{roles.KUBECTL.parent}:{os.environ['PATH']}"
        environment = {**os.environ, "KUBECONFIG": str(self.config), "PATH": search, "TMPDIR": str(self.place)}
        with (
            (self.place / "said").open("w") as said,
            subprocess.Popen([PROGRAM, *arguments], env=environment, stderr=said, text=True) as process,
        ):
            try:
                yield process
            finally:
                process.terminate()

    @property
    def said(self) -> str:
        return (self.place / "said").read_text()


@pytest.fixture
def site(kubernetes: Kubernetes, tmp_path: Path) -> Site:
    return Site(kubernetes, tmp_path)


def released(before: str, key: str = "api_key", uid: str = "u") -> Object:
    return {"secret": "es", "uid": uid, "key": key, "releasedBefore": before}


def test_it_ends_when_the_bound_is_at_the_version_or_later(site: Site) -> None:
    """Compared as numbers, since 99 is less than 100; and only by its own key."""
    with site.waiting("es", "api_key", "100") as process:
        site.release(released(""), released("100", "other"), blockedBy=[{"member": "node-1", "reason": "Using"}])
        until(lambda: "delayed by: node-1 (Using)" in site.said, "it says who delays it", PATIENCE)
        site.release(released("99"), released("101", "other"), blockedBy=[])
        site.release(released("99"), released("102", "other"), blockedBy=[{"member": "node-2", "reason": "Absent"}])
        until(lambda: "node-2 (Absent)" in site.said, "it goes on", PATIENCE)
        assert process.poll() is None
        site.release(released("101"), blockedBy=[])

        assert process.wait(PATIENCE) == 0


def test_it_ends_at_once_if_all_is_released_already(site: Site) -> None:
    site.release(released("100"))
    with site.waiting("es", "api_key", "100") as process:
        assert process.wait(PATIENCE) == 0


def test_a_deleted_secret_of_the_same_name_is_waited_for(site: Site) -> None:
    """Who rotates by deletion and creation gets another uid; what the old one held may still be in use."""
    site.release(released("50", uid="old"), released("100"), blockedBy=[{"member": "node-1", "reason": "Using"}])
    with site.waiting("es", "api_key", "100") as process:
        until(lambda: "node-1" in site.said, "it waits", PATIENCE)
        assert process.poll() is None
        site.release(released("100", uid="old"), released("100"), blockedBy=[])

        assert process.wait(PATIENCE) == 0


def test_it_leaves_nothing_behind_when_it_is_ended(site: Site) -> None:
    site.release(released("99"), blockedBy=[{"member": "node-1", "reason": "Using"}])
    with site.waiting("es", "api_key", "100") as process:
        until(lambda: "node-1" in site.said, "it waits", PATIENCE)
        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE) == 143
        assert [found.name for found in site.place.iterdir() if found.is_dir() and found.name.startswith("tmp.")] == []


def test_without_the_right_it_says_what_kubectl_says(site: Site) -> None:
    with site.waiting("es", "api_key", "100", "--namespace", "default") as process:
        assert process.wait(PATIENCE) == 1
        assert 'cannot list resource "shippersecrets"' in site.said


def test_without_arguments_it_says_how_it_is_used(site: Site) -> None:
    with site.waiting() as process:
        assert process.wait(PATIENCE) == 2
        assert "wait-released SECRET KEY RESOURCEVERSION" in site.said
