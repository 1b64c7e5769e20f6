"""A shipper that lacks one right of its roles says which one, with the rule that grants it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.backends import kubernetes_roles as roles
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import path, until

PATIENCE = 60
POLICY: dict[str, Any] = {
    "version": 1,
    "inputs": {"logs": {"type": "file", "paths": ["/nowhere/*.log"]}},
    "outputs": {
        "main": {
            "type": "elasticsearch",
            "hosts": ["http://127.0.0.1:9"],
            "credential": {"secret": {"name": "es", "key": "api_key"}},
        }
    },
}
OF_MEMBERS = [
    ("shippermembers", "get"),
    ("shippermembers", "create"),
    ("shippermembers", "watch"),
    ("shippermembers/status", "patch"),
    ("shipperpolicies", "get"),
    ("shipperpolicies", "watch"),
    ("leases", "get"),
    ("leases", "create"),
    ("leases", "update"),
    ("secrets", "get"),
    ("secrets", "watch"),
]
OF_LEADERS = [
    ("shipperpolicies", "patch"),
    ("shipperpolicies/status", "patch"),
    ("shippersecrets", "create"),
    ("shippersecrets/status", "patch"),
    ("leases", "watch"),
]


class Site:
    """A namespace with one shipper, whose rights are those of a DaemonSet but for one."""

    def __init__(self, kubernetes: Kubernetes, place: Path) -> None:
        roles.install(kubernetes)
        self.kubernetes, self.place, self.namespace = kubernetes, place, kubernetes.namespace()
        kubernetes.account(self.namespace, "shipper")
        admin = kubernetes.admin
        labelled = {"name": "es", "labels": {"shipper.dev/use": "credential"}}
        admin.create(path("secrets", self.namespace), {"metadata": labelled, "stringData": {"api_key": "k:s"}})
        made = roles.policy("web", policy=POLICY, onDelete={"drain": True})
        admin.create(path("shipperpolicies", self.namespace, api=roles.SHIPPER), made)

    def grant_all_but(self, resource: str, verb: str) -> None:
        rules = [rule for role in roles.ROLES for rule in rules_of(role)] + [roles.reading(["es"])]
        left = [
            {**rule, "resources": [one], "verbs": [word for word in rule["verbs"] if (one, word) != (resource, verb)]}
            for rule in rules
            for one in rule["resources"]
        ]
        self.kubernetes.grant(self.namespace, "account:shipper", [rule for rule in left if rule["verbs"]])

    @contextmanager
    def shipper(self) -> Iterator[None]:
        pod = roles.pod(self.kubernetes, self.namespace, "shipper-x1", node="node-1")
        variables = self.kubernetes.mount(self.place / "token", self.namespace, "shipper", pod=pod)
        variables |= {**roles.environment_of(pod), "SHIPPER_SERVICE_ACCOUNT": str(self.place / "token")}
        command = [sys.executable, "-m", "shipper", "supervise", "--kubernetes", "--state", str(self.place / "state")]
        with (
            (self.place / "log").open("w") as log,
            subprocess.Popen(command, env={**os.environ, **variables}, stdout=log, stderr=log) as process,
        ):
            try:
                yield
            finally:
                process.kill()  # in order, it would try for some seconds to write its last status

    @property
    def said(self) -> str:
        """Of the shipper, in its log and in its object; of the leader, in that of the policy."""
        found = [self.kubernetes.admin.get(path(plural, self.namespace, api=roles.SHIPPER)) for plural in _KINDS]
        return (self.place / "log").read_text().replace('\\"', '"') + repr(found)


_KINDS = ("shippermembers", "shipperpolicies")


def rules_of(role: str) -> list[dict[str, Any]]:
    (found,) = [one for one in roles.rendered() if one["kind"] == "ClusterRole" and one["metadata"]["name"] == role]
    return list(found["rules"])


@pytest.mark.parametrize(("resource", "verb"), OF_MEMBERS + OF_LEADERS)
def test_a_missing_right_is_said_with_the_rule_that_grants_it(
    kubernetes: Kubernetes, tmp_path: Path, resource: str, verb: str
) -> None:
    site = Site(kubernetes, tmp_path)
    site.grant_all_but(resource, verb)
    with site.shipper():
        rule = f'resources: ["{resource}"], verbs: ["{verb}"]'
        until(lambda: rule in site.said, f"{rule} is said", PATIENCE)

        assert "Traceback" not in site.said
