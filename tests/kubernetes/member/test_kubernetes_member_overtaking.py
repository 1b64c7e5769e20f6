"""A read whose answer comes after the watch has shown something newer, or older, of the same name."""

from __future__ import annotations

from typing import Any

import pytest

from shipper.kubernetes.member.steps import Confirm, Step
from tests.kubernetes.model.api import Api
from tests.kubernetes.model.host import Host
from tests.kubernetes.objects import changed, policy, rotated, secret


@pytest.fixture
def confirming(api: Api, host: Host) -> tuple[Step, Any]:
    """A member that runs a policy and a Secret for the first time, with the answer to its read of both on its way."""
    api.create("secret", secret("es", k="id:one"))
    api.create("policy", policy("web", secret="es"))
    for _ in range(50):
        step = host.step()
        if isinstance(step, Confirm) and step.policies and step.secrets:
            return step, host.request(step)
        host.perform(step)
        for watch in host.watches():
            host.show(watch)
    raise AssertionError("there was no read")


def watched(host: Host) -> None:
    """The watches show all that there is."""
    for watch in host.watches():
        while watch.is_behind(host.api):
            host.show(watch)


def runs(host: Host) -> list[tuple[str, int]]:
    return [(part.uid, part.generation) for part in host.agent.vectors[-1].parts] if host.agent.vectors else []


def test_a_policy_that_was_deleted_meanwhile_does_not_come_back(api, host, confirming):
    step, answer = confirming
    api.delete("policy", "web")
    watched(host)
    host.tell(step, answer)
    host.settle()

    assert not host.member.running.policies.known
    assert not runs(host)


def test_its_successor_runs(api, host, confirming):
    step, answer = confirming
    api.delete("policy", "web")
    watched(host)
    host.tell(step, answer)
    new = api.create("policy", policy("web", secret="es"))
    host.settle()

    assert runs(host) == [(new["metadata"]["uid"], 1)]


def test_a_policy_that_was_created_meanwhile_is_not_lost(api, host, confirming):
    step, answer = confirming
    new = api.create("policy", policy("second"))
    api.delete("policy", "web")
    new = api.create("policy", policy("web", secret="es"))
    gone = answer[0], {"web": None}
    watched(host)
    host.tell(step, gone)
    host.settle()

    assert (new["metadata"]["uid"], 1) in runs(host)


def test_a_newer_generation_that_a_read_has_found_counts_though_the_watch_shows_an_older_one(api, host, confirming):
    step, _ = confirming
    changed(api, "policy", "web", policy=policy("web", hosts="http://two:9200", secret="es")["spec"]["policy"])
    changed(api, "policy", "web", policy=policy("web", hosts="http://three:9200", secret="es")["spec"]["policy"])
    answer = host.request(step)
    host.show(host.policies)
    assert host.policies.is_behind(api)
    host.tell(step, answer)
    (known,) = host.member.running.policies.known.values()

    assert known.generation == 3


def test_a_secret_that_was_deleted_meanwhile_is_not_used(api, host, confirming):
    step, answer = confirming
    api.delete("secret", "es")
    watched(host)
    host.tell(step, answer)
    host.settle()

    assert not runs(host)
    assert api.get("member", "m")["status"]["policies"][0]["nack"]["reason"] == "secret_missing"


def test_a_secret_that_was_created_meanwhile_is_used(api, host, confirming):
    step, answer = confirming
    api.delete("secret", "es")
    gone = {"es": None}, answer[1]
    api.create("secret", secret("es", k="id:two"))
    watched(host)
    host.tell(step, gone)
    host.settle()

    assert [content.content for content in host.agent.vectors[-1].contents.values()] == [b"id:two"]


def test_a_read_that_finds_a_secret_gone_is_repeated_if_the_watch_shows_what_was_before(api, host, confirming):
    """What the watch shows late is no proof that the content is still current."""
    step, _ = confirming
    rotated(api, "es", k="id:one", other="x")  # the same content of this key at a newer version
    api.delete("secret", "es")
    answer = host.request(step)
    host.show(host.secrets["es"])
    assert host.secrets["es"].is_behind(api)
    host.tell(step, answer)
    steps = host.act()

    assert any(isinstance(step, Confirm) for step in steps)
    assert not host.agent.vectors
