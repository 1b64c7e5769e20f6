"""Where settings refer to secrets: by type, at any depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NewType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import API_KEY, BASIC, CERTIFICATE, CredentialId, Material, Output, Settings, Shape, takes
from shipper.policy.document import Node, plain, read, write
from shipper.policy.policy import OutputSpec, destination, output_settings, parse, restore_output
from shipper.policy.registry import Registry
from shipper.policy.settings import exported
from shipper.policy.uses import Use, changed, places, shapes_of, uses
from shipper.sdk.credentials import SHAPES
from shipper.sdk.errors import PolicyError
from shipper.sdk.trees import part

Login = NewType("Login", CredentialId)
OWN = Shape("own", ("pin",))


class Leaf(Settings, frozen=True, tag_field="kind", tag="leaf"):
    by: Annotated[CredentialId, takes(API_KEY)]
    ca: Material | None = None


class Branch(Settings, frozen=True, tag_field="kind", tag="branch"):
    below: tuple[Leaf | Branch, ...] = ()
    text: str = ""


class Deep(Output, frozen=True):
    tree: Leaf | Branch = msgspec.field(default_factory=Branch)
    plain: CredentialId | None = None
    renamed: Annotated[CredentialId | None, takes(BASIC)] = msgspec.field(default=None, name="as-whom")
    many: list[Annotated[CredentialId, takes(CERTIFICATE, OWN)]] = msgspec.field(default_factory=list)
    unordered: frozenset[CredentialId] = frozenset()
    by_name: Mapping[str, list[CredentialId]] = msgspec.field(default_factory=dict)
    pair: tuple[str, CredentialId] | None = None
    sequence: Sequence[CredentialId] = ()
    alias: Login | None = None


REGISTRY = Registry({"outputs": {"deep": Deep}})

ids = st.sampled_from(["k1", "k2", "k3", "é", "a b"]).map(CredentialId)
trees = st.recursive(
    ids.map(lambda id: Leaf(by=id)),
    lambda inner: st.builds(Branch, below=st.lists(inner, max_size=3).map(tuple), text=st.sampled_from(["", "k1"])),
    max_leaves=6,
)
outputs = st.builds(
    Deep,
    tree=trees,
    plain=st.none() | ids,
    renamed=st.none() | ids,
    many=st.lists(ids, max_size=3),
    unordered=st.frozensets(ids, max_size=3),
    by_name=st.dictionaries(st.sampled_from(["a", "plain", "by"]), st.lists(ids, max_size=2), max_size=2),
    pair=st.none() | st.tuples(st.sampled_from(["k1", "x"]), ids),
    sequence=st.lists(ids, max_size=2).map(tuple),
    alias=st.none() | ids.map(Login),
)


def instances(value: Any) -> list[str]:
    """Every id in a value, found by its instances."""
    if isinstance(value, CredentialId):
        return [str(value)]
    if isinstance(value, msgspec.Struct):
        return [id for name in value.__struct_fields__ for id in instances(getattr(value, name))]
    inside = (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple | frozenset) else ()
    )
    return [id for each in inside for id in instances(each)]


@given(outputs)
def test_every_id_is_found_and_nothing_else(output: Deep) -> None:
    found = uses(output)

    assert sorted(use.id for use in found) == sorted(instances(output))
    assert len({use.path for use in found}) == len(found)
    assert [part(exported(output), use.path) for use in found] == [use.id for use in found]


@given(outputs)
def test_the_walk_over_a_text_finds_the_same_places(output: Deep) -> None:
    node = read(write(exported(output)))
    found = [(place.path, plain(place.tree), place.shapes) for place in places(Deep, node)]

    assert found == [tuple(use) for use in uses(output)]


@given(outputs)
def test_what_is_stored_comes_back_with_its_ids(output: Deep) -> None:
    spec = OutputSpec("main", "deep", output)
    again = restore_output("deep", msgspec.json.decode(msgspec.json.encode(output_settings(spec))), REGISTRY)

    assert uses(again) == uses(output)
    assert sorted(instances(again)) == sorted(instances(output))


@given(outputs, ids)
def test_a_destination_does_not_depend_on_which_ids_there_are(output: Deep, id: CredentialId) -> None:
    places = {use.path for use in uses(output) if use.path[0] != "unordered"}
    settings: Any = changed(read(write(exported(output))), Deep, lambda place: replaced(place.tree, places, place, id))
    other = restore_output("deep", plain(settings), REGISTRY)

    assert destination(OutputSpec("main", "deep", other)) == destination(OutputSpec("main", "deep", output))


def replaced(node: Node, paths: set[Any], place: Any, id: str) -> Node:
    return Node(id, node.mark) if place.path in paths else node


def test_each_place_has_the_shapes_that_its_type_says() -> None:
    output = Deep(
        tree=Branch(below=(Leaf(by=CredentialId("a")),)),
        plain=CredentialId("b"),
        renamed=CredentialId("c"),
        many=[CredentialId("d")],
    )

    assert uses(output) == (
        Use(("tree", "below", 0, "by"), "a", (API_KEY,)),
        Use(("plain",), "b", SHAPES),
        Use(("as-whom",), "c", (BASIC,)),
        Use(("many", 0), "d", (CERTIFICATE, OWN)),
    )
    assert shapes_of(Deep) == {*SHAPES, OWN}


def test_where_there_is_an_id_matters_to_the_destination() -> None:
    def of(**settings: Any) -> str:
        return destination(OutputSpec("main", "deep", Deep(**settings)))

    one, other = CredentialId("a"), CredentialId("b")
    kinds = [{}, {"plain": one}, {"renamed": one}, {"many": [one]}, {"many": [one, other]}, {"by_name": {"x": [one]}}]
    assert len({of(**settings) for settings in kinds}) == len(kinds)


def test_a_literal_secret_is_refused_at_its_place_and_not_quoted() -> None:
    for text, path in [
        ("plain: %s", "outputs.main.plain"),
        ("as-whom: %s", "outputs.main.as-whom"),
        ("many: [a, %s]", "outputs.main.many[1]"),
        ("by_name: {x: [%s]}", "outputs.main.by_name.x[0]"),
        ("tree: {kind: branch, below: [{kind: leaf, by: %s}]}", "outputs.main.tree.below[0].by"),
    ]:
        for written in ["{api_key: hunter2}", "'id:hunter2'", "[hunter2]", "{file: hunter2}"]:
            with pytest.raises(PolicyError) as raised:
                parse(f"version: 1\noutputs:\n  main:\n    type: deep\n    {text % written}\n", REGISTRY)

            assert path in {problem.path for problem in raised.value.problems}
            assert "hunter2" not in str(raised.value)


def test_a_file_is_part_of_the_destination_and_comes_back_at_any_depth(tmp_path: Path) -> None:
    """Of its path nothing is kept that matters, of its bytes all."""
    ca = tmp_path / "ca.pem"
    text = f"tree: {{kind: branch, below: [{{kind: leaf, by: k1, ca: {ca}}}]}}"
    specs = []
    for content in ("one", "two"):
        ca.write_text(f"-----BEGIN {content}-----")
        policy = parse(f"version: 1\noutputs:\n  main:\n    type: deep\n    {text}\n", REGISTRY)
        specs.append(policy.outputs["main"])
    ca.unlink()

    assert destination(specs[0]) != destination(specs[1])
    assert restore_output("deep", output_settings(specs[1]), REGISTRY).tree == specs[1].config.tree  # type: ignore[attr-defined]
