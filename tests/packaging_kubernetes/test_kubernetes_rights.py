"""What each role may do and may not, with tokens as Pods have them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends import kubernetes_roles as roles
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import MERGE, Answer, Api, Object, path, until
from tests.backends.kubernetes_roles import LEADER, LEASES, MEMBER, NODE, SHIPPER, lease, member, policy

USING = {"status": {"process": "d/p", "state": "running", "undelivered": 3}}


class Site:
    """A namespace with shippers on two nodes, and what each writes."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        roles.install(kubernetes)
        self.kubernetes = kubernetes
        self.namespace = kubernetes.namespace()
        self.admin = kubernetes.admin
        roles.account(kubernetes, self.namespace, secrets=["es"])

    def pod(self, name: str, node: str = "node-1", account: str = "shipper") -> tuple[Api, Object]:
        made = roles.pod(self.kubernetes, self.namespace, name, node=node, account=account)
        return roles.bound(self.kubernetes, self.namespace, account, made), made

    def of(self, plural: str, name: str = "", sub: str = "", api: str = SHIPPER) -> str:
        return path(plural, self.namespace, name, sub, api=api)

    def creates(self, who: Api, obj: Object) -> Answer:
        return who.call("POST", self.of("shippermembers"), obj)

    def reports(self, who: Api, name: str, status: Object = USING) -> Answer:
        return who.call("PATCH", self.of("shippermembers", name, "status"), status, media=MERGE)

    def claims(self, who: Api, name: str, **spec: Any) -> Answer:
        return who.call("POST", self.of("leases", api=LEASES), lease(name, **spec))

    def forgets(self, who: Api, name: str) -> Answer:
        return who.call("DELETE", self.of("shippermembers", name))


@pytest.fixture
def site(kubernetes: Kubernetes) -> Site:
    return Site(kubernetes)


# -- a member writes itself --------------------------------------------------------------------------------------------


def test_a_shipper_of_a_daemonset_writes_the_member_of_its_node(site: Site) -> None:
    shipper, _ = site.pod("shipper-x1")

    assert site.creates(shipper, member("node-1")).status == 201
    assert site.reports(shipper, "node-1").status == 200
    assert site.claims(shipper, "node-1").status == 201


def test_a_shipper_cannot_write_the_member_of_another_node(site: Site) -> None:
    """All shippers have one ServiceAccount; what tells them apart is the node to which the token is bound."""
    first, _ = site.pod("shipper-x1", "node-1")
    second, _ = site.pod("shipper-x2", "node-2")
    site.creates(first, member("node-1"))
    refused = site.reports(second, "node-1")

    assert refused.status == 403
    assert (
        "ShipperMember node-1, which keeps its node, cannot be written with a token of Pod shipper-x2"
        in refused.message
    )
    assert "on node node-2" in refused.message
    assert site.claims(second, "node-1").status == 403
    assert site.creates(second, member("node-3")).status == 403


def test_a_shipper_of_a_statefulset_writes_the_member_of_its_ordinal(site: Site) -> None:
    shipper, pod = site.pod("web-0")
    own = {"pod": {"name": "web-0", "uid": pod["metadata"]["uid"]}}

    assert site.creates(shipper, member("web-0", "ordinal", **own)).status == 201
    assert site.reports(shipper, "web-0").status == 200
    assert site.claims(shipper, "web-0").status == 201
    assert site.creates(shipper, member("web-1", "ordinal", **own)).status == 403


def test_a_shipper_on_an_emptydir_writes_the_member_of_its_uid(site: Site) -> None:
    shipper, pod = site.pod("web-0")
    uid = pod["metadata"]["uid"]
    own = {"pod": {"name": "web-0", "uid": uid}}

    assert site.creates(shipper, member(uid, "pod", **own)).status == 201
    assert site.reports(shipper, uid).status == 200
    assert site.claims(shipper, uid).status == 201
    assert site.creates(shipper, member("web-0", "pod", **own)).status == 403


def test_a_sidecar_without_the_role_of_a_node_cannot_write_the_member_of_its_node(site: Site) -> None:
    """It runs on that node, and its application may do what it may."""
    roles.account(site.kubernetes, site.namespace, "application", [MEMBER, LEADER])
    sidecar, _ = site.pod("web-0", account="application")
    refused = site.creates(sidecar, member("node-1"))

    assert refused.status == 403
    assert "`represent-node`" in refused.message
    assert site.claims(sidecar, "node-1").status == 403


