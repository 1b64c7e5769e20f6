"""Several policies in one: older ones win, whatever the order of their arrival, and losers change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.kubernetes.merging import (
    Candidate,
    SecretRef,
    isolated,
    merge,
    pinned,
    references,
    tree_of,
    written,
)
from shipper.policy import policy
from shipper.policy.document import DEEPEST, plain
from shipper.policy.registry import Registry
from shipper.sdk.errors import PolicyError
from tests.examples import examples

REGISTRY = Registry.installed()
CONSOLE = {"type": "console"}


def candidate(name: str, *policies: Mapping[str, Any], created: str = "2026-01-01T00:00:00Z") -> Candidate:
    choices = [isolated(tree_of({"version": 1, **one}), REGISTRY) for one in policies]
    return Candidate(name, f"uid-{name}", created, choices)


def inputs(*names: str) -> dict[str, Any]:
    return {name: {"type": "generate", "rate": 1, "data_stream": {"dataset": name}} for name in names}


def outputs(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, CONSOLE)


# -- one policy --------------------------------------------------------------------------------------------------------


def test_an_isolated_policy_keeps_its_processors_and_outputs_to_itself() -> None:
    written_ = {
        "version": 1,
        "inputs": {
            "a": {"type": "generate"},
            "b": {"type": "generate", "outputs": ["y"], "processors": [{"type": "p"}]},
        },
        "processors": [{"type": "q"}],
        "outputs": outputs("x", "y"),
    }

    assert plain(isolated(tree_of(written_), REGISTRY)) == {
        "version": 1,
        "inputs": {
            "a": {"type": "generate", "outputs": ["x", "y"], "processors": [{"type": "q"}]},
            "b": {"type": "generate", "outputs": ["y"], "processors": [{"type": "p"}, {"type": "q"}]},
        },
        "outputs": outputs("x", "y"),
    }


def test_an_isolated_policy_means_what_it_meant() -> None:
    text = {
        "version": 1,
        "inputs": inputs("a"),
        "processors": [{"type": "add_fields", "fields": {"service.name": "shop"}}],
        "outputs": outputs("x"),
    }
    alone = policy.build(isolated(tree_of(text), REGISTRY), REGISTRY)
    whole = policy.build(tree_of(text), REGISTRY)

    assert alone.inputs["a"].processors == whole.processors
    assert alone.outputs == whole.outputs
    assert alone.inputs["a"].outputs == ("x",)


def test_keyed_state_gets_no_processors() -> None:
    text = {"version": 1, "inputs": {"s": {"type": "state"}}, "processors": [{"type": "q"}], "outputs": outputs("x")}
    assert "processors" not in plain(isolated(tree_of(text), REGISTRY))["inputs"]["s"]


@pytest.mark.parametrize("text", [{"inputs": [1], "processors": 7}, {"inputs": {"a": None}}, {}, {"outputs": "x"}])
def test_what_is_malformed_stays_for_the_schema_to_refuse(text: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        policy.build(isolated(tree_of(text), REGISTRY), REGISTRY)


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    deep: Any = 1
    for _ in range(DEEPEST + 5000):
        deep = [deep]
    with pytest.raises(PolicyError, match="nesting"):
        tree_of({"x": deep}, "policy web")


def test_a_path_leads_to_what_the_user_wrote() -> None:
    for path, shown in [
        ("outputs.main.hosts[0]", "spec.policy.outputs.main.hosts[0]"),
        ("inputs.a.processors[0].type", "spec.policy.processors[0].type"),
        ("inputs.b.processors[0].type", "spec.policy.inputs.b.processors[0].type"),
        ("inputs.b.processors[1]", "spec.policy.processors[0]"),
        ("inputs.a.outputs[0]", "spec.policy.outputs"),
        ("inputs.b.outputs[0]", "spec.policy.inputs.b.outputs[0]"),
        ("inputs.gone.outputs[0]", "spec.policy.inputs.gone.outputs[0]"),
        ("", "spec.policy"),
    ]:
        text = {
            "inputs": {"a": {}, "b": {"processors": [{}], "outputs": ["x"]}},
            "processors": [{}],
            "outputs": {"x": {}},
        }
        assert written(path, text) == shown


def test_references_are_found_with_their_places_and_pinned() -> None:
    output = {"type": "elasticsearch", "hosts": ["http://es:9200"]}
    one = {**output, "credential": {"secret": {"name": "es", "key": "k"}}}
    two = {**output, "credential": {"secret": {"name": "es", "key": "k"}, "as": "bearer_token"}}
    tree = tree_of({"version": 1, "outputs": {"a": one, "b": two, "c": one}})

    assert references(tree, REGISTRY) == {
        SecretRef("es", "k"): ("outputs.a.credential", "outputs.c.credential"),
        SecretRef("es", "k", "bearer_token"): ("outputs.b.credential",),
    }
    ids = {SecretRef("es", "k"): "id-1", SecretRef("es", "k", "bearer_token"): "id-2"}
    found = plain(pinned(tree, REGISTRY, ids))["outputs"]
    assert found["a"]["credential"] == {"secret": {"name": "es", "key": "k", "id": "id-1"}}
    assert found["b"]["credential"] == {"secret": {"name": "es", "key": "k", "id": "id-2"}, "as": "bearer_token"}


# -- several -----------------------------------------------------------------------------------------------------------


def test_a_merge_is_the_union_and_valid() -> None:
    web = candidate("web", {"inputs": inputs("a"), "outputs": outputs("x"), "log_level": "debug"})
    db = candidate("db", {"inputs": inputs("b"), "outputs": outputs("y"), "log_level": "debug"})
    both = merge([web, db])
    built = policy.build(both.tree, REGISTRY)

    assert {name: spec.outputs for name, spec in built.inputs.items()} == {"a": ("x",), "b": ("y",)}
    assert (both.conflicts, built.log_level) == ({}, "debug")
    assert both.owner("inputs.b.rate") == "uid-db"
    assert both.owner("outputs.x") == "uid-web"
    assert both.owner("log_level") == "uid-db"
    assert both.owner("processors[0]") is None


def test_no_policies_are_a_policy_without_anything() -> None:
    assert plain(merge([]).tree) == {"version": 1}
    policy.build(merge([]).tree, REGISTRY)


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        ({"outputs": outputs("x")}, {"outputs": outputs("x")}, "outputs.x"),
        ({"inputs": inputs("a")}, {"inputs": inputs("b", "a")}, "inputs.a"),
        ({"drain": {"deadline": "1h"}}, {"drain": {"deadline": "2h"}}, "drain"),
        ({"queue": {"max_bytes": "1GiB"}}, {"queue": {"max_bytes": "2GiB"}}, "queue"),
    ],
)
def test_the_older_policy_wins_and_the_others_last_good_generation_runs_on(
    one: dict[str, Any], other: dict[str, Any], path: str
) -> None:
    old = candidate("old", one, created="2026-01-01T00:00:00Z")
    new = candidate("new", other, {"outputs": outputs("good")}, created="2026-01-01T00:00:01Z")
    for order in ([old, new], [new, old]):
        both = merge(order)

        assert both.chosen == {"uid-old": 0, "uid-new": 1}
        assert (both.conflicts["uid-new"].path, both.conflicts["uid-new"].winner) == (path, "old")
        assert both.owner("outputs.good.type") == "uid-new"


def test_of_the_same_second_the_lesser_uid_wins() -> None:
    both = merge([candidate("b", {"outputs": outputs("x")}), candidate("a", {"outputs": outputs("x")})])
    assert both.chosen == {"uid-a": 0, "uid-b": None}
    assert str(both.conflicts["uid-b"]) == ("the older policy a has an output of this name; rename it here, or there")


names = st.sets(st.sampled_from("abcd"), max_size=3)
texts = st.builds(
    lambda ins, outs, level: {
        **({"inputs": inputs(*sorted(ins))} if ins else {}),
        **({"outputs": outputs(*sorted(outs))} if outs else {}),
        **({"log_level": level} if level else {}),
    },
    names,
    names,
    st.sampled_from(["", "debug", "info"]),
)
groups = st.lists(
    st.builds(
        lambda choices, second: (choices, f"2026-01-01T00:00:0{second}Z"),
        st.lists(texts, max_size=3),
        st.integers(0, 2),
    ),
    max_size=4,
).map(lambda made: [candidate(f"p{at}", *choices, created=when) for at, (choices, when) in enumerate(made)])


@given(groups, st.randoms())
@settings(max_examples=examples(2), deadline=None)
def test_a_merge_does_not_depend_on_the_order_of_arrival(group: list[Candidate], random: Any) -> None:
    shuffled = list(group)
    random.shuffle(shuffled)
    one, other = merge(group), merge(shuffled)

    assert one == other
    assert plain(one.tree) == plain(other.tree)
    assert list(plain(one.tree).get("inputs", {})) == list(plain(other.tree).get("inputs", {}))


@given(groups)
@settings(max_examples=examples(2), deadline=None)
def test_a_loser_never_changes_what_a_winner_runs(group: list[Candidate]) -> None:
    ordered = sorted(group, key=lambda one: one.order)
    for count in range(len(ordered)):
        older = ordered[:count]

        alone, all_ = merge(older), merge(ordered)
        assert {one.uid: all_.chosen[one.uid] for one in older} == alone.chosen
        for section in ("inputs", "outputs"):
            parts = plain(alone.tree).get(section, {})
            assert {name: plain(all_.tree)[section][name] for name in parts} == parts


@given(groups)
@settings(max_examples=examples(0.4), deadline=None)
def test_each_part_of_a_merge_is_that_of_its_owner(group: list[Candidate]) -> None:
    both = merge(group)
    by_uid = {one.uid: one for one in group}
    for path, uid in both.owners.items():
        section, _, name = path.partition(".")
        at = both.chosen[uid]
        assert at is not None
        part = plain(by_uid[uid].choices[at])[section]
        assert plain(both.tree)[section] == part if not name else plain(both.tree)[section][name] == part[name]
    policy.build(both.tree, REGISTRY)


def test_an_input_of_an_unknown_type_keeps_its_processors_for_the_schema_to_refuse() -> None:
    written_ = {"version": 1, "inputs": {"a": {"type": "no_such"}}, "processors": [{"type": "p"}]}

    assert plain(isolated(tree_of(written_), REGISTRY))["inputs"]["a"]["processors"] == [{"type": "p"}]


def test_a_reference_to_no_secret_of_the_cluster_is_left_out_and_stays_as_it_was_written() -> None:
    output = {"type": "elasticsearch", "hosts": ["http://es:9200"], "credential": {"env": "KEY"}}
    tree = tree_of({"version": 1, "outputs": {"x": output}})

    assert references(tree, REGISTRY) == {}
    assert plain(pinned(tree, REGISTRY, {})) == plain(tree)


def test_a_section_that_is_no_map_brings_nothing_into_a_merge() -> None:
    found = merge([candidate("old", {"outputs": [CONSOLE]}), candidate("new", {"outputs": outputs("x")})])

    assert plain(found.tree) == {"version": 1, "outputs": outputs("x")}
