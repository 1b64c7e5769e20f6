"""What a platform engineer has applied, and who then asks: clients that have only the rights of packaging/kubernetes.

`install` applies the CRDs, the roles and the admission policies. `account` makes a ServiceAccount and binds roles to
it, `pod` makes a Pod that never runs. `kubernetes.account_token(namespace, name, pod=pod)` is a token that is bound to
it, as a kubelet hands it to the Pod; `kubernetes.mount(…, pod=pod)` writes it where a Pod has it. `bound` is a client.
"""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.backends.kubernetes import RBAC, Kubernetes
from tests.backends.kubernetes_api import Api, Object, path, until

PACKAGING = Path(__file__).parents[2] / "packaging/kubernetes"
KUBECTL = Path(sysconfig.get_path("scripts")) / "kubectl"
SHIPPER = "shipper.dev/v1"
LEASES = "coordination.k8s.io/v1"
MEMBER, NODE, LEADER = "shipper-member", "shipper-node", "shipper-leader"
AUTHOR, ROTATION, OPERATOR = "shipper-policy-author", "shipper-rotation-operator", "shipper-operator"
ROLES = (MEMBER, NODE, LEADER)
"""Of a DaemonSet."""
_RBAC_GROUP = RBAC.partition("/")[0]
_installed: set[Path] = set()


@cache
def rendered(part: str = ".") -> list[Object]:
    """The objects of a kustomization of packaging/kubernetes, as kubectl makes them."""
    command = [str(KUBECTL), "kustomize", str(PACKAGING / part)]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [obj for obj in yaml.safe_load_all(made.stdout) if obj]


def install(kubernetes: Kubernetes) -> None:
    """Applies what a cluster needs once; returns when all of it is in force. A second call does nothing."""
    if kubernetes.directory in _installed:
        return
    kubernetes.admin.apply(rendered())
    _wait_for_admission(kubernetes)
    _installed.add(kubernetes.directory)


def _wait_for_admission(kubernetes: Kubernetes) -> None:
    """A new admission policy is in force a moment after it was stored: each refuses something when it is."""
    namespace = kubernetes.namespace()
    account(kubernetes, namespace, "probe", [MEMBER, LEADER])
    probe, admin = bound(kubernetes, namespace, "probe"), kubernetes.admin
    admin.create(path("shippermembers", namespace, api=SHIPPER), member("other"))
    admin.create(path("shipperpolicies", namespace, api=SHIPPER), policy("other"))

    def refuses() -> bool:
        leases = path("leases", namespace, api=LEASES)
        asked = [
            probe.call("PATCH", _of(namespace, "shippermembers"), {}, media=_MERGE, dryRun="All"),
            probe.call("DELETE", _of(namespace, "shippermembers"), dryRun="All"),
            probe.call("PATCH", _of(namespace, "shipperpolicies"), _LABELLED, media=_MERGE, dryRun="All"),
            probe.call("POST", leases, lease("other"), dryRun="All"),
        ]
        return all("ValidatingAdmissionPolicy" in answer.message for answer in asked)

    until(refuses, "the admission policies are in force")
    kubernetes.free(namespace)


_MERGE = "application/merge-patch+json"
_LABELLED = {"metadata": {"labels": {"a": "b"}}}


def _of(namespace: str, plural: str) -> str:
    return path(plural, namespace, "other", api=SHIPPER)


def member(name: str, keeps: str = "node", **spec: Any) -> Object:
    """A ShipperMember."""
    return {"apiVersion": SHIPPER, "kind": "ShipperMember", **_named(name), "spec": {"keeps": keeps, **spec}}


def policy(name: str, **spec: Any) -> Object:
    """A ShipperPolicy, valid for the server."""
    return {"apiVersion": SHIPPER, "kind": "ShipperPolicy", **_named(name), "spec": {"policy": {"version": 1}, **spec}}


def lease(name: str, **spec: Any) -> Object:
    """The Lease of a member."""
    return {**_named(f"shipper-member-{name}"), "spec": spec}


def _named(name: str) -> Object:
    return {"metadata": {"name": name}}


# -- who asks ----------------------------------------------------------------------------------------------------------


def account(
    kubernetes: Kubernetes,
    namespace: str,
    name: str = "shipper",
    roles: Sequence[str] = ROLES,
    *,
    secrets: Sequence[str] = (),
) -> str:
    """Makes a ServiceAccount with these roles, which reads these Secrets; returns its name."""
    kubernetes.account(namespace, name)
    for role in roles:
        bind(kubernetes, namespace, f"account:{name}", role)
    if secrets:
        kubernetes.grant(namespace, f"account:{name}", [reading(secrets)])
    return name


def reading(secrets: Sequence[str]) -> dict[str, list[str]]:
    """The rule by which a shipper reads Secrets."""
    verbs = ["get", "list", "watch"]
    return {"apiGroups": [""], "resources": ["secrets"], "resourceNames": list(secrets), "verbs": verbs}


def bind(kubernetes: Kubernetes, namespace: str, subject: str, role: str) -> None:
    """Gives a role of packaging/kubernetes to `user-7`, or to the ServiceAccount `account:NAME` of this namespace."""
    kind, _, who = subject.rpartition(":")
    of_account = {"kind": "ServiceAccount", "name": who, "namespace": namespace}
    bound_to = of_account if kind else {"kind": "User", "name": who, "apiGroup": _RBAC_GROUP}
    binding = {
        "metadata": {"name": f"{role}-{who}"},
        "roleRef": {"apiGroup": _RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [bound_to],
    }
    kubernetes.admin.create(path("rolebindings", namespace, api=RBAC), binding)


def pod(kubernetes: Kubernetes, namespace: str, name: str, *, node: str = "", account: str = "shipper") -> Object:
    """Makes a Pod, on a node if one is named."""
    spec: Object = {"serviceAccountName": account, "containers": [{"name": "shipper", "image": "shipper"}]}
    if node:
        spec["nodeName"] = node
    return kubernetes.admin.create(path("pods", namespace), {"metadata": {"name": name}, "spec": spec})


def bound(kubernetes: Kubernetes, namespace: str, account: str = "shipper", pod: Object | None = None) -> Api:
    """A client with a token of a ServiceAccount, as the Pod has it."""
    return Api(kubernetes.url, kubernetes.ca, kubernetes.account_token(namespace, account, pod=pod))


def environment_of(pod: Object) -> dict[str, str]:
    """The variables that the manifests take from the downward API."""
    of, spec = pod["metadata"], pod["spec"]
    found = {"POD_NAME": of["name"], "POD_UID": of["uid"]}
    return found | ({"NODE_NAME": spec["nodeName"]} if "nodeName" in spec else {})