def test_a_token_that_is_bound_to_no_pod_writes_no_member(site: Site) -> None:
    loose = roles.bound(site.kubernetes, site.namespace)
    refused = site.creates(loose, member("node-1"))

    assert refused.status == 403
    assert '"-": bound to none' in refused.message
    assert site.claims(loose, "node-1").status == 403


def test_a_shipper_outside_of_pods_writes_the_members_that_a_role_lets_it_represent(site: Site) -> None:
    roles.bind(site.kubernetes, site.namespace, "user-1", MEMBER)
    rule = {"apiGroups": ["shipper.dev"], "resources": ["shippermembers"], "resourceNames": ["web-1"]}
    site.kubernetes.grant(site.namespace, "user-1", [{**rule, "verbs": ["represent"]}])
    outside = site.kubernetes.user(1)
    until(lambda: site.creates(outside, member("web-1")).status in (201, 409), "the role counts")

    assert site.reports(outside, "web-1").status == 200
    assert site.claims(outside, "web-1").status == 201
    assert site.creates(outside, member("web-2")).status == 403


def test_what_a_member_keeps_stays_under_its_name(site: Site) -> None:
    site.admin.create(site.of("shippermembers"), member("node-1"))
    changed = site.admin.call("PATCH", site.of("shippermembers", "node-1"), {"spec": {"keeps": "ordinal"}}, media=MERGE)

    assert changed.status == 422
    assert "give the member another one" in changed.message


def test_a_member_that_ends_with_its_pod_must_name_it(site: Site) -> None:
    for spec in ({}, {"pod": None}):
        assert site.creates(site.admin, member("a", "pod", **spec)).status == 422


# -- what a member does not do -----------------------------------------------------------------------------------------


def test_a_shipper_makes_no_policy_and_changes_none(site: Site) -> None:
    shipper, _ = site.pod("shipper-x1")
    site.admin.create(site.of("shipperpolicies"), policy("web"))

    assert shipper.call("POST", site.of("shipperpolicies"), policy("other")).status == 403
    assert shipper.call("DELETE", site.of("shipperpolicies", "web")).status == 403
    for change in (
        {"spec": {"policy": {"version": 2}}},
        {"spec": {"endedMembers": "ignore"}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"finalizers": ["example.org/other"]}},
    ):
        refused = shipper.call("PATCH", site.of("shipperpolicies", "web"), change, media=MERGE)

        assert refused.status == 403
        assert "changes nothing but the finalizer shipper.dev/drain" in refused.message


def test_the_leader_sets_and_removes_the_finalizer_of_a_policy(site: Site) -> None:
    shipper, _ = site.pod("shipper-x1")
    site.admin.create(site.of("shipperpolicies"), policy("web"))
    for finalizers in (["shipper.dev/drain"], []):
        change = {"metadata": {"finalizers": finalizers}}
        answer = shipper.call("PATCH", site.of("shipperpolicies", "web"), change, media=MERGE)

        assert answer.status == 200
        assert answer.body["metadata"].get("finalizers", []) == finalizers


def test_a_shipper_reads_only_the_secrets_that_are_named(site: Site) -> None:
    shipper, _ = site.pod("shipper-x1")
    for name in ("es", "other"):
        site.admin.create(path("secrets", site.namespace), {"metadata": {"name": name}})
    secrets = path("secrets", site.namespace)

    assert shipper.call("GET", f"{secrets}/es").status == 200
    assert shipper.call("GET", secrets, fieldSelector="metadata.name=es").status == 200
    assert shipper.call("GET", f"{secrets}/other").status == 403
    assert shipper.call("GET", secrets).status == 403
    assert shipper.call("PATCH", f"{secrets}/es", {"data": {}}, media=MERGE).status == 403


def test_a_shipper_writes_events_and_reads_or_changes_none(site: Site) -> None:
    shipper, _ = site.pod("shipper-x1")
    events = path("events", site.namespace)
    about = {"kind": "ShipperMember", "name": "node-1", "namespace": site.namespace, "uid": "u"}
    made = {
        "metadata": {"name": "node-1.1"},
        "involvedObject": about,
        "reason": "Apart",
        "message": "m",
        "type": "Warning",
    }

    assert shipper.call("POST", events, made).status == 201
    assert shipper.call("GET", events).status == 403
    assert shipper.call("PATCH", f"{events}/node-1.1", {"message": "other"}, media=MERGE).status == 403


# -- the leader --------------------------------------------------------------------------------------------------------

BOUND = {"metadata": {"annotations": {"shipper.dev/released": '{"u/k": "7"}'}}}


def leased(site: Site, name: str) -> Object:
    """The Lease of another member, as the server has it."""
    return site.admin.create(
        site.of("leases", api=LEASES), lease(name, holderIdentity="d/b/p", leaseDurationSeconds=40)
    )


