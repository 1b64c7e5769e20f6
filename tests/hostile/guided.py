"""Bytes drawn by coverage, for the functions that read foreign ones.

    python -m tests.hostile.guided --seconds 60 [--target NAME]

Each of `targets` runs in a process of its own, in which the modules concerned, and no others, are instrumented by
atheris; libFuzzer keeps what reaches something new (`.cache/guided/NAME/corpus`), so that a later run goes on. A find
ends its target's run and stays in `.cache/guided/NAME/`. atheris has wheels for Linux on x86-64 only.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from tests.march.command import campaign, parser
from tests.march.kind import Drawn, Kind, Told, Violation

CONCERNED = {
    "control-line": ("shipper.protocol.messages", "shipper.sdk.credentials"),
    "document": ("shipper.policy.document",),
    "policy": (
        "shipper.policy.policy",
        "shipper.policy.settings",
        "shipper.sdk.units",
        "shipper_plugins.processors.drop",
        "shipper.sdk.patterns",
    ),
    "bulk-request": tuple(
        f"shipper_plugins.elasticsearch.server.{part}" for part in ("request", "action", "document", "answer")
    ),
    "bulk-headers": ("shipper_plugins.elasticsearch.server.door", "shipper_plugins.elasticsearch.server.answer"),
    "compressed-body": ("shipper.sdk.bodies",),
    "backend-answer": ("shipper_plugins.elasticsearch.client.bulk",),
    "backend-headers": ("shipper_plugins.elasticsearch.client.bulk",),
    "stored": ("shipper.sdk.event", "shipper.sdk.packing", "shipper_plugins.tail.stream"),
    "log-lines": (
        *(
            f"shipper_plugins.processors.{part}"
            for part in ("parse", *(f"formats.{name}" for name in ("access", "nginx", "apache", "kv", "csv")))
        ),
        *("shipper_plugins.processors.formats.syslog", "shipper_plugins.syslog.message"),
        "shipper.sdk.event",
        "shipper.sdk.editing",
    ),
    "syslog-frames": tuple(f"shipper_plugins.syslog.{part}" for part in ("frames", "block", "message")),
    "journal-export": ("shipper_plugins.journald.export", "shipper_plugins.journald.fields"),
    "otlp-protobuf": tuple(f"shipper_plugins.otlp.{part}" for part in ("protobuf", "wire", "events")),
    "otlp-json": ("shipper_plugins.otlp.jsons", "shipper_plugins.otlp.events"),
    "otlp-grpc": tuple(f"shipper_plugins.otlp.{part}" for part in ("grpc", "status", "wire")),
    "http-body": ("shipper_plugins.http.bodies",),
    "container-lines": ("shipper_plugins.processors.formats.containers", "shipper_plugins.processors.dissect"),
    "state-document": ("shipper_plugins.state.documents", "shipper_plugins.reading"),
    "kubeconfig": ("shipper.apiserver.kubeconfig", "shipper.apiserver.server"),
    "relay-request": ("shipper_plugins.relay.frames", "shipper.sdk.packing"),
    "relay-state": ("shipper_plugins.relay.state", "shipper_plugins.relay.digests", "shipper.sdk.packing"),
    "relay-memory": ("shipper_plugins.relay.principal.taken", "shipper_plugins.relay.state"),
    "kafka-scram": ("shipper_plugins.kafka.scram",),
    "etcd-answer": ("shipper.fleet.etcd.answers", "shipper.fleet.etcd.keys"),
    "fleet-record": ("shipper.fleet.seal", "shipper.fleet.records"),
    "watch-stream": ("shipper.apiserver.stream", "shipper.apiserver.objects"),
    "kubernetes-object": (
        *("shipper.apiserver.objects", "shipper.kubernetes.summing.records", "shipper.kubernetes.kinds"),
        "shipper.fleet.kubernetes.objects",
    ),
}
"""By target."""
WORK = Path(".cache") / "guided"
LIMITS = ("-rss_limit_mb=1024", "-timeout=20", "-max_len=32768", "-print_final_stats=1", "-verbosity=1")
_FIGURES = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)")
_STATS = re.compile(r"stat::(\w+): +(\d+)")
_FIND = re.compile(r"Uncaught Python exception: ===\n(.*?)\n(?:==\d+==|NOTE: )|(SUMMARY: libFuzzer: .*)", re.DOTALL)


@dataclass(frozen=True)
class Drawing(Drawn):
    """A target, and for how long."""

    target: str
    seconds: int


def draw(targets: tuple[str, ...], seconds: int, seed: int) -> Drawing:
    """The targets take turns."""
    return Drawing(targets[seed % len(targets)], seconds)


def run(work: Path, drawing: Drawing) -> Told:
    """Runs one target in a process, whose corpus stays below `work`; a find is a violation."""
    name = drawing.target
    corpus = work / name / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.hostile.guided", "--target", name, "--inside", "--", *LIMITS]
    command += [f"-max_total_time={drawing.seconds}", f"-artifact_prefix={corpus.parent}/", str(corpus)]
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    found = []
    if said.returncode:
        (corpus.parent / "find.txt").write_text(said.stdout)
        found = [Violation(name, f"{_reason(said.stdout)}; see {corpus.parent}/find.txt")]
    executed = Counter({name: executions(said.stdout)})
    return Told(found, executed, Counter(executions=executed.total()), (summary(name, said.stdout),))


def drawings(targets: tuple[str, ...], seconds: int, work: Path) -> Kind:
    """The kind of this campaign: a round for each target."""
    command = f"python -m tests.hostile.guided --seconds {seconds}"
    drawing, running = partial(draw, targets, seconds), partial(run, work)
    return Kind(command, drawing, running, unit="targets", slice=1, clock=time.monotonic, twice_every=0)


def main() -> int:
    options = parser("tests.hostile.guided", "Draw bytes; exit status 1 if there was a find.")
    options.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    options.add_argument("--target", choices=CONCERNED, help="one of them (default: all)")
    options.add_argument("--work", type=Path, default=WORK, help="where each target keeps its corpus")
    options.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    told = options.parse_args()
    if importlib.util.find_spec("atheris") is None:
        options.error(f"atheris is missing: {sys.executable} -m pip install --group guided (Linux, x86-64)")
    if told.inside:
        fuzz(told.target, told.arguments)
    targets = (told.target,) if told.target else tuple(CONCERNED)
    return campaign(drawings(targets, told.seconds, told.work), told, usual=len(targets))


def executions(said: str) -> int:
    """How many inputs were tried."""
    return int(dict(_STATS.findall(said)).get("number_of_executed_units", 0))


def summary(name: str, said: str) -> str:
    """One line of figures."""
    stats = dict(_STATS.findall(said))
    edges, features, kept = [("0", "0", "0"), *_FIGURES.findall(said)][-1]
    return (
        f"{name}: {executions(said):,} executions "
        f"({stats.get('average_exec_per_sec', '?')}/s), {edges} edges, {features} features, {kept} inputs kept, "
        f"at most {stats.get('peak_rss_mb', '?')} MiB"
    )


def _reason(said: str) -> str:
    found = _FIND.search(said)
    return (found[1] or found[2]).strip() if found else said[-2000:]


def fuzz(name: str, arguments: list[str]) -> None:
    """In the process of one target: never returns."""
    import atheris

    unconcerned = set(modules()).difference(CONCERNED[name])
    with atheris.instrument_imports(include=["shipper", "shipper_plugins"], exclude=unconcerned):
        from tests.hostile.frames import mutated
        from tests.hostile.seeds import SEEDS
        from tests.hostile.targets import TARGETS, within_time

    def change(content: bytes, limit: int, seed: int) -> bytes:
        """By libFuzzer, or as hostile frames are damaged: with what stands in JSON and YAML."""
        return atheris.Mutate(content, limit) if seed % 2 else mutated(Random(seed), content)[:limit]

    for seed in SEEDS[name]:
        (Path(arguments[-1]) / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    atheris.Setup([sys.argv[0], *arguments], within_time(TARGETS[name]), custom_mutator=change)
    atheris.Fuzz()


def modules() -> list[str]:
    """All modules of the product; imports its two packages only."""
    names = []
    for package in map(importlib.import_module, ("shipper", "shipper_plugins")):
        names += [package.__name__, *_below(list(package.__path__), package.__name__)]
    return names


def _below(paths: list[str], package: str) -> Iterator[str]:
    for module in pkgutil.iter_modules(paths):
        name = f"{package}.{module.name}"
        yield name
        if module.ispkg:
            yield from _below([f"{path}/{module.name}" for path in paths], name)


if __name__ == "__main__":
    sys.exit(main())
