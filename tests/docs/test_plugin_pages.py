"""The page of every plugin is current, and its example runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from shipper.policy.registry import BASES, Registry
from tests.docs import hosts, plugin_pages
from tests.docs.hosts import Host
from tests.docs.plugin_pages import EXAMPLES, REFERENCE

REGISTRY = Registry.installed()
INSTALLED = [(kind, type) for kind in BASES for type in REGISTRY.types(kind)]
PROCESSORS = [type for kind, type in INSTALLED if kind == "processors"]
ENVELOPE = {"@timestamp", "agent", "host", "ecs", "log", "data_stream", "event"}
"""What an event may have that an example does not show."""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_pages_are_what_the_classes_say_now() -> None:
    """Otherwise: `python -m tests.docs.plugin_pages`; a page of a plugin that is gone is removed by hand."""
    written = {path.relative_to(REFERENCE).as_posix(): path.read_text() for path in REFERENCE.rglob("*.md")}
    pages = plugin_pages.pages()
    stale = {name for name in written.keys() | pages if written.get(name) != pages.get(name)}

    assert not stale, "run python -m tests.docs.plugin_pages"


def test_every_plugin_has_an_example_that_uses_it() -> None:
    without = []
    for kind, type in INSTALLED:
        policy = yaml.safe_load((EXAMPLES / kind / f"{type}.yaml").read_text())
        used = policy["inputs"]["app"]["processors"] if kind == "processors" else policy[kind].values()
        without += [(kind, type)] if type not in [one["type"] for one in used] else []

    assert without == []


@pytest.mark.needs("journalctl")
async def test_the_examples_of_inputs_and_outputs_run(host: Host) -> None:
    """In one process, each under the name of its plugin."""
    made: dict[str, dict[str, Any]] = {"inputs": {}, "outputs": {}}
    for kind, type in INSTALLED:
        if kind != "processors":
            policy = yaml.safe_load((EXAMPLES / kind / f"{type}.yaml").read_text())
            (made[kind][type],) = [one for one in policy[kind].values() if one["type"] == type]
    for type, own in made["inputs"].items():
        own["outputs"] = ["state"] if type == "state" else ["file"]
    made["outputs"]["state"] = {"type": "file", "directory": "/var/lib/copy"}

    await hosts.becomes_active(host.write(yaml.safe_dump({"version": 1, **made})))


async def test_what_the_examples_of_processors_show_is_what_comes_of_their_lines(host: Host) -> None:
    """One process for all of them: each has an input and an output of its own."""
    inputs: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for type in PROCESSORS:
        (host.root / "var/log" / f"{type}.log").write_bytes((EXAMPLES / "processors" / f"{type}.log").read_bytes())
        policy = yaml.safe_load((EXAMPLES / "processors" / f"{type}.yaml").read_text())
        named = {name: f"{type}-{name}" for name in policy["outputs"]}
        own = policy["inputs"]["app"] | {"paths": [f"/var/log/{type}.log"], "outputs": list(named.values())}
        inputs[type] = json.loads(_renamed(json.dumps(own), named) if type == "route" else json.dumps(own))
        outputs |= {name: {"type": "file", "path": f"/var/log/{name}.ndjson"} for name in named.values()}
    policy = {"version": 1, "inputs": inputs, "outputs": outputs}
    await hosts.shipped(host.write(yaml.safe_dump(policy, default_flow_style=False)))

    for type in PROCESSORS:
        shown = [json.loads(line) for line in (EXAMPLES / "processors" / f"{type}.ndjson").read_text().splitlines()]
        events = [json.loads(line) for line in host.events(f"/var/log/{type}-main.ndjson").splitlines()]
        differing = [pair for pair in zip(shown, events, strict=False) if not fits(*pair)]

        assert (type, len(events), differing) == (type, len(shown), [])


def _renamed(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(f'["{old}"]', f'["{new}"]')
    return text


def fits(shown: dict[str, Any], event: dict[str, Any]) -> bool:
    """Whether an event has what is shown, and nothing else but its envelope."""
    return set(event) - ENVELOPE <= set(shown) and all(_has(event.get(name), value) for name, value in shown.items())


def _has(found: Any, shown: Any) -> bool:
    if shown == "…":
        return found is not None
    if isinstance(shown, dict) and isinstance(found, dict):
        return all(_has(found.get(name), value) for name, value in shown.items())
    return bool(found == shown)
