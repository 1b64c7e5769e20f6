"""Each judge of the campaign finds what is wrong, and nothing where all is well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.campaign_kubernetes import audit, records
from tests.campaign_kubernetes.history import State
from tests.campaign_kubernetes.judges import faults_of_objects, unrecorded
from tests.campaign_kubernetes.judges_keys import faults_of_keys
from tests.campaign_kubernetes.records import Content, Deleted, content, mark, marks, name_of
from tests.campaign_kubernetes.seen import Request, Seen
from tests.campaign_kubernetes.transcript import Transcript

NAMESPACE = "logging"
OLD, NEW = (name_of(content("es", "api_key", number)) for number in (1, 2))
APP = {"app": "web"}
Object = dict[str, Any]


class Story:
    """A cluster with a policy, a Secret and a member, as a test tells it; instants are versions too."""

    def __init__(self, directory: Path) -> None:
        self.states: list[State] = []
        self._status: Object = {}
        self.log: list[bytes] = []
        self.transcript = Transcript(directory / "transcript")
        self.requests: list[Request] = []
        self.revoked: dict[str, float] = {}

    # -- what objects say ----------------------------------------------------------------------------------------------

    def secret(self, at: int, name: str) -> None:
        self.states.append(State(at, at, Content("es", "uid-es", {"api_key": name})))

    def policy(
        self,
        at: int,
        generation: int,
        observed: int = 0,
        drained: str = "",
        *,
        bad: bool = False,
        user: str = "",
        labels: Object = APP,
        key: str = "api_key",
        uid: str = "uid-base",
        metadata: Object | None = None,
        **more: Any,
    ) -> None:
        """A version of the policy: an edit, or with a user a status."""
        conditions = [{"type": "Drained", "status": drained, "observedGeneration": observed, "reason": "Told"}]
        status: Object = {"observedGeneration": observed, "conditions": conditions if drained else [], "leader": 1}
        status |= {"waiting": [{"member": "web-1", "stage": "active"}] if drained == "False" else [], **more}
        status = self._status = status if user else self._status
        sends = {"timeout": "2s", "credential": {"secret": {"name": "es", "key": key}}}
        inputs = {"base": mark("base", generation, bad=bad)}
        spec: Object = {"policy": {"inputs": inputs, "outputs": {"base": sends}}}
        spec["members"] = {"matchLabels": labels}
        parts: Object = {"spec": spec, "status": status, "metadata": {"uid": uid, **(metadata or {})}}
        self._object(at, "ShipperPolicy", "base", user, parts, generation)

    def member(
        self, at: int, generation: int, stage: str, using: list[int], *, user: str = "user-1", **entry: Any
    ) -> None:
        said = {"name": "base", "uid": "uid-base", "generation": generation, "stage": stage, **entry}
        uses = [{"secret": "es", "uid": "uid-es", "key": "api_key", "resourceVersion": str(one)} for one in using]
        status = {"policies": [said] if generation else [], "using": uses, "state": "running"}
        self._object(at, "ShipperMember", "web-1", user, {"metadata": {"labels": APP}, "status": status})

    def release(self, at: int, before: int, *, leader: int = 1, user: str = "user-1") -> None:
        one = {"secret": "es", "uid": "uid-es", "key": "api_key", "releasedBefore": str(before)}
        self._object(
            at, "ShipperSecret", "es", user, {"status": {"credentials": [one] if before else [], "leader": leader}}
        )

    def gone(self, at: int, kind: str, name: str) -> None:
        self.states.append(State(at, at, Deleted(kind, name)))

    def _object(self, at: int, kind: str, name: str, user: str, parts: Object, generation: int = 1) -> None:
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(at), "generation": generation}
        obj = {"kind": kind, **parts, "metadata": metadata | parts.get("metadata", {})}
        record = records.read(obj)
        assert record is not None
        self.states.append(State(at, at, record))
        self.log.append(line(obj, user or "admin", "status" if user else ""))

    # -- what a sidecar hears and says ---------------------------------------------------------------------------------

    def hears(self, at: float, number: int, revision: int, **contents: str) -> None:
        credentials = {id: {"api_key": f"n-{name}:secret"} for id, name in contents.items()}
        text = f"inputs:\n  base: {mark('base', number)}\noutputs:\n  base:\n    timeout: 2s\n"
        text += "".join(f"    credential: {id}\n" for id in contents)
        message = {"type": "policy", "revision": revision, "policy": text, "credentials": credentials}
        self.transcript.take(f"{at} < {json.dumps(message)}".encode())

    def says(self, at: float, stage: str, revision: int, *released: str) -> None:
        message = {"type": "ack", "stage": stage, "epoch": 0, "revision": revision}
        message["credentials"] = {"in_use": [], "released": released}
        self.transcript.take(f"{at} > {json.dumps(message)}".encode())

    def gets_lease(self, at: float, until: float) -> None:
        self.transcript.take(f'{at} < {{"type": "lease", "until": {until}}}'.encode())

    def says_ready(self, at: float, revision: int, *in_use: str) -> None:
        reached = {stage: [0, revision] for stage in ("received", "active", "drained")}
        message = {"type": "ready", "revisions": reached, "credentials_in_use": in_use}
        self.transcript.take(f"{at} > {json.dumps(message)}".encode())

    # -- the judgement -------------------------------------------------------------------------------------------------

    @property
    def seen(self) -> Seen:
        writes = [*audit.parsed(self.log, NAMESPACE)]
        transcripts = {"web-1": self.transcript}
        return Seen(self.states, writes, {"web-1": "user-1"}, transcripts, self.requests, self.revoked)

    def faults(self) -> list[str]:
        return [*faults_of_objects(self.seen), *faults_of_keys(self.seen)]

    def fault(self) -> str:
        (found,) = self.faults()
        return found


def line(obj: Object, user: str, sub: str, **more: Any) -> bytes:
    """A line of the audit log."""
    plural = {"ShipperPolicy": "shipperpolicies"}.get(obj["kind"], f"{obj['kind'].lower()}s")
    of = {"resource": plural, "namespace": NAMESPACE, "name": obj["metadata"]["name"], "subresource": sub}
    event = {"stage": "ResponseComplete", "verb": "patch", "objectRef": of, "user": {"username": user}}
    event |= {
        "requestReceivedTimestamp": "2026-01-01T00:00:00.000001Z",
        "stageTimestamp": "2026-01-01T00:00:01.000001Z",
    }
    return json.dumps(event | {"responseStatus": {"code": 200}, "responseObject": obj} | more).encode()


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A policy is drained, the Secret is rotated, and its old content is released and revoked: all is well."""
    told = Story(tmp_path)
    told.secret(10, OLD)
    told.policy(20, 1)
    told.member(30, 1, "announced", [10])
    told.policy(35, 1, 1, "False", user="user-1")
    told.hears(40, 1, 1, a=OLD)
    told.says(41, "active", 1)
    told.says(42, "drained", 1)
    told.member(50, 1, "drained", [10])
    told.policy(60, 1, 1, "True", user="user-1")
    told.secret(70, NEW)
    told.member(80, 1, "drained", [10, 70])
    told.hears(81, 1, 2, b=NEW)
    told.says(82, "drained", 2, "a")
    told.member(90, 1, "drained", [70])
    told.release(100, 70)
    told.requests += [Request(43, "web-1", OLD, 200), Request(99, "web-1", OLD, 200), Request(101, "web-1", NEW, 200)]
    told.revoked[OLD] = 100.5
    return told


