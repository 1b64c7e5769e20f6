"""What a person does with policies and Secrets, and what a member makes of it: events arrive, and it says when."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio

from tests.backends import kubernetes_roles as roles
from tests.backends.kubernetes import Kubernetes
from tests.kubernetes.stories.cluster import Cluster, begun, open_cluster

pytestmark = pytest.mark.backend


async def test_a_policy_and_its_secret_run_in_each_state_and_it_is_said_when_the_one_before_has_drained(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        await cluster.until(lambda: _drained(cluster, 1), "Drained of generation 1")
        (first,) = cluster.using()
        assert cluster.apply_policy("web", cluster.text(node.log, index="other"))["metadata"]["generation"] == 2
        assert (await cluster.reaches("web", 2))["uid"]
        await cluster.until(lambda: _drained(cluster, 2), "Drained of generation 2")
        node.write(10)
        await cluster.arrived(20)
        status = await trio.to_thread.run_sync(node.status)
        sent = len(node.said("sent"))

        at = cluster.path("secrets", "es", api="v1")
        labelled = cluster.admin.patch(at, {"metadata": {"labels": {"team": "a"}}})["metadata"]["resourceVersion"]
        await cluster.until(lambda: _versions(cluster) == [labelled], "it is current at the new version")
        assert len(node.said("sent")) == sent, "a change of labels is no rotation"

        second = cluster.secret(api_key="k2")["metadata"]["resourceVersion"]
        await cluster.until(lambda: _versions(cluster) == [second], "k2 alone is used")
        await cluster.released(second)
        cluster.revoke("k1")
        node.write(10)
        await cluster.delivered()
        refused = cluster.destination.refused

        cluster.revoke("k2")
        node.write(1)
        await cluster.until(lambda: cluster.condition("web", "Degraded").get("reason") == "Member", "it is degraded")
        condition, own = cluster.condition("web", "Degraded"), cluster.member()["degraded"]
        cluster.secret(api_key="k2")
        await cluster.until(lambda: cluster.condition("web", "Degraded").get("status") == "False", "it is over")
        await cluster.delivered()

    assert len(cluster.destination.documents["other"]) == 21
    assert (status["member"], status["namespace"], status["state"]) == ("node-1", cluster.namespace, "member")
    assert [(one["name"], one["generation"], one["stage"]) for one in status["policies"]] == [("web", 2, "drained")]
    assert [(one["secret"], one["key"]) for one in status["secrets"]] == [("es", "api_key")]
    assert status["troubles"] == {}
    assert first["resourceVersion"] not in (labelled, second)
    assert cluster.uses("k2") > 0
    assert refused == 0
    assert [one["revision"] for one in node.said("sent")] == ["1", "2", "3"]
    assert node.said("kubernetes_leader")
    assert condition["status"] == "True"
    assert own in condition["message"]
    assert "outputs.main DEGRADED" in own


def _drained(cluster: Cluster, generation: int) -> bool:
    found = cluster.condition("web", "Drained")
    return (found.get("status"), found.get("observedGeneration")) == ("True", generation)


def _versions(cluster: Cluster) -> list[str]:
    return [one["resourceVersion"] for one in cluster.using()]


async def test_what_cannot_run_is_refused_with_its_reason_and_the_last_good_generation_runs_on(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    """A mistake, a key that its Secret lacks yet, a right that is missing, a Secret that is not for shippers."""
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        cluster.apply_policy("web", cluster.text(node.log, index=7, compression="zip"))
        mistaken = await cluster.refuses("web", "invalid")
        node.write(10)
        await cluster.arrived(20)
        cluster.apply_policy("web", cluster.text(node.log, index="good"))
        good = await cluster.reaches("web", 3)

        cluster.apply_policy("web", cluster.text(node.log, credential=_reference("es", "second"), index="second"))
        keyless = await cluster.refuses("web", "secret_missing")
        node.write(10)
        await cluster.arrived(30)
        waits = (await trio.to_thread.run_sync(node.status))["waits"]
        cluster.secret(api_key="k1", second="k2")
        await cluster.reaches("web", 4)
        cluster.revoke("k1")
        node.write(10)
        await cluster.arrived(40)

        cluster.secret("vault", api_key="k3")
        cluster.apply_policy("web", cluster.text(node.log, credential=_reference("vault", "api_key")))
        forbidden = await cluster.refuses("web", "secret_missing")
        node.write(10)
        await cluster.arrived(50)
        cluster.kubernetes.grant(cluster.namespace, "account:shipper", [roles.reading(["vault"])])
        await cluster.reaches("web", 5)

        cluster.secret("other", labelled=False, api_key="k9")
        cluster.apply_policy("web", cluster.text(node.log, credential=_reference("other", "api_key")))
        await cluster.until(lambda: "shipper.dev/use" in _nack(cluster).get("message", ""), "it is not meant for it")
        node.write(10)
        await cluster.delivered()

    assert mistaken["generation"] == 2
    assert mistaken["path"].startswith("spec.policy.outputs.main.")
    assert good.get("nack") is None
    assert keyless["generation"] == 4
    assert "second" in keyless["message"]
    assert [one["policy"] for one in waits] == ["web"]
    assert len(cluster.destination.documents["second"]) == 20
    assert 'verbs: ["' in forbidden["message"]
    assert 'resources: ["secrets"]' in forbidden["message"]
    assert "vault" in forbidden["message"]
    assert cluster.uses("k9") == 0
    assert cluster.destination.refused == 0


def _reference(secret: str, key: str) -> dict[str, dict[str, str]]:
    return {"secret": {"name": secret, "key": key}}


def _nack(cluster: Cluster) -> dict[str, str]:
    return cluster.report("web").get("nack") or {}


async def test_of_several_policies_those_run_that_select_the_member_and_the_older_one_of_a_conflict(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    """One that is deleted and created again is a new lineage."""
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        cluster.apply_policy(
            "db", cluster.text(node.log, output="db", index="db"), members={"matchLabels": {"app": "db"}}
        )
        other = node.directory / "other.log"
        other.touch()
        created = cluster.admin.get(cluster.path("shipperpolicies", "web"))["metadata"]["creationTimestamp"]
        await cluster.until(lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}" > created, "the next second begins")
        cluster.apply_policy("younger", cluster.text(other, index="younger"))
        nack = await cluster.refuses("younger", "conflict")
        node.write(10)
        await cluster.arrived(20)
        cluster.apply_policy("younger", cluster.text(other, output="second", index="younger"))
        await cluster.reaches("younger", 2)

        first = cluster.report("web")["uid"]
        cluster.delete_policy("web")
        second = cluster.apply_policy("web", cluster.text(node.log, index="again"))["metadata"]["uid"]
        await cluster.until(lambda: _stage(cluster, second) == "drained", "the second policy has drained")
        await cluster.until(lambda: _stage(cluster, first) in ("", "drained"), "the first one has drained its removal")
        node.write(10)
        await cluster.delivered()
        unselected = cluster.report("db")

    assert unselected == {}
    assert "web" in nack["message"]
    assert first != second
    found = {index: len(events) for index, events in cluster.destination.documents.items()}
    assert found == {"logs-generic-default": 20, "again": 10}


def _stage(cluster: Cluster, uid: str) -> str:
    entries = cluster.member().get("policies", ())
    return next((str(one["stage"]) for one in entries if one["uid"] == uid), "")


async def test_a_stop_leaves_the_last_status_and_a_member_that_leaves_says_so(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        assert await trio.to_thread.run_sync(node.end) == 0
        stopped = cluster.member()
        node.start()
        await cluster.until(lambda: node.said("kubernetes_joined")[1:], "it takes part again")
        leave = [sys.executable, "-m", "shipper", "fleet", "leave", "--state", str(node.state)]
        left = await trio.run_process(leave, capture_stdout=True, check=False)
        await cluster.until(lambda: node.process is not None and node.process.poll() == 0, "it has ended")
        last = cluster.member()

    assert (stopped["state"], stopped["undelivered"]) == ("running", 0)
    assert left.returncode == 0, left.stdout
    assert last["state"] == "left"
