"""The objects that the third party writes: policies, Secrets; and what a member may do."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.backends.kubernetes_api import Object, path
from tests.campaign_kubernetes.records import mark

API = "shipper.dev/v1"
LEASES = "coordination.k8s.io/v1"
ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "packaging" / "kubernetes"
ROLES = ("shipper-member", "shipper-leader")
RBAC = "rbac.authorization.k8s.io"


def package() -> list[Object]:
    """The kinds, the roles and the rules of admission, as the package brings them."""
    files = [*sorted((PACKAGE / "crds").glob("*.yaml")), PACKAGE / "roles.yaml", PACKAGE / "admission.yaml"]
    found = [one for file in files for one in yaml.safe_load_all(file.read_text()) if one]
    return [one for one in found if "metadata" in one]


def rights(member: str, secrets: Iterable[str]) -> list[Mapping[str, Any]]:
    """What a member outside of a Pod may do beside what the roles of the package say."""
    return [
        {
            "apiGroups": ["shipper.dev"],
            "resources": ["shippermembers"],
            "resourceNames": [member],
            "verbs": ["represent"],
        },
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [*secrets], "verbs": ["get", "list", "watch"]},
    ]


def binding(role: str, user: str) -> Object:
    """Gives a role of the package to a user."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{role}-{user}"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC}],
    }


def policies(namespace: str, name: str = "", sub: str = "") -> str:
    return path("shipperpolicies", namespace, name, sub, api=API)


def secrets(namespace: str, name: str = "") -> str:
    return path("secrets", namespace, name)


class Draft:
    """A policy as its author knows it."""

    def __init__(self, name: str, url: str, secret: str, key: str, select: Mapping[str, str], ships: str = "") -> None:
        self.name, self.secret, self.key, self.select = name, secret, key, dict(select)
        self.ships = ships or name
        """The name of its input, of its output, and of the log that it ships."""
        self.is_bad = False
        self.drains = False
        """Whether its deletion waits until its events are drained."""
        self._url = url
        self._timeout = 2000

    def object(self, number: int) -> Object:
        spec: Object = {"members": {"matchLabels": self.select}, "policy": self.policy(number)}
        if self.drains:
            spec["onDelete"] = {"drain": True, "deadline": "10m"}
        return {"apiVersion": API, "kind": "ShipperPolicy", "metadata": {"name": self.name}, "spec": spec}

    def edit(self, number: int, *, barrier: bool) -> Object:
        """Returns a merge patch that makes another generation."""
        if barrier:
            self._timeout = 2000 + (self._timeout - 1999) % 7
        policy = self.policy(number)
        policy["outputs"][self.ships].setdefault("bogus", None)
        members = {"matchLabels": dict.fromkeys(("app", "parity")) | self.select}
        return {"spec": {"members": members, "policy": policy}}

    def policy(self, number: int) -> Object:
        """Returns the policy of an edit; some change how it is sent, so that what is queued must be delivered."""
        sends: Object = {
            "type": "elasticsearch",
            "hosts": [self._url],
            "credential": {"secret": {"name": self.secret, "key": self.key}},
            "index": f"{self.ships}-${{MEMBER}}",
            "timeout": f"{self._timeout}ms",
            "backoff": {"first": "50ms", "longest": "500ms"},
        }
        reads: Object = {
            "type": "file",
            "paths": [f"${{LOGS}}/{self.ships}.log"],
            "outputs": [self.ships],
            "processors": [{"type": "add_fields", "fields": {"labels.mark": mark(self.name, number, bad=self.is_bad)}}],
        }
        if self.is_bad:
            sends["bogus"] = 1
        return {"version": 1, "inputs": {self.ships: reads}, "outputs": {self.ships: sends}}


def secret(name: str, contents: Mapping[str, str]) -> Object:
    coded = {key: base64.b64encode(text.encode()).decode() for key, text in contents.items()}
    metadata = {"name": name, "labels": {"shipper.dev/use": "credential"}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": coded}