def test_a_cluster_in_which_all_is_well_has_no_fault(story: Story) -> None:
    assert story.faults() == []
    assert unrecorded(story.seen) == 0
    assert story.seen.released.keys() == {OLD}


# -- drained -----------------------------------------------------------------------------------------------------------


def test_a_policy_that_is_drained_before_its_member_says_so_is_found(story: Story) -> None:
    story.policy(110, 2)
    story.policy(111, 2, 2, "True", user="user-1")

    assert "base is drained at 2" in story.fault()


def test_a_recorded_line_that_somebody_alters_is_found(story: Story) -> None:
    """As if the audit log and the history did not tell the same."""
    at = next(i for i, one in enumerate(story.log) if b'"resourceVersion": "60"' in one)
    story.log[at] = story.log[at].replace(b'"status": "True"', b'"status": "False"')

    assert "in the audit log" in story.fault()


def test_an_older_report_does_not_count_for_a_new_lineage(story: Story) -> None:
    """The policy was deleted, and another one has its name."""
    story.gone(110, "ShipperPolicy", "base")
    story.policy(111, 1, 1, "True", uid="uid-new", user="user-1")

    assert "base is drained at 1, at version 111" in story.fault()


def test_a_member_that_is_no_longer_selected_counts_until_it_has_drained_the_removal(story: Story) -> None:
    story.policy(110, 2, labels={"app": "db"})
    story.policy(111, 2, 2, "True", labels={"app": "db"}, user="user-1")

    assert "not selected any more" in story.fault()


