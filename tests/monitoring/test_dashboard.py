"""The dashboard asks for what the program has: its expressions are PromQL, and name metrics of real processes."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import trio
import yaml

from shipper.process.environment import boottime
from shipper_demo.ports import free_port
from tests.monitoring.prometheus import RULES
from tests.monitoring.test_rules import promtool
from tests.story.driver import Sidecar, launched, policy
from tests.story.test_story_relay import PACE, Relay
from tests.story.world import open_world, secret

PROGRAM = RULES.with_name("dashboard.py")
DASHBOARD = json.loads(RULES.with_name("dashboard.json").read_text())
OTHERS = {"instance", "job", "revision"}
"""Labels that Prometheus adds, and that of a drain, of which there is none here."""
UNSHOWN = {"shipper_epoch", "shipper_edge_connected_seconds", "shipper_principal_connected_seconds"}
UNSHOWN |= {f"process_{name}" for name in ("max_fds", "open_fds", "start_time_seconds", "virtual_memory_bytes")}
"""What seldom changes, or is said by another metric."""


def panels(dashboard: dict[str, Any] = DASHBOARD) -> Iterator[dict[str, Any]]:
    """Returns all panels that show something, those of folded rows too."""
    for panel in dashboard["panels"]:
        yield from panel["panels"] if panel["type"] == "row" else [panel]


def expressions() -> list[str]:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    asked += [note["expr"] for note in DASHBOARD["annotations"]["list"]]
    return [re.sub(r"\$__(rate_)?interval", "5m", text).replace("$", "") for text in asked]


def of_alerts() -> list[str]:
    return [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


async def scraped(sidecar: Sidecar) -> str:
    address = next(message["http"] for message in sidecar.said if message["type"] == "ready")

    def scrape() -> str:
        with urlopen(f"http://{address}/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    return await trio.to_thread.run_sync(scrape)


async def of_all_kinds(directory: Path) -> str:
    """Returns the metrics of a principal and its edge, which together have every part that a sidecar can have."""
    async with (
        open_world(directory, "backend") as world,
        launched(directory / "principal", "--http", "127.0.0.1:0") as principal,
        launched(directory / "edge", "--http", "127.0.0.1:0") as edge,
    ):
        relay = Relay(world)
        await principal.hello()
        await principal.send({"type": "lease", "until": boottime() + 3600})
        supervision = {"troubles": [], "restarts": 0, "unrevoked": 0}
        await principal.send({"type": "observe", "supervisor": supervision})
        await relay.offer_principal(principal, 1, "k1")
        await edge.hello()
        inputs = f'  peers: {{type: syslog, addresses: ["udp://127.0.0.1:{free_port()}"]}}\n'
        inputs += f'  access: {{type: file, paths: ["{world.log}"]}}\n'
        (directory / "a.json").write_text("{}")
        inputs += f'  things: {{type: state, collection: things, paths: ["{directory}/*.json"]}}\n'
        host = f"http://127.0.0.1:{relay.ports[0]}"
        outputs = f'  up: {{type: relay, name: berlin, hosts: ["{host}"], credential: k1, {PACE}}}\n'
        await edge.policy(1, policy(inputs=inputs, outputs=outputs), {"k1": secret("k1")})
        await edge.ack(1, "active")
        world.write(10)
        await edge.state(lambda observed: "keyed" in observed)
        return await scraped(principal) + await scraped(edge)


def test_the_file_is_what_its_program_writes() -> None:
    """`python packaging/monitoring/dashboard.py > packaging/monitoring/dashboard.json`"""
    assert runpy.run_path(str(PROGRAM))["dashboard"]() == DASHBOARD


@pytest.mark.needs("promtool")
def test_every_expression_is_promql(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions())]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

    promtool("check", "rules", str(path))


async def test_dashboard_and_alerts_name_what_processes_have_and_no_metric_is_left_out(tmp_path: Path) -> None:
    text = await of_all_kinds(tmp_path)
    metrics = set(re.findall(r"^# TYPE (\w+)", text, re.M)) | set(re.findall(r"^(shipper_\w+)[{ ]", text, re.M))
    labels = set(re.findall(r'[{,](\w+)="', text)) | OTHERS
    asked = "\n".join([*expressions(), *of_alerts()])
    legends = "\n".join(target["legendFormat"] for panel in panels() for target in panel["targets"])
    sums = ",".join(re.findall(r"(?:by|on) \(([^)]*)\)", asked))

    assert set(re.findall(r"\bshipper_\w+", asked)) - metrics == set()
    assert set(re.findall(r"\{\{(\w+)\}\}", legends)) - labels == set()
    assert set(re.findall(r"\w+", sums)) - labels == set()
    assert unshown(text) == UNSHOWN


def unshown(text: str) -> set[str]:
    """Returns the metrics that no panel shows. Those of plugins have names of their own."""
    metrics = {name for name in re.findall(r"^# TYPE (\w+)", text, re.M) if not name.startswith("shipper_plugin_")}
    asked = "\n".join(expressions())
    return {name for name in metrics if not re.search(rf"\b{name}(_bucket)?\b", asked)}
