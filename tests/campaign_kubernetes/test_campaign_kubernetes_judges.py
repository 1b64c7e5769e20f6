"""Each judge of the campaign finds what is wrong, and nothing where all is well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.campaign_kubernetes import audit, records
from tests.campaign_kubernetes.history import State
from tests.campaign_kubernetes.judges import faults_of_objects
from tests.campaign_kubernetes.judges_keys import faults_of_keys
from tests.campaign_kubernetes.records import Content, Deleted, content, mark, name_of
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
    assert story.seen.released.keys() == {OLD}


# -- drained -----------------------------------------------------------------------------------------------------------


def test_a_policy_that_is_drained_before_its_member_says_so_is_found(story: Story) -> None:
    story.policy(110, 2)
    story.policy(111, 2, 2, "True", user="user-1")

    assert "base is drained at 2" in story.fault()


def test_an_older_report_does_not_count_for_a_new_lineage(story: Story) -> None:
    """The policy was deleted, and another one has its name."""
    story.gone(110, "ShipperPolicy", "base")
    story.policy(111, 1, 1, "True", uid="uid-new", user="user-1")

    assert "base is drained at 1, at version 111" in story.fault()


def test_a_deletion_that_ends_before_the_events_are_drained_is_found(story: Story) -> None:
    story.policy(110, 2, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["shipper.dev/drain"]})
    story.gone(111, "ShipperPolicy", "base")

    assert "base is gone, at version 111, and web-1 has said" in story.fault()


# -- nothing goes back -------------------------------------------------------------------------------------------------


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


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_release_before_a_sidecar_has_given_a_content_up_is_found(story: Story) -> None:
    story.secret(110, "es.api_key.3")
    story.member(111, 1, "drained", [70, 110])
    story.hears(112, 1, 3, c="es.api_key.3")
    story.release(113, 110)

    assert f"{NEW} was released" in story.fault()


def test_a_content_that_is_given_to_a_sidecar_after_its_release_is_found(story: Story) -> None:
    story.hears(110, 2, 3, c=OLD)

    assert f"was given {OLD} as c 10.000 s after" in story.fault()


def test_a_use_after_the_revocation_is_found(story: Story) -> None:
    story.requests.append(Request(102, "web-1", OLD, 401))

    assert f"used {OLD} 1.500 s after it was revoked: 401" in story.fault()


def test_a_request_without_a_lease_is_found(story: Story) -> None:
    story.transcript.take(b'1 < {"type": "hello", "lease": true}')
    story.transcript.take(b'2 < {"type": "lease", "until": 100}')

    assert story.faults() == []
    story.requests.append(Request(102, "web-1", NEW, 200))
    assert "sent 2.000 s after its lease" in story.fault()


def test_an_older_edit_that_a_sidecar_gets_after_a_newer_one_is_found(story: Story) -> None:
    story.hears(110, 2, 3, b=NEW)
    story.hears(111, 1, 4, b=NEW)

    assert "base 1 after 2" in story.fault()
