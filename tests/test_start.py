"""What `shipper supervise` and its sidecar import at the start: all of it is time until the first event is shipped."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTING = """import gc, sys
from pathlib import Path
from shipper.__main__ import main
try:
    main(sys.argv[2:])
finally:
    things = [thing for module in list(sys.modules.values()) for thing in vars(module).values() if type(thing) is type]
    dataclasses = {f"dataclass:{thing.__name__}" for thing in things if "__dataclass_fields__" in vars(thing)}
    Path(sys.argv[1], sys.argv[2]).write_text(" ".join([*sys.modules, *["collecting"] * gc.isenabled(), *dataclasses]))
"""
"""The program, which leaves the names of the modules in a file that is called as its verb."""
POLICY = """version: 1
inputs:
  main: {type: file, paths: ["%s/log"], stop_at_end: true}
outputs:
  main: {type: elasticsearch, hosts: ["http://127.0.0.1:9"]}
"""
LATE = {
    *("aiohttp.web", "prometheus_client", "re2", "rich", "shipper_plugins.elasticsearch.server.server"),
    *("cryptography.x509", "grpc", "opentelemetry", "shipper.fleet.store", "shipper.kubernetes", "shipper.apiserver"),
    *("shipper.policy.schema", "shipper.status.page", "shipper.testing", "shipper_plugins.kafka.output"),
    *("difflib", "shipper_plugins.elasticsearch.client.asked", "shipper_plugins.elasticsearch.client.set_up"),
}
"""For a status server, a pattern, a person at a terminal, a receiver, a fleet, …: this policy has none of them."""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """By verb: the modules of a supervisor and of its sidecar, from a start to an end with nothing to ship."""
    directory = tmp_path_factory.mktemp("start")
    (directory / "log").touch()
    (directory / "policy.yaml").write_text(POLICY % directory)
    program = [sys.executable, "-c", NOTING, str(directory)]
    (directory / "config.yaml").write_text(json.dumps({"sidecar": [*program, "run"]}))
    options = ["--config", str(directory / "config.yaml"), "--state", str(directory / "state"), "--once"]
    subprocess.run([*program, "supervise", str(directory / "policy.yaml"), *options], check=True, timeout=60)
    return {verb: set(Path(directory, verb).read_text().split()) for verb in ("supervise", "run")}


def test_a_supervisor_imports_only_what_its_start_needs(imported: dict[str, set[str]]):
    late = LATE | {"aiohttp", "asyncio", "sqlite3", "shipper.sidecar", "shipper_plugins.tail.tailer"}
    late |= {"shipper_plugins.elasticsearch.client.sender"}

    assert imported["supervise"] & late == set()


def test_a_sidecar_imports_only_what_its_start_needs(imported: dict[str, set[str]]):
    assert imported["run"] & (LATE | {"shipper.supervise"}) == set()


def test_the_modules_that_are_needed_are_seen(imported: dict[str, set[str]]):
    """Or the names above could be misspelt for ever."""
    assert {"trio", "shipper.supervise.agent", "shipper_plugins.elasticsearch.output"} <= imported["supervise"]
    assert {"trio", "aiohttp", "shipper.sidecar", "shipper_plugins.tail.tailer"} <= imported["run"]


def test_few_of_our_modules_are_imported(imported: dict[str, set[str]]):
    """Each costs a quarter of a millisecond, and 20 KB, in the first process and in the second."""
    ours = {
        verb: sum(name.split(".")[0] in ("shipper", "shipper_plugins") for name in imported[verb]) for verb in imported
    }

    assert ours["supervise"] <= 155
    assert ours["run"] <= 280


def test_the_collector_is_on_again_after_the_imports(imported: dict[str, set[str]]):
    assert all("collecting" in found for found in imported.values())


def test_few_values_are_dataclasses(imported: dict[str, set[str]]):
    """Python compiles the methods of each, in half a millisecond; a `msgspec.Struct` is made in a tenth of that."""
    made = [[name for name in found if name.startswith("dataclass:")] for found in imported.values()]

    assert all(0 < len(names) < 20 for names in made)