def test_the_leader_writes_bounds_beside_what_a_lease_says(site: Site) -> None:
    shipper, _ = site.pod("shipper-x1")
    held = leased(site, "node-2")
    held["metadata"]["annotations"] = BOUND["metadata"]["annotations"]
    where = site.of("leases", "shipper-member-node-2", api=LEASES)

    assert shipper.call("PUT", where, held).status == 200


def test_the_leader_cannot_renew_or_take_the_lease_of_another_member(site: Site) -> None:
    shipper, _ = site.pod("shipper-x1")
    held = leased(site, "node-2")
    held["spec"]["holderIdentity"] = "mine"
    refused = shipper.call("PUT", site.of("leases", "shipper-member-node-2", api=LEASES), held)

    assert refused.status == 403
    assert "member node-2 alone renews it" in refused.message


def test_the_leader_deletes_the_leases_of_pods_only(site: Site) -> None:
    """They are named by uids. An operator deletes any, and so do the controllers of a cluster."""
    shipper, pod = site.pod("shipper-x1")
    uid = pod["metadata"]["uid"]
    for name in (uid, "node-2"):
        leased(site, name)
    roles.bind(site.kubernetes, site.namespace, "user-5", roles.OPERATOR)
    places = {name: site.of("leases", f"shipper-member-{name}", api=LEASES) for name in (uid, "node-2")}

    assert shipper.call("DELETE", places["node-2"]).status == 403
    assert shipper.call("DELETE", places[uid]).status == 200
    assert site.kubernetes.user(5).call("DELETE", places["node-2"]).status == 200


def test_leases_of_others_are_left_alone(site: Site) -> None:
    """Of a fleet, for example."""
    shipper, _ = site.pod("shipper-x1")
    made = {"metadata": {"name": "shipper-fleet-prod-a"}, "spec": {}}

    assert shipper.call("POST", site.of("leases", api=LEASES), made).status == 201
    assert shipper.call("DELETE", site.of("leases", "shipper-fleet-prod-a", api=LEASES)).status == 200


def test_a_member_that_does_not_lead_writes_no_bounds(site: Site) -> None:
    roles.account(site.kubernetes, site.namespace, "follower", [MEMBER, NODE])
    site.admin.create(site.of("shipperpolicies"), policy("web"))
    follower, _ = site.pod("shipper-x1", account="follower")
    held = leased(site, "node-2")
    held["metadata"]["annotations"] = BOUND["metadata"]["annotations"]

    assert follower.call("PUT", site.of("leases", "shipper-member-node-2", api=LEASES), held).status == 403
    assert follower.call("PATCH", site.of("shipperpolicies", "web", "status"), {}, media=MERGE).status == 403
    assert follower.call("GET", path("pods", site.namespace, "shipper-x1")).status == 403


def test_the_leader_writes_the_status_of_policies_and_secrets(site: Site) -> None:
    shipper, _ = site.pod("shipper-x1")
    site.admin.create(site.of("shipperpolicies"), policy("web"))
    release = {"apiVersion": SHIPPER, "kind": "ShipperSecret", "metadata": {"name": "es"}}

    assert shipper.call("POST", site.of("shippersecrets"), release).status == 201
    for plural, name in (("shipperpolicies", "web"), ("shippersecrets", "es")):
        answer = shipper.call("PATCH", site.of(plural, name, "status"), {"status": {"leader": 3}}, media=MERGE)

        assert answer.body["status"] == {"leader": 3}
    assert shipper.call("GET", path("pods", site.namespace, "gone")).status == 404


def test_a_leader_with_a_lower_token_cannot_write_a_status(site: Site) -> None:
    """The server refuses it, whatever that leader believes."""
    site.admin.create(site.of("shipperpolicies"), policy("web"))
    where = site.of("shipperpolicies", "web", "status")
    site.admin.patch(where, {"status": {"leader": 8}})
    for status in ({"leader": 7}, {"leader": None}):
        refused = site.admin.call("PATCH", where, {"status": status}, media=MERGE)

        assert refused.status == 422
        assert "a newer leader has written this status" in refused.message


def test_what_is_released_stays_released(site: Site) -> None:
    """Versions are compared as numbers of any length, and each key of each Secret has its own."""
    site.admin.create(
        site.of("shippersecrets"), {"apiVersion": SHIPPER, "kind": "ShipperSecret", "metadata": {"name": "es"}}
    )
    where = site.of("shippersecrets", "es", "status")

    def released(before: str, uid: str = "u") -> int:
        one = {"secret": "es", "uid": uid, "key": "k", "releasedBefore": before}
        return site.admin.call("PATCH", where, {"status": {"credentials": [one]}}, media=MERGE).status

    answers = [released(before) for before in ("", "99", "100", "99", "100", "101", "")]

    assert answers == [200, 200, 200, 422, 200, 200, 422]
    assert released("5", uid="another") == 200


