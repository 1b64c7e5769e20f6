"""Every manifest is what the server takes, and what kubectl makes of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from shipper.sdk.units import Duration
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


def containers() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each container in which a shipper runs, with the specification of its Pod."""
    found = []
    for part in ("daemonset", "sidecar"):
        for obj in roles.rendered(part):
            pod = obj.get("spec", {}).get("template", {}).get("spec", {})
            all_of_pod = [*pod.get("containers", ()), *pod.get("initContainers", ())]
            found += [(one, pod) for one in all_of_pod if one["name"] == "shipper"]
    assert len(found) == 3
    return found


def test_a_container_starts_a_command_line_that_exists() -> None:
    """Parsed by the verb itself, up to where it would run."""
    import click

    from shipper.__main__ import shipper

    for container, pod in containers():
        verb, *arguments = container["args"]
        context = click.Context(shipper)
        command = shipper.get_command(context, verb)
        assert command is not None
        with command.make_context(verb, arguments, parent=context) as parsed:
            grace = Duration.parse(parsed.params["grace"])

        assert pod["terminationGracePeriodSeconds"] > grace


def test_a_shipper_is_no_root_and_writes_nothing_but_its_directory() -> None:
    for container, pod in containers():
        rights = {**pod["securityContext"], **container["securityContext"]}
        written = {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")}

        assert rights["runAsNonRoot"]
        assert rights["runAsUser"] == 6780
        assert rights["readOnlyRootFilesystem"]
        assert not rights["allowPrivilegeEscalation"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert written == {"/var/lib/shipper", "/tmp"}


def test_the_image_runs_the_program_as_the_user_of_the_manifests() -> None:
    text = (roles.PACKAGING / "Containerfile").read_text()
    copied = re.findall(r"^COPY (.+) /source", text, re.MULTILINE)

    assert "USER 6780:6780" in text
    assert 'ENTRYPOINT ["shipper"]' in text
    assert [name for line in copied for name in line.split() if not (roles.PACKAGING.parents[1] / name).exists()] == []
