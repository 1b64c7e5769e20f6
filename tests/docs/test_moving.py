"""The tables from the keys of other programs: every option that they name exists, under the name that they say."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from shipper.policy.registry import Registry
from shipper.policy.schema import json_schema
from tests.docs.site import pages
from tests.readme import Page

PAGES = pages("moving")
OPTION = re.compile(r"^(?:inputs|processors|outputs|queue|dead_letters|drain)(?:\.\w+)+$")


@cache
def schema_of_policies() -> Any:
    return json_schema(Registry.installed())


def rows(page: str) -> list[list[str]]:
    """The cells of the tables of a page, without their heads."""
    lines = Page(f"docs/{page}").text.splitlines()
    tables = [line for line in lines if line.startswith("|") and not line.startswith("|---") and "| here |" not in line]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in tables]


def exists(option: str) -> bool:
    """Whether a policy may have it: `outputs.elasticsearch.tls.ca`, `queue.max_bytes`."""
    kind, *names = option.split(".")
    if kind in ("inputs", "processors", "outputs"):
        type, *names = names
        schema = schema_of_policies()["$defs"].get(f"{kind[:-1]}.{type}")
    else:
        schema = schema_of_policies()["properties"][kind]
    for name in names:
        schema = _below(schema, name)
    return schema is not None


def _below(schema: Any, name: str) -> Any:
    if schema is None:
        return None
    if "$ref" in schema:
        return _below(schema_of_policies()["$defs"][schema["$ref"].removeprefix("#/$defs/")], name)
    if name in schema.get("properties", ()):
        return schema["properties"][name]
    return next((found for arm in schema.get("anyOf", ()) if (found := _below(arm, name)) is not None), None)


@pytest.mark.parametrize("page", PAGES)
def test_every_option_that_a_table_names_exists(page: str) -> None:
    named = {word for row in rows(page) for cell in row[1:] for word in re.findall(r"`([^`]+)`", cell)}
    options = sorted(word for word in named if OPTION.match(word))

    assert len(options) > 20
    assert [option for option in options if not exists(option)] == []
