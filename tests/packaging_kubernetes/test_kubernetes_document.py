"""`docs/kubernetes.md`: what it names exists, and its examples are what the server and the program take."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from shipper.kubernetes.settings import KubernetesSettings
from shipper.supervise.config import read_config
from tests.backends import kubernetes_roles as roles
from tests.backends.kubernetes import Kubernetes
from tests.packaging_kubernetes.document import DOCUMENT, FILES


def test_the_role_of_a_shipper_outside_of_pods_is_valid(kubernetes: Kubernetes, namespace: str) -> None:
    (applied,) = kubernetes.admin.apply(FILES["outside.yaml"], namespace)

    assert applied["rules"][0]["verbs"] == ["represent"]


def test_the_policy_of_the_document_is_one_that_the_server_takes(kubernetes: Kubernetes, namespace: str) -> None:
    roles.install(kubernetes)
    (made,) = kubernetes.admin.apply(FILES["web.yaml"], namespace)

    assert made["spec"]["policy"] == yaml.safe_load(FILES["web.yaml"])["spec"]["policy"]
    with pytest.raises(KeyError):
        made["status"]


def test_every_role_and_every_object_of_the_package_is_explained() -> None:
    defined = {obj["metadata"]["name"] for obj in roles.rendered() if obj["kind"] == "ClusterRole"}

    assert [name for name in defined if f"`{name}`" not in DOCUMENT.read_text()] == []


def test_the_settings_are_valid(tmp_path: Path) -> None:
    for name, text in (("document", FILES["supervise.yaml"]), *settings_of_the_package()):
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        environment = {"NODE_NAME": "node-1", "POD_NAME": "web-0", "POD_UID": "u"}

        assert read_config(file, environment).http == "0.0.0.0:6780"


def settings_of_the_package() -> Iterator[tuple[str, str]]:
    for part in ("daemonset", "sidecar"):
        for obj in roles.rendered(part):
            if obj["kind"] == "ConfigMap":
                yield obj["metadata"]["name"], obj["data"]["supervise.yaml"]


def test_every_setting_is_named() -> None:
    text = DOCUMENT.read_text()

    assert [name for name in KubernetesSettings.__struct_fields__ if not re.search(rf"\b{name}\b", text)] == []