def test_a_member_that_has_drained_the_removal_does_not_count(story: Story) -> None:
    story.policy(110, 2, labels={"app": "db"})
    story.transcript.take(b'112 < {"type": "policy", "revision": 3, "policy": "", "credentials": {}}')
    story.says(113, "drained", 3, "b")
    story.member(120, 1, "drained", [70], removed=True)
    story.policy(121, 2, 2, "True", labels={"app": "db"}, user="user-1")

    assert story.faults() == []


def test_a_deletion_that_ends_before_the_events_are_drained_is_found(story: Story) -> None:
    story.policy(110, 2, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["shipper.dev/drain"]})
    story.gone(111, "ShipperPolicy", "base")

    assert "base is gone, at version 111, and web-1 has said" in story.fault()


def test_a_policy_that_nobody_can_run_is_never_drained(story: Story) -> None:
    story.policy(110, 2, bad=True)
    story.hears(111, 2, 3, b=NEW)
    story.says(112, "drained", 3)
    story.member(113, 2, "drained", [70])
    story.policy(114, 2, 2, "True", user="user-1")

    assert any("which nobody can run" in one for one in story.faults())


def test_a_report_that_the_sidecar_has_not_made_is_found(story: Story) -> None:
    story.policy(110, 2)
    story.hears(111, 2, 3, b=NEW)
    story.says(112, "active", 3)
    story.member(113, 2, "drained", [70])

    assert "its sidecar had not" in story.fault()


def test_what_a_restarted_sidecar_says_when_it_is_ready_counts(story: Story) -> None:
    story.policy(110, 2)
    story.hears(111, 2, 3, b=NEW)
    story.says_ready(112, 3, "b")
    story.member(113, 2, "drained", [70])

    assert story.faults() == []


# -- nothing goes back -------------------------------------------------------------------------------------------------


def test_an_observed_generation_that_goes_back_is_found(story: Story) -> None:
    story.policy(110, 2)
    story.policy(111, 2, 2, "False", user="user-1")
    story.policy(112, 2, 1, "True", user="user-1")

    assert any("observedGeneration went back from 2 to 1" in one for one in story.faults())


def test_a_bound_that_goes_back_or_away_is_found(story: Story) -> None:
    story.release(110, 60)
    assert "releasedBefore went back from 70 to 60" in story.fault()

    story.states.pop()
    story.release(111, 0)
    assert any("has gone" in one for one in story.faults())


def test_an_old_leader_that_writes_is_found(story: Story) -> None:
    story.release(110, 70, leader=2)
    story.release(111, 70, leader=1)

    assert "leader went back from 2 to 1" in story.fault()


def test_a_status_that_is_of_two_generations_is_found(story: Story) -> None:
    story.policy(110, 2)
    told = {"type": "Drained", "status": "True", "observedGeneration": 1, "reason": "Told"}
    story.policy(111, 2, 2, "True", user="user-1", conditions=[told])

    assert "is Drained at 1 while 2 is observed" in story.fault()


def test_a_status_of_a_generation_that_is_still_to_come_is_found(story: Story) -> None:
    story.policy(110, 2, 3, "False", user="user-1")

    assert "observes 3 of 2" in story.fault()


# -- who writes --------------------------------------------------------------------------------------------------------


def test_a_member_whose_status_another_one_writes_is_found(story: Story) -> None:
    story.member(110, 1, "drained", [70], user="user-2")

    assert "user-2 wrote shippermembers/web-1/status" in story.fault()


def test_a_member_that_writes_a_policy_is_found(story: Story) -> None:
    story.policy(110, 2)
    story.log[-1] = story.log[-1].replace(b'"admin"', b'"user-1"')

    assert "user-1 wrote shipperpolicies/base/" in story.fault()


def test_a_status_that_is_written_too_often_is_found(story: Story) -> None:
    for at in range(110, 140):
        story.policy(at, 1, 1, "True", user="user-1", waiting=[{"member": str(at), "stage": "active"}])

    assert "writes of its status, for 1 generations" in story.fault()


def test_what_waits_without_a_reason_is_found(story: Story) -> None:
    story.policy(110, 2)
    story.policy(111, 2, 2, "False", user="user-1", waiting=[])

    assert "without a reason" in story.fault()


