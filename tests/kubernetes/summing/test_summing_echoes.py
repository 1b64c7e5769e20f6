"""No decision of a leader is older than its own writes, and no write brings back what is gone."""

from __future__ import annotations

from typing import Any, cast

from shipper.apiserver.errors import NotFound
from shipper.apiserver.objects import Event, Object
from shipper.kubernetes.summing.echoes import Echoes
from shipper.kubernetes.summing.picture import Picture
from shipper.kubernetes.summing.writing import Writing
from tests.kubernetes.summing.test_summing_picture import policy


class Objects:
    """The API server: what it has of policies."""

    def __init__(self) -> None:
        self.there: dict[str, Object] = {}
        self.picture = Picture()
        self.echoes = Echoes(self.picture, cast(Writing, self), lambda: 100.0)

    async def policy(self, of: str) -> Object:
        if of not in self.there:
            raise NotFound(f"no policy {of}")
        return self.there[of]

    release = policy


def test_the_answer_to_an_own_write_is_known_at_once() -> None:
    objects = Objects()
    objects.echoes.saw("policy", Event("ADDED", policy("web", "10")))
    objects.echoes.wrote("policy", policy("web", "11"))
    known: Any = objects.echoes.known("policy", "web")

    assert known.version == "11"
    assert objects.echoes.free_at("policy", known, 100.0) == 100.0


async def test_what_a_read_does_not_find_or_finds_made_anew_is_gone() -> None:
    for there in ({}, {"web": policy("web", "20", uid="another")}):
        objects = Objects()
        objects.echoes.saw("policy", Event("ADDED", policy("web", "10")))
        objects.there = there
        await objects.echoes.read("policy", "web", "u-web")
        assert not objects.picture.policies
        await objects.echoes.read("policy", "web", "u-web")

        objects.echoes.wrote("policy", policy("web", "30"))
        assert not objects.picture.policies


def secret(name: str, version: str) -> Object:
    return {"metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": version}}


async def test_after_an_own_write_nothing_is_judged_before_its_echo_and_a_read_decides_for_one_that_is_lost() -> None:
    objects = Objects()
    now, echoes = 100.0, objects.echoes
    echoes.saw("secret", Event("ADDED", secret("es", "a")))
    echoes.wrote("secret", secret("es", "c"))
    known: Any = echoes.known("secret", "es")
    assert echoes.free_at("secret", known, now) == now, "the answer is known itself"

    echoes.saw("secret", Event("MODIFIED", secret("es", "b")))
    known = echoes.known("secret", "es")
    assert known.version == "b", "versions without an order"
    echoes.wrote("secret", secret("es", "d"))
    echoes.saw("secret", Event("MODIFIED", secret("es", "e")))
    known = echoes.known("secret", "es")
    assert (echoes.free_at("secret", known, now) or 0) > now
    assert echoes.free_at("secret", known, now + 5.0) is None

    objects.there = {"es": secret("es", "f")}
    await echoes.read("secret", "es", "u-es")
    known = echoes.known("secret", "es")
    assert (known.version, echoes.free_at("secret", known, now + 5.0)) == ("f", now + 5.0)


def test_a_bookmark_past_an_own_write_is_its_echo() -> None:
    objects = Objects()
    objects.echoes.saw("policy", Event("ADDED", policy("web", "10")))
    objects.echoes.wrote("policy", policy("web", "12"))
    objects.echoes.saw("policy", Event("MODIFIED", policy("web", "11")))
    known: Any = objects.echoes.known("policy", "web")
    objects.echoes.caught_up("policy", "12")
    objects.echoes.judged("policy", known)

    assert objects.echoes.free_at("policy", known, 100.0) == 100.0


def test_what_a_watch_has_seen_deleted_is_not_waited_for() -> None:
    objects = Objects()
    objects.echoes.saw("policy", Event("ADDED", policy("web", "10")))
    objects.echoes.wrote("policy", policy("web", "12"))
    objects.echoes.saw("policy", Event("DELETED", policy("web", "13")))

    assert objects.echoes.known("policy", "web") is None
    assert not objects.picture.policies
