"""What the API server makes of a member's own objects, and what it must not lose."""

from __future__ import annotations

from typing import Any

import pytest

from shipper.apiserver.client import Client
from shipper.apiserver.errors import NotFound
from shipper.apiserver.objects import Object, uid, version
from shipper.kubernetes.kinds import MEMBERS
from shipper.kubernetes.member.steps import Adjust, Create, Hold, Write
from shipper.kubernetes.membership import session as module
from shipper.kubernetes.membership.session import Session
from shipper.kubernetes.membership.troubles import CrdOutdated

pytestmark = pytest.mark.backend
NAME = "node-1"
LEASE = {"holderIdentity": "d/b/p", "leaseDurationSeconds": 3, "renewTime": "2026-11-27T11:00:00.000000Z"}


@pytest.fixture
def session(client: Client) -> Session:
    return Session(client, NAME, 10.0)


def member(**more: Any) -> Object:
    kind = {"apiVersion": MEMBERS.api_version, "kind": MEMBERS.name}
    return {**kind, "metadata": {"name": NAME}, "spec": {"keeps": "node"}, **more}


def lease(at: Object | None = None) -> Object:
    metadata = {"name": f"shipper-member-{NAME}"} | ({} if at is None else {"resourceVersion": version(at)})
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return {**kind, "metadata": metadata, "spec": LEASE}


def status(at: Object, **fields: Any) -> Write:
    return Write({"metadata": {"uid": uid(at), "resourceVersion": version(at)}, "status": fields})


async def test_a_new_member_finds_nothing_and_makes_its_objects(session: Session) -> None:
    before = await session.look()
    made, held = await session.create(Create(member())), await session.hold(Hold(lease()))
    after = await session.look()

    assert (before.member, before.lease) == (None, None)
    assert made is not None
    assert held is not None
    assert after.member is not None
    assert after.lease is not None
    assert (uid(after.member), uid(after.lease)) == (uid(made), uid(held))


async def test_what_somebody_else_has_made_is_told_by_none(session: Session) -> None:
    made, held = await session.create(Create(member())), await session.hold(Hold(lease()))
    assert made is not None
    assert held is not None
    assert await session.create(Create(member())) is None
    assert await session.hold(Hold(lease())) is None
    renewed = await session.hold(Hold(lease(held) | {"spec": LEASE | {"leaseDurationSeconds": 5}}))
    assert renewed is not None

    assert await session.hold(Hold(lease(held))) is None
    assert await session.write(status(made, process="d/p")) is not None
    assert await session.write(status(made, process="d/q")) is None


async def test_a_status_is_written_to_this_object_alone(session: Session, client: Client) -> None:
    made = await session.create(Create(member()))
    assert made is not None
    await client.delete(MEMBERS, NAME)
    assert await session.write(status(made, process="d/p")) is None
    again = await session.create(Create(member()))
    assert again is not None

    assert await session.write(status(made, process="d/p")) is None
    written = await session.write(status(again, process="d/p", undelivered=3))
    assert written is not None
    assert written["status"] == {"process": "d/p", "undelivered": 3}


async def test_labels_and_the_pod_are_adjusted(session: Session) -> None:
    made = await session.create(Create(member()))
    assert made is not None
    at = {"uid": uid(made), "resourceVersion": version(made)}

    changed = await session.adjust(Adjust({"metadata": {**at, "labels": {"app": "web"}}, "spec": {"node": NAME}}))
    assert changed is not None
    assert changed["metadata"]["labels"] == {"app": "web"}
    assert changed["spec"] == {"keeps": "node", "node": NAME}


async def test_a_lease_without_its_namespace_is_no_lease_of_another(session: Session, client: Client) -> None:
    nowhere = Session(client, NAME, 10.0)
    client.namespace = "none"

    with pytest.raises(NotFound):
        await nowhere.hold(Hold(lease()))
    with pytest.raises(NotFound):
        await nowhere.create(Create(member()))


async def test_a_field_that_the_server_does_not_know_is_the_crds_age(session: Session) -> None:
    made = await session.create(Create(member()))
    assert made is not None

    with pytest.raises(CrdOutdated, match="unknown field"):
        await session.write(status(made, process="d/p", colour="red"))


def test_a_lost_field_is_found_at_its_place() -> None:
    for written, found, lost in [
        ({"a": 1}, {"a": 1, "b": 2}, ""),
        ({"a": None}, {}, ""),
        ({"a": 0}, {}, "status.a"),
        ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}, {}]}, "status.a[1].b"),
        ({"a": [1, 2]}, {"a": [1]}, "status.a"),
        ({"a": {"b": {"c": 1}}}, {"a": {}}, "status.a.b"),
        ({"a": {}}, None, "status.a"),
    ]:
        assert module._lost(written, found) == lost