def test_versions_that_the_audit_log_lacks_are_counted(story: Story) -> None:
    del story.log[-1]

    assert (story.faults(), unrecorded(story.seen)) == ([], 1)


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_release_before_a_sidecar_has_given_a_content_up_is_found(story: Story) -> None:
    story.secret(110, "es.api_key.3")
    story.member(111, 1, "drained", [70, 110])
    story.hears(112, 1, 3, c="es.api_key.3")
    story.release(113, 110)

    assert f"{NEW} was released" in story.fault()


def test_a_sidecar_that_died_holds_what_it_had_until_the_next_one_says_what_it_uses(story: Story) -> None:
    story.secret(110, "es.api_key.3")
    story.hears(112, 1, 3, c="es.api_key.3")
    story.says_ready(113, 3, "c")
    story.release(114, 110)

    assert story.faults() == []


def test_a_content_that_is_given_to_a_sidecar_after_its_release_is_found(story: Story) -> None:
    story.hears(110, 2, 3, c=OLD)

    assert f"was given {OLD} as c 10.000 s after" in story.fault()


def test_a_sidecar_without_a_lease_may_get_what_is_released_and_must_lose_it_before_a_lease(story: Story) -> None:
    """Its supervisor was cut off, and could not know."""
    story.transcript.take(b'105 < {"type": "hello", "lease": true}')
    story.hears(110, 2, 3, c=OLD)
    assert story.faults() == []

    story.gets_lease(111, 200)
    assert f"got a lease at 111.000, and has {OLD}" in story.fault()


def test_a_content_that_is_announced_after_its_release_is_found(story: Story) -> None:
    story.member(110, 1, "drained", [70, 10])

    assert "announced" in story.fault()


def test_a_use_after_the_revocation_is_found(story: Story) -> None:
    story.requests.append(Request(102, "web-1", OLD, 401))

    assert f"used {OLD} 1.500 s after it was revoked: 401" in story.fault()


def test_a_request_with_an_unknown_key_is_found(story: Story) -> None:
    story.requests.append(Request(102, "web-1", "", 401))

    assert "was refused" in story.fault()


def test_a_request_without_a_lease_is_found(story: Story) -> None:
    story.transcript.take(b'1 < {"type": "hello", "lease": true}')
    story.transcript.take(b'2 < {"type": "lease", "until": 100}')

    assert story.faults() == []
    story.requests.append(Request(102, "web-1", NEW, 200))
    assert "sent 2.000 s after its lease" in story.fault()


def test_a_policy_that_a_sidecar_gets_twice_is_found(story: Story) -> None:
    story.hears(110, 2, 3, b=NEW)
    story.hears(111, 2, 3, b=NEW)
    assert story.faults() == []  # the same number again is nothing new

    story.hears(112, 2, 4, b=NEW)
    assert "as (0, 3) and as (0, 4)" in story.fault()


def test_an_older_edit_that_a_sidecar_gets_after_a_newer_one_is_found(story: Story) -> None:
    story.hears(110, 2, 3, b=NEW)
    story.hears(111, 1, 4, b=NEW)

    assert "base 1 after 2" in story.fault()


def test_a_generation_that_a_sidecar_gets_with_the_content_of_another_is_found(story: Story) -> None:
    story.policy(110, 2, key="late")
    story.hears(111, 2, 3, b=NEW)

    assert "base 2 with es.api_key and 2s" in story.fault()


# -- what is read ------------------------------------------------------------------------------------------------------


def test_the_newest_mark_of_each_policy_is_found_in_a_text() -> None:
    text = f"{mark('base', 3)} {mark('base', 12, bad=True)} {mark('even', 4)}"

    assert marks(text) == {"base": (12, True), "even": (4, False)}


def test_a_secret_is_read_from_what_etcd_keeps() -> None:
    raw = b"k8s\0\n\x09\n\x02v1\x12\x06Secret\x12*$7c4a3687-8a45-40e6-846c-bec240ea0795*\0\x120\n\x07api_key\x12" + (
        b"n" + content("es", "api_key", 7).encode() + b"\x12\x05first\x120" + content("keys", "first", 12).encode()
    )

    read = records.read_secret("es", raw)
    assert read.uid == "7c4a3687-8a45-40e6-846c-bec240ea0795"
    assert read.keys == {"api_key": "es.api_key.7", "first": "keys.first.12"}


def test_a_line_of_the_audit_log_that_a_kill_has_torn_is_passed_over(story: Story) -> None:
    assert [*audit.parsed([story.log[0][:40], b"", story.log[0]], NAMESPACE)] == [
        *audit.parsed(story.log[:1], NAMESPACE)
    ]
