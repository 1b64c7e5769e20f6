"""What a person does with policies and Secrets, and what a member makes of it: events arrive, and it says when."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio

from tests.backends.kubernetes import Kubernetes
from tests.kubernetes.stories.cluster import Cluster, Node, open_cluster

pytestmark = pytest.mark.backend


async def begun(cluster: Cluster, **section: object) -> Node:
    """A node that has delivered ten lines by the policy `web` with the key k1."""
    node = cluster.node(**section)
    cluster.secret(api_key="k1")
    cluster.apply_policy("web", cluster.text(node.log))
    node.write(10)
    await cluster.reaches("web", 1)
    await cluster.arrived(10)
    return node


async def test_a_policy_runs_and_each_change_of_it_is_said_to_have_drained(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        assert cluster.apply_policy("web", cluster.text(node.log, index="other"))["metadata"]["generation"] == 2
        entry = await cluster.reaches("web", 2)
        node.write(10)
        await cluster.delivered()
        status = await trio.to_thread.run_sync(node.status)

    assert entry["uid"]
    assert len(cluster.destination.documents["other"]) == 10
    assert (status["member"], status["namespace"], status["state"]) == ("node-1", cluster.namespace, "member")
    assert [(one["name"], one["generation"], one["stage"]) for one in status["policies"]] == [("web", 2, "drained")]
    assert [(one["secret"], one["key"]) for one in status["secrets"]] == [("es", "api_key")]
    assert status["troubles"] == {}


async def test_a_rotated_secret_is_a_new_revision_and_the_old_content_goes(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        (before,) = cluster.using()
        second = cluster.secret(api_key="k2")["metadata"]["resourceVersion"]
        await cluster.until(lambda: [one["resourceVersion"] for one in cluster.using()] == [second], "k2 alone is used")
        cluster.revoke("k1")
        node.write(10)
        await cluster.delivered()

    assert before["resourceVersion"] != second
    assert cluster.uses("k2") > 0
    assert cluster.destination.refused == 0
    assert [one["revision"] for one in node.said("sent")] == ["1", "2"]


async def test_a_change_of_labels_alone_is_no_rotation(tmp_path: Path, kubernetes: Kubernetes) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        at = cluster.path("secrets", "es", api="v1")
        labelled = cluster.admin.patch(at, {"metadata": {"labels": {"team": "a"}}})["metadata"]["resourceVersion"]
        await cluster.until(
            lambda: [one["resourceVersion"] for one in cluster.using()] == [labelled],
            "it is current at the new version",
        )
        node.write(10)
        await cluster.delivered()

    assert [one["revision"] for one in node.said("sent")] == ["1"]


async def test_a_secret_and_a_policy_that_change_together_do_not_mix(tmp_path: Path, kubernetes: Kubernetes) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        reference = {"secret": {"name": "es", "key": "second"}}
        cluster.apply_policy("web", cluster.text(node.log, credential=reference, index="second"))
        nack = await cluster.refuses("web", "secret_missing")
        node.write(10)
        await cluster.arrived(20)
        waits = (await trio.to_thread.run_sync(node.status))["waits"]
        cluster.secret(api_key="k1", second="k2")
        await cluster.reaches("web", 2)
        cluster.revoke("k1")
        node.write(10)
        await cluster.delivered()

    assert nack["generation"] == 2
    assert "second" in nack["message"]
    assert [one["policy"] for one in waits] == ["web"]
    assert len(cluster.destination.documents["second"]) == 10
    assert cluster.destination.refused == 0


async def test_a_bad_policy_is_refused_by_its_path_and_the_last_good_one_runs_on(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        cluster.apply_policy("web", cluster.text(node.log, index=7, compression="zip"))
        nack = await cluster.refuses("web", "invalid")
        node.write(10)
        await cluster.arrived(20)
        cluster.apply_policy("web", cluster.text(node.log, index="good"))
        entry = await cluster.reaches("web", 3)
        node.write(10)
        await cluster.delivered()

    assert nack["generation"] == 2
    assert nack["path"].startswith("spec.policy.outputs.main.")
    assert entry.get("nack") is None


async def test_a_policy_that_is_deleted_and_created_again_is_a_new_lineage(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        first = cluster.report("web")["uid"]
        cluster.delete_policy("web")
        second = cluster.apply_policy("web", cluster.text(node.log, index="again"))["metadata"]["uid"]
        await cluster.until(lambda: _stage(cluster, second) == "drained", "the second policy has drained")
        await cluster.until(lambda: _stage(cluster, first) in ("", "drained"), "the first one has drained its removal")
        node.write(10)
        await cluster.delivered()

    assert first != second
    assert len(cluster.destination.documents["again"]) == 10


def _stage(cluster: Cluster, uid: str) -> str:
    entries = cluster.member().get("policies", ())
    return next((str(one["stage"]) for one in entries if one["uid"] == uid), "")


async def test_of_two_policies_that_conflict_the_older_one_runs(tmp_path: Path, kubernetes: Kubernetes) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
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
        node.write(10)
        await cluster.delivered()

    assert "web" in nack["message"]
    assert cluster.destination.documents.get("younger") is None


async def test_a_policy_that_does_not_select_a_member_is_not_run(tmp_path: Path, kubernetes: Kubernetes) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        cluster.apply_policy(
            "db", cluster.text(node.log, output="db", index="db"), members={"matchLabels": {"app": "db"}}
        )
        cluster.apply_policy("web", cluster.text(node.log, index="two"))
        await cluster.reaches("web", 2)
        node.write(10)
        await cluster.delivered()

    assert cluster.report("db") == {}
    assert "db" not in cluster.destination.documents


async def test_a_missing_right_is_named_with_its_verb_and_resource(tmp_path: Path, kubernetes: Kubernetes) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        cluster.secret("vault", api_key="k9")
        reference = {"secret": {"name": "vault", "key": "api_key"}}
        cluster.apply_policy("web", cluster.text(node.log, credential=reference))
        nack = await cluster.refuses("web", "secret_missing")
        node.write(10)
        await cluster.arrived(20)
        cluster.kubernetes.grant(cluster.namespace, "account:shipper", [_reading("vault")])
        await cluster.reaches("web", 2)
        node.write(10)
        await cluster.delivered()

    assert 'verbs: ["' in nack["message"]
    assert 'resources: ["secrets"]' in nack["message"]
    assert "vault" in nack["message"]


def _reading(name: str) -> dict[str, list[str]]:
    return {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["get", "list", "watch"]}


async def test_a_secret_that_was_not_meant_for_shippers_is_not_used(tmp_path: Path, kubernetes: Kubernetes) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        cluster.secret("other", labelled=False, api_key="k9")
        reference = {"secret": {"name": "other", "key": "api_key"}}
        cluster.apply_policy("web", cluster.text(node.log, credential=reference))
        nack = await cluster.refuses("web", "secret_missing")
        node.write(10)
        await cluster.delivered()

    assert "shipper.dev/use" in nack["message"]
    assert cluster.uses("k9") == 0


async def test_a_stop_leaves_the_last_status_and_a_member_that_leaves_says_so(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        assert await trio.to_thread.run_sync(node.end) == 0
        stopped = cluster.member()
        node.start()
        await cluster.until(lambda: node.said("kubernetes_joined")[1:], "it takes part again")
        left = await trio.run_process(
            [*_SHIPPER, "fleet", "leave", "--state", str(node.state)], capture_stdout=True, check=False
        )
        await cluster.until(lambda: node.process is not None and node.process.poll() == 0, "it has ended")
        last = cluster.member()

    assert (stopped["state"], stopped["undelivered"]) == ("running", 0)
    assert left.returncode == 0, left.stdout
    assert last["state"] == "left"


_SHIPPER = (sys.executable, "-m", "shipper")


async def test_drained_and_released_are_true_when_the_member_has_said_so(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        await cluster.until(lambda: _drained(cluster, 1), "Drained of generation 1")
        second = cluster.secret(api_key="k2")["metadata"]["resourceVersion"]
        await cluster.released(second)
        cluster.revoke("k1")
        cluster.apply_policy("web", cluster.text(node.log, index="two"))
        await cluster.until(lambda: _drained(cluster, 2), "Drained of generation 2")
        node.write(10)
        await cluster.delivered()
        leads = node.said("kubernetes_leader")

    assert leads
    assert cluster.destination.refused == 0


def _drained(cluster: Cluster, generation: int) -> bool:
    found = cluster.condition("web", "Drained")
    return (found.get("status"), found.get("observedGeneration")) == ("True", generation)


async def test_a_member_whose_output_cannot_deliver_makes_its_policy_degraded_and_says_when_that_is_over(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        cluster.revoke("k1")
        node.write(1)
        await cluster.until(lambda: cluster.condition("web", "Degraded").get("reason") == "Member", "it is degraded")
        condition, own = cluster.condition("web", "Degraded"), cluster.member()["degraded"]
        cluster.secret(api_key="k1")
        await cluster.until(lambda: cluster.condition("web", "Degraded").get("status") == "False", "it is over")
        await cluster.delivered()

    assert condition["status"] == "True"
    assert own in condition["message"]
    assert "outputs.main DEGRADED" in own
