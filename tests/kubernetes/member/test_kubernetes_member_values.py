"""What a member knows, part by part: of objects that are older, gone, or written by other hands."""

from __future__ import annotations

import pytest

from shipper.apiserver.objects import Event, Listing, Object
from shipper.kubernetes.kinds import RELEASED, Lost, MemberStatus
from shipper.kubernetes.member.claim import Name
from shipper.kubernetes.member.contents import Contents
from shipper.kubernetes.member.introducing import Introducing
from shipper.kubernetes.member.losses import MOST, losses
from shipper.kubernetes.member.memory import Content, Memory, Part
from shipper.kubernetes.member.own import Own, status_of
from shipper.kubernetes.member.policies import Policies
from shipper.kubernetes.member.secrets import Secrets, contents
from shipper.kubernetes.member.steps import Terms
from shipper.kubernetes.member.using import Usage
from shipper.kubernetes.member.vectors import Vectors


def a(name: str, version: str, uid: str = "", **more: object) -> Object:
    metadata = {"name": name, "uid": uid or f"u-{name}", "resourceVersion": version, "generation": 1}
    return {"metadata": metadata, **more}


def test_of_many_lost_directories_the_oldest_are_joined_to_one() -> None:
    lost = tuple(Lost(process=f"d{number}/p", undelivered=1) for number in range(MOST + 5))
    found = losses(MemberStatus(lost=lost), "here")

    assert len(found) == MOST
    assert (found[0].process, found[0].undelivered) == ("d5/p", 6)
    assert sum(one.undelivered for one in found) == len(lost)


def test_a_status_that_cannot_be_read_says_nothing() -> None:
    assert status_of({"status": {"policies": 7}}) == MemberStatus()


def test_a_content_is_the_same_secret_however_it_is_written_and_whatever_it_is() -> None:
    for one, other, shape, same in [
        (b"k:s3cr3t", b"azpzM2NyM3Q=\n", "", True),
        (b"username: u\npassword: p\n", b'{"password": "p", "username": "u"}', "", True),
        (b"token-1", b"token-1\r\n", "bearer_token", True),
        (b"k:s3cr3t", b"k:other", "", False),
        (b"\xff", b"\xff\n", "", False),
    ]:
        kept = Content("es-1", "es", "u", "key", shape, "7", one)
        assert kept.is_sent_as(other) is same
        assert kept.is_sent_as(one)


def test_what_was_not_announced_is_not_confirmed() -> None:
    introducing = Introducing()
    introducing.confirmed("u", 1)

    assert not introducing._confirmed


def test_a_list_changes_no_policy_that_a_watch_has_shown_in_a_newer_version() -> None:
    policies = Policies()
    for one in (a("web", "10"), a("db", "30"), a("gone", "10")):
        policies.saw(Event("ADDED", one))
    policies.listed(Listing([a("web", "20"), a("db", "20")], "20"))

    assert {one.name: one.version for one in policies.known.values()} == {"web": "20", "db": "30"}


def test_a_policy_that_was_made_anew_replaces_the_one_of_its_name() -> None:
    policies = Policies()
    policies.saw(Event("ADDED", a("web", "10")))
    policies.saw(Event("MODIFIED", a("web", "9")))
    assert policies.read("web", a("web", "20", uid="another"))

    assert {one.uid: one.version for one in policies.known.values()} == {"another": "20"}
    assert policies.read("web", None)
    assert not policies.known
    policies.saw(Event("DELETED", a("never", "30")))


def test_a_watch_takes_no_secret_back_to_an_older_version() -> None:
    secrets = Secrets()
    newest = a("es", "20", data={})
    assert secrets.saw("es", Event("ADDED", newest)) == newest
    assert secrets.saw("es", Event("MODIFIED", a("es", "10"))) is None
    assert secrets.saw("es", Event("DELETED", a("es", "30", uid="another"))) is None
    assert secrets._seen["es"].object == newest


@pytest.mark.parametrize("data", [7, {"k": "no base64!"}, {"k": 7}])
def test_contents_that_are_none_are_passed_over(data: object) -> None:
    assert list(contents({"data": data})) == []


def test_a_list_takes_away_no_policy_that_is_newer_than_it() -> None:
    policies = Policies()
    policies.saw(Event("ADDED", a("new", "30")))
    policies.listed(Listing([], "20"))

    assert [one.name for one in policies.known.values()] == ["new"]


@pytest.mark.parametrize(("read", "shown", "is_known"), [("20", "30", True), ("a", "b", False)])
def test_what_a_watch_has_shown_during_a_read_stays_if_it_may_be_newer(read: str, shown: str, is_known: bool) -> None:
    policies = Policies()
    policies.saw(Event("ADDED", a("web", "10" if is_known else "x")))
    policies.reading.begin()
    policies.saw(Event("MODIFIED", a("web", shown)))

    assert policies.read("web", a("web", read)) is is_known
    policies.listed(Listing([a("web", read)], read))
    assert [one.version for one in policies.known.values()] == [shown]


def test_a_read_takes_no_secret_back_to_an_older_version() -> None:
    secrets = Secrets()
    newest = a("es", "20", data={})
    secrets.saw("es", Event("ADDED", newest))

    assert secrets.read("es", a("es", "10"), 1.0)
    assert secrets.present("es") == newest


def test_neither_a_read_nor_an_answer_takes_the_own_object_back_to_an_older_version() -> None:
    own = Own()
    own.read(a("m", "20"), 1.0)
    own.read(a("m", "10"), 2.0)
    own.wrote(a("m", "10"), 3.0)

    assert own.version == "20"


@pytest.mark.parametrize("text", ["{", "7", '["u/k"]'])
def test_bounds_that_cannot_be_read_bound_nothing(text: str) -> None:
    name = Name(Terms("m", "boot", "p1", "spare", 40.0))
    name.found({"metadata": {"name": "shipper-member-m", "annotations": {RELEASED: text}}}, 1.0)

    assert name.bounds == {}


def test_a_content_that_the_status_does_not_have_is_not_proven_by_a_read() -> None:
    content = Content("es-k-1", "es", "u", "k", "", "7", b"id:one")
    usage = Usage(Contents(Memory(directory="d", contents=(content,))), ())
    usage.confirmed(content)

    assert not usage.is_usable(content)


def test_an_answer_to_a_vector_that_was_forgotten_says_nothing_of_what_runs() -> None:
    part = Part("web", "u-web", 1, "", {})
    vectors = Vectors(Memory(directory="d", number=5, parts=(part,)))
    vectors.active(4)

    assert vectors.good == {}
