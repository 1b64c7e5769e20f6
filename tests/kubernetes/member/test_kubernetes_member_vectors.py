"""What a member runs of policies and Secrets that do not go together, and what it says about them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from shipper.kubernetes.judging import judge
from shipper.kubernetes.member.steps import Confirm, Judge, Judgement, Offer
from shipper.membership.steps import Withdraw
from shipper.policy.document import DEEPEST, plain
from shipper.sdk.codes import Code
from shipper.sdk.errors import Problem
from tests.kubernetes.model.host import REGISTRY, Host
from tests.kubernetes.objects import changed, policy, rotated, secret


def entries(api, member="m"):
    return {one["name"]: one for one in api.get("member", member)["status"]["policies"]}


def running(host):
    return {part.name: part.generation for part in host.agent.vectors[-1].parts}


def outputs(host):
    return plain(host.agent.vectors[-1].tree).get("outputs", {})


def text(**more):
    return {"version": 1, "outputs": {"shared": {"type": "console"}}, **more}


def test_the_older_policy_wins_a_conflict_and_the_status_of_the_other_says_so(api, host):
    api.create("policy", policy("old"))
    api.create("policy", policy("new"))
    host.settle()
    changed(api, "policy", "old", policy=text())
    changed(api, "policy", "new", policy=text(log_level="debug"))
    host.settle()

    assert running(host) == {"old": 2, "new": 1}
    assert sorted(outputs(host)) == ["new", "shared"]
    nack = entries(api)["new"]["nack"]
    assert (nack["generation"], nack["reason"], nack["path"]) == (2, "conflict", "spec.policy.outputs.shared")
    assert "older policy old" in nack["message"]
    assert (entries(api)["new"]["generation"], entries(api)["new"]["stage"]) == (1, "drained")

    api.delete("policy", "old")
    host.settle()
    assert running(host) == {"new": 2}
    assert entries(api)["new"]["nack"] is None
    assert "old" not in entries(api)


def test_a_policy_without_any_choice_left_is_removed_and_says_why(api, host):
    api.create("policy", policy("old"))
    api.create("policy", policy("new"))
    host.settle()
    changed(api, "policy", "old", policy=policy("new")["spec"]["policy"])
    host.settle()

    assert running(host) == {"old": 2}
    entry = entries(api)["new"]
    assert (entry["removed"], entry["generation"], entry["nack"]["reason"]) == (True, 0, "conflict")


def test_a_generation_that_is_not_valid_is_told_with_its_place_and_the_old_one_runs_on(api):
    def judge(step: Judge) -> Judgement:
        bad = "bad" in str(step.policy)
        return Judgement((Problem("outputs.web.hosts", 1, 1, "expected a list"),) if bad else ())

    host = Host(api, judge=judge)
    api.create("policy", policy("web"))
    host.settle()
    changed(api, "policy", "web", policy=policy("web", hosts="http://bad:9200")["spec"]["policy"])
    steps = host.settle()

    assert not any(isinstance(step, Offer) for step in steps)
    assert running(host) == {"web": 1}
    assert entries(api)["web"]["nack"] == {
        "generation": 2,
        "reason": "invalid",
        "message": "expected a list",
        "path": "spec.policy.outputs.web.hosts",
    }


def test_a_bad_generation_does_not_hold_up_a_rotation(api):
    def judge(step: Judge) -> Judgement:
        return Judgement((Problem("outputs", 1, 1, "bad"),) if "bad" in str(step.policy) else ())

    host = Host(api, judge=judge)
    api.create("secret", secret("es", k="id:one"))
    api.create("policy", policy("web", secret="es"))
    host.settle()
    changed(api, "policy", "web", policy=policy("web", secret="es", hosts="http://bad:9200")["spec"]["policy"])
    rotated(api, "es", k="id:two")
    host.settle()

    (content,) = host.agent.vectors[-1].contents.values()
    assert content.content == b"id:two"
    assert host.agent.using == {content.id}


def test_a_problem_that_may_pass_is_judged_again_later(api):
    answers = [Judgement((Problem("outputs", 1, 1, "no such file", None, Code.FILE_UNREADABLE),)), Judgement()]
    host = Host(api, judge=lambda step: answers.pop(0))
    api.create("policy", policy("web"))
    host.settle()
    assert entries(api)["web"]["nack"]["message"] == "no such file"

    host.now += 10.0
    host.settle()
    assert running(host) == {"web": 1}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda api: api.delete("secret", "es"), "there is no Secret es"),
        (lambda api: rotated(api, "es", other="x"), "the Secret es has no key k"),
        (
            lambda api: api.patch("secret", "es", {"metadata": {"labels": {"shipper.dev/use": None}}}),
            "the Secret es may not be used: it lacks the label shipper.dev/use: credential",
        ),
    ],
    ids=["deleted", "without the key", "without the label"],
)
def test_a_secret_that_is_taken_away_takes_nothing_from_what_runs(api, host, change, why):
    api.create("secret", secret("es", k="id:one"))
    api.create("policy", policy("web", secret="es"))
    host.settle()
    change(api)
    steps = host.settle()

    assert not any(isinstance(step, Offer | Withdraw) for step in steps)
    entry = entries(api)["web"]
    assert (entry["generation"], entry["stage"]) == (1, "drained")
    assert (entry["nack"]["reason"], entry["nack"]["message"]) == ("secret_missing", why)
    assert [use["secret"] for use in api.get("member", "m")["status"]["using"]] == ["es"]


def test_a_secret_that_may_not_be_read_is_said_and_read_once_the_right_is_there(api, host):
    api.create("policy", policy("web", secret="es"))
    host.show(host.policies)
    host.act()
    host.member.running.denied("es", "403 Forbidden")
    host.act()
    nack = entries(api)["web"]["nack"]
    assert nack["message"] == "this member may not read the Secret es: 403 Forbidden"

    api.create("secret", secret("es", k="id:one"))
    host.settle()
    assert running(host) == {"web": 1}


def reads(steps):
    return [step for step in steps if isinstance(step, Confirm)]


def test_a_right_to_read_a_secret_that_comes_back_is_noticed_though_nothing_else_changes(api, host):
    host.denied.add("es")
    api.create("secret", secret("es", k="id:one"))
    api.create("policy", policy("web", secret="es"))
    host.settle()
    assert not host.agent.vectors
    assert entries(api)["web"]["nack"]["message"] == "this member may not read the Secret es: 403 Forbidden"

    host.denied.clear()
    host.now += 61
    host.settle()
    assert running(host) == {"web": 1}
    assert entries(api)["web"]["nack"] is None


def test_what_is_denied_is_asked_again_soon_and_then_slowly(api, host):
    host.denied.add("es")
    api.create("secret", secret("es", k="id:one"))
    api.create("policy", policy("web", secret="es"))
    asked = []
    until = host.now + 600
    while host.now < until:
        for _ in reads(host.settle()):
            asked.append(host.now)
        rest = host.step()
        host.now = max(host.now + 0.5, min(rest.until, until))
    pauses = [after - before for before, after in pairwise(asked)]

    assert pauses[0] <= 1.5
    assert 50 <= pauses[-1] <= 61
    assert len(asked) < 20


def test_a_sign_of_change_asks_again_what_was_denied_for_long(api, host):
    host.denied.add("es")
    api.create("secret", secret("es", k="id:one"))
    api.create("policy", policy("web", secret="es"))
    for _ in range(20):
        host.settle()
        host.now += 61
    host.settle()
    host.now += 5
    host.denied.clear()
    assert not reads(host.settle())
    rotated(api, "es", k="id:two")
    host.settle()

    assert running(host) == {"web": 1}


def test_a_secret_in_another_shape_is_another_content_for_the_sidecar(api, host):
    api.create("secret", secret("es", k="token"))
    both = policy("web", secret="es")["spec"]["policy"]
    other = {**both["outputs"]["web"], "credential": {"secret": {"name": "es", "key": "k"}, "as": "bearer_token"}}
    api.create(
        "policy",
        {"metadata": {"name": "web"}, "spec": {"policy": {**both, "outputs": {"a": other, **both["outputs"]}}}},
    )
    host.settle()

    found = outputs(host)
    assert found["a"]["credential"]["secret"]["id"] != found["web"]["credential"]["secret"]["id"]
    assert len(api.get("member", "m")["status"]["using"]) == 1


def refuse(host, reason, path="outputs.web.hosts", message="no"):
    """The agent adopts what is offered, and the sidecar refuses it."""
    vector = host.agent.offered
    host.agent.vectors.append(vector)
    host.agent.stage = "drained"
    host.member.running.answered(vector.name, "refused", reason, [Problem(path, 1, 1, message)])


def test_what_the_sidecar_refuses_is_left_out_and_holds_up_no_other_policy(api, host):
    api.create("policy", policy("web"))
    api.create("policy", policy("db"))
    host.settle()
    changed(api, "policy", "web", policy=policy("web", hosts="http://bad:9200")["spec"]["policy"])
    changed(api, "policy", "db", policy=policy("db", hosts="http://good:9200")["spec"]["policy"])
    for _ in range(2):
        host.show(host.policies)
    host.act()
    refuse(host, "failed", message="the port is taken")
    host.settle()

    assert running(host) == {"web": 1, "db": 2}
    nack = entries(api)["web"]["nack"]
    assert (nack["generation"], nack["reason"], nack["message"]) == (2, "failed", "the port is taken")
    assert nack["path"] == "spec.policy.outputs.web.hosts"


def test_what_could_not_start_is_tried_again_later_and_then_runs(api, host):
    api.create("policy", policy("web"))
    host.settle()
    changed(api, "policy", "web", policy=policy("web", hosts="http://bad:9200")["spec"]["policy"])
    host.show(host.policies)
    host.act()
    refuse(host, "failed")
    host.settle()
    host.now += 31.0
    host.settle()

    assert running(host) == {"web": 2}
    assert (entries(api)["web"]["nack"], entries(api)["web"]["stage"]) == (None, "drained")


def test_a_content_that_the_sidecar_does_not_take_is_not_offered_again_and_the_old_one_runs_on(api, host):
    api.create("secret", secret("es", k="id:one"))
    api.create("policy", policy("web", secret="es"))
    host.settle()
    rotated(api, "es", k="bad")
    host.show(host.secrets["es"])
    host.act()
    refuse(host, "credential_missing", path="outputs.web.credential", message="its shape is not accepted here")
    host.settle()

    (content,) = host.agent.vectors[-1].contents.values()
    assert content.content == b"id:one"
    assert entries(api)["web"]["nack"]["reason"] == "secret_missing"
    count = len(host.agent.vectors)
    for label in "xy":
        api.patch("secret", "es", {"metadata": {"labels": {"x": label}}})
        host.settle()
    assert len(host.agent.vectors) == count


def test_a_policy_that_is_deleted_and_created_again_is_another_one(api, host):
    first = api.create("policy", policy("web"))
    host.settle()
    api.delete("policy", "web")
    second = api.create("policy", policy("web", hosts="http://new:9200"))
    host.settle()

    (part,) = host.agent.vectors[-1].parts
    assert part.uid == second["metadata"]["uid"] != first["metadata"]["uid"]
    assert [one["uid"] for one in api.get("member", "m")["status"]["policies"]] == [part.uid]


def test_the_entry_of_a_removed_policy_stays_until_its_events_are_drained(api, host):
    api.create("policy", policy("web"))
    host.settle()
    api.delete("policy", "web")
    host.show(host.policies)
    host.act()
    host.now += 5
    host.act()
    assert (entries(api)["web"]["removed"], entries(api)["web"]["stage"]) == (True, "announced")

    host.settle()
    assert entries(api) == {}


def test_a_policy_that_is_being_deleted_is_run_no_more(api, host):
    found = api.create("policy", policy("web"))
    host.settle()
    dying = {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["shipper.dev/drain"]}
    api.put("policy", {**found, "metadata": dying})
    host.settle()

    assert running(host) == {}


def test_a_change_of_labels_selects_other_policies(api, host):
    api.create("policy", policy("web", members={"matchLabels": {"app": "web"}}))
    api.create("policy", policy("db", members={"matchLabels": {"app": "db"}}))
    host.settle()
    assert running(host) == {"web": 1}

    api.patch("member", "m", {"metadata": {"labels": {"app": "db"}}})
    host.settle()
    assert running(host) == {"db": 1}


def test_no_content_of_a_secret_is_in_the_status_or_in_any_repr(api, host):
    api.create("secret", secret("es", k="id:hunter2"))
    api.create("policy", policy("web", secret="es"))
    host.settle()

    assert "hunter2" not in str(api.get("member", "m"))
    vector = host.agent.vectors[-1]
    parts = (vector, host.durable.contents, host.member.running.seen.answer("es", "k"), *vector.contents.values())
    assert not any("hunter2" in repr(one) for one in parts)


def test_a_secret_that_was_not_watched_for_a_while_is_not_announced_as_it_was(api, host):
    api.create("secret", secret("es", k="id:one"))
    api.create("policy", policy("web", secret="es"))
    host.settle()
    api.delete("policy", "web")
    host.settle()
    assert "es" not in host.member.running.secrets
    rotated(api, "es", k="id:two")
    api.create("policy", policy("web", secret="es"))
    host.show(host.policies)
    steps = host.act()
    assert not [step for step in steps if isinstance(step, Confirm)]
    host.settle()

    assert [one.content for one in host.agent.vectors[-1].contents.values()] == [b"id:two"]


def test_a_nack_is_about_the_newest_generation_though_an_older_one_is_in_conflict(api):
    def judge(step: Judge) -> Judgement:
        return Judgement((Problem("outputs", 1, 1, "bad"),) if "bad" in str(step.policy) else ())

    host = Host(api, judge=judge)
    api.create("policy", policy("old"))
    api.create("policy", policy("new"))
    host.settle()
    changed(api, "policy", "new", policy=policy("new", hosts="http://bad:9200")["spec"]["policy"])
    host.settle()
    changed(api, "policy", "old", policy=policy("new")["spec"]["policy"])
    host.settle()

    nack = entries(api)["new"]["nack"]
    assert (nack["generation"], nack["reason"], nack["message"]) == (2, "invalid", "bad")
    assert "new: spec.policy.outputs: bad" in [f"{name}: {why}" for name, why in host.member.running.waits]


def nested(depth):
    return [nested(depth - 1)] if depth else 7


@pytest.mark.parametrize(
    "written",
    [
        7,
        {"outputs": nested(DEEPEST + 1)},
        {"outputs": {"x": {"type": "elasticsearch", "credential": {"secret": {"name": "es"}}}}},
    ],
    ids=["no policy", "too deep", "a malformed reference"],
)
def test_a_generation_that_cannot_be_read_is_told_and_holds_up_no_other_policy(api, written):
    host = Host(api, judge=lambda step: judge(step.name, step.policy, REGISTRY, None))
    assert host.member.running.waits == (), "before anything is known"
    api.create("policy", policy("bad"))
    host.settle()
    changed(api, "policy", "bad", policy=written)
    api.create("policy", policy("good"))
    host.settle()

    assert running(host) == {"bad": 1, "good": 1}
    assert entries(api)["bad"]["nack"]["reason"] == "invalid"


@pytest.mark.parametrize(("count", "reason"), [(1, "invalid"), (2, "conflict")])
def test_what_is_valid_alone_and_not_beside_others_is_a_conflict(api, host, count, reason):
    for name in ("web", "db")[:count]:
        api.create("policy", policy(name))
        host.show(host.policies)
    host.act()
    refuse(host, "invalid")
    host.settle()

    assert entries(api)["web"]["nack"]["reason"] == reason


def test_answers_to_what_is_not_the_newest_vector_refuse_nothing_and_end_no_nack(api, host):
    api.create("policy", policy("web"))
    host.settle()
    first = host.agent.vectors[-1].name
    changed(api, "policy", "web", policy=policy("web", hosts="http://new:9200")["spec"]["policy"])
    host.show(host.policies)
    assert not host.member.running.is_settled(), "it has not looked at the change"
    host.act()
    for name, stage in [("other-1", "active"), (first, "refused"), (first, "active")]:
        host.member.running.answered(name, stage)
    assert not host.member.running.is_settled(), "the newest one is not active yet"
    host.settle()

    assert running(host) == {"web": 2}
    assert entries(api)["web"]["nack"] is None
