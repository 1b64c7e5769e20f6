"""Every manifest is what the server takes, and what kubectl makes of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.backends import kubernetes_roles as roles
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import path

PATIENCE = 120


def kubectl(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(roles.KUBECTL), f"--kubeconfig={config}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


@pytest.fixture
def config(kubernetes: Kubernetes, tmp_path: Path) -> Path:
    roles.install(kubernetes)
    return kubernetes.kubeconfig(tmp_path / "kubeconfig")


@pytest.mark.parametrize("part", [".", "daemonset", "sidecar"])
def test_a_kustomization_is_accepted_as_it_is_written(kubernetes: Kubernetes, config: Path, part: str) -> None:
    """`--validate=strict`: a field that the server does not know is an error."""
    for namespace in {obj["metadata"]["name"] for obj in roles.rendered(part) if obj["kind"] == "Namespace"}:
        if kubernetes.admin.call("GET", path("namespaces", name=namespace)).status == 404:
            kubernetes.admin.create(path("namespaces"), {"metadata": {"name": namespace}})
    how = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    ended = kubectl(config, "apply", *how, "-k", str(roles.PACKAGING / part))

    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(ended.stdout.splitlines()) == len(roles.rendered(part))


def test_every_manifest_is_in_a_kustomization() -> None:
    for folder in (roles.PACKAGING, *(found.parent for found in roles.PACKAGING.glob("*/kustomization.yaml"))):
        listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]

        assert sorted(listed) == sorted(
            found.name
            for found in folder.iterdir()
            if found.name != "kustomization.yaml" and (found.suffix == ".yaml" or found.name == "crds")
        )
