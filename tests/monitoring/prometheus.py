"""A real Prometheus with our rules, of which the pauses are short. It scrapes ports where sidecars may be started."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import trio

from shipper_demo.ports import free_port
from tests import needs
from tests.programs import Running

RULES = Path(__file__).parents[2] / "packaging" / "monitoring" / "rules.yaml"
PATIENCE = 90.0
TARGETS = 15
WINDOW = "10s"
"""Instead of 15 minutes, within which something has happened."""

_CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 300ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: shipper
    static_configs: [{{targets: {targets}}}]
"""

Alert = dict[str, Any]


def hastened(rules: str) -> str:
    """Returns the rules with short pauses, and with counts of one where there are several."""
    rules = re.sub(r"for: \w+$", "for: 300ms", rules, flags=re.MULTILINE)
    return rules.replace("15m", WINDOW).replace("> 900", "> 1").replace("> 2\n", "> 0\n")


@dataclass
class Prometheus:
    """A running server. `target` gives an address that it scrapes."""

    url: str
    targets: list[str]

    def target(self) -> str:
        """Returns an address that nobody else has."""
        return self.targets.pop()

    def ask(self, path: str) -> Any:
        """Returns `data` of an answer of its API."""
        with urlopen(f"{self.url}/api/v1/{path}", timeout=60) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Returns the result of an expression; raises HTTPError if it is none."""
        return list(self.ask(f"query?query={quote(expression)}")["result"])

    def firing(self, target: str, name: str) -> list[Alert]:
        """Returns the alerts of a name that fire now for a target."""
        alerts: list[Alert] = self.ask("alerts")["alerts"]
        wanted = {"alertname": name, "instance": target}
        return [one for one in alerts if one["state"] == "firing" and wanted.items() <= one["labels"].items()]

    async def fires(self, target: str, name: str, **labels: str) -> Alert:
        """Waits until an alert fires, and returns it."""
        found = await self._until(
            lambda: [one for one in self.firing(target, name) if labels.items() <= one["labels"].items()],
            f"{name} does not fire",
        )
        return found[0]

    async def clears(self, target: str, *names: str) -> None:
        """Waits until none of these alerts fires any more."""
        for name in names:
            await self._until(lambda name=name: not self.firing(target, name), f"{name} does not clear")  # type: ignore[misc]

    async def _until(self, condition: Callable[[], Any], otherwise: str) -> Any:
        with trio.move_on_after(PATIENCE):
            while True:
                if found := await trio.to_thread.run_sync(condition):
                    return found
                await trio.sleep(0.3)
        raise AssertionError(f"{otherwise}: {self._others()}")

    def _others(self) -> list[Alert]:
        """Returns the labels of all alerts but those of targets that were not started."""
        return [one["labels"] for one in self.ask("alerts")["alerts"] if one["labels"]["alertname"] != "ShipperDown"]


@contextmanager
def running(directory: Path) -> Iterator[Prometheus]:
    """Runs a server in a directory; skips the test where there is no program."""
    needs.require("prometheus")
    rules, config = directory / "rules.yaml", directory / "prometheus.yaml"
    rules.write_text(hastened(RULES.read_text()))
    targets = [f"127.0.0.1:{free_port()}" for _ in range(TARGETS)]
    config.write_text(_CONFIG.format(rules=rules, targets=json.dumps(targets)))
    address = f"127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}"]
    server = Running([*command, f"--web.listen-address={address}"])
    try:
        server.wait(lambda: urlopen(f"http://{address}/-/ready", timeout=5).close() is None, PATIENCE)
        yield Prometheus(f"http://{address}", targets)
    finally:
        server.end()
