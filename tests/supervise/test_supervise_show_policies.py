"""What a person sees of a member of Kubernetes."""

from __future__ import annotations

from typing import Any

from shipper.supervise.show import of_status
from shipper.supervise.show_policies import policies

NACK = {"generation": 3, "reason": "invalid", "message": "expected a number", "path": "spec.policy.queue"}
WEB = {"name": "web", "uid": "u", "generation": 2, "stage": "active", "removed": False, "waits_for": [], "nack": None}
KUBERNETES: dict[str, Any] = {
    "namespace": "logging",
    "member": "node-1",
    "state": "member",
    "reason": "",
    "lease_seconds": None,
    "policies": [WEB],
    "secrets": [{"secret": "es", "key": "api_key", "uid": "s", "resource_version": "81"}],
    "runs": ["web 2"],
    "waits": [],
}


def test_a_policy_is_shown_with_its_stage_and_why_it_is_refused_or_waits() -> None:
    shown = [WEB, WEB | {"name": "db", "nack": NACK}, WEB | {"name": "old", "removed": True, "waits_for": ["web"]}]
    waits = [{"policy": "web", "reason": "the Secret es has no key b"}, {"policy": "new", "reason": "no Secret x"}]

    assert list(policies(KUBERNETES | {"policies": shown, "waits": waits})) == [
        ("web", "generation 2", "active", "the Secret es has no key b"),
        ("db", "generation 2", "active", "refused 3 (invalid): spec.policy.queue: expected a number"),
        ("old", "generation 2", "removed, active", "waits for web"),
        ("new", "no generation", "waiting", "no Secret x"),
    ]


def test_a_status_of_kubernetes_has_its_own_tables() -> None:
    status = {"state": "HEALTHY", "message": "", "troubles": [], "supervisor": {"version": "1", "pid": 1}}
    status |= {"sidecar": {"state": "running", "pid": 2, "http": None}, "wanted": None, "observed": None}
    tables = dict(of_status(status | {"credentials": [], "kubernetes": KUBERNETES}))

    assert tables["policies"] == [("web", "generation 2", "active", "")]
    assert tables["secrets"] == [("es/api_key", "resourceVersion 81")]
    assert ("kubernetes", "node-1 in namespace logging: member, runs web 2") in tables["shipper: HEALTHY"]
