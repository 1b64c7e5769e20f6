"""What a policy makes a destination be asked, and what an output's failure looks like."""

from pathlib import Path

import pytest
import trio

from shipper.asking.destinations import Places, Secrets, each
from shipper.asking.planned import planned
from shipper.policy.registry import Registry
from shipper.sdk.aio import open_asyncio
from shipper.sdk.credentials import Credential
from shipper.sdk.errors import StartFailed

POLICY = """
version: 1
inputs:
  app: {type: file, paths: [/a.log], data_stream: {dataset: app}, outputs: [main, named]}
  web:
    type: file
    paths: [/b.log]
    processors: [{type: drop, when: {not: {equals: {message: hello}}}}]
    outputs: [main]
processors:
  - {type: add_fields, fields: {data_stream.namespace: prod}}
outputs:
  main: {type: elasticsearch, hosts: ["https://a:1"], credential: {file: secret}}
  named: {type: elasticsearch, hosts: ["https://a:1"], index: mine}
  idle: {type: console}
tests:
  a: {input: web, events: [hello, {message: hello, data_stream.dataset: of.test}], expect: []}
"""


@pytest.fixture
def plan(tmp_path: Path):
    def make(text=POLICY, secret="id:hunter2"):
        (tmp_path / "secret").write_text(secret)
        (tmp_path / "policy.yaml").write_text(text)
        return planned([tmp_path / "policy.yaml"], {}, Registry.installed())

    return make


async def test_the_places_are_those_of_events_that_come_out(plan):
    async with open_asyncio() as aio:
        questions = await Places(plan()).questions(aio, ["more"])

    assert questions["main"].targets == ["logs-app-prod", "logs-generic-prod", "logs-of.test-prod", "more"]
    assert questions["named"].targets == ["mine", "more"]
    assert questions["idle"].targets == ["more"]


async def test_where_processors_leave_nothing_an_event_without_them_counts(plan):
    async with open_asyncio() as aio:
        questions = await Places(plan(POLICY.partition("tests:")[0])).questions(aio)

    assert questions["main"].targets == ["logs-app-prod", "logs-generic-default"]


def test_a_secret_is_told_by_its_public_name_or_by_what_is_wrong(plan, tmp_path):
    made = plan()
    spec = made.plan.outputs["main"].spec
    found, (good,) = Secrets(made, {}).of(spec)
    (tmp_path / "secret").write_text("token: x")
    none, (bad,) = Secrets(made, {}).of(spec)

    assert (good.of, good.verdict, good.text) == (f"file:{tmp_path}/secret", "good", "id")
    assert [one.fields for one in found.values()] == [{"api_key": "id:hunter2"}]
    assert (none, bad.verdict) == ({}, "bad")
    assert bad.text.startswith("its shape is not accepted here; accepted: {api_key} or {username, password}")


def test_a_given_secret_takes_the_place_of_those_that_it_fits(plan):
    made = plan()
    given = Credential({"username": "u", "password": "hunter3"})
    found, (finding,) = Secrets(made, {}, given).of(made.plan.outputs["main"].spec)

    assert list(found.values()) == [given]
    assert (finding.of, finding.text) == ("the given one", "u")


def test_an_id_without_its_secret_is_bad(plan):
    made = plan(POLICY.replace("{file: secret}", "es-1"))
    _, (finding,) = Secrets(made, {}).of(made.plan.outputs["main"].spec)

    assert (finding.of, finding.verdict) == ("es-1", "bad")


async def told_by(made, ask, seconds=60.0):
    found = []
    await each(["idle"], made, Secrets(made, {}), ask, lambda name, one: found.append((name, one)), seconds=seconds)
    return found


async def test_a_failure_of_an_output_is_a_finding_and_quotes_nothing(plan):
    async def raises(spec, context, question, tell):
        raise ValueError("hunter2")

    async def refuses(spec, context, question, tell):
        raise StartFailed("output idle: no such library")

    ((name, finding),) = await told_by(plan(), raises)
    ((_, refused),) = await told_by(plan(), refuses)

    assert (name, finding.verdict, finding.code) == ("idle", "bad", "plugin_fault")
    assert finding.text.startswith("the plugin console failed: ValueError at test_destinations.py:")
    assert (refused.text, refused.code) == ("no such library", "start_failed")


async def test_an_output_that_says_nothing_is_given_up(plan, autojump_clock):
    async def hangs(spec, context, question, tell):
        await trio.sleep_forever()

    ((_, finding),) = await told_by(plan(), hangs, seconds=7)

    assert (finding.verdict, finding.text, finding.code) == ("bad", "no answer within 7s", "timed_out")