def test_the_leader_forgets_only_members_that_left_nothing(site: Site) -> None:
    shipper, _ = site.pod("shipper-x1")
    gone = {"pod": {"name": "web-0", "uid": "u"}}
    for name, keeps, status in (
        ("empty", "pod", {"undelivered": 0}),
        ("full", "pod", {"undelivered": 3}),
        ("lost", "pod", {"lost": [{"process": "d/p"}]}),
        ("node-2", "node", {"undelivered": 0}),
    ):
        site.admin.create(site.of("shippermembers"), member(name, keeps, **gone))
        site.reports(site.admin, name, {"status": status})

    answers = {name: site.forgets(shipper, name).status for name in ("empty", "full", "lost", "node-2")}

    assert answers == {"empty": 200, "full": 403, "lost": 403, "node-2": 403}


# -- people ------------------------------------------------------------------------------------------------------------


def test_an_operator_forgets_any_member_and_writes_none(site: Site) -> None:
    roles.bind(site.kubernetes, site.namespace, "user-2", roles.OPERATOR)
    operator = site.kubernetes.user(2)
    site.admin.create(site.of("shippermembers"), member("node-1"))
    site.reports(site.admin, "node-1")

    assert site.reports(operator, "node-1").status == 403
    assert site.forgets(operator, "node-1").status == 200


def test_an_author_writes_policies_and_reads_no_secret(site: Site) -> None:
    roles.bind(site.kubernetes, site.namespace, "user-3", roles.AUTHOR)
    author = site.kubernetes.user(3)
    site.admin.create(path("secrets", site.namespace), {"metadata": {"name": "es"}})

    assert author.call("POST", site.of("shipperpolicies"), policy("web")).status == 201
    change = {"spec": {"policy": {"version": 2}}}
    assert author.call("PATCH", site.of("shipperpolicies", "web"), change, media=MERGE).status == 200
    assert author.call("PATCH", site.of("shipperpolicies", "web", "status"), {}, media=MERGE).status == 403
    assert author.call("GET", path("secrets", site.namespace, "es")).status == 403
    assert author.call("GET", site.of("shippermembers")).status == 200


def test_who_rotates_reads_what_is_released_and_changes_only_named_secrets(site: Site) -> None:
    roles.bind(site.kubernetes, site.namespace, "user-4", roles.ROTATION)
    (rule,) = next(one for one in roles.rendered("daemonset") if one["metadata"]["name"] == "shipper-secrets-rotation")[
        "rules"
    ]
    site.kubernetes.grant(site.namespace, "user-4", [rule])
    operator = site.kubernetes.user(4)
    site.admin.create(path("secrets", site.namespace), {"metadata": {"name": "es"}})
    change = {"stringData": {"key": "new"}}

    assert operator.call("PATCH", path("secrets", site.namespace, "es"), change, media=MERGE).status == 200
    assert operator.call("PATCH", path("secrets", site.namespace, "other"), change, media=MERGE).status == 403
    assert operator.call("GET", site.of("shippersecrets")).status == 200
    assert operator.call("PATCH", site.of("shipperpolicies", "web"), {}, media=MERGE).status == 403


# -- what a server refuses of a policy ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"onDelete": {"deadline": "1 hour"}}, "must be a duration with a unit"),
        ({"onDelete": {"deadline": "3600"}}, "must be a duration with a unit"),
        ({"endedMembers": "maybe"}, "supported values"),
        ({"members": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "In and NotIn need values"),
        ({"members": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}, "have none"),
        ({"policy": "version: 1"}, "must be of type object"),
    ],
)
def test_a_policy_with_a_wrong_setting_is_refused_at_once(site: Site, spec: Object, said: str) -> None:
    refused = site.admin.call("POST", site.of("shipperpolicies"), policy("web") | {"spec": {"policy": {}, **spec}})

    assert refused.status == 422
    assert said in refused.message


@pytest.mark.parametrize("deadline", ["30s", "1.5h", "250 ms", "15m", "1d"])
def test_a_deadline_is_written_like_every_duration(site: Site, deadline: str) -> None:
    made = policy("web", onDelete={"drain": True, "deadline": deadline})

    assert site.admin.call("POST", site.of("shipperpolicies"), made).status == 201
