"""What a leader reads of objects that other hands have written."""

from __future__ import annotations

import pytest

from shipper.kubernetes.summing.records import bounds, policy


@pytest.mark.parametrize("text", ["[", "[]", '{"k":1}', "[" * 100_000])
def test_an_annotation_that_is_no_map_of_bounds_bounds_nothing(text: str) -> None:
    assert bounds(text) == {}


def test_a_spec_that_cannot_be_decoded_is_none() -> None:
    assert policy({"metadata": {"name": "web"}, "spec": {"policy": 7}}).spec is None
